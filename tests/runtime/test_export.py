"""A model outside plait: its weights in one file, its program in torch's and in ONNX's form, each against the module itself."""
from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from plait.compiler.expand import expand, open_file
from plait.compiler.layer import LAYERS
from plait.dsl.errors import PlaitError
from plait.dsl.parser import parse
from plait.runtime.foreign import program
from plait.runtime.module import Module

from .layers import call, of_layer

onnxruntime = pytest.importorskip("onnxruntime")
SPECS = {
    "transformer": "repeat 2 { residual { attention(heads = 2, causal = true, dropout = 0.1) }; residual { feed_forward(12) } }",
    "reformer": "positions(axial, grid = (2, 4), widths = (2, 6)); reversible(repeat = 2) { "
                "attend: { layer_norm; lsh_attention(heads = 2, chunk = 4, causal = true) }; "
                "feed: { chunked(over = n, pieces = 2) { layer_norm; linear(d); gelu; linear(d) } } }",
    "stacked": "repeat 2 as i { conv(d, kernel = 2, dilation = 2^i, causal = true) }; lstm(d, layers = 2, direction = both); linear(d)",
    "rotary": "positions(rotary); attention(heads = 2, window = 3, kv_heads = 1); lsh_attention(heads = 2, chunk = 3, buckets = (2, 2))",
}


def made(text: str, model: str = "m") -> Module:
    torch.manual_seed(0)
    return Module(expand(open_file(parse(text)), model), compile=False).eval()


def of_chain(chain: str, n: str = "n = 7", padded: bool = False) -> str:
    return (f"plait 1\ndims {{ {n}; d = 8 }}\nmodel m {{\n  input x: tokens[n] of 11{' padded' if padded else ''}\n"
            f"  y = x {{ embed(11, width = d); {chain}; linear(5) }}\n  output y: [n, 5]\n}}\n")


CASES = [*(pytest.param(of_layer(name), id=name) for name in LAYERS), *(pytest.param(of_chain(c), id=k) for k, c in SPECS.items())]


def given(m: Module, batch: int, n: int | None = None) -> list[torch.Tensor]:
    """Some inputs, with a mask behind each that is padded."""
    g, found = torch.Generator().manual_seed(1), []
    for i in m.program.inputs:
        shape = [batch, *(m.program.sizes.integer(a.size) or n for a in i.value.axes[1:])]
        classes = m.program.sizes.integer(i.classes) if i.classes is not None else None
        found.append(torch.randn(shape, generator=g) if classes is None else torch.randint(0, classes, shape, generator=g))
        if i.mask is not None: found.append(torch.arange(shape[1]) < torch.randint(1, shape[1] + 1, (batch, 1), generator=g))
    return found


def want(m: Module, inputs: list[torch.Tensor]) -> torch.Tensor:
    names = [n for i in m.program.inputs for n in (i.name, *([f"{i.name}_mask"] if i.mask is not None else []))]
    with torch.no_grad(): return m(**dict(zip(names, inputs)))


def run_onnx(content: bytes, inputs: list[torch.Tensor]) -> torch.Tensor:
    session = onnxruntime.InferenceSession(content)
    return torch.from_numpy(session.run(None, {i.name: x.numpy() for i, x in zip(session.get_inputs(), inputs, strict=True)})[0])


@pytest.mark.parametrize("text", CASES)
def test_torch_export(text, tmp_path):
    """Every layer, and models of them: the saved program gives the module's numbers, whatever the batch."""
    m = made(text)
    (tmp_path / "m.pt2").write_bytes(program.pt2(m))
    found = torch.export.load(tmp_path / "m.pt2").module()
    for batch in (1, 5):
        inputs = given(m, batch)
        assert torch.allclose(found(*inputs), want(m, inputs), rtol=0, atol=1e-5)


ONNX = ["attention", "lsh_attention", "gru", "positions", "pool", "separable_conv", "transformer"]      # all: proof/test_onnx.py


@pytest.mark.parametrize("text", [p for p in CASES if p.id in ONNX])
def test_onnx(text):
    m = made(text)
    content = program.onnx(m)
    for batch in (1, 5):
        inputs = given(m, batch)
        assert torch.allclose(run_onnx(content, inputs), want(m, inputs), rtol=0, atol=1e-4)


@pytest.mark.parametrize("chain", ["attention(heads = 2, causal = true)", "positions(sinusoidal); conv(d, kernel = 3); pool(mean)"])
def test_a_free_length(chain):
    """Both forms take every length that the spec allows."""
    text = of_chain(chain, "n <= 40", padded=True)
    m = made(text.replace("[n, 5]", "[5]") if "pool" in chain else text)
    found, content = program.exported(m).module(), program.onnx(m)
    for batch, n in ((1, 2), (2, 9), (3, 40)):
        inputs = given(m, batch, n)
        assert torch.allclose(found(*inputs), want(m, inputs), rtol=0, atol=1e-5)
        assert torch.allclose(run_onnx(content, inputs), want(m, inputs), rtol=0, atol=1e-4)


@pytest.mark.parametrize("chain", ["gru(d)", "chunked(over = n, pieces = 4) { linear(d) }"])
def test_what_is_unrolled_needs_a_length(chain):
    with pytest.raises(PlaitError, match="unrolled") as why: program.exported(made(of_chain(chain, "n <= 40")))
    assert why.value.diagnostics[0].code == "E0660" and "--set n=" in why.value.diagnostics[0].help


def test_rotations_are_constants_of_one_length():
    with pytest.raises(PlaitError, match="rotations"): program.onnx(made(of_chain("lsh_attention(heads = 2, chunk = 4)", "n <= 40")))


def test_a_long_loop_is_refused():
    """A padded recurrence is a loop of plait's own."""
    with pytest.raises(PlaitError, match="2,000 trips"): program.exported(made(of_chain("gru(d)", "n = 2000", padded=True)))


def test_a_missing_package(monkeypatch):
    monkeypatch.setattr(program, "find_spec", lambda name: None)
    with pytest.raises(PlaitError, match="onnx and onnxscript"): program.onnx(made(of_layer("relu")))


# ---- a run ---------------------------------------------------------------------------------------------------------------------
RUN = """plait 1
dims { V; n = 8; d = 4 }
share tok = embedding(V, d)
model lm {
  input text: tokens[n] of V
  logits = text { embed(tok); positions(learned); residual { attention(heads = 2, causal = true, dropout = 0.1) }; unembed(tok) }
  output logits: [n, V]
}
train lm {
  data = text("words")
  loss = cross_entropy(logits, next(text))
  batch = 2 sequences
  lr = 0.1
  stop = 6 steps
  every 2 steps { evaluate(loss, accuracy); checkpoint(keep = 9, best = accuracy) }
}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    import plait
    folder = tmp_path_factory.mktemp("exported")
    (folder / "words").write_text("abcd\n" * 40)
    (folder / "m.plait").write_text(RUN)
    plait.train(folder / "m.plait", out=folder / "run", device="cpu", compile=False)
    (folder / "words").unlink()
    return folder / "run"


def exported(run, *options: object, code: int = 0) -> str:
    from typer.testing import CliRunner

    from plait.cli import app
    found = CliRunner().invoke(app, ["export", str(run), *map(str, options)])
    assert found.exit_code == code and "Traceback" not in found.output, found.output
    return found.output


def test_load_run(run):
    """Trained weights, evaluation mode, the vocabulary; an ordinary module."""
    import plait
    from plait.runtime import checkpoint
    m = plait.load_run(run, compile=False)
    weights = checkpoint._load_tensors(checkpoint.place(run, 6) / checkpoint.WEIGHTS)
    assert all(torch.equal(weights[k], v) for k, v in m.state_dict().items()) and weights.keys() == m.state_dict().keys()
    assert not m.training and m.step == 6 and m.codec.decode(m.codec.encode("abc")) == "abc"
    assert not torch.equal(plait.load_run(run, compile=False, step=2).state_dict()["tok"], m.state_dict()["tok"])


def test_safetensors(run, tmp_path):
    """Spec paths as keys, a shared table once; the file alone gives the model back, and so do its spec and `load_state_dict`."""
    from safetensors import safe_open
    from safetensors.torch import load_file

    import plait
    path = tmp_path / "m.safetensors"
    assert "step 6" in exported(run, "--out", path)
    m, text = plait.load_run(run, compile=False), torch.randint(0, 5, (2, 8))
    again = plait.from_safetensors(path, compile=False)
    assert torch.equal(again(text), m(text)) and again.codec == m.codec and again.step == 6
    with safe_open(path, "pt") as file: facts = file.metadata()
    assert facts["model"] == "lm" and json.loads(facts["vocabulary"])["characters"] == "\nabcd"
    tensors = load_file(path)
    assert set(tensors) == {"tok", "logits.1.weight", *(f"logits.2.{k}" for k in ("norm.scale", "norm.shift")),
                            *(f"logits.2.0.{k}{b}" for k in ("query", "key", "value", "out") for b in ("", "_bias"))}
    (tmp_path / "m.plait").write_text(facts["spec"])
    plain = plait.compile(tmp_path / "m.plait", compile=False)
    plain.load_state_dict(tensors)
    assert torch.equal(plain.eval()(text), m(text))


def test_which_checkpoint(run, tmp_path):
    """As `evaluate` and `sample` take them: --best is what checkpoint(best = METRIC) kept."""
    import plait
    from plait.runtime import listing
    found = {r["step"]: r["accuracy"] for r in listing.rows(run) if r["split"] == "validation"}
    best = max(found, key=found.get)
    for options, step in ((("--step", 2), 2), (("--best",), best), ((), 6)):
        exported(run, "--out", tmp_path / f"{step}.safetensors", *options)
        assert plait.from_safetensors(tmp_path / f"{step}.safetensors", compile=False).step == step
    assert "has no checkpoint of step 3" in exported(run, "--step", 3, code=1)
    assert "is one" in exported(run, "--step", 2, "--best", code=1)
    means = exported(run, "--average", 2, "--out", tmp_path / "mean.safetensors")
    assert "steps 4, 6" in means
    kept = [plait.load_run(run, compile=False, step=s).state_dict() for s in (4, 6)]
    for name, t in plait.from_safetensors(tmp_path / "mean.safetensors", compile=False).state_dict().items():
        assert torch.allclose(t, (kept[0][name] + kept[1][name]) / 2)


def test_a_script_with_torch_alone(run, tmp_path):
    """The program is loaded where plait cannot be imported, and gives the module's logits."""
    import plait
    exported(run, "--to", "torch.export", "--out", tmp_path / "m.pt2")
    text = torch.randint(0, 5, (3, 8))
    torch.save(text, tmp_path / "text.pt")
    script = ("import sys, torch\nsys.modules['plait'] = None\nfound = torch.export.load('m.pt2').module()\n"
              "torch.save(found(torch.load('text.pt')), 'logits.pt')\n")
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
    with torch.no_grad(): want = plait.load_run(run, compile=False)(text)
    assert torch.allclose(torch.load(tmp_path / "logits.pt"), want, rtol=0, atol=1e-5)


def test_a_run_as_onnx(run, tmp_path):
    import plait
    exported(run, "--to", "onnx", "--out", tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    text = torch.randint(0, 5, (3, 8))
    found, = session.run(["logits"], {"text": text.numpy()})
    with torch.no_grad(): assert np.abs(found - plait.load_run(run, compile=False)(text).numpy()).max() < 1e-4


def test_a_file_of_weights_is_exported_as_a_run(run, tmp_path):
    exported(run, "--out", tmp_path / "m.safetensors")
    exported(tmp_path / "m.safetensors", "--to", "torch.export")
    text = torch.randint(0, 5, (3, 8))
    import plait
    with torch.no_grad(): want = plait.load_run(run, compile=False)(text)
    assert torch.allclose(torch.export.load(tmp_path / "lm.pt2").module()(text), want, rtol=0, atol=1e-5)
    assert "no checkpoints" in exported(tmp_path / "m.safetensors", "--best", code=1)


def test_what_cannot_be_read_or_written(run, tmp_path):
    import plait
    assert "no form" in exported(run, "--to", "gguf", code=1)
    assert "is a folder" in exported(run, "--out", tmp_path, code=1)
    assert "not the folder of a run" in exported(tmp_path, code=1)
    (tmp_path / "torn.safetensors").write_bytes(b"\x08" + bytes(40))
    from safetensors.torch import save_file
    save_file({"x": torch.ones(1)}, tmp_path / "other.safetensors")
    for name in ("torn", "other", "absent"):
        with pytest.raises(PlaitError) as why: plait.from_safetensors(tmp_path / f"{name}.safetensors")
        assert why.value.diagnostics[0].code == "E0661"


def test_call_is_generated(): assert call("attention")       # a layer of the registry without a call here would not be covered
