"""Where a model runs."""
from __future__ import annotations

import torch

from plait.dsl.errors import error


def device_of(name: str | torch.device) -> torch.device:
    """`auto` is the GPU where there is one. Raises PlaitError for a device that is not there."""
    if name == "auto": return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try: found = torch.device(name)
    except (RuntimeError, TypeError): raise error("E0615", f"there is no device `{name}`", help="cpu or cuda") from None
    if found.type not in ("cpu", "cuda"): raise error("E0615", f"plait runs on cpu and cuda, not on {found.type}", help="cpu or cuda")
    if found.type == "cuda" and not torch.cuda.is_available():
        raise error("E0615", "no GPU is to be seen by torch here", help="cpu is always there")
    if found.type == "cpu" and found.index: raise error("E0615", f"there is one cpu, not a number {found.index}", help="cpu")
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise error("E0615", f"there is no GPU {found.index}: torch sees {torch.cuda.device_count()}", help="cuda is the first of them")
    return found
