"""Training on two processes (gloo, on this machine) against training on one: the same rows of losses and the same weights."""
from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from plait.dsl.errors import PlaitError
from plait.runtime import checkpoint, record, sharded
from plait.runtime.ranks import ALONE, Ranks, fits, join
from plait.runtime.recipe import Described

from . import tiny
from .two_ranks import CASES, COMPILED, LONG, text

SCRIPT = Path(__file__).with_name("two_ranks.py")


def environment(rank: int, count: int, port: int) -> dict[str, str]:
    return {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1"}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("ranks")
    (made / "corpus.txt").write_text("abcd\nbad\ncab\n" * 60)
    torch.set_num_threads(1)
    return made


@pytest.fixture(scope="module")
def two(folder) -> dict:
    """Of every case and way: the weights that two processes ended with, and how many copies were whole at once."""
    tiny.trained(text("in parts", **LONG), folder, "begun by one", steps=4)
    port = free_port()
    run = [subprocess.Popen([sys.executable, str(SCRIPT), str(folder), str(folder / "out")], env=environment(r, 2, port),
                            stderr=subprocess.PIPE, text=True) for r in (0, 1)]
    said = [p.communicate(timeout=240)[1] for p in run]
    assert [p.returncode for p in run] == [0, 0], "\n".join(said)[-3000:]
    return torch.load(folder / "out")


@pytest.fixture(scope="module")
def one(folder):
    """What a single process ends with, trained once a case."""
    kept: dict[str, dict] = {}

    def of(case: str) -> dict:
        if case not in kept:
            _, module = tiny.trained(text(case), folder, case)
            kept[case] = {name: p.detach() for name, p in module.named_parameters()}
        return kept[case]
    return of


def close(found: dict, expected: dict, by: float = 2e-6) -> None:
    assert found.keys() == expected.keys()
    for name, p in expected.items(): assert torch.allclose(found[name], p, rtol=1e-4, atol=by), name


@pytest.mark.parametrize("shard", ["ddp", "fsdp"])
@pytest.mark.parametrize("case", CASES)
def test_two_processes_train_as_one(two, one, folder, case, shard):
    """Losses of steps and of evaluations, gradient norms before clipping, tokens; then the weights. With dropout, too: a rank's numbers
    are those that its rows have in the whole batch."""
    weights, _ = two[f"{case} {shard}"]
    half = case == "half"                                      # bfloat16 has 8 bits
    close(weights, one(case), 2e-3 if half else 2e-6)
    rows, mine = list(record.rows(folder / f"{case} {shard}")), list(record.rows(folder / case))
    assert len(rows) == len(mine) == 6
    for a, b in zip(rows, mine):
        assert (a["step"], a["split"], a["tokens"], a.get("count")) == (b["step"], b["split"], b["tokens"], b.get("count"))
        assert a["loss"] == pytest.approx(b["loss"], rel=5e-3 if half else 1e-5)
        if "gradient_norm" in b: assert a["gradient_norm"] == pytest.approx(b["gradient_norm"], rel=2e-2 if half else 1e-4)
        if "accuracy" in b: assert a["accuracy"] == pytest.approx(b["accuracy"], abs=0.005)


@pytest.mark.parametrize("case", COMPILED)
def test_compiled_bodies_run_in_parts(two, one, case):
    """The code of a body is made once, and called with the parameters of each copy as they stand then."""
    close(two[f"{case} compiled"][0], one(case))


@pytest.mark.parametrize("case, most", [("recomputed", 1), ("deep", 1), ("deep, reversible", 1), ("nested", 2)])
def test_copies_are_whole_only_while_they_run(two, case, most):
    """Of three copies and more the one that runs, forward and backward; of an inner repeat with the outer copy around it. By ddp no unit is
    called at all."""
    assert two[f"{case} fsdp"][1] == most and two[f"{case} ddp"][1] == 0


def test_a_run_of_two_in_parts_goes_on_as_one(two, folder):
    """2 → 1: the checkpoint in parts is read by one process, which ends where the uninterrupted training of one ends."""
    last = checkpoint.place(folder / "begun by two", json.loads((folder / "begun by two/steps.json").read_text())[-1])
    assert sharded.there(last) and len(list(last.glob("*.distcp"))) == 2
    _, whole = tiny.trained(text("in parts", **LONG), folder, "uninterrupted")
    _, module = tiny.resumed(text("in parts", **LONG), folder, "begun by two")
    close(dict(module.named_parameters()), dict(whole.named_parameters()))


def test_a_run_of_one_goes_on_as_two_in_parts(two, folder):
    """1 → 2: an ordinary checkpoint, gone on from in parts, ends with the same weights."""
    _, module = tiny.trained(text("in parts", **LONG), folder, "uninterrupted, too")
    close(two["begun by one"][0], dict(module.named_parameters()))
    assert sharded.there(checkpoint.place(folder / "begun by one", 8))


def test_a_checkpoint_in_parts_is_held_to_its_checksums(two, folder, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(folder / "nested fsdp", run)
    damaged = next(checkpoint.place(run, 4).glob("__1_*.distcp"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    with pytest.raises(PlaitError, match="is damaged: __1_0.distcp"): checkpoint.check(run, 4, record.spec_text(run))
    said: list[str] = []
    assert checkpoint.latest(run, record.spec_text(run), said.append).step == 2 and "taking the one before it" in said[0]
    (checkpoint.place(run, 2) / sharded.INDEX).unlink()
    with pytest.raises(PlaitError, match=f"has no {sharded.INDEX}"): checkpoint.check(run, 2, record.spec_text(run))


def test_one_process_evaluates_and_averages_what_two_have_trained(two, one, folder):
    made = tiny.made(text("in parts"), folder)
    run = folder / "in parts fsdp"
    assert checkpoint.take(run, 4, made.module)                # its moving average
    assert not torch.equal(next(made.module.parameters()), next(iter(one("in parts").values())))
    assert checkpoint.averaged(run, made.module, 2, record.spec_text(run)) == [2, 4]


def test_the_run_says_how_it_is_shared(two, folder):
    assert record.ranks(folder / "nested fsdp") == ("fsdp", False) and record.ranks(folder / "nested ddp") == ("ddp", False)
    assert json.loads((folder / "nested fsdp/run.json").read_text())["ranks"] == {"count": 2, "shard": "fsdp", "offload": False}


# ---- what needs no second process ---------------------------------------------------------------------------------------
def test_rows_are_shared_in_order_and_filled_up_without_targets():
    x = torch.tensor([[1, 2], [3, 4], [5, -1 - 6]])
    first, second = (Ranks(r, 2).rows((x,))[0] for r in (0, 1))
    assert first.tolist() == [[1, 2], [3, 4]]
    assert second.tolist() == [[5, -7], [-6, -7]]              # the last row once more, and no symbol of it counts
    assert ALONE.rows((x,))[0] is x


@pytest.mark.parametrize("told, shard, offload, said", [
    ({"WORLD_SIZE": "2"}, "ddp", False, "RANK= and WORLD_SIZE=2"),
    ({"WORLD_SIZE": "2", "RANK": "2"}, "ddp", False, "RANK=2 and WORLD_SIZE=2"),
    ({}, "zero", False, "ddp or fsdp, not by `zero`"), ({}, "ddp", True, "in parts only"), ({}, "fsdp", True, "runs on the CPU")])
def test_what_keeps_processes_from_coming_together(monkeypatch, told, shard, offload, said):
    for name in ("RANK", "WORLD_SIZE"): monkeypatch.delenv(name, raising=False)
    for name, value in told.items(): monkeypatch.setenv(name, value)
    with pytest.raises(PlaitError, match=said): join(torch.device("cpu"), shard, offload)


def test_alone_there_is_nothing_to_share(monkeypatch):
    for name in ("RANK", "WORLD_SIZE"): monkeypatch.delenv(name, raising=False)
    ranks, device = join(torch.device("cpu"), "fsdp")
    assert not ranks.together and not ranks.parts and device == torch.device("cpu") and str(ranks) == ""


def test_an_optimizer_of_whole_matrices_is_not_for_parts():
    for kind in ("muon", "adafactor"):
        with pytest.raises(PlaitError, match=f"`{kind}` cannot be trained with yet"): fits(Ranks(0, 2, "fsdp"), Described(kind, {}))
        fits(Ranks(0, 2, "ddp"), Described(kind, {}))


def test_a_process_that_is_killed_ends_the_training(folder, tmp_path):
    """Without a launcher that would do it: the survivor says so and ends with code 1; its run can be gone on with."""
    (tmp_path / "m.plait").write_text(text("nested", stop="100k steps", data=f'text("{folder / "corpus.txt"}", split = (0.8, 0.2))'))
    port, run = free_port(), tmp_path / "run"
    command = [sys.executable, "-m", "plait", "train", str(tmp_path / "m.plait"), "--eager", "--device", "cpu", "--out", str(run)]
    both = [subprocess.Popen(command, env=environment(r, 2, port), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            for r in (0, 1)]
    try:
        for _ in range(1200):
            if len(list(record.rows(run))) > 3 or any(p.poll() is not None for p in both): break
            try: both[0].wait(0.1)
            except subprocess.TimeoutExpired: pass
        both[1].kill()
        said = both[0].communicate(timeout=60)[1]
    finally:
        for p in both: p.kill()
    assert both[0].returncode == 1 and "error[E0626]: rank 0 has lost the other processes" in said and "Traceback" not in said, said
    assert checkpoint.latest(run, record.spec_text(run), lambda _: None).step >= 2
