"""`plait graph --plan`, `--kernel` and `--memory`: what is said is what runs; a run keeps what it was asked for."""
from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

import plait
from plait.compiler.graph import Graph
from plait.compiler.kernels import KERNELS, Target
from plait.compiler.plan import plan
from plait.compiler.prims import Region
from plait.dsl.errors import PlaitError

from .test_cli import ROOT, SPECS, run
from .test_runs import WORDS

LM = """plait 1
model lm {
  input text: tokens[16] of V
  dims { V }
  logits = text { embed(V, width = 8); repeat 2 { residual { lstm(8) }; residual(dropout = 0.5) { feed_forward(64) } }; linear(V) }
  output logits: [16, V]
}
train lm {
  data = text("words", split = (0.5, 0.5))
  loss = cross_entropy(logits, next(text))
  batch = 2 sequences
  lr = 0.01
  stop = 4 steps
}
"""


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "words").write_text(WORDS * 3)
    (tmp_path / "m.plait").write_text(LM)
    return tmp_path / "m.plait"


def claimed(graph: Graph) -> list[str]:
    return [n.op.kernel for n in graph.walk() if isinstance(n.op, Region) and n.op.kernel]


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_every_claim_of_every_spec_is_told(path):
    said = run("graph", path, "--plan").stdout
    loaded = plait.load(path)
    for name in loaded.models:
        program = loaded.program(name, loss=True)
        made = plan(program.loss or program.graph, program.sizes)
        told = [d.how for d in made.decisions if d.how in {k.name for k in KERNELS}]
        assert told == claimed(made.graph)
        assert f"{name}: " in said and all(re.search(rf"\b{k}\b", said) for k in told)


def test_why_another_kernel_runs():
    said = run("graph", ROOT / "specs" / "demo.plait", "--plan", "--kernel", "attention=body").stdout
    assert re.search(r"attention +body +asked for", said)
    chain = "attention(heads = 2, dropout = 0.1); attention(heads = 2, kernel = body)"
    text = f"plait 1\nmodel m {{ input x: stream[4, 8]\n y = x {{ {chain} }}\n output y: [4, 8] }}\n"
    program = plait.api.Spec("m", plait.files.opened(Path("m.plait"), text=text)).program("m")
    decided = [(d.what, d.how, d.why) for d in plan(program.graph, program.sizes, Target()).decisions if d.what == "attention"]
    assert decided == [("attention", "rowwise_attention", "scaled_dot_product_attention takes no dropout"),
                       ("attention", "body", "as the spec says")]


@pytest.mark.parametrize("kernel, words", [
    ("attentoin=body", "`attention`?"), ("attention=flash", "rowwise_attention or body"), ("attention", "rowwise_attention or body"),
    ("=body", "one of"), ("softmax=", "softmax or body")])
def test_kernels_that_are_not_there(spec, kernel, words):
    for command in ("graph", "train"):
        found = run(command, spec, "--kernel", kernel, code=1)
        assert "E0505" in found.stderr and words in found.stderr
    assert not (spec.parent / "runs").exists()
    region, _, name = kernel.partition("=")
    with pytest.raises(PlaitError): plait.compile(spec, set={"V": 9}, compile=False, kernels={region: name})


def test_a_run_keeps_its_plan(spec, tmp_path):
    """4 steps are 2 and 2, with the kernels and what is recomputed as at first; without a plan the losses are the same to rounding."""
    how = ("--kernel", "lstm=body", "--memory", "90KiB", "--eager")
    said = run("train", spec, *how, "--out", tmp_path / "whole").output
    assert "recomputed:" in said
    run("train", spec, *how, "--steps", 2, "--out", tmp_path / "half")
    about = json.loads((tmp_path / "half" / "run.json").read_text())["plan"]
    assert about["kernels"] == {"lstm": "body"} and about["recomputed"]
    run("resume", tmp_path / "half", "--eager")
    run("train", spec, "--eager", "--out", tmp_path / "plain")
    def weights(name):
        from safetensors.torch import load_file
        return load_file(next((tmp_path / name / "checkpoints").glob("*4/model.safetensors")))
    whole, half, plain = map(weights, ("whole", "half", "plain"))
    for k in whole:
        assert torch.equal(whole[k], half[k])
        torch.testing.assert_close(whole[k], plain[k], rtol=1e-3, atol=1e-5)


def test_a_batch_of_tokens_is_so_many_sequences(spec, tmp_path):
    """37 tokens are two sequences of 16."""
    tokens = ("--set", "train.batch=37 tokens")
    assert "a step of 2 sequences" in run("graph", spec, "--plan", "--set", "V=9", *tokens).stdout
    train = ("train", spec, *tokens, "--memory", "120KiB", "--eager", "--steps", 1)
    assert "to fit 120.00 KiB: lstm=body" in run(*train, "--out", tmp_path / "run").output
    said = run(*train, "--kernel", "lstm=lstm", "--out", tmp_path / "library").output
    assert "what the library's lstm keeps" in " ".join(said.split())             # a promise that is not derived is none


def test_what_a_plan_cannot_do_is_said(spec):
    assert "E0601" in run("graph", ROOT / "specs" / "table1.plait", "--model", "recurrent", "--memory", "1GiB", code=1).stderr
    with pytest.raises(PlaitError): plait.compile(ROOT / "specs" / "table1.plait", "recurrent", memory="1GiB")
    free = run("graph", ROOT / "specs" / "demo.plait", "--memory", "1GiB", code=1).stderr
    assert "needs a value for V\n" in free and "--set V=" in free
    dropped = run("graph", spec, "--plan", "--set", "V=9", "--kernel", "attention=body").stdout
    assert "no attention here" in dropped
    assert "E0505" in run("graph", spec, "--plan", "--out", "x.svg", code=1).stderr
    assert "what the library's lstm keeps" in run("graph", spec, "--plan", "--set", "V=9").stdout


@pytest.mark.parametrize("how", [dict(memory=1.5), dict(memory=-5), dict(memory=b"4GiB"), dict(memory="1GiB", batch=0),
                                 dict(memory="1GiB", batch=2.5), dict(kernels=["lstm"]), dict(kernels={"lstm": "nothing"})])
def test_wrong_arguments(spec, how):
    with pytest.raises(PlaitError): plait.compile(spec, set={"V": 9}, compile=False, **how)


def test_a_kernel_that_was_asked_for_and_cannot():
    text = "plait 1\nmodel m { input x: stream[4, 8]\n y = x { attention(heads = 2, dropout = 0.1, kernel = fused) }\n output y: [4, 8] }\n"
    program = plait.api.Spec("m", plait.files.opened(Path("m.plait"), text=text)).program("m")
    decided = next(d for d in plan(program.graph, program.sizes).decisions if d.what == "attention")
    assert decided.how == "body" and decided.why == "scaled_dot_product_attention, which was asked for, takes no dropout"


@pytest.mark.parametrize("damage", [{"kernels": {"gru": "bogus"}}, {"pieces": -3}, {"recomputed": 7}])
def test_a_damaged_plan_of_a_run(spec, tmp_path, damage):
    run("train", spec, "--eager", "--steps", 1, "--out", tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    about = json.loads(path.read_text())
    path.write_text(json.dumps({**about, "plan": {**about["plan"], **damage}}))
    assert "the plan cannot be read" in run("resume", tmp_path / "run", "--eager", code=1).stderr


def test_a_memory_that_is_too_small(spec, tmp_path):
    found = run("train", spec, "--memory", "10KiB", "--out", tmp_path / "run", code=1)
    assert "E0607" in found.stderr and "the least it needs is" in found.stderr and not (tmp_path / "run").exists()
    assert "E0607" in run("graph", spec, "--memory", "10KiB", "--set", "V=9", code=1).stderr
    assert "E0638" in run("graph", spec, "--memory", "1GiB", code=1).stderr                    # V has no value
    assert "E0615" in run("graph", spec, "--plan", "--device", "tpu", code=1).stderr


def test_a_module_fits(spec):
    module = plait.compile(spec, set={"V": 9}, compile=False, memory="90KiB", batch=2)
    plain = plait.compile(spec, set={"V": 9}, compile=False)
    module.load_state_dict(plain.state_dict())
    text = torch.randint(9, (2, 17))
    torch.manual_seed(3)
    ours = module.loss(text)
    torch.manual_seed(3)
    assert torch.allclose(ours, plain.loss(text), atol=1e-6)
    with pytest.raises(PlaitError): plait.compile(spec, set={"V": 9}, compile=False, memory="1KiB")
