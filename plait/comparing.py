"""`plait compare`: several models on one budget, by steps and by seconds. Imports torch."""
from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from plait import files
from plait.compiler.file import File, open_file
from plait.compiler.table import rows
from plait.dsl.errors import error
from plait.dsl.parser import parse
from plait.dsl.spec import Override
from plait.plot import draw_comparison
from plait.render import Table, shown_dims
from plait.runtime import record
from plait.runtime.comparison import comparison
from plait.runtime.folder import EXPERIMENT
from plait.runtime.laboratory.compare import Experiment
from plait.runtime.laboratory.experiment import read
from plait.runtime.laboratory.outcome import Compared, Trained
from plait.runtime.laboratory.turns import ROUNDS, STEADY
from plait.runtime.prepare import Prepared

APART = 1.02                                                  # sizes that are one size
RESULTS, SHOWN, PLOT = "results.json", "results.md", "curves.svg"


def compared(path: Path, *, name: str | None = None, settings: tuple[Override, ...] = (), asked: Mapping[str, str] | None = None,
             out: Path | None = None, device: torch.device | None = None, compile: bool = True, kernels: Mapping[str, str] | None = None,
             rounds: int = ROUNDS, say: Callable[[str], None] = lambda line: None) -> Compared:
    """Makes an experiment, or goes on with the one whose folder `path` is, and writes its results into the folder. asked: keys of the
    compare block, `{"seeds": "1,2"}`, before what it says. Raises PlaitError for what cannot be compared, trained or written."""
    where = device or torch.device("cpu")
    if (path / EXPERIMENT).exists():
        kept = read(path)
        if name or settings or asked or out or kernels or kept.compiled and not compile:
            raise error("E0642", f"the experiment `{path}` goes on as it was asked for",
                        help=f"plait compare {path}, without other options")
        file: File = open_file(parse(kept.spec, str(path / EXPERIMENT)))
        made = Experiment(file, kept.source, kept.comparison, path, device=where, compile=kept.compiled, kernels=kept.kernels,
                          rounds=rounds, say=say, costs=_costs(path))
    else:
        if not path.exists():
            raise error("E0642", f"there is neither a spec nor an experiment `{path}`", help="plait compare SPEC")
        file = files.opened(path, settings)
        wanted = comparison(file, name, asked)
        folder = out or Path("experiments") / f"{wanted.name or path.stem}-{time.strftime('%Y%m%d-%H%M%S')}"
        made = Experiment(file, path.parent, wanted, folder, device=where, compile=compile, kernels=kernels, rounds=rounds, say=say,
                          costs=_costs(path))
    found = made.run()
    written(found, where, found.folder)
    return found


def _costs(path: Path) -> Callable[[Prepared], Mapping[str, Any]]:
    """What was derived of a model, as its run folder keeps it."""
    def of(made: Prepared) -> Mapping[str, Any]:
        names = open_file(parse(made.spec_text)).names
        return Table(str(path), "layer", tuple(rows(made.module.program, "layer")), shown_dims(names)).json()
    return of


def written(found: Compared, device: torch.device, folder: Path) -> None:
    """The results, for programs, for people, and as a drawing where matplotlib is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        record.replace(folder / RESULTS, json.dumps(as_json(found, device), indent=1) + "\n")
        record.replace(folder / SHOWN, markdown(found) + "\n")
    except OSError as why:
        raise error("E0620", f"the results cannot be kept in `{folder}`: {why.strerror or why}", help="make room, and ask again") from None
    try: draw_comparison(found, folder / PLOT)
    except (ImportError, OSError): pass                       # matplotlib is an extra, and the results are kept without a drawing


# -- as a person reads it, and as JSON ------------------------------------------------------------------------------------------------
HEADS = ("model", "parameters", "lr", "best validation loss", "over the seeds", "at step", "ms a step", "seconds to it")


def lines(found: Compared) -> list[tuple[str, ...]]:
    """A line a model, the best first: means over the seeds of each run's own minimum."""
    made: list[tuple[str, ...]] = []
    for m in found.ranking:
        runs = found.chosen(m)
        losses = [r.best.loss for r in runs]
        spread = f"{min(losses):.4f}–{max(losses):.4f}" if len(losses) > 1 else ""
        mean = f"{statistics.mean(losses):.4f}" if math.isfinite(max(losses)) else "diverged"
        step, seconds = (statistics.mean(getattr(r.best, k) for r in runs) for k in ("step", "seconds"))
        rate = runs[0].rate
        made.append((m, f"{found.equals[m].count:,}", "as the spec" if rate is None else f"{rate:g}", mean,
                     spread, f"{step:,.0f}", f"{1e3 * found.times[m].median:.1f}", f"{seconds:,.1f}"))
    return made


def table(found: Compared) -> str:
    rows = [HEADS, *lines(found)]
    wide = [max(len(r[k]) for r in rows) for k in range(len(HEADS))]
    said = ["  " + "  ".join(t.ljust(w) if k == 0 else t.rjust(w) for k, (t, w) in enumerate(zip(r, wide))).rstrip() for r in rows]
    return "\n".join([*said, "", *_notes(found)])


def markdown(found: Compared) -> str:
    rows = ["| " + " | ".join(r) + " |" for r in (HEADS, ("---", *("---:" for _ in HEADS[1:])), *lines(found))]
    return "\n".join([*rows, "", *_notes(found)])


def _notes(found: Compared) -> list[str]:
    seeds = len({r.seed for r in found.runs})
    many = f"means over {seeds} seeds of" if seeds > 1 else "one seed;"
    said = [f"{many} each run's own minimum; seconds: steps × the median of a step, measured in turn"]
    if found.unsteady is not None and found.unsteady > STEADY:
        said.append(f"the times are not steady: the ratios of two such measurements lie some {found.unsteady:.0%} apart")
    sizes = sorted(e.count for e in found.equals.values())
    if found.comparison.fit is not None and sizes[-1] > APART * sizes[0]:
        said.append(f"not of one size: {sizes[0]:,} to {sizes[-1]:,} parameters, {found.comparison.fit.target:,} were asked for")
    said += [f"these seeds do not tell {a} from {b}: their losses overlap" for a, b in zip(found.ranking, found.ranking[1:])
             if _overlap([r.best.loss for r in found.chosen(a)], [r.best.loss for r in found.chosen(b)])]
    said += _rates(found)
    lost = [r.folder.name for r in found.runs if r.diverged]
    if lost: said.append(f"diverged, and count with what they reached: {', '.join(lost)}")
    late = [m for m in found.ranking if any(len(r.curve) > 1 and r.best == r.curve[-1] for r in found.chosen(m))]
    if late: said.append(f"still falling at the end of the budget: {', '.join(late)}")
    return said


def _overlap(a: list[float], b: list[float]) -> bool:
    """Of several seeds each: does the best of the one that is worse lie below the worst of the other?"""
    return min(len(a), len(b)) > 1 and min(b) < max(a)


def _rates(found: Compared) -> list[str]:
    """Models whose best learning rate is the last one that was tried, on either side."""
    tried = found.comparison.rates
    if len(tried) < 2: return []
    at = {"smallest": min(tried), "largest": max(tried)}
    held = {side: [m for m in found.ranking if found.chosen(m)[0].rate == rate] for side, rate in at.items()}
    return [f"the best rate is the {side} that was tried: {', '.join(models)}" for side, models in held.items() if models]


def as_json(found: Compared, device: torch.device) -> dict[str, Any]:
    def finite(loss: float) -> float | None: return loss if math.isfinite(loss) else None

    def run(r: Trained) -> dict[str, Any]:
        return {"model": r.model, "lr": r.rate, "seed": r.seed, "folder": str(r.folder.relative_to(found.folder)),
                "diverged": r.diverged,
                "best": {"step": r.best.step, "seconds": r.best.seconds, "loss": finite(r.best.loss), **r.best.metrics},
                "curve": [{"step": p.step, "seconds": p.seconds, "loss": p.loss, **p.metrics} for p in r.curve]}
    models = [{"model": m, "params": found.equals[m].count, "by": None if (by := found.equals[m].by) is None else {by[0]: by[1]},
               "lr": found.chosen(m)[0].rate, "seconds_a_step": found.times[m].median,
               "best_loss": finite(statistics.mean(r.best.loss for r in found.chosen(m))),
               "best_step": statistics.mean(r.best.step for r in found.chosen(m)),
               "best_seconds": statistics.mean(r.best.seconds for r in found.chosen(m))} for m in found.ranking]
    # the machine on which steps were timed: runs may be made, and results written, on another number of threads
    timed = read(found.folder).content.get("machine") if (found.folder / EXPERIMENT).exists() else None
    return {"plait": 1, "comparison": found.comparison.as_json(), "date": time.strftime("%Y-%m-%d"),
            "machine": timed or record.machine(device),
            "unsteady": found.unsteady, "models": models, "runs": [run(r) for r in found.runs]}
