"""Models brought to one size and compared on one budget: `fit`, the compare block, an experiment's folder, `plait compare`."""
from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from plait import files
from plait.cli import app
from plait.compiler.costs.params import params
from plait.compiler.equal import Equal, equal
from plait.compiler.expand import expand
from plait.dsl.errors import PlaitError
from plait.dsl.parser import parse_expression
from plait.runtime.comparison import Comparison, Fit, comparison
from plait.runtime.folder import rows
from plait.runtime.formula import Formula, Scope
from plait.runtime.laboratory.compare import Experiment
from plait.runtime.laboratory.outcome import Compared, Patience, Point, Trained, curve
from plait.runtime.laboratory.turns import Times
from plait.runtime.recipe import Amount

from .two_models import SPEC, run, written

torch.set_num_threads(1)
SPECS = Path(__file__).parents[2] / "specs"
CPU = torch.device("cpu")


@pytest.fixture
def spec(tmp_path): return written(tmp_path)


# -- one size -----------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("model, by, value, count", [("rnn", "R", 683, 637_845), ("lstm", "S", 325, 637_550), ("gru", "G", 381, 635_835),
                                                     ("cnn", "C", 171, 639_273), ("transformer", None, None, 637_156)])
def test_the_five_models_of_one_size(model, by, value, count):
    """The published widths and parameters, found from the parameters."""
    found = equal(files.opened(SPECS / "five_way.plait"), model, count, ["R", "S", "G", "C"])
    assert found.count == count and found.by == (None if by is None else (by, value))


def test_the_nearest_size_that_the_spec_allows():
    """12·d² of a transformer's layer: d is a multiple of its 4 heads."""
    found = equal(files.opened(SPECS / "five_way.plait"), "transformer", 2_000_000, ["d"])
    assert found.by is not None and found.by[1] % 4 == 0
    programs = (expand(files.opened(SPECS / "five_way.plait", files.overrides({"d": found.by[1] + k})), "transformer") for k in (-4, 4))
    others = [p.sizes.integer(params(p.graph)) for p in programs]
    assert all(abs(found.count - 2_000_000) <= abs(c - 2_000_000) for c in others)


@pytest.mark.parametrize("dims, layer, target, value, count", [
    ("e = d / 3", "rnn(e)", 20_000, 150, 20_100),              # tables 50·d + e·50; d·e + e² + e, where no power of two is whole
    ("require d % 256 == 0", "linear(d)", 18_260_252, 4096, 17_190_912)])         # d² + d + 100·d: far from the exact value
def test_sizes_that_few_values_have(dims, layer, target, value, count):
    """Against every value by brute force, where the module's own parameters are counted."""
    text = f"""plait 1
dims {{ V = 50; n = 4; d = 768; {dims} }}
model m {{ input text: tokens[n] of V; logits = text {{ embed(V, width = d); {layer}; unembed(V) }}; output logits: [n, V] }}
"""
    found = equal(files.opened("m.plait", text=text), "m", target, ["d"])
    assert (found.by, found.count) == (("d", value), count)

    def modules(d: int) -> int:
        inner = torch.nn.RNN(d, d // 3, bias=False) if "rnn" in layer else torch.nn.Linear(d, d)
        wide = d // 3 if "rnn" in layer else d
        return sum(p.numel() for p in inner.parameters()) + wide * ("rnn" in layer) + 50 * (d + wide)
    step = 3 if "rnn" in layer else 256
    assert value == min(range(step, 8192, step) if step > 3 else range(3, 300, 3), key=lambda d: abs(modules(d) - target))


@pytest.mark.parametrize("by, code", [(["nothing"], "E0401"), (["d"], "E0638")])
def test_no_size_is_said(spec, by, code):
    with pytest.raises(PlaitError) as wrong: equal(files.opened(spec), "first", 1000, by)
    assert wrong.value.diagnostics[0].code == code


# -- the block ----------------------------------------------------------------------------------------------------------------------
def block(text: str, **asked: str) -> Comparison:
    return comparison(files.opened("m.plait", text=SPEC + text), None, asked)


def test_a_block_and_what_is_asked_before_it():
    text = "compare c { models = [second, first]; fit = params(2k, by = d); seeds = [1, 2]; budget = 4k steps; lr = [1e-3, 1e-2]; "
    found = block(text := text + "patience = 3 }")
    assert found == Comparison("c", ("second", "first"), Fit(2000, ("d",)), (1, 2), Amount(4000, "steps"), (1e-3, 1e-2), 3)
    assert block(text, budget="1.5 minutes", seeds="7").budget == Amount(1.5, "minutes")
    assert block("") == Comparison()


@pytest.mark.parametrize("text", ["seed = 3", "seeds = []", "seeds = [1, 1]", "models = [frist]", "models = [first, first]", "budget = 4",
                                  "budget = 4 epochs", "fit = params(2M)", "fit = size(2M, by = d)", "lr = [-1]", "patience = 0",
                                  "fit = params(2M, by = 4)", "seeds = [1]; seeds = [2]"])
def test_a_wrong_block_is_told_with_its_place(text):
    with pytest.raises(PlaitError) as wrong: block(f"compare c {{ {text} }}")
    assert wrong.value.diagnostics[0].span is not None
    assert CliRunner().invoke(app, ["explain", wrong.value.diagnostics[0].code]).exit_code == 0


def test_check_tells_what_cannot_be_compared(spec):
    spec.write_text(SPEC.replace("  every 2 steps { evaluate(loss) }\n", "") + "compare c { seeds = [1, 2] }\n")
    found = CliRunner().invoke(app, ["check", str(spec)])
    assert found.exit_code == 1 and "evaluates no loss" in found.output and "m.plait:14" in found.output


def test_check_reads_compare_blocks(spec):
    spec.write_text(SPEC + "compare c { models = [frist] }\n")
    found = CliRunner().invoke(app, ["check", str(spec)])
    assert found.exit_code == 1 and "`first`?" in found.output


# -- an experiment ------------------------------------------------------------------------------------------------------------------
def experiment(spec: Path, folder: Path, wanted: Comparison, say=lambda line: None):
    return Experiment(files.opened(spec), spec.parent, wanted, folder, device=CPU, compile=False, rounds=2, say=say)


def test_an_experiment_that_was_stopped_goes_on(spec, tmp_path):
    """The same curves as of one that was not, and no run is made twice."""
    wanted = Comparison(seeds=(1, 2), rates=(1e-3, 1e-2))
    whole = experiment(spec, tmp_path / "whole", wanted).run()

    def stop(line: str) -> None:
        if line.startswith("first-lr0.01-seed1"): raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt): experiment(spec, tmp_path / "cut", wanted, stop).run()
    before = {p: (p / "metrics.jsonl").stat().st_mtime_ns for p in (tmp_path / "cut" / "runs").iterdir()}
    assert len(before) == 2
    again = experiment(spec, tmp_path / "cut", wanted).run()
    assert all((p / "metrics.jsonl").stat().st_mtime_ns == t for p, t in before.items())
    assert [(r.model, r.rate, r.seed, [(p.step, p.loss) for p in r.curve]) for r in again.runs] == \
           [(r.model, r.rate, r.seed, [(p.step, p.loss) for p in r.curve]) for r in whole.runs]
    assert [len(whole.chosen(m)) for m in ("first", "second")] == [2, 2]         # every rate with the first seed, the best with all
    assert len(whole.runs) == 6


def test_seconds_are_steps_times_the_median_step(spec, tmp_path):
    found = experiment(spec, tmp_path / "x", Comparison(models=("second",))).run()
    run, = found.runs
    assert [p.step for p in run.curve] == [2, 4, 6]
    assert all(p.seconds == p.step * found.times["second"].median for p in run.curve)
    assert run.best.loss == min(p.loss for p in run.curve)


def test_a_budget_of_minutes_is_steps_by_the_time_of_a_step(spec, tmp_path):
    made = experiment(spec, tmp_path / "x", Comparison(budget=Amount(0.5, "minutes")))
    made._sized("second")
    text = str(made._one("second", None, 1, {"second": Times((0.25,))}).spec)
    assert "120" in text                                       # 30 s of steps of 0.25 s


def test_patience(tmp_path):
    """Ends a run when the lowest of its losses is so many evaluations old."""
    def losses(*found: float) -> Path:
        rows = [{"step": k, "split": "validation", "loss": x} for k, x in enumerate(found, 1)]
        (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
        return tmp_path
    assert not Patience(losses(3.0, 2.0, 2.5), 2).spent()
    assert Patience(losses(3.0, 2.0, 2.5, 2.1), 2).spent()
    assert not Patience(losses(3.0, 2.0, 2.5, 1.9), 2).spent()
    assert not Patience(losses(1.0, 2.0, 3.0, 4.0), None).spent()
    assert [p.loss for p in curve(losses(1.0, math.nan, 2.0), 0.5)] == [1.0, 2.0]


def test_patience_ends_a_run(spec, tmp_path):
    """A rate of nearly nothing and one that goes wrong: with a patience of 1 a run ends at the first evaluation that is not better."""
    spec.write_text(SPEC.replace("stop = 6", "stop = 60").replace("lr = 1e-2", "lr = 3.0"))
    run, = experiment(spec, tmp_path / "x", Comparison(models=("second",), patience=1)).run().runs
    losses = [p.loss for p in run.curve]
    assert run.curve[-1].step < 60 and losses[-1] >= losses[-2] and losses[:-1] == sorted(losses[:-1], reverse=True)


def test_a_comparison_from_the_command_line(spec, tmp_path):
    out = tmp_path / "experiment"
    args = ("--set", "V=40", "--fit", "params(3k, by = d)", "--seeds", "1", "--budget", "4 steps", "--eager", "--rounds", "2")
    found = json.loads(run("compare", spec, *args, "--out", out, "--json"))
    assert [abs(m["params"] - 3000) < 200 for m in found["models"]] == [True, True]
    assert [m["best_loss"] for m in found["models"]] == sorted(m["best_loss"] for m in found["models"])
    assert all([p["step"] for p in r["curve"]] == [2, 4] for r in found["runs"])
    assert {p.name for p in out.iterdir()} >= {"experiment.json", "results.json", "results.md", "curves.svg", "runs"}
    again = json.loads(run("compare", out, "--json"))                            # by its folder
    assert again["runs"] == found["runs"]
    listed = json.loads(run("runs", out, "--json"))
    assert [r["spec"] for r in listed["runs"]] == 2 * [str(spec)]                # whole run folders, with their derived costs


def test_results_name_the_machine_that_was_timed(spec, tmp_path):
    out = tmp_path / "x"
    run("compare", spec, "--models", "second", "--budget", "2 steps", "--eager", "--rounds", "2", "--out", out)
    kept = json.loads((out / "experiment.json").read_text())
    (out / "experiment.json").write_text(json.dumps({**kept, "machine": {**kept["machine"], "threads": 64}}))
    assert json.loads(run("compare", out, "--json"))["machine"]["threads"] == 64


def test_a_path_that_is_nothing(tmp_path):
    found = CliRunner().invoke(app, ["compare", str(tmp_path / "nowhere")])
    assert found.exit_code == 1 and "neither a spec nor an experiment" in " ".join(found.output.split())


@pytest.mark.parametrize("args, said", [(("--seeds", "x"), "x"), (("--name", "c"), "no compare block"), (("--models", "frist"), "`first`?"),
                                        (("--budget", "4"), "steps"), (("--fit", "params(3k, by = q)"), "q")])
def test_what_cannot_be_compared_is_said(spec, tmp_path, args, said):
    found = CliRunner().invoke(app, ["compare", str(spec), "--eager", "--out", str(tmp_path / "x"), *args])
    assert found.exit_code == 1 and said in found.output and not (tmp_path / "x").exists()


def test_a_folder_that_holds_something_else(spec, tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "letter.txt").write_text("dear")
    with pytest.raises(PlaitError) as wrong: experiment(spec, tmp_path / "x", Comparison()).run()
    assert "something else" in wrong.value.diagnostics[0].message and (tmp_path / "x" / "letter.txt").read_text() == "dear"
    (tmp_path / "y").mkdir()
    (tmp_path / "y" / "experiment.json").write_text("{")
    with pytest.raises(PlaitError) as wrong: experiment(spec, tmp_path / "y", Comparison()).run()
    assert "it is no JSON" in wrong.value.diagnostics[0].message


def test_models_that_evaluate_no_loss(spec, tmp_path):
    spec.write_text(SPEC.replace("  every 2 steps { evaluate(loss) }\n", ""))
    with pytest.raises(PlaitError) as wrong: experiment(spec, tmp_path / "x", Comparison()).run()
    assert "evaluates no loss" in wrong.value.diagnostics[0].message


# -- what would make a table of unlike things -----------------------------------------------------------------------------------------
def test_other_data_is_refused(spec, tmp_path):
    experiment(spec, tmp_path / "x", Comparison(models=("second",))).run()
    (spec.parent / "corpus.txt").write_text("another text, of other letters; " * 20)
    with pytest.raises(PlaitError) as wrong: experiment(spec, tmp_path / "x", Comparison(models=("second",))).run()
    assert wrong.value.diagnostics[0].code == "E0614"


def test_a_run_whose_end_is_not_saved_is_gone_on_with(spec, tmp_path):
    """Killed between its last rows and its last checkpoint: the same curve as of one that was not."""
    run, = experiment(spec, tmp_path / "x", Comparison(models=("second",))).run().runs
    last = max((run.folder / "checkpoints").iterdir(), key=lambda p: p.name)
    assert last.name.endswith("6")
    for f in last.iterdir(): f.unlink()
    last.rmdir()
    rows = (run.folder / "metrics.jsonl").read_text().splitlines()
    (run.folder / "metrics.jsonl").write_text("\n".join(rows[:-1]) + "\n")
    again, = experiment(spec, tmp_path / "x", Comparison(models=("second",))).run().runs
    assert [(p.step, p.loss) for p in again.curve] == [(p.step, p.loss) for p in run.curve]


@pytest.mark.parametrize("place", ["checkpoint._save_tensors", "record.csv.DictWriter"], ids=["checkpoint", "row"])
def test_a_full_disk_points_to_the_whole_experiment(spec, tmp_path, monkeypatch, place):
    def full(*_, **__): raise OSError(28, "No space left on device")
    monkeypatch.setattr(f"plait.runtime.{place}", full)
    with pytest.raises(PlaitError) as wrong: experiment(spec, tmp_path / "x", Comparison(models=("second",))).run()
    assert wrong.value.diagnostics[0].code == "E0623" and f"plait compare {tmp_path / 'x'}" in wrong.value.diagnostics[0].help
    monkeypatch.undo()
    found, = experiment(spec, tmp_path / "x", Comparison(models=("second",))).run().runs
    assert [p.step for p in found.curve] == [2, 4, 6]


def test_rates_that_are_nearly_alike_are_two_runs(spec, tmp_path):
    found = experiment(spec, tmp_path / "x", Comparison(models=("second",), rates=(0.1234567, 0.12345678), budget=Amount(2, "steps"))).run()
    assert len({r.folder for r in found.runs}) == 2


def test_a_schedule_is_scaled_to_the_rates_that_are_tried(spec, tmp_path):
    """Half of cosine(2e-2, 2e-3, 2), which is at its highest at step 2; and itself. At step 1 half of that; at the last step the floor."""
    spec.write_text(spec.read_text().replace("lr = 1e-2", "lr = cosine(2e-2, 2e-3, 2)"))
    runs = experiment(spec, tmp_path / "x", Comparison(models=("second",), rates=(1e-2, 2e-2))).run().runs
    rates = [[r["lr"] for r in rows(run.folder) if r["split"] == "train"] for run in runs]
    assert [[x[0], x[1], x[-1]] for x in rates] == [pytest.approx([5e-3, 1e-2, 1e-3]), pytest.approx([1e-2, 2e-2, 2e-3])]


def test_a_rate_that_is_nowhere_above_0_cannot_be_scaled(spec, tmp_path):
    spec.write_text(spec.read_text().replace("lr = 1e-2", "lr = 0 * step"))
    with pytest.raises(PlaitError) as wrong: experiment(spec, tmp_path / "x", Comparison(models=("second",), rates=(1e-2,))).run()
    assert "nowhere above 0" in wrong.value.diagnostics[0].message


@pytest.mark.parametrize("formula, last, highest", [
    ("cosine(1e-3, 1e-4, 100)", 1000, 1e-3), ("cosine(floor = 0, peak = 3, warmup = 999)", 1000, 3),
    ("2 * cosine(1e-3, 1e-4, 100)", 1000, 2e-3), ("cosine(3, 0, 3000)", 1000, 1.0),             # cut off a third of the way up
    ("cosine(1e-3, 1e-2, 100)", 1000, 1e-2), ("cosine(0, 1e-3, 0)", 1000, 1e-3),                # a floor above the peak: at the end
    ("cosine(1e-3 * min(1, step / 2), 1e-4, 2)", 1000, 1e-3), ("-cosine(1, 0, 5)", 1000, 0.0),
    ("min(step ^ -0.5, step * 100 ^ -1.5)", 1000, 0.1),       # Vaswani et al. 2017, section 5.3, without the width: at the warm-up's end
    ("min(step ^ -0.5, step * 64 ^ -1.5)", 1_000_000, 1 / 8), ("cosine(1e-3, 1e-4, 4321)", 10**9, 1e-3),
    ("1 / (step - 1)", 1000, 1.0), ("7", 1000, 7)])
def test_the_highest_rate_of_a_schedule(formula, last, highest):
    """Where it is not defined, it is passed over."""
    assert Formula(parse_expression(formula, "lr"), Scope({})).highest(last) == pytest.approx(highest)


def test_names_of_one_model_do_not_come_into_the_train_block_of_another(spec, tmp_path):
    """Each has a train block, whose schedule has a let of its model: what a run keeps is a spec without mistakes."""
    head, block = spec.read_text().split("train {")
    for model, top in (("first", "2e-2"), ("second", "1 / 50")):
        head = head.replace(f"model {model} {{", f"model {model} {{ let top_of_{model} = {top}")
        head += f"train {model} {{" + block.replace("lr = 1e-2", f"lr = cosine(top_of_{model}, 2e-3, 2)")
    spec.write_text(head)
    for made in experiment(spec, tmp_path / "x", Comparison(rates=(1e-2,))).run().runs:
        assert CliRunner().invoke(app, ["check", str(made.folder / "spec.plait")]).exit_code == 0
        assert [r["lr"] for r in rows(made.folder) if r["split"] == "train"][1] == pytest.approx(1e-2)


def test_another_run_in_the_place_of_one(spec, tmp_path):
    first = experiment(spec, tmp_path / "x", Comparison(models=("second",), seeds=(1, 2))).run().runs
    first[0].folder.rename(tmp_path / "aside")
    first[1].folder.rename(first[0].folder)
    with pytest.raises(PlaitError) as wrong: experiment(spec, tmp_path / "x", Comparison(models=("second",), seeds=(1, 2))).run()
    assert "another run" in wrong.value.diagnostics[0].message


def test_train_blocks_that_differ(spec, tmp_path):
    second = SPEC[SPEC.index("train {"):].replace("train {", "train second {").replace("stop = 6", "stop = 8")
    spec.write_text(SPEC.replace("train {", "train first {") + second)
    with pytest.raises(PlaitError) as wrong: experiment(spec, tmp_path / "x", Comparison()).run()
    assert "differ in `stop`" in wrong.value.diagnostics[0].message
    assert len(experiment(spec, tmp_path / "x", Comparison(budget=Amount(2, "steps"))).run().runs) == 2
    spec.write_text(spec.read_text().replace("batch = 4", "batch = 8", 1))
    with pytest.raises(PlaitError) as wrong: experiment(spec, tmp_path / "y", Comparison(budget=Amount(2, "steps"))).run()
    assert "differ in `batch`" in wrong.value.diagnostics[0].message


def test_a_rate_that_diverges_counts_last(spec, tmp_path):
    found = experiment(spec, tmp_path / "x", Comparison(models=("second",), rates=(1e-2, 1e30))).run()
    assert [r.diverged for r in found.runs] == [False, True] and found.runs[1].best.loss == math.inf
    assert [r.rate for r in found.chosen("second")] == [1e-2]
    only = experiment(spec, tmp_path / "y", Comparison(rates=(1e30,))).run()
    from plait.comparing import as_json, table
    assert "diverged" in table(only)
    assert json.dumps(as_json(only, CPU), allow_nan=False)


def trained(model: str, rate: float | None, seed: int, *losses: float) -> Trained:
    return Trained(model, rate, seed, Path(f"runs/{model}-{rate}-{seed}"), tuple(Point(k, float(k), x) for k, x in enumerate(losses, 1)))


def compared(*runs: Trained, **asked) -> Compared:
    models = dict.fromkeys(r.model for r in runs)
    sizes = {m: Equal(m, None, None, count) for m, count in zip(models, (1000, 1100, 1000))}                     # type: ignore[arg-type]
    return Compared(Comparison(**asked), Path("x"), sizes, {m: Times((1.0, 1.0)) for m in models}, runs)


def test_what_a_table_does_not_show_is_said():
    """A budget that was too short for the rate that was chosen, and only then; rates at an end of those tried; sizes that are not one;
    seeds that lie further apart than the models."""
    from plait.comparing import table
    rejected, chosen = trained("a", 1e-4, 1, 3.0, 2.0), trained("a", 1e-3, 1, 2.5, 1.5, 1.6)
    said = table(compared(rejected, chosen, rates=(1e-4, 1e-3)))
    assert "still falling" not in said and "the best rate is the largest that was tried: a" in said and "one seed" in said
    others = trained("a", 1e-2, 1, 4.0), trained("a", 1e-4, 1, 4.0)
    said = table(compared(trained("a", 1e-3, 1, 3.0, 2.0), *others, rates=(1e-2, 1e-3, 1e-4)))
    assert "still falling at the end of the budget: a" in said and "best rate" not in said
    a, b = [trained("a", None, s, x) for s, x in ((1, 2.0), (2, 2.2))], [trained("b", None, s, x) for s, x in ((1, 2.1), (2, 2.3))]
    said = table(compared(*a, *b, fit=Fit(1000, ("d",))))
    assert repr(compared(*b, *a)) == "Compared('x': a 2.1000, b 2.2000)"
    assert "these seeds do not tell a from b" in said and "1,000 to 1,100 parameters" in said and "means over 2 seeds" in said
    far = [trained("c", None, s, x) for s, x in ((1, 3.0), (2, 3.1))]
    assert "do not tell" not in table(compared(*a, *far))


def test_a_size_that_cannot_be_had(spec, tmp_path):
    for wanted, said in ((Fit(1, ("d",)), "nearest"), (Fit(10**6, ("n",)), "do not depend")):
        with pytest.raises(PlaitError) as wrong: experiment(spec, tmp_path / "x", Comparison(fit=wanted)).run()
        assert said in wrong.value.diagnostics[0].message
    with pytest.raises(PlaitError) as wrong: block("compare c { fit = params(2M, by = [q, d]) }")
    assert wrong.value.diagnostics[0].code == "E0401"


def test_a_budget_shorter_than_a_step(spec, tmp_path):
    with pytest.raises(PlaitError) as wrong: experiment(spec, tmp_path / "x", Comparison(budget=Amount(1e-9, "minutes"))).run()
    assert "longer than the budget" in wrong.value.diagnostics[0].message


def test_what_is_asked_of_an_experiment_that_goes_on(spec, tmp_path):
    out = tmp_path / "x"
    run("compare", spec, "--models", "second", "--budget", "2 steps", "--eager", "--rounds", "2", "--out", out)
    for more in (("--seeds", "1,2"), ("--budget", "9 steps"), ("--set", "n=4"), ("--out", str(tmp_path / "z"))):
        found = CliRunner().invoke(app, ["compare", str(out), *more])
        assert found.exit_code == 1 and "goes on as it was asked for" in " ".join(found.output.split())
    whole = json.loads((out / "experiment.json").read_text())
    for name, value in (("comparison", None), ("spec", 5), ("step_seconds", None), ("step_seconds", {}), ("step_seconds", {"second": []}),
                        ("step_seconds", {"second": [0.0]}), ("step_seconds", {"first": [0.1]}), ("step_seconds", {"second": ["x"]}),
                        ("kernels", None), ("plait", 9), ("comparison", {"seeds": 3})):
        (out / "experiment.json").write_text(json.dumps({**whole, name: value}))
        found = CliRunner().invoke(app, ["compare", str(out)])
        assert found.exit_code == 1 and "cannot be used" in " ".join(found.output.split()), (name, value, found.output)


def test_an_experiment_that_was_compiled_does_not_go_on_eagerly(spec, tmp_path):
    run("compare", spec, "--models", "second", "--budget", "2 steps", "--eager", "--rounds", "2", "--out", tmp_path / "x")
    at = tmp_path / "x" / "experiment.json"
    at.write_text(at.read_text().replace('"compiled": false', '"compiled": true'))
    found = CliRunner().invoke(app, ["compare", str(tmp_path / "x"), "--eager"])
    assert found.exit_code == 1 and "goes on as it was asked for" in " ".join(found.output.split())


def test_an_experiment_goes_on_where_its_steps_were_timed(spec, tmp_path):
    run("compare", spec, "--models", "second", "--budget", "2 steps", "--eager", "--rounds", "2", "--out", tmp_path / "x")
    again = CliRunner().invoke(app, ["compare", str(tmp_path / "x"), "--rounds", "9", "--device", "cpu"])
    assert again.exit_code == 0 and "as measured when the experiment began, 2 rounds in turn" in " ".join(again.output.split())
    at = tmp_path / "x" / "experiment.json"
    whole = json.loads(at.read_text())
    at.write_text(json.dumps({**whole, "machine": {**whole["machine"], "device": "cuda:0"}}))
    found = CliRunner().invoke(app, ["compare", str(tmp_path / "x"), "--device", "cpu"])
    assert found.exit_code == 1 and "were timed on cuda" in " ".join(found.output.split()) and "--device cuda" in found.output
