"""The folder of an experiment: what was asked for, on which data, and the time of a step of each model, in `experiment.json`."""
from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plait.dsl.errors import PlaitError, error
from plait.runtime.comparison import Comparison, from_json
from plait.runtime.folder import EXPERIMENT
from plait.runtime.laboratory.turns import Times

FORM = 1


@dataclass(frozen=True)
class Kept:
    """spec: resolved; source: the folder where its data starts; data: model → what must not change of it; times: model → seconds of a
    step, a number a round. content: the whole file."""
    spec: str
    source: Path
    comparison: Comparison
    kernels: Mapping[str, str]
    compiled: bool
    data: Mapping[str, Any]
    times: Mapping[str, Times]
    content: Mapping[str, Any]


def read(folder: Path) -> Kept:
    """What a folder says of its experiment. Raises PlaitError where it holds none, or a damaged one."""
    try: found = json.loads((folder / EXPERIMENT).read_bytes())
    except OSError: raise error("E0642", f"`{folder}` holds no experiment", help="plait compare SPEC --out FOLDER makes one") from None
    except (ValueError, RecursionError): raise damaged(folder, "it is no JSON") from None
    match found:
        case {"plait": 1, "spec": str(spec), "source": str(source), "comparison": dict(asked), "kernels": dict(kernels),
              "compiled": bool(compiled), "data": dict(data), "step_seconds": dict(seconds)}: pass
        case {"plait": int(form)} if form != FORM: raise damaged(folder, f"it is of form {form}, and this plait reads form {FORM}")
        case _: raise damaged(folder, "something is missing in it")
    if not seconds or not all(isinstance(t, list) and t and all(map(_positive, t)) for t in seconds.values()):
        raise damaged(folder, "its step times are no times")
    try: comparison = from_json(asked)
    except (KeyError, TypeError, ValueError): raise damaged(folder, "what it says of the comparison cannot be read") from None
    times = {m: Times(tuple(map(float, t))) for m, t in seconds.items()}
    return Kept(spec, Path(source), comparison, kernels, compiled, data, times, found)


def _positive(t: object) -> bool:
    return isinstance(t, float | int) and not isinstance(t, bool) and 0 < t < math.inf


def damaged(folder: Path, why: str) -> PlaitError:
    """What to say of a file that cannot be used."""
    return error("E0642", f"{EXPERIMENT} in `{folder}` cannot be used: {why}",
                 help="put it back from a copy; or begin anew, with another --out")


def empty(folder: Path) -> None:
    """Raises PlaitError where a folder that holds no experiment holds something else."""
    try: inside = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    except OSError as why: raise error("E0620", f"`{folder}` cannot be read: {why.strerror or why}", help="--out FOLDER") from None
    if inside: raise error("E0642", f"`{folder}` holds something else than an experiment", help="--out with another folder")


def keep(folder: Path, content: Mapping[str, Any]) -> None:
    """Beside, then renamed. Raises PlaitError where the disk refuses."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        beside = folder / f".{EXPERIMENT}.new"
        beside.write_text(json.dumps(content, indent=1) + "\n")
        os.replace(beside, folder / EXPERIMENT)
    except OSError as why:
        raise error("E0620", f"the experiment cannot be kept in `{folder}`: {why.strerror or why}", help="--out FOLDER") from None
