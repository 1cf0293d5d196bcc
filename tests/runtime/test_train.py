import csv
import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest
import torch
from rich.console import Console

from plait.dsl.errors import PlaitError
from plait.runtime import checkpoint, data, optim, record
from plait.runtime.batch import Stop, sequences
from plait.runtime.evaluate import evaluate
from plait.runtime.recipe import Described
from plait.runtime.train import resume, train

from .conftest import Small, made, source

EVERY = "every 5 steps { evaluate(loss, bits_per_token, accuracy); checkpoint }"


def fresh(n=8, tied=False):
    torch.manual_seed(0)
    return Small(5, n, tied=tied)


class Study:
    """A recipe, its data and a place for runs."""

    def __init__(self, folder, every=EVERY, **keys):
        self.text = source(every, **keys)
        self.recipe, self.folder = made(self.text), folder
        self.data = data.open(self.recipe.data, folder, 8, self.recipe.seed)

    def train(self, name, module=None, **more):
        module = module or fresh()
        return train(module, self.recipe, self.data, self.folder / name, spec_text=self.text, **more), module

    def resume(self, name, module=None, **more):
        module = module or fresh()
        return resume(module, self.recipe, self.data, self.folder / name, **more), module


def timeless(folder):
    return [{k: v for k, v in r.items() if k != "seconds"} for r in record.rows(folder)]


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def message(caught):
    return caught.value.diagnostics[0].message


# ---- the loop ----------------------------------------------------------------------------------------------------------
def test_it_learns(corpus):
    """After "a" always comes "b": the loss falls from about ln 5 towards 0."""
    run, module = Study(corpus, stop="200 steps", lr="3e-2").train("run")
    assert run.step == 200 and not run.interrupted
    first = next(record.rows(run.folder))
    assert first["loss"] > 1 and run.metrics["loss"] < 0.2 and run.metrics["accuracy"] == 1
    assert run.metrics["bits_per_token"] == pytest.approx(run.metrics["loss"] / math.log(2))
    assert run.metrics["count"] == 99                              # every symbol of 100 but the first


def test_the_folder_of_a_run(corpus):
    study = Study(corpus)
    run, _ = study.train("run", table={"parameters": 85})
    assert (run.folder / "spec.plait").read_text() == study.text
    assert json.loads((run.folder / "table.json").read_text()) == {"parameters": 85}
    assert json.loads((run.folder / "vocabulary.json").read_text())["characters"] == "\nabcd"
    assert json.loads((run.folder / "machine.json").read_text())["threads"] == torch.get_num_threads()
    rows = list(record.rows(run.folder))
    assert [r["step"] for r in rows if r["split"] == "train"] == list(range(1, 21))
    assert [r["step"] for r in rows if r["split"] == "validation"] == [5, 10, 15, 20]
    assert [r["tokens"] for r in rows if r["split"] == "train"][-1] == 20 * 4 * 8
    table = list(csv.DictReader((run.folder / "metrics.csv").open()))
    assert [(int(r["step"]), r["split"], float(r["loss"])) for r in table] == [(r["step"], r["split"], r["loss"]) for r in rows]
    assert checkpoint.steps(run.folder) == [15, 20]


def test_an_update_is_adam_with_the_rate_of_its_step(corpus):
    """Adam's first step moves every parameter with a gradient by lr against its sign: m / sqrt(v) = g / |g|."""
    study = Study(corpus, lr="0.01 / step", every="")
    module = fresh()
    before = {k: v.clone() for k, v in module.named_parameters()}
    study.train("run", module, steps=1)
    moved = (module.out.bias - before["out.bias"]).abs()
    assert torch.allclose(moved, torch.full_like(moved, 0.01), rtol=1e-4)
    assert [r["lr"] for r in record.rows(study.folder / "run")] == [0.01]


def test_decay_spares_vectors_unless_told():
    for decay_all, decayed in ((False, {2}), (True, {1, 2})):
        a = {"betas": (0.9, 0.999), "eps": 1e-8, "decay": 0.1, "decay_all": decay_all}
        groups = optim.build(fresh(), Described("adamw", a)).param_groups
        assert {p.dim() for g in groups if g["weight_decay"] == 0.1 for p in g["params"]} == decayed


def test_clipping():
    p = torch.nn.Parameter(torch.zeros(2))
    for limit, left in ((None, 5.0), (1.0, 1.0), (10.0, 5.0)):
        p.grad = torch.tensor([3.0, 4.0])
        assert optim.clip([p], limit) == 5.0
        assert p.grad.norm().item() == pytest.approx(left, rel=1e-5)


def test_amounts(corpus):
    """An epoch has 899 targets; a batch of 4 windows of 8 has 32: 28.1 steps. 64 tokens are 8 sequences of 8."""
    study = Study(corpus, stop="1 epochs")
    assert Stop(study.recipe, study.data).amount == 29
    assert sequences(made(source(batch="64 tokens")), 8) == 8 and sequences(made(source(batch="5 tokens")), 8) == 1


def test_epochs_of_data_without_end(tmp_path):
    r = made(source(data="duplicate(symbols = 4, length = 8)", stop="1 epochs"))
    with pytest.raises(PlaitError, match="no end"): Stop(r, data.open(r.data, tmp_path, 8, 0))


def test_training_leaves_the_surroundings_as_they_were(corpus):
    handler = signal.getsignal(signal.SIGINT)
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    module = Small.__new__(Small)
    Study(corpus).train("run", _kept(module))
    assert torch.equal(torch.rand(1), expected)
    assert not torch.are_deterministic_algorithms_enabled()
    assert signal.getsignal(signal.SIGINT) is handler


def _kept(module):
    with torch.random.fork_rng(): module.__init__(5, 8)
    return module


def test_a_folder_is_not_trained_into_twice(corpus):
    study = Study(corpus)
    study.train("run", steps=1)
    with pytest.raises(PlaitError, match="already holds a run"): study.train("run")


def test_what_is_not_built_is_refused_before_anything_is_written(corpus):
    with pytest.raises(PlaitError): Study(corpus, every="every 5 steps { evaluate(bleu) }").train("run")
    assert not (corpus / "run").exists()


@pytest.mark.parametrize("action", ['sample("☃", length = 3)', 'sample("a", length = 3, top_p = 2)'])
def test_a_sample_that_cannot_be_made_is_refused_before_the_first_step(corpus, action):
    with pytest.raises(PlaitError) as wrong: Study(corpus, every=f"every 10k steps {{ {action} }}").train("run")
    assert wrong.value.diagnostics[0].span is not None and not (corpus / "run").exists()


def test_a_damaged_checkpoint_takes_no_place_of_a_new_one(corpus):
    """keep = 1: step 20 is damaged, the run goes on from 10; what it saves from there on stays."""
    study = Study(corpus, every="every 10 steps { checkpoint(keep = 2) }")
    study.train("run")
    (checkpoint.place(corpus / "run", 20) / checkpoint.STATE).write_text("[" * 100_000)
    assert checkpoint.steps(corpus / "run") == [10, 20]
    study.resume("run", steps=12)
    assert checkpoint.steps(corpus / "run") == [10, 12]
    assert study.resume("run", steps=13)[0].step == 13 and checkpoint.steps(corpus / "run") == [12, 13]


def test_what_a_person_sees(corpus):
    out = io.StringIO()
    Study(corpus, every='every 10 steps { evaluate(loss); sample(prompt = "ab", length = 6) }').train("run", console=Console(file=out))
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("step 10  loss ") and lines[0].endswith("over 99 targets")
    assert any(line.startswith("step 20  ab") for line in lines)
    assert [r["prompt"] for r in record.rows(corpus / "run", record.SAMPLES)] == ["ab", "ab"]


def test_a_bar_on_a_terminal(corpus):
    out = io.StringIO()
    Study(corpus).train("run", console=Console(file=out, force_terminal=True, width=100))
    assert "tokens/s" in out.getvalue()


# ---- resume ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("tied", [False, True])
def test_twenty_steps_are_ten_and_ten_more(corpus, tied):
    study = Study(corpus, lr="cosine(1e-2, 1e-3, 5)", clip="0.5", optimizer="adamw(decay = 0.1)")
    _, whole = study.train("whole", fresh(tied=tied))
    study.train("parts", fresh(tied=tied), steps=7)
    study.resume("parts", fresh(tied=tied), steps=13)
    torch.manual_seed(99)                                          # neither the state of the generator nor the weights given matter
    run, parts = study.resume("parts", Small(5, 8, tied=tied))
    assert run.step == 20 and same(whole.state_dict(), parts.state_dict())
    assert timeless(study.folder / "whole") == [r for r in timeless(study.folder / "parts") if (r["step"], r["split"]) not in
                                                ((7, "validation"), (13, "validation"))]


def test_nothing_left_to_do(corpus):
    study = Study(corpus)
    _, done = study.train("run")
    run, again = study.resume("run")
    assert run.step == 20 and same(done.state_dict(), again.state_dict())


KILLED = """
import os, signal, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.runtime.conftest import Small
from tests.runtime.test_train import Study, fresh
from plait.runtime import checkpoint
count = 0
real = getattr(os, {at!r})
def dying(*args, **more):
    global count
    count += 1
    if count == {calls}: os.kill(os.getpid(), signal.SIGKILL)
    return real(*args, **more)
os.{at} = dying
Study(Path({folder!r})).train("killed")
"""


@pytest.mark.parametrize("at, calls", [("fsync", 6), ("fsync", 11), ("fsync", 14), ("rename", 3)])
def test_killed_while_writing(corpus, at, calls):
    """A checkpoint syncs five times (three files, the folder, its parent) and renames once: kills inside the second and third one."""
    study = Study(corpus)
    root = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
    code = KILLED.format(root=root, at=at, calls=calls, folder=str(corpus))
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert checkpoint.steps(corpus / "killed")[-1] < 20
    _, parts = study.resume("killed")
    _, whole = study.train("whole")
    assert same(whole.state_dict(), parts.state_dict())
    assert timeless(corpus / "whole") == timeless(corpus / "killed")
    assert not list((corpus / "killed" / "checkpoints").glob(".*")), "what was half written is cleared away"


def test_rows_behind_the_checkpoint_are_dropped(corpus):
    study = Study(corpus)
    study.train("run", steps=10)
    record.add(corpus / "run", 11, "train", loss=1.0)
    with (corpus / "run" / "metrics.jsonl").open("a") as file: file.write('{"step": 12, "spl')
    study.resume("run")
    assert [r["step"] for r in record.rows(corpus / "run") if r["split"] == "train"] == list(range(1, 21))


# ---- damage ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("harm", ["cut", "flip", "gone"])
def test_a_torn_checkpoint_is_passed_over(corpus, name, harm):
    study = Study(corpus)
    _, whole = study.train("run")
    file = checkpoint.place(corpus / "run", 20) / name
    content = bytearray(file.read_bytes())
    if harm == "cut": file.write_bytes(content[:len(content) // 2])
    if harm == "flip": content[-20] ^= 1; file.write_bytes(content)
    if harm == "gone": file.unlink()
    out = io.StringIO()
    run, parts = study.resume("run", console=Console(file=out, width=200))
    assert "the checkpoint of step 20" in out.getvalue() and "taking the one before it" in out.getvalue()
    assert run.step == 20 and same(whole.state_dict(), parts.state_dict())
    shutil.rmtree(checkpoint.place(corpus / "run", 15))
    file = checkpoint.place(corpus / "run", 20) / name
    file.unlink()
    with pytest.raises(PlaitError) as caught: study.resume("run")
    assert name in message(caught)


def test_foreign_checkpoints(corpus):
    study = Study(corpus)
    study.train("run", steps=5)
    with pytest.raises(PlaitError, match="another model: `embed.weight` differs"): study.resume("run", Small(5, 8, width=4))
    with pytest.raises(PlaitError, match="another model: `out.bias`"):
        study.resume("run", torch.nn.ModuleDict({"embed": torch.nn.Embedding(5, 8)}))
    (corpus / "run" / "spec.plait").write_text(study.text + "# changed\n")
    with pytest.raises(PlaitError, match="belongs to another spec"): study.resume("run")
    with pytest.raises(PlaitError, match="not the folder of a run"): study.resume("nowhere")


def test_other_data_is_noticed(corpus):
    study = Study(corpus)
    study.train("run", steps=5)
    (corpus / "corpus.txt").write_text("abcde" * 200)
    with pytest.raises(PlaitError, match="another characters"): Study(corpus).resume("run")


def test_tied_weights_are_stored_once(corpus):
    study = Study(corpus)
    run, module = study.train("run", fresh(tied=True))
    size = (checkpoint.place(run.folder, 20) / "model.safetensors").stat().st_size
    assert size < 2 * 5 * 8 * 4 + 5 * 4 + 300
    other = Small(5, 8, tied=True)
    checkpoint.load(run.folder, 20, other)
    assert same(module.state_dict(), other.state_dict())


def test_a_full_disk_is_a_sentence(corpus, monkeypatch):
    def full(*_args): raise OSError(28, "No space left on device")
    study = Study(corpus)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PlaitError, match="cannot be written: No space left"): study.train("run")


# ---- what goes wrong in training ---------------------------------------------------------------------------------------
class Breaking(Small):
    """Its output layer overflows from a step on."""

    def __init__(self, at):
        super().__init__(5, 8)
        self.at, self.calls = at, 0

    def losses(self, text):
        self.calls += self.training
        if self.calls == self.at:
            with torch.no_grad(): self.drop.p, self.embed.weight[:], self.out.weight[:] = 0, 1e20, 1e20
        return super().losses(text)


def test_a_loss_that_is_not_finite(corpus):
    study = Study(corpus)
    with pytest.raises(PlaitError) as caught: study.train("run", Breaking(8))
    (found,) = caught.value.diagnostics
    assert found.code == "E0622" and "step 8" in found.message and "`out`" in found.message
    assert "the last checkpoint is step 5" in found.numbers and checkpoint.steps(corpus / "run") == [0, 5]
    run, _ = study.resume("run")
    assert run.step == 20


def test_a_parameter_that_is_not_finite(corpus):
    module = fresh()
    with torch.no_grad(): module.embed.weight[2, 3] = math.nan
    with pytest.raises(PlaitError) as caught: Study(corpus).train("run", module)
    assert "the parameter `embed.weight`" in message(caught)


def test_a_gradient_that_is_not_finite(corpus):
    study, module = Study(corpus), fresh()
    module.out.bias.register_hook(lambda g: g * math.inf)
    before = {k: v.clone() for k, v in module.state_dict().items()}
    with pytest.raises(PlaitError) as caught: study.train("run", module)
    assert "the gradient is not finite at step 1: the gradient of `out.bias`" in message(caught)
    assert same(before, module.state_dict()), "nothing was updated"


def test_a_rate_that_breaks_on_the_way(corpus):
    with pytest.raises(PlaitError, match="not a number at step 3"): Study(corpus, lr="1e-3 / (step - 3) ^ 2").train("run")


def test_ctrl_c_saves(corpus):
    study = Study(corpus, stop="1k steps", every="")
    module, out, taken = fresh(), io.StringIO(), []

    def press(*_):
        taken.append(1)
        if len(taken) == 7: os.kill(os.getpid(), signal.SIGINT)

    module.embed.register_forward_hook(press)
    run, _ = study.train("run", module, console=Console(file=out, width=200))
    assert run.interrupted and run.step == 7 and checkpoint.steps(run.folder)[-1] == 7
    assert f"plait resume {run.folder}" in out.getvalue()


def test_outside_the_main_thread(corpus):
    done = []
    worker = threading.Thread(target=lambda: done.append(Study(corpus).train("run")[0].step))
    worker.start()
    worker.join()
    assert done == [20]


# ---- evaluation --------------------------------------------------------------------------------------------------------
def test_a_model_that_knows_nothing_has_the_entropy_of_its_alphabet(corpus):
    module = fresh()
    with torch.no_grad(): module.out.weight.zero_(), module.out.bias.zero_()
    found = evaluate(module, Study(corpus).data, ("loss", "bits_per_token"))
    assert found["loss"] == pytest.approx(math.log(5)) and found["bits_per_token"] == pytest.approx(math.log2(5))
    assert module.training, "left in the mode it was in"


@pytest.mark.parametrize("batch", [1, 5, 12])
def test_the_batch_does_not_change_an_evaluation(corpus, batch):
    module, d = fresh(), Study(corpus).data
    assert evaluate(module, d, ("loss",), batch=batch)["loss"] == pytest.approx(evaluate(module, d, ("loss", "accuracy"))["loss"], rel=1e-6)


def test_only_what_can_be_predicted_counts(tmp_path):
    r = made(source(data="duplicate(symbols = 4, length = 8)"))
    assert evaluate(fresh(), data.open(r.data, tmp_path, 8, 0), ("loss", "accuracy"))["count"] == 256 * 4
