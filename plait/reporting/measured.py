"""What was measured, for a report: the curves of runs, and the times of a benchmark. Knows no torch."""
from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from plait.dsl.errors import error
from plait.runtime.folder import EXPERIMENT, rows
from plait.runtime.listing import MARKS, listed

DEEPEST = 3                                                   # folders below the one that is given
MOST_POINTS = 1500                                            # of a curve; more of them are thinned out evenly
KEPT = ("step", "seconds", "loss", "bits_per_token", "accuracy", "bleu")


# ---- runs --------------------------------------------------------------------------------------------------------------------------
def folders(given: Path) -> list[Path]:
    """The run folders in a folder, or the one that it is. Raises PlaitError where there is none."""
    if not given.is_dir():
        raise error("E0620", f"there is no folder `{given}`", help="a run folder, or one that holds run folders; plait runs lists them")
    try: found = list(_inside(given, DEEPEST))
    except OSError as why: raise error("E0620", f"`{given}` cannot be read: {why.strerror or why}") from None
    if not found: raise error("E0620", f"`{given}` holds no run", help="plait train SPEC --out RUN makes one")
    return found


def _inside(folder: Path, deep: int) -> Iterator[Path]:
    if any((folder / name).exists() for name in MARKS): yield folder; return
    for inner in sorted(p for p in folder.iterdir() if p.is_dir()) if deep else ():
        yield from _inside(inner, deep - 1)


def run(folder: Path, name: str) -> dict[str, Any]:
    """One run: where it stands, and its rows of training and of validation, each a list of [step, seconds, loss, …] by KEPT."""
    told = listed(folder)
    step = _step(folder, told.model)
    curves: dict[str, list[list[float | None]]] = {"train": [], "validation": []}
    for row in rows(folder):
        if step is not None: row = {**row, "seconds": step * row["step"]}
        if isinstance(row.get("split"), str) and row["split"] in curves: curves[row["split"]].append([_finite(row.get(k)) for k in KEPT])
    return {"name": name, "model": told.model, "state": told.state, "reason": told.reason, "step": told.step, "planned": told.planned,
            "loss": told.loss, "best": {k: {"value": v, "step": s} for k, (v, s) in told.best.items()}, "seconds": told.seconds,
            "in_turn": step is not None, "rate": told.rate, "device": told.device, "begun": f"{told.date:%Y-%m-%d %H:%M}",
            **{split: _thinned(found) for split, found in curves.items()}}


def _step(folder: Path, model: str) -> float | None:
    """Seconds of a step of a model as its experiment measured them in turn; None of a run by itself, whose own clock tells."""
    try: each = json.loads((folder.resolve().parents[1] / EXPERIMENT).read_bytes())["step_seconds"][model]
    except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError): return None
    return statistics.median(each) if isinstance(each, list) and each and all(_finite(t) for t in each) else None


def runs(given: Iterable[Path]) -> list[dict[str, Any]]:
    """All runs of the folders given, each once. Raises PlaitError for a folder without one."""
    found: dict[Path, Path] = {}
    for folder in given:
        for f in folders(folder): found.setdefault(f.resolve(), f)
    names = [_named(f, found.values()) for f in found.values()]
    return [run(f, name) for f, name in zip(found.values(), names)]


def _named(folder: Path, others: Iterable[Path]) -> str:
    """The last parts of a path that no other has."""
    parts, rest = folder.resolve().parts, [o.resolve().parts for o in others if o.resolve() != folder.resolve()]
    k = next((k for k in range(1, len(parts)) if all(o[-k:] != parts[-k:] for o in rest)), len(parts))
    return "/".join(parts[-k:])


def _finite(x: object) -> float | None:
    """A number that JSON can say, else None."""
    return x if isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x) else None


def _thinned(found: list[list[float | None]]) -> list[list[float | None]]:
    """Every k-th row and the last."""
    k = -(-len(found) // MOST_POINTS) or 1
    return found[::k] + (found[-1:] if found and (len(found) - 1) % k else [])


# ---- benchmarks --------------------------------------------------------------------------------------------------------------------
def bench(path: Path) -> dict[str, Any]:
    """The machine and the rows of a benchmark's JSON: model, length, and seconds: median, low, high. Raises PlaitError."""
    def refuse(why: str): return error("E0640", f"`{path}` is not the JSON of a benchmark: {why}",
                                       help='{"machine": {…}, "rows": [{"model": "m", "length": 128, "median": 0.01, …}]}')
    try: found = json.loads(path.read_bytes())
    except OSError as why: raise error("E0640", f"`{path}` cannot be read: {why.strerror or why}", help="--bench FILE.json") from None
    except (ValueError, RecursionError) as why: raise refuse(str(why).split("\n")[0]) from None
    if not isinstance(found, dict) or not isinstance(found.get("rows"), list): raise refuse("it is no object with `rows`")
    if not found["rows"]: raise refuse("its `rows` are empty")
    kept = []
    for k, row in enumerate(found["rows"], 1):
        if not isinstance(row, dict): raise refuse(f"row {k} is no object")
        length, median = row.get("length"), _finite(row.get("median"))
        if not isinstance(row.get("model"), str): raise refuse(f"row {k} names no `model`")
        if type(length) is not int or length < 1: raise refuse(f"row {k} has no `length`, a whole number of at least 1")
        if median is None or median <= 0: raise refuse(f"row {k} has no `median`, a number of seconds above 0")
        low, high = _finite(row.get("low")), _finite(row.get("high"))
        kept.append({"model": row["model"], "length": length, "median": median,
                     **({"low": low} if low is not None and 0 < low <= median else {}),
                     **({"high": high} if high is not None and high >= median else {})})
    machine = found.get("machine")
    facts = {str(k): str(v) for k, v in machine.items() if isinstance(v, str | int | float)} if isinstance(machine, dict) else {}
    return {"name": path.name, "machine": facts, "noisy": found.get("noisy") is True, "rows": kept}
