"""Checkpoints: the weights, what the optimiser remembers, and where the run stands, as three files with checksums.

A checkpoint is written beside its place, synced, then renamed: whatever stands under `checkpoints/step-…` was complete once.
What was damaged later is found by the checksums. The newest complete checkpoint is where a run stands; there is no other pointer."""
from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from plait.dsl.errors import PlaitError, error
from plait.runtime import optim

FORMAT = 1
WEIGHTS, MEMORY, STATE = "model.safetensors", "optimizer.safetensors", "state.json"


@dataclass(frozen=True)
class State:
    """Where a run stands. tokens: targets trained on. seconds: in training steps, without evaluations. spec: SHA-256 of the spec's text."""
    step: int
    tokens: int
    seconds: float
    spec: str
    threads: int


def place(folder: Path, step: int) -> Path:
    return folder / "checkpoints" / f"step-{step:06d}"


def fingerprint(spec_text: str) -> str:
    return hashlib.sha256(spec_text.encode()).hexdigest()


def save(folder: Path, module: nn.Module, optimizer: torch.optim.Optimizer, state: State, keep: int = 2) -> Path:
    """Writes the checkpoint of `state.step` of the run in `folder` and drops all but the last `keep`.
    Raises PlaitError where the disk does not take it; what stood there before still stands."""
    final = place(folder, state.step)
    beside = final.with_name(f".{final.name}.{os.getpid()}")
    try:
        for torn in final.parent.glob(".step-*"): shutil.rmtree(torn, ignore_errors=True)     # of a run that was killed
        beside.mkdir(parents=True)
        _save_tensors(module.state_dict(), beside / WEIGHTS)
        _save_tensors(optim.state_tensors(module, optimizer), beside / MEMORY)
        for name in (WEIGHTS, MEMORY): _sync(beside / name)
        content = {"format": FORMAT, **vars(state), "files": {name: _sha256(beside / name) for name in (WEIGHTS, MEMORY)}}
        (beside / STATE).write_text(json.dumps({**content, "check": _check(content)}, indent=1))
        _sync(beside / STATE)
        _sync(beside)
        if final.exists(): shutil.rmtree(final)                      # of the same step: torn, or the same bits
        beside.rename(final)
        _sync(final.parent)
    except (OSError, SafetensorError) as why:
        shutil.rmtree(beside, ignore_errors=True)
        said = getattr(why, "strerror", None) or why
        raise error("E0623", f"the checkpoint of step {state.step:,} cannot be written: {said}", help=str(final)) from None
    for old in steps(folder)[:-keep]: shutil.rmtree(place(folder, old), ignore_errors=True)
    return final


def steps(folder: Path) -> list[int]:
    """The steps that have a checkpoint, whole or not, in order."""
    names = (p.name.removeprefix("step-") for p in (folder / "checkpoints").glob("step-*"))
    return sorted(int(name) for name in names if name.isdecimal())


def latest(folder: Path, spec_text: str, say: Callable[[str], None]) -> State:
    """The newest checkpoint that is complete and belongs to the spec. One that is not is passed over, and `say` is told why.
    Raises PlaitError where none is left."""
    found = steps(folder)
    for step in reversed(found):
        try: return check(folder, step, spec_text)
        except PlaitError as why:
            if step == found[0]: raise
            say(f"{why}; taking the one before it")
    raise error("E0621", f"`{folder}` holds no checkpoint", help="plait train SPEC --out RUN, with another folder, starts a new run")


def check(folder: Path, step: int, spec_text: str) -> State:
    """The state of a checkpoint whose files are whole. Raises PlaitError with what is wrong."""
    at = place(folder, step)
    def refuse(why: str) -> PlaitError: return error("E0621", f"the checkpoint of step {step:,} {why}", help=str(at))

    try: content = json.loads((at / STATE).read_text())
    except OSError: raise refuse(f"has no {STATE}: it was not written to the end") from None
    except ValueError: raise refuse(f"is torn: {STATE} cannot be read") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT: raise refuse("was not written by this version of plait")
    if content.pop("check", None) != _check(content): raise refuse(f"is damaged: {STATE} is not as it was written")
    for name, written in content["files"].items():
        try: now = _sha256(at / name)
        except OSError: raise refuse(f"has no {name}") from None
        if now != written: raise refuse(f"is damaged: {name} is not as it was written")
    if content["step"] != step: raise refuse(f"is not of that step, but of step {content['step']:,}")
    if content["spec"] != fingerprint(spec_text): raise refuse("belongs to another spec")
    return State(**{name: content[name] for name in State.__dataclass_fields__})


def load(folder: Path, step: int, module: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
    """Puts the weights, and what the optimiser remembers, back bit for bit.
    Raises PlaitError where the names or shapes are not the module's."""
    at = place(folder, step)
    weights = _load_tensors(at / WEIGHTS)
    own = module.state_dict()
    wrong = sorted(own.keys() ^ weights.keys()) or [k for k in own if own[k].shape != weights[k].shape]
    if wrong:
        raise error("E0621", f"the checkpoint of step {step:,} belongs to another model: `{wrong[0]}` differs"
                    + (f", and {len(wrong) - 1} more" if wrong[1:] else ""), help=str(at))
    module.load_state_dict(weights)
    if optimizer is None: return
    try: optim.restore(module, optimizer, _load_tensors(at / MEMORY))
    except KeyError as why:
        raise error("E0621", f"the checkpoint of step {step:,} belongs to another model: there is no {why}", help=str(at)) from None


# ---- tensors and bytes -------------------------------------------------------------------------------------------------
def _save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """A tensor with several names is stored once, under the first; the others are written down beside it."""
    first: dict[tuple, str] = {}
    also: dict[str, str] = {}
    for name, t in tensors.items():
        key = (t.data_ptr(), t.shape, t.stride(), t.dtype) if t.numel() else (name,)
        if first.setdefault(key, name) != name: also[name] = first[key]
    once = {name: t.detach().to("cpu", copy=True).contiguous() for name, t in tensors.items() if name not in also}
    save_file(once, path, metadata={"also": json.dumps(also)})


def _load_tensors(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}              # noqa: SIM118 (not a mapping)
            also = json.loads((file.metadata() or {}).get("also", "{}"))
    except (OSError, SafetensorError) as why: raise error("E0621", f"`{path}` cannot be read: {why}") from None
    return {**tensors, **{name: tensors[first] for name, first in also.items()}}


def _sha256(path: Path) -> str:
    with path.open("rb") as file: return hashlib.file_digest(file, "sha256").hexdigest()


def _check(content: dict) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _sync(path: Path) -> None:
    """To the disk, not only to the system's memory."""
    descriptor = os.open(path, os.O_RDONLY)
    try: os.fsync(descriptor)
    finally: os.close(descriptor)
