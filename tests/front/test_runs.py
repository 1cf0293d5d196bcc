"""What stands in the folder of a run: trained models outlive their data, damage is told in a sentence, two processes do not meet."""
import fcntl
import json
import shutil

import pytest
import torch

from .test_cli import run

SPEC = """plait 1
model lm {
  input text: tokens[8] of V
  dims { V }
  logits = text { embed(V, width = 4); rnn(4); linear(V) }
  output logits: [8, V]
}
train lm {
  data = text("words", split = (0.5, 0.5))
  loss = cross_entropy(logits, next(text))
  batch = 2 sequences
  lr = 0.01
  stop = 3 steps
}
"""
WORDS = "abcd\n" * 40


def spec(folder, text: str = SPEC):
    (folder / "words").write_text(WORDS)
    (folder / "m.plait").write_text(text)
    return folder / "m.plait"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    run("train", spec(folder), "--eager", "--out", folder / "run")
    return folder


@pytest.fixture
def folder(made, tmp_path):
    """A copy of a trained run, with its data beside it."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    about = tmp_path / "run" / "run.json"
    about.write_text(json.dumps({**json.loads(about.read_text()), "data_folder": str(tmp_path)}))
    return tmp_path


def test_a_model_outlives_its_data(folder):
    """The run's vocabulary decides what a symbol stands for, not the file that is there today."""
    first = run("sample", folder / "run", "--prompt", "a", "--length", 20).stdout
    (folder / "words").write_text("xyz " * 60)
    assert run("sample", folder / "run", "--prompt", "a", "--length", 20).stdout == first
    (folder / "words").unlink()
    assert run("sample", folder / "run", "--prompt", "a", "--length", 20).stdout == first


def test_other_data_of_the_same_characters_is_read_by_the_runs_vocabulary_and_told(folder):
    """The new file has no line ends: numbered anew, its symbols would all be one less."""
    assert "began with" not in run("evaluate", folder / "run").output
    (folder / "words").write_text("abcd" * 50)
    found = run("evaluate", folder / "run")
    assert "not what the run" in found.stderr and "another training targets" not in found.stderr
    assert "not what the run" in run("resume", folder / "run", "--eager", "--steps", 4, code=1).stderr
    (folder / "words").write_text("abce" * 50)
    assert "'e'" in run("evaluate", folder / "run", code=1).stderr


DAMAGE = [b"[]", b"{}", b"\xff\xfe", b"", b'{"model": 3}', b"[" * 100_000]


@pytest.mark.parametrize("name", ["run.json", "vocabulary.json", "spec.plait"])
@pytest.mark.parametrize("content", [*DAMAGE, None], ids=lambda c: repr(c)[:12])
def test_damaged_files(folder, name, content):
    at = folder / "run" / name
    if content is None: at.unlink()
    else: at.write_bytes(content)
    for command in (("sample",), ("evaluate",), ("resume", "--eager")):
        assert "error" in run(command[0], folder / "run", *command[1:], code=1).stderr


@pytest.mark.parametrize("name", ["metrics.jsonl", "samples.jsonl", "metrics.csv", "machine.json"])
@pytest.mark.parametrize("content", [*DAMAGE, None], ids=lambda c: repr(c)[:12])
def test_what_only_people_read_may_be_lost(folder, name, content):
    at = folder / "run" / name
    if content is None: at.unlink()
    else: at.write_bytes(content)
    run("resume", folder / "run", "--eager", "--steps", 4)


def test_a_folder_is_held_by_one_process(folder):
    with (folder / "run" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "another process is training" in run("resume", folder / "run", "--eager", code=1).stderr
    run("resume", folder / "run", "--eager", "--steps", 4)


def test_a_run_killed_before_its_first_checkpoint_is_none_yet(folder):
    """The spec comes last: without it the same command begins again."""
    (folder / "run" / "spec.plait").unlink()
    assert "not the folder of a run" in run("resume", folder / "run", code=1).stderr
    run("train", folder / "m.plait", "--eager", "--out", folder / "run")


def test_what_is_not_finite_is_never_kept(tmp_path):
    """A step of 1e30 spoils the parameters though its loss and gradient were finite: the checkpoint before it stays the last."""
    spec(tmp_path, SPEC.replace("stop = 3 steps", "stop = 3 steps\n  every 1 steps { checkpoint(keep = 9) }"))
    found = run("train", tmp_path / "m.plait", "--eager", "--out", tmp_path / "run", "--set", "train.lr=1e38",
                "--set", "train.optimizer=adam(decay=1e30)", code=1)
    assert "not finite" in found.stderr and "--set" in found.stderr
    kept = sorted(p.name for p in (tmp_path / "run" / "checkpoints").iterdir())
    from safetensors.torch import load_file
    for name in kept:
        assert all(t.isfinite().all() for t in load_file(tmp_path / "run" / "checkpoints" / name / "model.safetensors").values())
    run("sample", tmp_path / "run", "--length", 3)


@pytest.mark.parametrize("setting", ["train.seed=18446744073709551616", "train.batch=10^30 sequences", "train.stop=10^30 steps"])
def test_numbers_no_computer_holds(folder, setting):
    assert "at most" in run("train", folder / "m.plait", "--eager", "--out", folder / "new", "--set", setting, code=1).stderr
    assert not (folder / "new").exists()


def test_odd_ways_to_sample(folder):
    run("sample", folder / "run", "--temperature", "1e-320", "--length", 3)
    run("sample", folder / "run", "--seed", 2**63 - 1, "--length", 3)


def test_a_model_that_is_not_finite_says_so(folder):
    import plait.runtime.checkpoint as checkpoint
    from plait.runtime import optim
    from plait.runtime.prepare import reopen
    made = reopen(folder / "run", compile=False)
    with torch.no_grad(): next(made.module.parameters()).fill_(torch.nan)
    state = checkpoint.State(9, 0, 0.0, checkpoint.fingerprint(made.spec_text), 1)
    checkpoint.save(folder / "run", made.module, optim.build(made.module, made.recipe.optimizer), state)
    assert "not finite" in run("sample", folder / "run", code=1).stderr
    assert "not finite" in run("evaluate", folder / "run", code=1).stderr


def test_swapped_checkpoints_are_refused(folder):
    """What a checkpoint's folder says and what it holds must agree."""
    at = folder / "run" / "checkpoints"
    (at / "step-000000").rename(at / "spare")
    (at / "step-000003").rename(at / "step-000000")
    (at / "spare").rename(at / "step-000003")
    assert "of step 0" in run("resume", folder / "run", "--eager", "--steps", 4, code=1).stderr
    (at / "step-000003").rename(at / "step-000777")
    assert "of step 0" in run("resume", folder / "run", "--eager", "--steps", 4, code=1).output


def test_rows_of_one_file_outlive_the_damage_of_the_other(folder):
    before = (folder / "run" / "metrics.csv").read_text().splitlines()
    (folder / "run" / "metrics.jsonl").write_text("")
    run("resume", folder / "run", "--eager", "--steps", 4)
    assert (folder / "run" / "metrics.csv").read_text().splitlines()[:len(before)] == before


def test_a_model_that_is_not_in_the_spec(folder):
    at = folder / "run" / "run.json"
    for name in ("zzz", ""):
        at.write_text(json.dumps({**json.loads(at.read_text()), "model": name}))
        for command in ("sample", "evaluate", "resume"): assert "no model" in run(command, folder / "run", code=1).stderr


def test_a_reader_that_has_gone_does_not_stop_a_training(made, tmp_path):
    import subprocess
    import sys
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    command = [sys.executable, "-c", "from plait.cli import main; main()", "train", "m.plait", "--eager", "--out", "piped",
               "--set", "train.stop=20 steps"]
    text = (tmp_path / "m.plait").read_text().replace("stop = 3 steps", "stop = 3 steps\n  every 1 steps { evaluate(loss) }")
    (tmp_path / "m.plait").write_text(text)
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
        p.stdout.close()
        p.wait(60)
    assert (tmp_path / "piped" / "checkpoints" / "step-000020").is_dir()


MORE = SPEC.replace("rnn(4)", "rnn(4); linear(4)").replace(
    "stop = 3 steps", "microbatch = 1 sequences\n  average = 0.5\n  precision = bf16\n  optimizer = muon\n  stop = 8 steps\n"
    "  every 2 steps { evaluate(loss); checkpoint(keep = 3, best = accuracy) }")


@pytest.fixture(scope="module")
def more(tmp_path_factory):
    folder = tmp_path_factory.mktemp("more")
    said = run("train", spec(folder, MORE), "--eager", "--out", folder / "run").stdout
    assert "8 steps" in said and said.count("by the average") == 4
    return folder / "run"


def test_which_weights(more):
    """Of a run with an average, the best and the last are averages, and say so; a mean of checkpoints is of the weights themselves."""
    last = run("evaluate", more, "--json")
    assert "the moving average" in last.stderr and json.loads(last.stdout)["step"] == 8
    state = json.loads(sorted(more.glob("checkpoints/*/state.json"))[-1].read_text())["best"]
    best = run("evaluate", more, "--best", "--json", "--metric", "accuracy")
    assert f"of step {state['step']}: {state['value']:.4f}" in best.stderr
    assert json.loads(best.stdout) == {"step": state["step"], "accuracy": state["value"], "count": 99}
    assert "the mean of the weights of steps 6, 8" in run("evaluate", more, "--average", 2).stderr
    assert "holds" in run("evaluate", more, "--average", 9, code=1).stderr
    assert "--best, or" in run("sample", more, "--average", 2, "--best", code=1).stderr
    for how in (("--best",), ("--average", 2), ()): assert len(run("sample", more, "--length", 5, *how).stdout) >= 5
    rows = [json.loads(line) for line in (more / "metrics.jsonl").read_text().splitlines()]
    assert json.loads(last.stdout)["loss"] == [r["loss"] for r in rows if r["split"] == "validation"][-1]


def test_a_run_without_a_best(folder):
    assert "keeps no best checkpoint" in run("evaluate", folder / "run", "--best", code=1).stderr


def test_the_best_that_is_gone(more, tmp_path):
    shutil.copytree(more, tmp_path / "run")
    state = json.loads(sorted(more.glob("checkpoints/*/state.json"))[-1].read_text())["best"]
    shutil.rmtree(tmp_path / "run" / "checkpoints" / f"step-{state['step']:06d}")
    assert "E0621" in run("sample", tmp_path / "run", "--best", code=1).stderr


def test_measured_beside_derived(more):
    """Products of a step: per symbol 4·4 + 4·4 (rnn) + 4·4 (linear) + 5·4 (scores) multiply-adds forward and twice as many backward, of
    8 symbols in each of 2 sequences."""
    found = json.loads((more / "measured.json").read_text())
    assert found["step"] == 8 and found["steps_measured"] == 7 and found["precision"] == "bfloat16"
    assert found["derived"]["work_a_step"] == 3 * 2 * 8 * (4 * 4 + 4 * 4 + 4 * 4 + 5 * 4)
    measured = found["measured"]
    assert measured["work_a_second"] == pytest.approx(found["derived"]["work_a_step"] / measured["seconds_a_step"])
    assert 0 < measured["share_of_machine"] == pytest.approx(measured["work_a_second"] / measured["machine_work_a_second"])
    assert measured["peak_bytes"] >= measured["bytes_before"] > 0 and found["derived"]["peak_bytes"] > 0


def test_the_bar_shows_share_and_memory(folder):
    import io

    from rich.console import Console

    from plait.training import resume
    out = io.StringIO()
    resume(folder / "run", 6, "cpu", False, Console(file=out, force_terminal=True, width=160))
    assert "% of peak" in out.getvalue() and "GiB" in out.getvalue() and "tokens/s" in out.getvalue()


def test_a_schedule_is_drawn(folder, tmp_path):
    """Of 3 steps, and of tokens: 96 of them are 6 steps of 2 · 8. Epochs are known when the data is read."""
    drawn = tmp_path / "lr.svg"
    found = run("plot", folder / "m.plait", "--schedule", "--out", drawn, "--set", "train.lr=0.1 / step").stdout
    assert "lm: 0.1 at step 1, 0.1 at most, 0.0333 at step 3" in found and drawn.read_bytes().startswith(b"<?xml")
    assert found.endswith(": 1 curve\n")
    assert "at step 6" in run("plot", folder / "m.plait", "--schedule", "--out", drawn, "--set", "train.stop=96 tokens").stdout
    assert "--to" in run("plot", folder / "m.plait", "--schedule", "--out", drawn, "--set", "train.stop=2 epochs", code=1).stderr
    assert "at step 50" in run("plot", folder / "m.plait", "--schedule", "--out", drawn, "--set", "train.stop=2 epochs", "--to", 50).stdout
    below = "--set", "train.lr=(step - 25) ^ 2 - 1 / 2", "--set", "train.stop=2 epochs"
    assert "negative at step 25" in run("plot", folder / "m.plait", "--schedule", "--out", drawn, "--to", 50, *below, code=1).stderr
    for wrong in ((), ("--x", "n", "--schedule")): assert "--schedule" in run("plot", folder / "m.plait", *wrong, code=1).stderr


def test_drawing_a_schedule_needs_no_torch(folder):
    import subprocess
    import sys
    code = ("import sys; from plait import files; from pathlib import Path; from plait.schedule import schedules; "
            f"schedules(files.opened(Path({str(folder / 'm.plait')!r}), ()), ['lm']); sys.exit('torch' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
