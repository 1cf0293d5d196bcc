"""Checkpoints: the weights, what the optimiser remembers, and where the run stands, as three files with checksums; a fourth has
the moving average of the weights, where there is one.

A checkpoint is written beside its place, synced, then renamed: whatever stands under `checkpoints/step-…` was complete once.
What was damaged later is found by the checksums. The newest complete checkpoint is where a run stands; there is no other pointer."""
from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from plait.dsl.errors import PlaitError, error
from plait.runtime import optim, sharded
from plait.runtime.ranks import ALONE, Ranks

FORMAT = 2
WEIGHTS, MEMORY, AVERAGE, STATE = "model.safetensors", "optimizer.safetensors", "average.safetensors", "state.json"


@dataclass(frozen=True)
class Best:
    """The step whose checkpoint is kept as the best, and the value of the metric there."""
    step: int
    value: float


@dataclass(frozen=True)
class State:
    """Where a run stands. tokens: targets trained on. seconds: in training steps, without evaluations. spec: SHA-256 of the spec's text."""
    step: int
    tokens: int
    seconds: float
    spec: str
    threads: int
    best: Best | None = None


def place(folder: Path, step: int) -> Path:
    return folder / "checkpoints" / f"step-{step:06d}"


def fingerprint(spec_text: str) -> str:
    return hashlib.sha256(spec_text.encode()).hexdigest()


def save(folder: Path, module: nn.Module, optimizer: torch.optim.Optimizer, state: State, keep: int = 2,
         average: optim.Average | None = None, ranks: Ranks = ALONE) -> Path:
    """Writes the checkpoint of `state.step` of the run in `folder` and drops all but the last `keep` and the best. Of several ranks that
    hold parts each writes its own, together; else the first writes.
    Raises PlaitError where the disk does not take it; what stood there before still stands."""
    final = place(folder, state.step)
    beside = final.with_name(f".{final.name}.{'parts' if ranks.parts else os.getpid()}")
    if not (ranks.lead or ranks.parts): return final
    try:
        if ranks.lead:
            for torn in final.parent.glob(".step-*"): shutil.rmtree(torn, ignore_errors=True)     # of a run that was killed
            beside.mkdir(parents=True)
        tensors = {WEIGHTS: module.state_dict(), MEMORY: optim.state_tensors(module, optimizer),
                   **({AVERAGE: average.values} if average is not None else {})}
        if ranks.parts:
            ranks.wait()                                             # for the folder
            sharded.save(beside, {_group(name): found for name, found in tensors.items()})
            if not ranks.lead:
                ranks.wait()
                return final
        else:
            for name, found in tensors.items(): _save_tensors(found, beside / name)
        names = sorted(p.name for p in beside.iterdir())
        for name in names: _sync(beside / name)
        content = {"format": FORMAT, **asdict(state), "files": {name: _sha256(beside / name) for name in names}}
        (beside / STATE).write_text(json.dumps({**content, "check": _check(content)}, indent=1))
        _sync(beside / STATE)
        _sync(beside)
        if final.exists(): shutil.rmtree(final)                      # of the same step: torn, or the same bits
        beside.rename(final)
        _sync(final.parent)
        if ranks.parts: ranks.wait()
    except (OSError, SafetensorError) as why:
        shutil.rmtree(beside, ignore_errors=True)
        said = getattr(why, "strerror", None) or why
        raise error("E0623", f"the checkpoint of step {state.step:,} cannot be written: {said}", help=str(final)) from None
    there = steps(folder)
    later = [step for step in there if step > state.step]            # damaged ones, passed over: of a future that is another
    for old in (*[step for step in there if step <= state.step][:-keep], *later):
        if state.best is None or old != state.best.step: shutil.rmtree(place(folder, old), ignore_errors=True)
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
            say(f"{why}\ntaking the one before it")
    raise error("E0621", f"`{folder}` holds no checkpoint", help="plait train SPEC --out RUN, with another folder, starts a new run")


def check(folder: Path, step: int, spec_text: str) -> State:
    """The state of a checkpoint whose files are whole. Raises PlaitError with what is wrong."""
    at = place(folder, step)
    def refuse(why: str) -> PlaitError: return error("E0621", f"the checkpoint of step {step:,} {why}", help=str(at))

    try: content = json.loads((at / STATE).read_text())
    except OSError: raise refuse(f"has no {STATE}: it was not written to the end") from None
    except (ValueError, RecursionError): raise refuse(f"is torn: {STATE} cannot be read") from None
    if not isinstance(content, dict): raise refuse(f"is torn: {STATE} cannot be read")
    if content.get("format") != FORMAT:
        raise refuse(f"was not written by this version of plait: it has the format {content.get('format')}, this one reads {FORMAT}")
    if content.pop("check", None) != _check(content): raise refuse(f"is damaged: {STATE} is not as it was written")
    for name, written in content["files"].items():
        try: now = _sha256(at / name)
        except OSError: raise refuse(f"has no {name}") from None
        if now != written: raise refuse(f"is damaged: {name} is not as it was written")
    if content["step"] != step: raise refuse(f"is not of that step, but of step {content['step']:,}")
    if content["spec"] != fingerprint(spec_text): raise refuse("belongs to another spec")
    return State(**{name: content[name] for name in State.__dataclass_fields__} | {"best": content["best"] and Best(**content["best"])})


def load(folder: Path, step: int, module: nn.Module, optimizer: torch.optim.Optimizer | None = None,
         average: optim.Average | None = None) -> None:
    """Puts the weights, what the optimiser remembers, and the average, back bit for bit.
    Raises PlaitError where the names or shapes are not the module's."""
    at = place(folder, step)
    own = module.state_dict()
    weights = _read(at, WEIGHTS, own.get)
    _same(own, weights, step, at)
    module.load_state_dict(weights)
    if average is not None:
        means = _read(at, AVERAGE, average.values.get)
        _same(average.values, means, step, at)
        for name, value in means.items(): average.values[name].copy_(value)
    if optimizer is None: return
    parameters = dict(module.named_parameters())
    try: optim.restore(module, optimizer, _read(at, MEMORY, lambda name: parameters.get(name.rpartition("/")[0])))
    except KeyError as why:
        raise error("E0621", f"the checkpoint of step {step:,} belongs to another model: there is no {why}", help=str(at)) from None


def _same(own: Mapping[str, Tensor], found: Mapping[str, Tensor], step: int, at: Path) -> None:
    wrong = sorted(own.keys() ^ found.keys()) or [k for k in own if own[k].shape != found[k].shape]
    if wrong:
        raise error("E0621", f"the checkpoint of step {step:,} belongs to another model: `{wrong[0]}` differs"
                    + (f", and {len(wrong) - 1} more" if wrong[1:] else ""), help=str(at))


def take(folder: Path, step: int, module: nn.Module) -> bool:
    """The module takes the moving average of the weights where the checkpoint has one, else the weights. Tells which."""
    load(folder, step, module)
    at = place(folder, step)
    if not (there := _group(AVERAGE) in sharded.groups(at) if sharded.there(at) else (at / AVERAGE).exists()): return False
    average = optim.Average(module, 0.5)
    load(folder, step, module, average=average)
    with torch.no_grad():
        for name, p in module.named_parameters(): p.copy_(average.values[name])
    return there


def averaged(folder: Path, module: nn.Module, count: int, spec_text: str) -> list[int]:
    """The module takes the mean of the weights of the last `count` checkpoints (Vaswani et al. 2017, section 6.1); gives their steps.
    That of step 0 is not one of them. Raises PlaitError where there are fewer, and where one of them is not whole."""
    found = [step for step in steps(folder) if step > 0][-count:]
    if len(found) < count:
        raise error("E0621", f"the mean of {count:,} checkpoints is asked for, and `{folder}` holds {len(found):,}",
                    help=f"every N steps {{ checkpoint(keep = {count}) }} keeps as many")
    own: dict[str, Tensor] = module.state_dict()
    means = {name: torch.zeros_like(t, dtype=torch.float64) for name, t in own.items()}
    for step in found:
        check(folder, step, spec_text)
        weights = _read(place(folder, step), WEIGHTS, own.get)
        _same(own, weights, step, place(folder, step))
        for name, t in weights.items(): means[name] += t.double().to(means[name].device) / count
    module.load_state_dict({name: t.to(own[name].dtype) for name, t in means.items()})
    return found


# ---- tensors and bytes -------------------------------------------------------------------------------------------------
def stored_once(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Every tensor once, on the CPU, under its first name; and for every further name the first one."""
    first: dict[tuple, str] = {}
    also: dict[str, str] = {}
    for name, t in tensors.items():
        key = (t.data_ptr(), t.shape, t.stride(), t.dtype) if t.numel() else (name,)
        if first.setdefault(key, name) != name: also[name] = first[key]
    return {name: t.detach().to("cpu", copy=True).contiguous() for name, t in tensors.items() if name not in also}, also


def _save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """A tensor with several names is stored once, under the first; the others are written down beside it."""
    once, also = stored_once(tensors)
    save_file(once, path, metadata={"also": json.dumps(also)})


def _group(name: str) -> str: return name.removesuffix(".safetensors")


def _read(at: Path, name: str, like: Callable[[str], Tensor | None]) -> dict[str, Tensor]:
    """The tensors of a file, or of its group in a checkpoint that lies in parts. like: by name what a tensor is a part of the model as,
    where it has the same shape. Raises PlaitError."""
    def same(key: str, shape: torch.Size) -> Tensor | None: return t if (t := like(key)) is not None and t.shape == shape else None
    if not sharded.there(at): return {key: sharded.divided(t, same(key, t.shape)) for key, t in _load_tensors(at / name).items()}
    try: return sharded.load(at, _group(name), same)
    except (OSError, ValueError) as why: raise error("E0621", f"`{at}` cannot be read: {why}") from None


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
