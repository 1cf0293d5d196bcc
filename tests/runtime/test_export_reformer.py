"""Checkpoints of Hugging Face's Reformer, imported: the same logits under the same rotations, whatever the options."""
from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import ReformerConfig, ReformerForSequenceClassification, ReformerModel, ReformerModelWithLMHead
from transformers.utils import logging
from typer.testing import CliRunner

import plait
from plait.cli import app
from plait.compiler.lowering import tensors
from plait.dsl.errors import PlaitError
from plait.runtime.foreign import reformer

logging.set_verbosity_error()
torch.set_num_threads(1)
BASE = dict(hidden_size=16, num_attention_heads=2, attention_head_size=6, feed_forward_size=20, vocab_size=23, axial_pos_shape=[4, 8],
            axial_pos_embds_dim=[4, 12], max_position_embeddings=32, lsh_attn_chunk_length=4, local_attn_chunk_length=8, num_buckets=8,
            hidden_dropout_prob=0.1, attn_layers=["local", "lsh", "local", "lsh"], is_decoder=True)
OPTIONS: dict[str, dict] = {
    "mixed": {}, "lsh only": dict(attn_layers=["lsh"] * 2), "local only": dict(attn_layers=["local"] * 3),
    "no period": dict(attn_layers=["local", "local", "lsh"]), "rounds": dict(num_hashes=3),
    "factors": dict(num_hashes=2, num_buckets=[2, 4]),
    "buckets of their choice": dict(num_buckets=None), "both ways": dict(head=False, is_decoder=False, num_hashes=2, lsh_num_chunks_after=1,
                                                                         local_num_chunks_after=1),
    "learned positions": dict(axial_pos_embds=False, hidden_act="gelu"),
    "one chunk": dict(lsh_attn_chunk_length=32, local_attn_chunk_length=32),
    "pieces": dict(chunk_size_feed_forward=8, chunk_size_lm_head=4, hidden_dropout_prob=0.0, layer_norm_eps=1e-3),
    "no looking back": dict(lsh_num_chunks_before=0, local_num_chunks_before=0), "no whole chunks": dict(local_attn_chunk_length=6)}


def saved(folder, head: bool = True, **options) -> ReformerModel:
    """A random checkpoint; weights of a size at which every layer matters, and 10⁻⁶ beside a query is little."""
    torch.manual_seed(0)
    theirs = (ReformerModelWithLMHead if head else ReformerModel)(ReformerConfig(**{**BASE, **options}))
    with torch.no_grad():
        for name, p in theirs.named_parameters(): p.copy_(0.3 * torch.randn_like(p) + ("norm.weight" in name))
    theirs.save_pretrained(folder)
    return theirs.double().eval()


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_same_logits(options, tmp_path, monkeypatch):
    """In float64: theirs puts −10⁵ where a position sees only itself, and in float32 a sum of rounds loses its last digits beside that."""
    theirs = saved(tmp_path, **options)
    ours = reformer.loaded(reformer.read(tmp_path, "m")).double()
    drawn, real, normal = [], tensors.random, torch.randn

    def noted(*args):
        drawn.append(real(*args))
        return drawn[-1]
    monkeypatch.setattr(tensors, "random", noted)
    ours.forced = {"lsh_attention": "body"}
    n = ours.program.sizes.integer(ours.program.inputs[0].value.axes[1].size)
    text = torch.randint(0, 23, (2, n), generator=torch.Generator().manual_seed(0))
    with torch.no_grad(): got = ours(text)
    kinds = options.get("attn_layers", BASE["attn_layers"])
    hashed = kinds.count("lsh") if options.get("lsh_attn_chunk_length", 4) < n else 0
    count = len(drawn)

    def with_ours(shape, **_):
        """[heads, width, rounds, half], the factors side by side, from ours, [heads, rounds, width, half]."""
        parts = []
        while sum(p.shape[-1] for p in parts) < shape[-1]: parts.append(drawn.pop(0).permute(0, 2, 1, 3))
        return torch.cat(parts, -1).reshape(shape)
    monkeypatch.setattr(torch, "randn", with_ours)
    with torch.no_grad(): want = theirs(text, use_cache=False)
    monkeypatch.setattr(torch, "randn", normal)
    want = want.logits if options.get("head", True) else want.last_hidden_state
    assert count == hashed * (2 if isinstance(theirs.config.num_buckets, list | tuple) else 1)       # theirs chooses on its first call
    assert not drawn and want.abs().max() > 1
    assert torch.allclose(got, want, rtol=0, atol=1e-5), (got - want).abs().max()


def imported(folder, *options: object, code: int = 0) -> str:
    found = CliRunner().invoke(app, ["import", str(folder), *map(str, options)])
    assert found.exit_code == code and "Traceback" not in found.output, found.output
    return found.output


@pytest.mark.parametrize("form", ["model.safetensors", "pytorch_model.bin", "two files"])
def test_the_command(form, tmp_path):
    """A spec that can be read, checked and costed, and a file that gives the model; as many parameters as theirs."""
    theirs = saved(tmp_path / "Old-Model")
    one = tmp_path / "Old-Model" / "model.safetensors"
    weights = load_file(one)
    if form != "model.safetensors": one.unlink()
    if form == "pytorch_model.bin": torch.save(weights, one.with_name(form))
    if form == "two files":
        names = {k: f"model-{i % 2}.safetensors" for i, k in enumerate(weights)}
        for file in set(names.values()): save_file({k: weights[k] for k in weights if names[k] == file}, one.with_name(file))
        one.with_name("model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    out = imported(tmp_path / "Old-Model", "--out", tmp_path / "new")
    count = sum(p.numel() for p in theirs.parameters())
    assert f"{count:,} parameters" in out
    spec = plait.load(tmp_path / "new" / "old_model.plait")
    row, = spec.table().rows
    assert row.sizes.integer(row.params) == count
    m = plait.from_safetensors(tmp_path / "new" / "old_model.safetensors", compile=False)
    assert m(torch.zeros(1, 32, dtype=torch.long)).isfinite().all() and m.codec.size == 23
    for command in (["check"], ["fmt", "--check"]):
        assert CliRunner().invoke(app, [*command, str(tmp_path / "new" / "old_model.plait")]).exit_code == 0
    assert max(map(len, (tmp_path / "new" / "old_model.plait").read_text().splitlines())) < 250
    assert "is there already" in imported(tmp_path / "Old-Model", "--out", tmp_path / "new", code=1)


WRONG = {"hidden_act": "gelu_new", "tie_word_embeddings": True, "attn_layers": ["lsh", "full"], "num_buckets": [2, 2, 2],
         "axial_pos_shape": [2, 4, 4], "pruned_heads": {"0": [1]}, "lsh_num_chunks_before": 9, "hidden_size": "wide", "num_hashes": 0,
         "model_type": "bert"}


@pytest.mark.parametrize("option", WRONG)
def test_options_without_a_form_are_named(option, tmp_path):
    saved(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, option: WRONG[option]}))
    assert f"`{option}`" in imported(tmp_path, "--out", tmp_path / "new", code=1)
    assert not (tmp_path / "new").exists()


def test_what_is_no_checkpoint(tmp_path):
    assert "no folder" in imported(tmp_path / "absent", code=1)
    assert "config.json" in imported(tmp_path, code=1)
    saved(tmp_path / "torn")
    (tmp_path / "torn" / "model.safetensors").write_bytes(b"torn")
    assert "weights" in imported(tmp_path / "torn", "--out", tmp_path / "new", code=1)
    (tmp_path / "torn" / "model.safetensors").unlink()
    assert "no weights" in imported(tmp_path / "torn", "--out", tmp_path / "new", code=1)
    saved(tmp_path / "name")
    saved(tmp_path / "model")
    assert reformer.read(tmp_path / "model").model == "reformer_model"          # a word of the language
    assert "name of a model" in imported(tmp_path / "name", "--name", "model", "--out", tmp_path / "new", code=1)
    ReformerForSequenceClassification(ReformerConfig(**{**BASE, "is_decoder": False})).save_pretrained(tmp_path / "classifier")
    with pytest.raises(PlaitError, match="classifier"): reformer.read(tmp_path / "classifier")
    config = json.loads((tmp_path / "name" / "config.json").read_text())
    (tmp_path / "name" / "config.json").write_text(json.dumps({**config, "feed_forward_size": 21}))
    with pytest.raises(PlaitError, match="feed_forward.dense"): reformer.read(tmp_path / "name")
