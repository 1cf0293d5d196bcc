"""`plait predict` and `plait calibrate`: what is told, what is measured beside it, and what bad input gets."""
from __future__ import annotations

import json
import platform

import pytest
import torch

import plait
from plait import predicting
from plait.compiler.costs.time import Machine
from plait.compiler.lowering import segments
from plait.dsl.errors import PlaitError
from plait.runtime.laboratory import calibrate, machines
from plait.runtime.laboratory.machines import About, Measured

from .test_cli import ROOT, run

FIVE = ROOT / "specs" / "five_way.plait"
CARD = {"plait_machine": 1, "device": "cuda", "rate": 5e13, "bandwidth": 2e12, "latency": 5e-6}
LM = """plait 1
model lm {
  input text: tokens[n] of V
  dims { n = 8; V = 11 }
  logits = text { embed(V, width = 8); residual { attention(heads = 2, causal = true) }; unembed(V) }
  output logits: [n, V]
}
model plain { input x: stream[n, d]; dims { n = 8; d = 8 }; y = x { linear(d) }; output y: [n, d] }
train lm {
  data = text("words")
  loss = cross_entropy(logits, next(text))
  batch = 6 sequences
  microbatch = 2 sequences
  lr = 0.01
  stop = 4 steps
}
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def card(tmp_path):
    (tmp_path / "card.json").write_text(json.dumps(CARD))
    return tmp_path / "card.json"


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "m.plait").write_text(LM)
    return tmp_path / "m.plait"


def made_up() -> Measured:
    """This machine, as if it had been measured."""
    about = About("cpu", "float32", torch.get_num_threads(), platform.node(), "a processor", torch.__version__, "2026-01-01", 0.01, 40.0)
    return Measured(about, Machine(1e10, ((1.0, 1e10),), 1e-6, {}, {"arithmetic": 1e9}))


def test_a_machine_that_was_not_measured():
    found = run("predict", FIVE, code=1)
    assert "E0670" in found.output and "plait calibrate" in found.output


def test_every_model_at_every_length(card):
    found = json.loads(run("predict", FIVE, "--set", "n=16,32", "--machine", card, "--steps", "100k", "--json").stdout)
    assert [(r["model"], r["set"]["n"]) for r in found["rows"]] == [
        (m, n) for m in ("rnn", "lstm", "gru", "cnn", "transformer") for n in (16, 32)]
    for r in found["rows"]:
        assert r["batch"] == 32 and r["seconds"] == pytest.approx(r["arithmetic"] + r["traffic"] + r["latency"])
        assert r["seconds"] == pytest.approx(sum(p["seconds"] for p in r["phases"].values()))
        assert r["hours"] == pytest.approx(r["seconds"] * 100_000 / 3600) and r["measured"] is r["error"] is None
    assert found["summary"] is None and found["machine"]["rate"] == 5e13


def test_the_table_says_that_a_card_was_not_measured(card):
    found = run("predict", FIVE, "--model", "lstm", "--machine", card, "--steps", "100k").stdout
    assert "100,000 steps" in found and "given, not measured" in found and found.splitlines()[1].startswith("lstm")


def test_columns(card):
    found = run("predict", FIVE, "--model", "cnn", "--machine", card, "--columns", "step,forward,backward,update").stdout
    assert found.splitlines()[0].split() == ["batch", "predicted", "forward", "backward", "update"]
    assert sum(int(share.rstrip("%")) for share in found.splitlines()[1].split()[-3:]) in (99, 100, 101)


def test_parts_of_a_batch(spec, card):
    """Six sequences in three parts: three times forward and backward of two, and one update, which adds the gradients up."""
    def phases(*more) -> dict:
        found = json.loads(run("predict", spec, "--model", "lm", "--machine", card, "--json", *more).stdout)
        return {k: p["seconds"] for k, p in found["rows"][0]["phases"].items()}
    three, one = phases(), phases("--batch", 2)
    assert three["forward"] == pytest.approx(3 * one["forward"]) and three["backward"] == pytest.approx(3 * one["backward"])
    assert one["update"] < three["update"] < 2 * one["update"]


def test_another_kernel_takes_another_time(card):
    lstm, body = (json.loads(run("predict", FIVE, "--model", "lstm", "--machine", card, "--json", *more).stdout)["rows"][0]["seconds"]
                  for more in ((), ("--kernel", "lstm=body")))
    assert body > lstm                                        # more calls a step


BAD = [(("--columns", "speed"), "E0505"), (("--steps", "many"), "E0505"), (("--steps", "1.5"), "E0505"), (("--steps", "2KiB"), "E0505"),
       (("--machine", "none.json"), "E0671"), (("--model", "none"), "E0402"), (("--kernel", "lstm=fast"), "E0505"), (("--set", "n"), "E0")]


@pytest.mark.parametrize("options, code", BAD, ids=[" ".join(o) for o, _ in BAD])
def test_bad_input(card, options, code):
    given = () if "--machine" in options else ("--machine", card)
    assert code in run("predict", FIVE, *given, *options, code=1).output


def test_free_dims_are_asked_for(card):
    found = run("predict", ROOT / "specs" / "translation.plait", "--machine", card, code=1)
    assert "E0638" in found.output and "--set" in found.output


def test_measured_beside_predicted(spec, monkeypatch):
    monkeypatch.setattr(segments, "BACKEND", "aot_eager")
    monkeypatch.setattr(predicting, "ROUNDS", 2)
    machines.write(made_up())
    found = json.loads(run("predict", spec, "--model", "lm", "--measure", "--set", "n=4,8", "--json").stdout)
    for r in found["rows"]:
        assert 0 < r["measured"]["low"] <= r["measured"]["seconds"] <= r["measured"]["high"]
        assert r["error"] == pytest.approx(r["seconds"] / r["measured"]["seconds"] - 1)
    errors = [abs(r["error"]) for r in found["rows"]]
    assert found["summary"] == {"median": pytest.approx(sum(errors) / 2), "worst": max(errors)}


def test_what_has_no_training_is_measured_as_it_is_predicted(spec):
    """With AdamW, the mean square of the outputs for a loss."""
    machines.write(made_up())
    row, = json.loads(run("predict", spec, "--model", "plain", "--measure", "--json").stdout)["rows"]
    assert row["measured"]["seconds"] > 0


def test_another_machine_cannot_be_measured_here(card):
    assert "E0505" in run("predict", FIVE, "--machine", card, "--measure", code=1).output


# -- calibrate -----------------------------------------------------------------------------------------------------------------
def test_what_is_measured_is_kept(monkeypatch):
    monkeypatch.setattr(calibrate, "calibrate", lambda device, dtype, told: made_up())
    assert "multiply-adds" in run("calibrate").stdout
    assert json.loads(run("calibrate", "--json").stdout)["rate"] == 1e10
    assert "measured 2026-01-01" in run("predict", FIVE, "--model", "cnn").stdout


def test_unknown_places_and_numbers():
    assert "E0615" in run("calibrate", "--device", "abacus", code=1).output
    assert "E0505" in run("calibrate", "--dtype", "int3", code=1).output


def test_in_python(card):
    found = plait.predict(FIVE, model="gru", set={"n": "16,32"}, batch=4, steps=1000, machine=card)
    assert [r.set["n"] for r in found.rows] == [16, 32] and all(r.batch == 4 and r.seconds > 0 for r in found.rows)
    assert found.rows[0].hours(3600) == pytest.approx(found.rows[0].seconds) and "1,000 steps" in str(found)
    with pytest.raises(PlaitError): plait.predict(FIVE, batch=0, machine=card)


def test_the_calculation_of_the_page(tmp_path):
    """docs/prediction.md: the card that is assumed, and what is calculated for it."""
    page = (ROOT / "docs" / "prediction.md").read_text(encoding="utf-8")
    (tmp_path / "card.json").write_text(page.split("```json\n")[1].split("```")[0])
    told = page.split("$ plait predict specs/five_way.plait --set n=16,128 --machine card.json\n")[1].split("```")[0]
    assert run("predict", FIVE, "--set", "n=16,128", "--machine", tmp_path / "card.json").stdout == told
