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
