"""`plait runs`: every run folder is a row, whatever has become of it, and nothing imports torch."""
from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys

import pytest

from plait.runtime import listing, record

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
    assert (listing.SPEC, listing.ABOUT, listing.VOCABULARY, listing.ROWS) == (record.SPEC, record.ABOUT, record.VOCABULARY, record.ROWS)


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
