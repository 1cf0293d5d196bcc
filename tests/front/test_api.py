"""The Python entry points."""
from pathlib import Path

import pytest
import torch

import plait
from plait.compiler.costs.params import params

SPECS = Path(__file__).parents[2] / "specs"


@pytest.mark.parametrize("model, count", [("rnn", 637_845), ("lstm", 637_550), ("gru", 635_835), ("cnn", 639_273),
                                          ("transformer", 637_156)])
def test_five_way(model, count):
    """Parameters derived and held are those of the comparison; one step of each has a finite loss and a gradient everywhere."""
    module = plait.compile(SPECS / "five_way.plait", model, compile=False)
    program = module.program
    assert sum(p.numel() for p in module.parameters()) == program.sizes.value(params(program.graph)) == count
    loss = module.loss(torch.randint(100, (2, 129)))
    loss.backward()
    assert loss.isfinite() and all(p.grad is not None for p in module.parameters())


SMALL = {"reformer": {"n": 64, "d": 16, "h": 2, "L": 2, "c": 8, "p": 4, "g": 8, "R": 2},
         "reformer_table1": {"l": 64, "h": 2, "k": 4, "c": 16, "R": 2},
         "reformer_table3": {"l": 64, "d": 16, "h": 2, "L": 2, "c": 16, "R": 2, "p": 4},
         "table1": {"n": 20, "d": 8, "k": 3, "r": 4}, "transformer_base": {"V": 50, "m": 6, "n": 5, "d": 16, "h": 2, "L": 2},
         "images": {"s": 3, "d": 8, "h": 2}, "chorales": {"n": 8, "d": 16}, "enwik8": {"n": 8, "d": 16, "L": 2},
         "imagenet64": {"s": 2, "d": 8, "h": 2, "L": 2, "c": 2, "p": 4, "R": 2},
         "translation": {"V": 50, "m": 6, "n": 5, "d": 16, "h": 2, "L": 2},
         "enwik8_local": {"n": 8, "d": 8, "h": 2, "L": 2, "w": 3, "c": 2, "p": 4, "g": 4, "R": 2},
         "demo": {"V": 20}, "shakespeare": {}, "duplication": {}, "five_way": {"n": 16}}


@pytest.mark.parametrize("spec", sorted(p.stem for p in SPECS.glob("*.plait")))
def test_every_model_of_every_spec_runs(spec):
    """At small sizes: outputs of the declared shape, numel as derived, and, where there is a loss, gradients."""
    loaded = plait.load(SPECS / f"{spec}.plait", SMALL[spec])
    for name in loaded.models:
        torch.manual_seed(0)
        module = plait.compile(loaded, name, compile=False)
        program = module.program
        assert sum(p.numel() for p in module.parameters()) == program.sizes.value(params(program.graph))
        def drawn(v, i, program=program):
            shape = [2 if a.role == "batch" else program.sizes.integer(a.size) for a in v.axes]
            return torch.randn(shape) if v.kind == "real" else torch.randint(program.sizes.integer(i.classes), shape)
        y = module(*(drawn(i.value, i) for i in program.inputs))
        want = [2, *(program.sizes.integer(a.size) for a in program.graph.outs[0].axes if a.role != "batch")]
        assert list(y.shape) == want and y.isfinite().all()
        if program.loss is None: continue
        named = {v.name: v for v in program.loss.ins}
        loss = module.loss(*(drawn(named[i.name], i) for i in program.inputs))
        loss.backward()
        assert loss.isfinite() and all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())


def test_future_symbols_have_no_influence():
    """The logits at t do not move when a later symbol does: the language models of the shipped specs."""
    for spec, model in (("shakespeare", None), ("demo", None), ("five_way", "transformer"), ("five_way", "cnn"), ("five_way", "gru"),
                        ("duplication", "full")):
        torch.manual_seed(0)
        module = plait.compile(plait.load(SPECS / f"{spec}.plait", SMALL[spec]), model, compile=False).eval()
        text, sizes = module.program.inputs[0], module.program.sizes
        n, V = sizes.integer(text.value.axes[1].size), sizes.integer(text.classes)
        a = torch.randint(V, (1, n))
        b = a.clone()
        b[0, n // 2:] = torch.randint(V, (n - n // 2,))
        torch.testing.assert_close(module(a)[0, :n // 2], module(b)[0, :n // 2], rtol=1e-5, atol=1e-5)


def test_inputs_by_name_and_an_ordinary_module(tmp_path):
    module = plait.compile(SPECS / "shakespeare.plait", compile=False)
    x = torch.randint(65, (2, 64))
    torch.testing.assert_close(module(x), module(text=x))
    assert {"tok", "logits.2.0.0.1.query", "logits.2.3.1.1.in.weight", "logits.1.weight"} <= set(module.state_dict())
    torch.save(module.state_dict(), tmp_path / "w.pt")
    other = plait.compile(SPECS / "shakespeare.plait", compile=False)
    other.load_state_dict(torch.load(tmp_path / "w.pt"))
    torch.testing.assert_close(other(x), module(x))
    assert module.double()(x).dtype == torch.float64


def test_a_table_in_python():
    table = plait.load(SPECS / "table1.plait", {"n": 512}).table()
    assert table.json()["rows"][0]["work"]["value"] == 2 * 512**3
    assert str(table).splitlines()[1].startswith("model") and "<table>" in table._repr_html_()
    with pytest.raises(plait.PlaitError, match="there is no model"): plait.load(SPECS / "table1.plait").table(model="x")


def test_too_many_copies(tmp_path):
    """cases: L = 10^9 prints its table; building refuses at once."""
    path = tmp_path / "big.plait"
    path.write_text("plait 1\ndims { n = 8; d = 4; L = 10^9 }\nmodel m { input x: stream[n, d]\n"
                    "y = x { repeat L { linear(d) } }\noutput y: [n, d] }\n")
    assert plait.load(path).table().rows[0].params is not None
    with pytest.raises(plait.PlaitError, match="at most 100,000 copies"): plait.compile(path)
    with pytest.raises(plait.PlaitError, match="GiB"): plait.compile(path, set={"L": 2, "d": 10**6})


def test_overrides_add_up(tmp_path):
    """What a Spec was loaded with holds when it is compiled with more."""
    path = tmp_path / "a.plait"
    path.write_text("plait 1\ndims { n = 4; d = 8; q = 8 }\n"
                    "model m { input x: stream[n, d]\ny = x { linear(q, bias = false) }\noutput y: [n, q] }\n")
    weight, = plait.compile(plait.load(path, set={"d": 16}), set={"q": 5}, compile=False).parameters()
    assert tuple(weight.shape) == (5, 16)


DEMO = SPECS / "demo.plait"
WRONG = {
    "no path": lambda: plait.load(None), "a number for a path": lambda: plait.load(5), "bytes for a path": lambda: plait.load(b"a.plait"),
    "a text for overrides": lambda: plait.load(DEMO, set="V=3"), "a list for overrides": lambda: plait.load(DEMO, set=[1]),
    "a number for a name": lambda: plait.load(DEMO, set={1: 2}), "a model's number": lambda: plait.compile(DEMO, model=3),
    "a model's number in a table": lambda: plait.load(DEMO).table(model=3), "nothing to compile": lambda: plait.compile(None),
    "overrides of a spec": lambda: plait.compile(plait.load(DEMO), set="V=3"), "true memory": lambda: plait.compile(DEMO, memory=True),
    "half a sequence": lambda: plait.compile(DEMO, batch=0.5), "no sequence": lambda: plait.compile(DEMO, batch=0),
    "the text of a step": lambda: plait.load_run("run", step="3"), "a step before the first": lambda: plait.load_run("run", step=-1),
    "true step": lambda: plait.load_run("run", step=True), "a run's number": lambda: plait.load_run(5),
    "overrides of a run": lambda: plait.load_run("run", set="V=3"), "no file": lambda: plait.from_safetensors(None),
    **{f"train {k} = {v!r}": (lambda k=k, v=v: plait.train(DEMO, **{k: v})) for k, v in (
        ("steps", 1.5), ("steps", "3"), ("steps", 0), ("steps", -1), ("steps", True), ("memory", True), ("memory", 1.5), ("memory", 0),
        ("set", "V=3"), ("model", 3), ("out", 5), ("console", 5), ("kernels", 5), ("shard", 5))},
    "nothing to train": lambda: plait.train(None),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_argument_is_a_sentence_before_anything_is_written(wrong, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(plait.PlaitError) as caught: WRONG[wrong]()
    (found,) = caught.value.diagnostics
    assert found.code == "E0505" and found.help, found
    assert not list(tmp_path.iterdir())
