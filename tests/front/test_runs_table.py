"""`plait runs`: every run folder is a row, whatever has become of it, and nothing imports torch."""
from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from plait.runtime import checkpoint, listing, record

from .test_cli import run
from .test_runs import SPEC, spec

EVERY = SPEC.replace("stop = 3 steps", "stop = 6 steps\n  every 2 steps { evaluate(loss, accuracy) }")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One finished, one stopped early, one that stops by epochs, one damaged in each of a few ways, and a folder that is no run."""
    folder = tmp_path_factory.mktemp("listed")
    path, runs = spec(folder, EVERY), folder / "runs"
    run("train", path, "--eager", "--out", runs / "done")
    run("train", path, "--eager", "--out", runs / "early", "--steps", 2)
    run("train", path, "--eager", "--out", runs / "epochs", "--set", "train.stop=1/2 epochs", "--set", "train.batch=16 tokens")
    for name in ("torn", "specless", "lost"): run("train", path, "--eager", "--out", runs / name, "--steps", 1)
    (runs / "torn" / "run.json").write_text("[")
    (runs / "specless" / "spec.plait").unlink()
    (runs / "lost" / "spec.plait").write_text("plait 1\nmodel lm {")
    (runs / "notes").mkdir()
    for k, name in enumerate(("done", "early", "epochs", "torn", "specless", "lost")):
        os.utime(runs / name / "machine.json", (1_000_000 * (k + 1),) * 2)
    return runs


def listed(folder) -> dict[str, dict]:
    return {r["run"].rsplit("/", 1)[-1]: r for r in json.loads(run("runs", folder, "--json").stdout)["runs"]}


def test_names_are_those_of_the_recorder():
    assert (listing.SPEC, listing.ABOUT, listing.ROWS) == (record.SPEC, record.ABOUT, record.ROWS)
    assert Path(listing.CHECKPOINTS) / "step-000003" == checkpoint.place(Path(), 3) and listing.STATE == checkpoint.STATE


def test_rows(made):
    """Sorted by date; steps, values and rates are those of the rows."""
    found = listed(made)
    assert list(found) == ["done", "early", "epochs", "torn", "specless", "lost"]
    assert [r["state"] for r in found.values()] == ["finished", "stopped", "finished", "damaged", "damaged", "damaged"]
    done, rows = found["done"], list(record.rows(made / "done"))
    assert (done["model"], done["step"], done["planned"], done["device"], done["reason"]) == ("lm", 6, 6, "cpu", None)
    assert (found["early"]["step"], found["early"]["planned"]) == (2, 6)
    assert done["spec"].endswith("m.plait") and done["loss"] == [r["loss"] for r in rows if r["split"] == "train"][-1]
    measured = [r for r in rows if r["split"] == "validation"]
    assert [r["step"] for r in measured] == [2, 4, 6]
    low, high = min(measured, key=lambda r: r["loss"]), max(measured, key=lambda r: r["accuracy"])
    assert done["best"] == {"loss": {"value": low["loss"], "step": low["step"]},
                            "accuracy": {"value": high["accuracy"], "step": high["step"]}}
    assert done["last"]["loss"] == {"value": measured[-1]["loss"], "step": 6}
    assert done["tokens_per_second"] == rows[-1]["tokens"] / rows[-1]["seconds"] and done["seconds"] == rows[-1]["seconds"]


def test_epochs_are_counted_as_training_counts_them(made):
    """It ran to its own last step, so what is planned is what was done."""
    found = listed(made)["epochs"]
    assert found["planned"] == found["step"] > 0


LM = """plait 1
model lm {{
  input text: tokens[9] of 16
  logits = text {{ embed(16, width = 4); linear(16) }}
  output logits: [9, 16]
}}
train lm {{ data = {data}; loss = cross_entropy(logits, {target}); batch = {batch}; {more}lr = 0.01; stop = {stop} }}
"""
PAIRED = """plait 1
dims {{ V; m; n }}
model lm {{
  input source: tokens[m] of V padded
  input target: tokens[n] of V padded
  memory = source {{ embed(V, width = 4) }}
  logits = target {{ shift_right; embed(V, width = 4); attention(heads = 2, keys = memory); linear(V) }}
  output logits: [n, V]
}}
train lm {{ data = {data}; loss = cross_entropy(logits, target); batch = {batch}; {more}lr = 0.01; stop = {stop} }}
"""
SAID = {"text": ("next(text)", 'text("words", split = (0.5, 0.5))'), "images": ("text", 'images("a.npz")'),
        "pairs": ("", 'parallel_text("words", "words", tokenizer = characters, split = (0.5, 0.5))')}


@pytest.mark.parametrize("source", SAID)
@pytest.mark.parametrize("batch, more", [("2 sequences", ""), ("20 tokens", ""), ("4 sequences", "microbatch = 2 sequences; ")])
def test_what_is_planned_is_what_training_does(tmp_path, source, batch, more):
    """Of every kind of batch and of data: a run by epochs ends at its planned step; one that was cut has the same plan, and is stopped."""
    (tmp_path / "words").write_text("abcd\nab\nabcd efg\n" * 8)
    np.savez(tmp_path / "a.npz", images=np.arange(180).reshape(20, 9) % 8)
    target, data = SAID[source]
    path = tmp_path / "m.plait"
    path.write_text((PAIRED if source == "pairs" else LM).format(data=data, target=target, batch=batch, more=more, stop="3/4 epochs"))
    run("train", path, "--eager", "--out", tmp_path / "runs" / "whole")
    run("train", path, "--eager", "--out", tmp_path / "runs" / "cut", "--steps", 1)
    found = listed(tmp_path / "runs")
    whole, cut = found["whole"], found["cut"]
    assert (whole["state"], cut["state"]) == ("finished", "stopped") and cut["step"] == 1
    assert whole["planned"] == whole["step"] == cut["planned"] > 1


@pytest.mark.parametrize("stop, said", [("40 tokens", "to 40 tokens"), ("1/1000 minutes", "to 0.001 minutes")])
def test_runs_that_stop_by_tokens_or_minutes(tmp_path, stop, said):
    (tmp_path / "words").write_text("abcd\nab\nabcd efg\n" * 8)
    path = tmp_path / "m.plait"
    path.write_text(LM.format(data=SAID["text"][1], target="next(text)", batch="2 sequences", more="", stop=stop))
    run("train", path, "--eager", "--out", tmp_path / "runs" / "whole")
    run("train", path, "--eager", "--out", tmp_path / "runs" / "cut", "--steps", 1, "--set", "train.stop=10 minutes")
    found = listed(tmp_path / "runs")
    assert {k: (r["state"], r["planned"]) for k, r in found.items()} == {"whole": ("finished", None), "cut": ("stopped", None)}
    assert said in run("runs", tmp_path / "runs").stdout


def _lose(run, what: str) -> None:
    newest = sorted((run / "checkpoints").iterdir())[-1]
    if what == "checkpoints": shutil.rmtree(run / what)
    elif what == "torn": (newest / "state.json").write_text("{")
    else: (newest / what).unlink()


@pytest.mark.parametrize("what, said", [("checkpoints", "no checkpoint"), ("state.json", "state.json: No such file"),
                                        ("torn", "state.json is no JSON object"), ("model.safetensors", "model.safetensors is missing"),
                                        ("optimizer.safetensors", "optimizer.safetensors is missing")])
def test_a_run_without_its_newest_checkpoint_is_damaged(made, tmp_path, what, said):
    shutil.copytree(made / "done", tmp_path / "done")
    _lose(tmp_path / "done", what)
    found = listed(tmp_path)["done"]
    assert found["state"] == "damaged" and said in found["reason"] and found["step"] == 6


def test_a_run_without_a_written_plan(made, tmp_path):
    """As runs were before: by steps the spec says whether it is finished; by epochs nothing does."""
    for name in ("done", "epochs"):
        shutil.copytree(made / name, tmp_path / name)
        about = json.loads((tmp_path / name / "run.json").read_text())
        del about["planned"]
        (tmp_path / name / "run.json").write_text(json.dumps(about))
    found = listed(tmp_path)
    assert {k: (r["state"], r["planned"]) for k, r in found.items()} == {"done": ("finished", None), "epochs": ("stopped", None)}


def test_the_table(made):
    """A line a run, and the reason under one that is damaged."""
    lines = run("runs", made).stdout.splitlines()
    assert lines[0].split()[:2] == ["run", "model"] and len(lines) == 1 + 6 + 3
    assert "6 / 6" in lines[1] and "finished" in lines[1] and "1970-01-1" in lines[1]
    assert "run.json is no JSON object" in lines[5] and "before its first checkpoint" in lines[7]
    assert run("runs", made / "done").stdout.splitlines()[1].startswith("done")


def test_running(made):
    with (made / "early" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert listed(made)["early"]["state"] == "running"
    assert listed(made)["early"]["state"] == "stopped"


def test_nothing_there(made, tmp_path):
    assert "no runs" in run("runs", tmp_path).stdout
    assert "no folder" in run("runs", tmp_path / "absent", code=1).stderr


def test_without_torch(made):
    code = f"import sys; sys.modules['torch'] = None; sys.argv = ['plait', 'runs', {str(made)!r}]; from plait.cli import main; main()"
    assert "finished" in subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
