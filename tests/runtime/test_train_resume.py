"""Exact resumption of every kind of model and training; what stands on the disk after a kill, a full disk, an edit."""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from plait.dsl.errors import PlaitError
from plait.runtime import checkpoint, record
from plait.runtime.sources import OPTIMIZERS

from .test_train import same, timeless
from .tiny import FAMILIES, made, resumed, spec, trained

ROOT = Path(__file__).parents[2]


def memory(folder, name, step):
    """All that a checkpoint keeps, and where the run stood."""
    at = checkpoint.place(folder / name, step)
    state = json.loads((at / "state.json").read_text())
    return {f.name: f.read_bytes() for f in at.glob("*.safetensors")}, {k: state[k] for k in ("step", "tokens", "spec", "best")}


def whole_and_parts(text, folder, *stops):
    """The run in one go, and stopped at each of these steps: the same bits of weights and memory, the same rows."""
    _, whole = trained(text, folder, "whole")
    trained(text, folder, "parts", steps=stops[0])
    for stop in stops[1:]: resumed(text, folder, "parts", steps=stop)
    torch.manual_seed(99)
    run, parts = resumed(text, folder, "parts")
    assert same(whole.state_dict(), parts.state_dict())
    assert memory(folder, "whole", run.step) == memory(folder, "parts", run.step)
    rows = [r for r in timeless(folder / "parts") if r["split"] == "train" or r["step"] not in stops]
    assert rows == [r for r in timeless(folder / "whole") if r["split"] == "train" or r["step"] not in stops]
    return whole


# ---- the same bits -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family(corpus, family):
    """In parts of the batch, with an average and its evaluations on the way."""
    whole_and_parts(spec("dropout(0.1); " + FAMILIES[family], microbatch="1 sequences", average="0.9"), corpus, 2, 3)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_every_optimiser(corpus, kind):
    given = f"{kind}(momentum = 0.9, nesterov = true)" if kind == "sgd" else f"{kind}(decay = 0.1)"
    whole_and_parts(spec("gru(d); linear(d)", optimizer=given), corpus, 3)


def test_half_precision(corpus):
    whole_and_parts(spec(FAMILIES["stack"], precision="bf16", optimizer="muon", average="0.5"), corpus, 1, 4)


def test_tokens_and_the_best(corpus):
    """The schedule of a run by tokens, and the best checkpoint, go on where they were."""
    every = "every 2 steps { checkpoint(keep = 1, best = accuracy) }"
    text = spec("gru(d)", every, stop="225 tokens", lr="cosine(1e-2, 1e-3, 2)")
    whole_and_parts(text, corpus, 3)


def test_a_stop_within_a_batch_loses_only_that_step(corpus):
    """Ctrl-C in the second of five parts of step 3: step 2 is saved, and step 3 is done anew."""
    text = spec("dropout(0.2); gru(d)", every="", microbatch="1 sequences")
    _, whole = trained(text, corpus, "whole")
    p = made(text, corpus)
    real, calls = p.module.losses, []

    def pressed(*x):
        calls.append(1)
        if len(calls) == 12: os.kill(os.getpid(), signal.SIGINT)
        return real(*x)

    p.module.losses = pressed
    from plait.runtime.train import train
    run = train(p.module, p.recipe, p.dataset, corpus / "run", spec_text=p.spec_text)
    assert run.interrupted and run.step == 2 and len(calls) == 12 and checkpoint.steps(corpus / "run") == [0, 2]
    assert same(whole.state_dict(), resumed(text, corpus, "run")[1].state_dict())


def test_time_is_kept(corpus):
    """A run by minutes goes on with the seconds it has had: one that has had them all makes no step."""
    text = spec("gru(d)", stop="60 minutes")
    trained(text, corpus, "run", steps=3)
    at = checkpoint.place(corpus / "run", 3) / "state.json"
    content = {**json.loads(at.read_text()), "seconds": 3600.0}
    del content["check"]
    at.write_text(json.dumps({**content, "check": checkpoint._check(content)}))
    assert resumed(text, corpus, "run")[0].step == 3


# ---- kept checkpoints --------------------------------------------------------------------------------------------------
def test_the_best_is_kept_besides_the_last(corpus):
    """Losses are planted: step 4 is the best by loss, step 2 by accuracy (the first of equals stays)."""
    from plait.runtime import train as loop
    planted = {2: (1.0, 0.9), 4: (0.5, 0.9), 6: (0.8, 0.1), 8: (0.7, 0.2), 10: (0.6, 0.3)}
    for metric, best in (("loss", 4), ("accuracy", 2)):
        text = spec("gru(d)", f"every 2 steps {{ checkpoint(keep = 2, best = {metric}) }}", stop="10 steps")
        with pytest.MonkeyPatch.context() as patch:
            steps = iter(planted)
            def told(*_args, **_more): return {"count": 9, **dict(zip(("loss", "accuracy"), planted[next(steps)]))}      # noqa: B023
            patch.setattr(loop, "evaluate", told)
            trained(text, corpus, metric)
        assert checkpoint.steps(corpus / metric) == [best, 8, 10]
        assert checkpoint.latest(corpus / metric, text, print).best.step == best


def test_means_of_checkpoints(corpus):
    text = spec("gru(d)")
    trained(text, corpus, "run")
    files = [checkpoint._load_tensors(checkpoint.place(corpus / "run", s) / "model.safetensors") for s in (2, 4, 6)]
    p = made(text, corpus)
    assert checkpoint.averaged(corpus / "run", p.module, 3, text) == [2, 4, 6]
    for k, v in p.module.state_dict().items(): assert torch.allclose(v, sum(f[k] for f in files) / 3, atol=1e-6)
    with pytest.raises(PlaitError, match="holds 3"): checkpoint.averaged(corpus / "run", p.module, 4, text)     # not step 0
    (checkpoint.place(corpus / "run", 4) / "model.safetensors").write_bytes(b"")
    with pytest.raises(PlaitError, match="damaged"): checkpoint.averaged(corpus / "run", p.module, 3, text)


def test_an_average_that_is_torn(corpus):
    text = spec("gru(d)", average="0.9")
    trained(text, corpus, "run")
    (checkpoint.place(corpus / "run", 6) / "average.safetensors").unlink()
    run, _ = resumed(text, corpus, "run")
    assert run.step == 6
    assert memory(corpus, "run", 6)[0].keys() == {"model.safetensors", "optimizer.safetensors", "average.safetensors"}


def test_another_format_and_an_edited_spec(corpus):
    text = spec("gru(d)")
    trained(text, corpus, "run", steps=2)
    shutil.rmtree(checkpoint.place(corpus / "run", 0))
    at = checkpoint.place(corpus / "run", 2) / "state.json"
    kept = at.read_text()
    at.write_text(json.dumps({**json.loads(kept), "format": 1}))
    with pytest.raises(PlaitError, match="has the format 1, this one reads 2"): resumed(text, corpus, "run")
    at.write_text(kept)
    (corpus / "run" / record.SPEC).write_text(text.replace("seed = 3", "seed = 4"))
    with pytest.raises(PlaitError, match="belongs to another spec"): resumed(text, corpus, "run")


# ---- kills -------------------------------------------------------------------------------------------------------------
PROCESS = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
import torch
torch.set_num_threads(1)
from tests.runtime.tiny import resumed, trained
folder = Path({folder!r})
text = (folder / "spec").read_text()
how = resumed if (folder / "run" / "spec.plait").exists() else trained
print("ready", flush=True)
how(text, folder, "run")
"""


def killed_until_done(folder: Path, text: str, kills: int, seed: int, longest: float) -> int:
    """Starts the training, or goes on with it, in processes that are killed at random moments, `kills` times; then lets it end.
    Gives how many of them died in the middle."""
    (folder / "spec").write_text(text)
    draw, died = random.Random(seed), 0
    code = PROCESS.format(root=str(ROOT), folder=str(folder))
    for _ in range(kills):
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
            assert p.stdout is not None
            if p.stdout.readline() == "ready\n": time.sleep(draw.uniform(0.0, longest))
            p.kill()
            _, said = p.communicate()
        assert p.returncode in (0, -signal.SIGKILL), said
        died += p.returncode != 0
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return died


LONG = spec("dropout(0.1); gru(d); linear(d)", "every 7 steps { checkpoint(keep = 2, best = loss) }", stop="150 steps",
            microbatch="2 sequences", average="0.9", batch="4 sequences")


def test_killed_at_random_moments(corpus):
    died = killed_until_done(corpus, LONG, 3, seed=1, longest=0.5)
    _, whole = trained(LONG, corpus, "whole")
    assert died >= 2
    assert memory(corpus, "run", 150) == memory(corpus, "whole", 150)
    assert timeless(corpus / "run") == timeless(corpus / "whole")


# ---- disks -------------------------------------------------------------------------------------------------------------
FULL = PROCESS.replace('how(text', '''import resource, signal
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
from plait.dsl.errors import PlaitError, render_all
try: how(text''').rstrip() + '''
except PlaitError as e: print(render_all(e)); sys.exit(1)
'''


@pytest.mark.parametrize("limit", [3000, 9000])
def test_a_full_disk_stops_with_a_sentence(corpus, limit):
    """Files may grow to `limit` bytes only: 3,000 stop a checkpoint, 9,000 the rows. With room again it ends as if nothing had been."""
    text = spec("gru(d)", "every 5 steps { evaluate(loss); checkpoint }", stop="80 steps")
    (corpus / "spec").write_text(text)
    trained(text, corpus, "run", steps=5)
    code = FULL.format(root=str(ROOT), folder=str(corpus), limit=limit)
    full = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert full.returncode == 1 and "E0623" in full.stdout and "Traceback" not in full.stderr, full
    assert ("the checkpoint of step 10 cannot be written" if limit == 3000 else "the row of step") in full.stdout, full.stdout
    assert checkpoint.latest(corpus / "run", text, print).step < 80
    _, found = resumed(text, corpus, "run")
    _, whole = trained(text, corpus, "whole")
    assert same(found.state_dict(), whole.state_dict())
    rows = [[r for r in timeless(corpus / name) if r["split"] == "train"] for name in ("run", "whole")]
    assert rows[0] == rows[1]
    assert not list((corpus / "run" / "checkpoints").glob(".*"))


def test_a_folder_that_takes_nothing(corpus):
    """A file stands where the folder of checkpoints should be: root may write everywhere else."""
    text = spec("gru(d)")
    (corpus / "run").mkdir()
    (corpus / "run" / "checkpoints").write_text("")
    with pytest.raises(PlaitError, match="the checkpoint of step 0 cannot be written"): trained(text, corpus, "run")
    (corpus / "file").write_text("")
    with pytest.raises(PlaitError, match="cannot be kept"): trained(text, corpus, "file")
    trained(text, corpus, "good", steps=2)
    shutil.move(corpus / "good" / "metrics.jsonl", corpus / "rows")
    (corpus / "good" / "metrics.jsonl").mkdir()
    with pytest.raises(PlaitError, match="cannot be written"): resumed(text, corpus, "good")
    (corpus / "good" / "metrics.jsonl").rmdir()
    shutil.move(corpus / "rows", corpus / "good" / "metrics.jsonl")
    assert resumed(text, corpus, "good")[0].step == 6
