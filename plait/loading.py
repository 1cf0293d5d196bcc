"""Trained models in a plain script: from a run folder, or from an exported file. torch is imported where it is needed, and not before."""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from plait import given

if TYPE_CHECKING:
    from plait.runtime.foreign.weights import Loaded


def load_run(folder: str | Path, device: str = "cpu", compile: bool = True, step: int | None = None,
             set: Mapping[str, object] | None = None, best: bool = False, average: int | None = None) -> Loaded:
    """The model of a run with its trained weights, a torch.nn.Module in evaluation mode; `.codec` says what its symbols stand for.
    step: that of another checkpoint than the last; best, average: as `plait evaluate` has them; set: overrides of what has no weights. The
    data is not needed. Raises PlaitError."""
    from plait.runtime.device import device_of
    from plait.runtime.foreign import weights
    folder, settings = given.path(folder, "a run"), given.single(set)
    step = given.count(step, "step", 0) if step is not None else None
    return weights.from_run(folder, step=step, best=best, average=average, settings=settings, device=device_of(device), compile=compile)


def from_safetensors(path: str | Path, device: str = "cpu", compile: bool = True) -> Loaded:
    """The model of a file that `plait export --to safetensors` or `plait import` has written, as `load_run`. Raises PlaitError."""
    from plait.runtime.device import device_of
    from plait.runtime.foreign import weights
    return weights.from_file(given.path(path, "a file of weights"), device=device_of(device), compile=compile)
