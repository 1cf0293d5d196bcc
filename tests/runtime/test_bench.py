"""Models measured in turn: rounds, quotients, a recurrence as a loop, `plait bench`."""
from __future__ import annotations

import json
import math

import pytest
import torch
from typer.testing import CliRunner

import plait
from plait import files
from plait.cli import app
from plait.compiler.expand import expand
from plait.dsl.errors import PlaitError
from plait.runtime.laboratory.bench import LOOP, measure
from plait.runtime.laboratory.steps import Subject, batch_of
from plait.runtime.laboratory.turns import Times, in_turn, ratio, unsteady
from plait.runtime.module import Module

from .two_models import SPEC, run, written

torch.set_num_threads(1)
CPU = torch.device("cpu")


@pytest.fixture
def spec(tmp_path): return written(tmp_path)


# -- in turn ------------------------------------------------------------------------------------------------------------------------
def test_every_round_runs_each_once():
    done: list[str] = []
    times = in_turn({name: lambda name=name: done.append(name) for name in "abc"}, rounds=3, warm=1)
    assert "".join(done) == "abc" + "abc" * 3
    assert all(len(t.each) == 3 and min(t.each) >= 0 for t in times.values())


def test_medians_and_quartiles():
    t = Times((4.0, 1.0, 3.0, 2.0, 5.0))
    assert (t.median, t.low, t.high) == (3.0, 2.0, 4.0)
    # quotients 4, 1/2 and 3: their median, not 3/2 of the medians
    assert ratio(Times((4.0, 1.0, 3.0)), Times((1.0, 2.0, 1.0))) == 3.0
    assert Times((2.0,)).low == 2.0


def test_a_ratio_that_moves_is_told():
    """The first goes from 1 to 2, the other stays: their ratio has doubled from one half to the other."""
    moving, still = Times((1.0, 1.0, 2.0, 2.0)), Times((1.0, 1.0, 1.0, 1.0))
    assert unsteady([(moving, still)]) == 1 / math.sqrt(2) == unsteady([(still, moving)])
    assert unsteady([(moving, Times((3.0, 3.0, 6.0, 6.0)))]) == 0.0             # the machine slowed down, and both with it


# -- a recurrence as a loop ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru"])
def test_a_python_loop_is_the_same_function(kind):
    text = SPEC.replace("gru(d)", f"{kind}(d)").replace("V <= 128", "V = 11")
    p = expand(files.opened("m.plait", text=text), "first", loss=True)
    given, found = batch_of(p, 3), []
    for how in ({}, {"kernels": {kind: "body"}, "loops": True}):
        torch.manual_seed(0)
        module = Module(p, compile=False, **how).train()
        loss = module.loss(*given)
        loss.backward()
        found.append((loss.detach(), [q.grad for q in module.parameters()]))
    torch.testing.assert_close(found[0], found[1])


def test_a_python_loop_records_every_step():
    """What autograd records grows with the number of steps, which a scan's record does not."""
    def recorded(n: int, **how) -> int:
        p = expand(files.opened("m.plait", text=SPEC.replace("V <= 128", "V = 11").replace("n = 8", f"n = {n}")), "first", loss=True)
        todo, seen = [Module(p, compile=False, kernels={"gru": "body"}, **how).train().loss(*batch_of(p, 2)).grad_fn], set()
        while todo:
            fn = todo.pop()
            if fn is not None and fn not in seen: seen.add(fn); todo += [f for f, _ in fn.next_functions]
        return len(seen)
    assert recorded(16, loops=True) >= recorded(8, loops=True) + 8 * 5
    assert recorded(16) == recorded(8)


# -- bench --------------------------------------------------------------------------------------------------------------------------
def test_a_bench_holds_every_model_at_every_length(spec):
    found = json.loads(run("bench", spec, "--set", "V=11", "--lengths", "4,8", "--batch", "2", "--rounds", "2", "--eager", "--also",
                           "python-loop", "--against", "second", "--json"))
    assert {(r["model"], r["length"]) for r in found["rows"]} == {
        (m, n) for m in ("first", "first, eager", f"first, {LOOP}", "second") for n in (4, 8)}
    assert all(len(r["each"]) == 2 and r["low"] <= r["median"] <= r["high"] for r in found["rows"])
    second = {r["length"]: r for r in found["rows"] if r["model"] == "second"}
    # 2 sequences of n positions: 8·32 + 32·8 + 8·11 products forward, and two more for each in backward
    assert {n: r["work"] for n, r in second.items()} == {n: 2 * n * (256 + 256 + 88) * 3 for n in (4, 8)}
    assert all(r["ratio"] == 1.0 for r in second.values())
    first = {r["length"]: r["depth"] for r in found["rows"] if r["model"] == "first"}
    assert first[8] - first[4] >= 4                            # a recurrence is a step deeper for each position, at least


def test_tokens_held_fixed():
    p = {n: expand(files.opened("m.plait", text=SPEC.replace("V <= 128", "V = 11").replace("n = 8", f"n = {n}")), "second", loss=True)
         for n in (4, 16)}
    file = files.opened("m.plait", text=SPEC)
    found = measure({("second", n): Subject(file, q, 32 // n, {}, False) for n, q in p.items()}, rounds=1, device=CPU, against="second")
    assert found.batch == (8, 2) and len({r.work for r in found.rows}) == 1


def test_results_are_kept_and_drawn(spec, tmp_path):
    found = plait.bench(spec, lengths=[4, 8], batch=2, models=["second"], set={"V": 11}, rounds=1, compile=False, results=tmp_path / "r",
                        say=lambda text: None)
    assert {p.name for p in (tmp_path / "r").iterdir()} == {"bench.json", "bench.txt", "bench.svg"}
    kept = json.loads((tmp_path / "r" / "bench.json").read_text())
    assert [r["each"] for r in kept["rows"]] == [list(r.times.each) for r in found.rows]
    assert repr(found) == "Bench(second: at 4, 8, 1 rounds)"                      # short, where an interpreter shows it


@pytest.mark.parametrize("args, said", [
    (("--lengths", "4,x"), "x"), (("--lengths", "0"), "no count"), (("--model", "frist"), "`first`?"), (("--against", "nobody"), "nobody"),
    (("--also", "magic"), "python-loop"), (("--by", "q"), "q"), ((), "`V` has no value"), (("--set", "V=11", "--tokens", "many"), "many")])
def test_what_cannot_be_benched_is_said(spec, args, said):
    found = CliRunner().invoke(app, ["bench", str(spec), "--rounds", "1", "--eager", *args])
    assert found.exit_code == 1 and said in found.output and "Traceback" not in found.output


def test_files_of_one_name_are_told_apart(tmp_path):
    for folder, d in (("a", 4), ("b", 8)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "m.plait").write_text(SPEC.replace("V <= 128", "V = 11").replace("d = 8", f"d = {d}"))
    found = json.loads(run("bench", tmp_path / "a" / "m.plait", tmp_path / "b" / "m.plait", "--rounds", "1", "--eager", "--batch", "2",
                           "--model", "second", "--json"))
    assert len(found["rows"]) == 2 and len({r["work"] for r in found["rows"]}) == 2
    assert found["unsteady"] is None and found["noisy"] is None                  # one round tells nothing of noise


@pytest.mark.parametrize("args, said", [(("--lengths", "3,8", "--tokens", "16"), "no whole number"), (("--tokens", "8,16"), "list"),
                                        (("--batch", "99999999999"), "GiB"), (("--by", "q"), "q")])
def test_a_bench_that_would_not_be_what_was_asked(spec, args, said):
    found = CliRunner().invoke(app, ["bench", str(spec), "--set", "V=11", "--rounds", "1", "--eager", *args])
    assert found.exit_code == 1 and said in " ".join(found.output.split()) and "Traceback" not in found.output


@pytest.mark.parametrize("call", [
    lambda p: plait.bench(), lambda p: plait.bench(p, tokens="32Ki"), lambda p: plait.bench(p, models=[1]),
    lambda p: plait.bench(p, against=1),
    lambda p: plait.bench(p, kernels="x"), lambda p: plait.bench(p, say=3), lambda p: plait.bench(p, tokens=0),
    lambda p: plait.compare(p, seeds="one"), lambda p: plait.compare(p, lr=["x"]), lambda p: plait.compare(p, name=3),
    lambda p: plait.compare(p, models=[1]), lambda p: plait.evaluate(p, 1), lambda p: plait.evaluate(p, average=0)])
def test_what_a_script_gives_wrong(spec, call):
    with pytest.raises(PlaitError): call(spec)
