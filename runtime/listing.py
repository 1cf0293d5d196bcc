"""Run folders as rows of a table: what was trained, how far it got, what it reached. Needs no torch, and changes nothing.

A folder that cannot be read is a row too, with the reason."""
from __future__ import annotations

import fcntl
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from plait.compiler.expand import open_file
from plait.dsl.errors import PlaitError, error
from plait.dsl.parser import parse
from plait.runtime.folder import ABOUT, EXPERIMENT, ROWS, RUNS, SPEC, rows
from plait.runtime.recipe import Amount, recipe
from plait.runtime.sources import GROWING

TABLE, MACHINE = "table.json", "machine.json"
CHECKPOINTS, STATE = "checkpoints", "state.json"
MARKS = (SPEC, ABOUT, ROWS, CHECKPOINTS)                      # one of these makes a folder that of a run
COUNTS = {"step", "count", "seconds", "tokens", "lr", "gradient_norm"}


@dataclass(frozen=True)
class Listed:
    """One run. date: when it began; step: of the last row; planned: its last step, as training wrote it when the run began, None where a
    run stops by tokens or minutes, which `until` says; best, last: metric → (value, step) over the validation rows; loss: of the last
    training step; tokens, seconds, rate: targets, time and targets a second in training steps; reason: what is wrong with a damaged one."""
    folder: Path
    state: str
    date: datetime
    model: str = ""
    spec: str = ""
    step: int = 0
    planned: int | None = None
    until: str = ""
    loss: float | None = None
    best: dict[str, tuple[float, int]] = field(default_factory=dict)
    last: dict[str, tuple[float, int]] = field(default_factory=dict)
    seconds: float | None = None
    tokens: int | None = None
    rate: float | None = None
    device: str = ""
    reason: str = ""


def runs(folder: Path) -> list[Listed]:
    """The runs in a folder, of an experiment, or the one that it is, oldest first. Raises PlaitError where there is no such folder."""
    if not folder.is_dir():
        raise error("E0620", f"there is no folder `{folder}`", help="plait runs FOLDER; plait train makes runs/ by itself")
    if (folder / EXPERIMENT).exists() and (folder / RUNS).is_dir(): folder /= RUNS
    try: inside = [folder] if _is_run(folder) else [p for p in folder.iterdir() if p.is_dir() and _is_run(p)]
    except OSError as why: raise error("E0620", f"`{folder}` cannot be read: {why.strerror or why}") from None
    return sorted(map(listed, inside), key=lambda r: (r.date, r.folder.name))


def listed(folder: Path) -> Listed:
    """What a run folder tells of itself."""
    found: dict[str, Any] = {"date": _begun(folder)}
    try:
        about = _object(folder / ABOUT)
        found["model"] = str(about.get("model", ""))
        try: found["spec"] = str(_object(folder / TABLE).get("file", ""))
        except ValueError: pass                                 # only people read it
        try: found["device"] = str(_object(folder / MACHINE).get("device", ""))
        except ValueError: pass
        found |= _measured(folder)
        running = held(folder)
        if type(planned := about.get("planned")) is int: found["planned"] = planned
        if running and not (folder / SPEC).exists(): return Listed(folder, "running", **found)
        if not (folder / SPEC).exists(): raise ValueError("it was stopped before its first checkpoint")
        stop = _stop(folder, found["model"])
        found["until"] = _until(stop)
        if running: return Listed(folder, "running", **found)
        _sound(folder)
        return Listed(folder, "finished" if _reached(stop, found.get("planned"), found) else "stopped", **found)
    except (ValueError, PlaitError) as why:
        return Listed(folder, "damaged", **found, reason=str(why).split("\n")[0])
    except OSError as why:
        return Listed(folder, "damaged", **found, reason=f"{Path(why.filename).name if why.filename else folder}: {why.strerror or why}")


def held(folder: Path) -> bool:
    """Does a process train there? (To ask is to hold it for the moment of the question, shared, so that askers do not meet.)"""
    try: lock = (folder / ".lock").open()
    except OSError: return False
    with lock:
        try: fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError: return True
        except OSError: pass                                    # a file system without locks
    return False


def _is_run(folder: Path) -> bool:
    return any((folder / name).exists() for name in MARKS)


def _begun(folder: Path) -> datetime:
    for p in (folder / MACHINE, folder):                        # the machine is written once, when a run begins
        try: return datetime.fromtimestamp(int(p.stat().st_mtime))
        except OSError: continue
    return datetime.fromtimestamp(0)


def _object(path: Path) -> dict[str, Any]:
    """Raises ValueError with what is wrong, in words."""
    try: found = json.loads(path.read_bytes())
    except OSError as why: raise ValueError(f"{path.name}: {why.strerror or why}") from None
    except (ValueError, RecursionError): found = None
    if not isinstance(found, dict): raise ValueError(f"{path.name} is no JSON object")
    return found


def _measured(folder: Path) -> dict[str, Any]:
    """step, loss, best, last, seconds, tokens and rate, from the rows."""
    best: dict[str, tuple[float, int]] = {}
    last: dict[str, tuple[float, int]] = {}
    found: dict[str, Any] = {"step": 0, "best": best, "last": last}
    for row in rows(folder):
        step = row["step"]
        found["step"] = max(found["step"], step)
        if row.get("split") == "train" and _number(row.get("loss")): found["loss"] = row["loss"]
        if _number(row.get("seconds")) and _number(row.get("tokens")) and row["seconds"] > 1e-9:
            found |= {"seconds": row["seconds"], "tokens": row["tokens"], "rate": row["tokens"] / row["seconds"]}
        if row.get("split") != "validation": continue
        for name, value in row.items():
            if name in COUNTS or not _number(value): continue
            last[name] = value, step
            if name not in best or (value > best[name][0] if name in GROWING else value < best[name][0]): best[name] = value, step
    return found


def _number(x: object) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x)


def _stop(folder: Path, model: str) -> Amount:
    """When the train block of a run's spec ends it. Raises ValueError, PlaitError."""
    try: text = (folder / SPEC).read_text("utf-8")
    except UnicodeDecodeError: raise ValueError(f"{SPEC} is not UTF-8 text") from None
    file = open_file(parse(text, SPEC))
    if model not in file.models: raise ValueError(f"there is no model `{model}` in its spec")
    found = recipe(file.spec, model, file.values(model))
    if found is None: raise ValueError(f"its spec has no train block for `{model}`")
    return found.stop


def _reached(stop: Amount, planned: int | None, found: Mapping[str, Any]) -> bool:
    """Has a run with these rows come to its end? By epochs only where training has written which step that is."""
    amount = float(stop.amount)                                                            # type: ignore[arg-type]
    match stop.unit:
        case "steps": return found["step"] >= amount
        case "tokens": return found.get("tokens", 0) >= amount
        case "minutes": return found.get("seconds", 0.0) >= amount * 60 - 0.0005           # rows have them to three places
    return planned is not None and found["step"] >= planned


def _until(stop: Amount) -> str:
    """The end of a run that no step says."""
    if stop.unit not in ("tokens", "minutes"): return ""
    return f"{float(stop.amount):,.10g} {stop.unit}"                                       # type: ignore[arg-type]


def _sound(folder: Path) -> None:
    """Raises ValueError where the files of the newest checkpoint are not there. What is in them is read by whoever needs it."""
    names = (p.name for p in (folder / CHECKPOINTS).glob("step-*"))
    found = sorted((n for n in names if n.removeprefix("step-").isdecimal()), key=lambda n: int(n.removeprefix("step-")))
    if not found: raise ValueError("it has no checkpoint")
    at = folder / CHECKPOINTS / found[-1]
    def refuse(why: str) -> ValueError: return ValueError(f"its newest checkpoint, {found[-1]}: {why}")
    try: files = _object(at / STATE).get("files")
    except ValueError as why: raise refuse(str(why)) from None
    if not isinstance(files, dict) or not files: raise refuse(f"{STATE} names no files")
    lost = [name for name in files if not (at / name).is_file()]
    if lost: raise refuse(f"{lost[0]} is missing")


# ---- as a program and as a person read it --------------------------------------------------------------------------------------
def as_json(folder: Path, found: list[Listed]) -> dict[str, Any]:
    def metrics(m: dict[str, tuple[float, int]]) -> dict[str, Any]: return {k: {"value": v, "step": s} for k, (v, s) in m.items()}
    return {"plait": 1, "folder": str(folder), "runs": [
        {"run": str(r.folder), "model": r.model, "spec": r.spec, "state": r.state, "reason": r.reason or None, "date": r.date.isoformat(),
         "step": r.step, "planned": r.planned, "loss": r.loss, "best": metrics(r.best), "last": metrics(r.last), "seconds": r.seconds,
         "tokens_per_second": r.rate, "device": r.device} for r in found]}


HEAD = ("run", "model", "spec", "state", "steps", "loss", "best", "last", "tokens/s", "seconds", "device", "begun")
RIGHT = {"steps", "loss", "tokens/s", "seconds"}


def told(folder: Path, found: list[Listed]) -> str:
    """A line a run; best and last are of the validation part, with the step of the best."""
    if not found: return f"no runs in {folder}"
    cells = [_cells(r) for r in found]
    widths = [max(len(line[k]) for line in [HEAD, *cells]) for k in range(len(HEAD))]
    def line(row: tuple[str, ...]) -> str:
        return "  ".join(t.rjust(w) if name in RIGHT else t.ljust(w) for t, w, name in zip(row, widths, HEAD)).rstrip()
    lines = [line(HEAD)]
    for r, row in zip(found, cells):
        lines.append(line(row))
        if r.reason: lines.append(f"  {r.reason}")
    return "\n".join(lines)


def _cells(r: Listed) -> tuple[str, ...]:
    def amount(x: float | None, form: str) -> str: return "" if x is None else format(x, form)
    best = "; ".join(f"{k.replace('_', ' ')} {v:.4f} at {s:,}" for k, (v, s) in r.best.items())
    last = "; ".join(f"{v:.4f}" for v, _ in r.last.values())
    steps = f"{r.step:,}" + (f" / {r.planned:,}" if r.planned is not None else f", to {r.until}" if r.until else "")
    return (r.folder.name, r.model, Path(r.spec).name, r.state, steps, amount(r.loss, ".4f"), best, last, amount(r.rate, ",.0f"),
            amount(r.seconds, ",.1f"), r.device, f"{r.date:%Y-%m-%d %H:%M}")
