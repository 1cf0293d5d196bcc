"""TensorBoard's events say what the rows say, once each, across a kill and a resumption."""
from __future__ import annotations

import builtins
import json

import pytest

import plait
from plait.runtime import events, record

pytest.importorskip("tensorboard")
SPEC = """plait 1
dims { V; n = 8; d = 4 }
model lm { input text: tokens[n] of V; logits = text { embed(V, width = d); unembed(V) }; output logits: [n, V] }
train lm {
  data = text("words"); loss = cross_entropy(logits, next(text)); batch = 2 sequences; lr = 0.1; stop = 6 steps
  every 2 steps { evaluate(loss, accuracy) }
  every 3 steps { sample("a\\nb", length = 5) }
  every 4 steps { checkpoint(keep = 2) }
}
"""


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "words").write_text("abcd\n" * 40)
    (tmp_path / "m.plait").write_text(SPEC)
    return tmp_path / "m.plait"


def read(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    found = EventAccumulator(str(folder / events.FOLDER), size_guidance={"tensors": 0, "scalars": 0})
    found.Reload()
    return found


def scalars(folder) -> dict[str, list[tuple[int, float]]]:
    found = read(folder)
    return {tag: [(e.step, e.value) for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def agree(folder) -> None:
    """Events and rows: the same steps and values, to the float32 of an event."""
    rows, found = list(record.rows(folder)), scalars(folder)
    for part, names in (("train", ("loss", "lr", "gradient_norm")), ("validation", ("loss", "accuracy"))):
        for name in names:
            want = [(r["step"], pytest.approx(r[name], rel=1e-6)) for r in rows if r["split"] == part]
            assert found[f"{part}/{name}"] == want and want


def test_events(spec, tmp_path):
    plait.train(spec, out=tmp_path / "run", device="cpu", compile=False)
    agree(tmp_path / "run")
    found = read(tmp_path / "run")
    assert set(found.Tags()["scalars"]) == {"train/loss", "train/lr", "train/gradient_norm", "train/tokens_per_second", "validation/loss",
                                            "validation/accuracy"}
    tag, = found.Tags()["tensors"]
    texts = {e.step: e.tensor_proto.string_val[0].decode() for e in found.Tensors(tag)}
    want = {r["step"]: "    " + (r["prompt"] + r["text"]).replace("\n", "\n    ") for r in record.rows(tmp_path / "run", record.SAMPLES)}
    assert texts == want and set(want) == {3, 6}


def test_resumed(spec, tmp_path, monkeypatch):
    """A run stops at step 4, goes on to 6 and is lost there; from its checkpoint it goes on again: every step stands once."""
    from plait.runtime import train
    run = tmp_path / "run"
    plait.train(spec, out=run, device="cpu", compile=False, steps=4)
    from plait.training import resume
    with monkeypatch.context() as m:
        m.setattr(train.checkpoint, "save", lambda *a, **k: None)         # killed before it could
        resume(run, 6, "cpu", False, None)
    agree(run)
    resume(run, 6, "cpu", False, None)
    agree(run)
    assert [s for s, _ in scalars(run)["train/loss"]] == [1, 2, 3, 4, 5, 6]
    assert len(list((run / events.FOLDER).iterdir())) == 3


def test_without_tensorboard(spec, tmp_path, monkeypatch):
    real = builtins.__import__

    def absent(name, *args, **named):
        if name.startswith("torch.utils.tensorboard"): raise ImportError(name)
        return real(name, *args, **named)
    monkeypatch.setattr(builtins, "__import__", absent)
    assert plait.train(spec, out=tmp_path / "run", device="cpu", compile=False).step == 6
    assert not (tmp_path / "run" / events.FOLDER).exists()


def test_a_folder_that_cannot_be_written(spec, tmp_path):
    """A file stands where the events would go: the training goes on, and its rows are whole."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / events.FOLDER).write_text("")
    assert plait.train(spec, out=tmp_path / "run", device="cpu", compile=False).step == 6
    assert [json.loads(line)["step"] for line in (tmp_path / "run" / record.ROWS).read_text().splitlines()][-1] == 6
