"""Measuring a machine: at sizes of which nothing useful comes, in seconds; the numbers are found again; the file in the cache."""
from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from plait.compiler.costs.calls import KINDS, Call
from plait.compiler.costs.time import Kernel, Machine, seconds
from plait.compiler.lowering import segments
from plait.dsl.errors import PlaitError
from plait.runtime.laboratory import calibrate, machines
from plait.runtime.laboratory.machines import About, Measured

ABOUT = About("cpu", "float32", 2, "host", "some processor", "2.13.0", "2026-01-01", 0.01, 40.0)
KNOWN = Machine(1e11, ((1e4, 5e10), (1e8, 1e10)), 1e-6, {"packed": Kernel(5e10, (20.0, 30.0, 40.0), call=1e-5),
                                                         "update": Kernel(1e11, bandwidth=2e10, operand=1e-5)}, {"tanh": 1e9})


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


# -- measuring ---------------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def tiny():
    """The whole way, at a fiftieth of the sizes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "BACKEND", "aot_eager")
        patch.setattr(calibrate, "NOISE", float("inf"))
        said: list[str] = []
        return calibrate.calibrate(torch.device("cpu"), part=0.02, rounds=1, told=said.append), said


def test_every_kind_of_call_is_measured(tiny):
    found, said = tiny
    assert set(found.machine.kernels) == set(KINDS) - {"rows", "sort"}         # these are bandwidth, and a function
    assert found.about.measured and found.about.threads == torch.get_num_threads() and said[-1] == "in turn"


def test_every_number_is_sound(tiny):
    """The file that it is written to is read again, which refuses what is not finite or below 0."""
    found, _ = tiny
    path = machines.write(found)
    again = machines.read(path).machine
    assert again.bandwidth == found.machine.bandwidth and again.kernels["packed"] == found.machine.kernels["packed"]


def test_a_noisy_machine_is_refused(monkeypatch):
    monkeypatch.setattr(calibrate, "GROUPS", {})
    monkeypatch.setattr(calibrate, "in_turn", lambda *_: [[1.0, 2.0, 1.0, 2.0]])
    with pytest.raises(PlaitError) as why: calibrate.calibrate(torch.device("cpu"))
    assert why.value.diagnostics[0].code == "E0672" and "67%" in why.value.diagnostics[0].numbers


def test_the_spread_is_that_of_the_quartiles():
    assert calibrate.spread([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx((4 - 2) / 3) and calibrate.spread([1.0]) == 0


# -- from times to numbers -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", sorted(KNOWN.kernels))
def test_numbers_are_found_again(kind):
    """Times that the known numbers give lead to numbers that give these times, also at sizes in between."""
    made = [Call(kind, "", "", float(m * k * n), (m, k, n)) if kind == "packed" else Call(kind, "", "", bytes=1e3 * m * k * n, operands=m)
            for m, k, n in ((8, 64, 64), (32, 64, 512), (32, 512, 64), (128, 512, 512), (16, 256, 256), (64, 1024, 64))]
    points = [(c, seconds(c, KNOWN).total) for c in made]
    found = calibrate.fitted(replace(KNOWN, kernels={}), kind, points, Kernel(1e11, call=1e-6))
    on = replace(KNOWN, kernels={kind: found})
    between = Call(kind, "", "", 48.0 * 300 * 300, (48, 300, 300)) if kind == "packed" else Call(kind, "", "", bytes=1e9, operands=40)
    for c in (*made, between): assert seconds(c, on).total == pytest.approx(seconds(c, KNOWN).total, rel=0.03)


# -- the file ------------------------------------------------------------------------------------------------------------------
def here(threads: int = 2, torch: str = "2.13.0"): return machines.known("cpu", "float32", threads, "host", torch)


def test_written_and_read(tmp_path):
    path = machines.write(Measured(ABOUT, KNOWN))
    assert here() == Measured(ABOUT, KNOWN)
    assert [p.name for p in path.parent.iterdir()] == [path.name] and path.parent == tmp_path / "plait"
    assert json.loads(path.read_text())["plait_machine"] == 1


def code(what) -> str:
    with pytest.raises(PlaitError) as why: what()
    (found,) = why.value.diagnostics
    assert found.help
    return found.code


def test_another_number_of_threads_is_not_mixed():
    machines.write(Measured(ABOUT, KNOWN))
    assert code(lambda: here(4)) == "E0670" and here(2)


def test_another_torch_is_not_mixed():
    machines.write(Measured(ABOUT, KNOWN))
    assert code(lambda: here(torch="2.14.0")) == "E0670"


def test_a_torn_file_is_a_sentence():
    path = machines.write(Measured(ABOUT, KNOWN))
    path.write_text(path.read_text()[:100])
    assert code(here) == "E0671"


PLAIN = {"plait_machine": 1, "rate": 5e13, "bandwidth": 2e12, "latency": 5e-6}
WRONG = [{"rate": 0}, {"rate": None}, {"rate": "fast"}, {"rate": True}, {"rate": float("nan")}, {"bandwidth": []}, {"bandwidth": -1},
         {"bandwidth": [[1, 2, 3]]}, {"latency": -1}, {"kernels": []}, {"kernels": {"no": {}}}, {"kernels": {"packed": 3}},
         {"kernels": {"packed": {"speed": 3}}}, {"kernels": {"packed": {"rate": 0}}}, {"kernels": {"packed": {"half": 3}}},
         {"functions": {"exp": 0}}, {"plait_machine": 2}, {"dtype": "int3"}]


@pytest.mark.parametrize("change", WRONG, ids=json.dumps)
def test_what_is_no_machine_is_a_sentence(tmp_path, change):
    (tmp_path / "m.json").write_text(json.dumps(PLAIN | change))
    assert code(lambda: machines.read(tmp_path / "m.json")) == "E0671"


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff\xfe", b"3"])
def test_what_is_no_json_is_a_sentence(tmp_path, content):
    (tmp_path / "m.json").write_bytes(content)
    assert code(lambda: machines.read(tmp_path / "m.json")) == "E0671"


def test_a_folder_and_a_missing_file_are_sentences(tmp_path):
    assert code(lambda: machines.read(tmp_path)) == code(lambda: machines.read(tmp_path / "none")) == "E0671"


def test_three_numbers_are_a_machine(tmp_path):
    (tmp_path / "m.json").write_text(json.dumps(PLAIN | {"kernels": {"product": {"half": [8, 8, 8]}}}))
    found = machines.read(tmp_path / "m.json")
    assert found.machine.rate == 5e13 and found.machine.brings(1) == 2e12 and not found.about.measured
    assert {k.rate for k in found.machine.kernels.values()} == {5e13} and len(found.machine.kernels) == 3
