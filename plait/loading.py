"""Trained models in a plain script: from a run folder, or from an exported file. torch is imported where it is needed, and not before."""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from plait import files

if TYPE_CHECKING:
    from plait.runtime.foreign.weights import Loaded


def load_run(folder: str | Path, device: str = "cpu", compile: bool = True, step: int | None = None,
             set: Mapping[str, object] | None = None) -> Loaded:
    """The model of a run with its trained weights, a torch.nn.Module in evaluation mode; `.codec` says what its symbols stand for.
    step: that of another checkpoint than the last; set: overrides of what has no weights. The data is not needed. Raises PlaitError."""
    from plait.runtime.device import device_of
    from plait.runtime.foreign import weights
    settings = files.single(files.overrides(dict(set or {})))
    return weights.from_run(Path(folder), step=step, settings=settings, device=device_of(device), compile=compile)


def from_safetensors(path: str | Path, device: str = "cpu", compile: bool = True) -> Loaded:
    """The model of a file that `plait export --to safetensors` or `plait import` has written, as `load_run`. Raises PlaitError."""
    from plait.runtime.device import device_of
    from plait.runtime.foreign import weights
    return weights.from_file(Path(path), device=device_of(device), compile=compile)
