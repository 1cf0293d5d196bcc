"""How long a training will take: `plait predict FILE`. What is predicted knows no torch; what is measured beside it does."""
from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from plait import files
from plait.api import chosen
from plait.checking import batch_of
from plait.compiler.costs.calls import Call, calls, update
from plait.compiler.costs.time import HOST, Seconds, hours, seconds, total
from plait.compiler.expand import expand
from plait.compiler.file import File
from plait.compiler.fit import size
from plait.compiler.kernels import Target
from plait.compiler.program import Program
from plait.compiler.sizes import Free
from plait.compiler.step import Step
from plait.dsl.errors import error
from plait.dsl.parser import parse
from plait.dsl.spec import Override
from plait.pretty import whole
from plait.runtime.laboratory.machines import Measured, known, read
from plait.runtime.recipe import Recipe, recipe

MOST_SWEPT = 1000                                             # combinations of a sweep
ROUNDS = 7
PHASES = ("forward", "recompute", "backward", "update")


@dataclass(frozen=True)
class Prediction:
    """A training step of one model at one setting. parts: seconds that compute, that wait for bytes, that calls cost; phases: the same for
    forward, recompute, backward, update; measured, low, high: seconds, the median and the quartiles."""
    model: str
    set: Mapping[str, int | None]
    batch: int
    parts: Seconds
    phases: Mapping[str, Seconds]
    measured: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def seconds(self) -> float: return self.parts.total

    @property
    def error(self) -> float | None:
        """How far the prediction is from what was measured, as a part of that."""
        return None if self.measured is None else self.seconds / self.measured - 1

    def hours(self, steps: float) -> float: return hours(self.seconds, steps)

    def as_json(self, steps: int | None) -> dict[str, Any]:
        def split(s: Seconds) -> dict[str, float]:
            return {"seconds": s.total, "arithmetic": s.arithmetic, "traffic": s.traffic, "latency": s.latency}
        measured = None if self.measured is None else {"seconds": self.measured, "low": self.low, "high": self.high}
        return {"model": self.model, "set": dict(self.set), "batch": self.batch, **split(self.parts),
                "phases": {k: split(s) for k, s in self.phases.items()}, "steps": steps,
                "hours": self.hours(steps) if steps is not None else None, "measured": measured, "error": self.error}


@dataclass(frozen=True)
class Predictions:
    """All models at all settings, on one machine."""
    file: str
    machine: Measured
    rows: tuple[Prediction, ...]
    steps: int | None = None

    @property
    def errors(self) -> list[float]: return [abs(r.error) for r in self.rows if r.error is not None]

    def as_json(self) -> dict[str, Any]:
        summary = {"median": statistics.median(self.errors), "worst": max(self.errors)} if self.errors else None
        return {"plait": 1, "file": self.file, "machine": self.machine.as_json(), "rows": [r.as_json(self.steps) for r in self.rows],
                "summary": summary}

    def dumps(self) -> str: return json.dumps(self.as_json(), indent=1, ensure_ascii=False)

    def __str__(self) -> str: return told(self)


# -- what is asked ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Case:
    """A model at one setting."""
    file: File
    model: str
    varied: tuple[str, ...]
    batch: int
    device: str
    dtype: str
    kernels: Mapping[str, str] = field(default_factory=dict)

    @property
    def recipe(self) -> Recipe | None: return recipe(self.file.spec, self.model, self.file.values(self.model))

    def program(self) -> Program: return expand(self.file, self.model, loss=True)

    def predicted(self, machine: Measured) -> Prediction:
        """Raises PlaitError where a dim has no value."""
        sizes = self.file.names_of(self.model).sizes
        values = {name: sizes.integer(self.file.names_of(self.model).entries[name].value) for name in self.varied}
        phases = {p: total(found, machine.machine) for p, found in by_phase(self.calls()).items()}
        return Prediction(self.model, values, self.batch, sum(phases.values(), Seconds()), phases)

    @property
    def at_once(self) -> int:
        """Sequences of a microbatch."""
        found = self.recipe
        return min(self.batch, batch_of(self.file, self.model)) if found and found.microbatch else self.batch

    def calls(self) -> list[Call]:
        """All that a step runs, the optimiser's part last."""
        found, at_once = self.recipe, self.at_once
        rounds = -(-self.batch // at_once)
        step = Step(self.program, Target(self.device, self.dtype, compiled=True), self.kernels)
        try: made = calls(step, at_once)
        except Free as free:
            name = str(free).partition(",")[0]
            raise error("E0638", f"the time of a step needs a value for {free}", help=f"--set {name}=…") from None
        kind, clipped = (found.optimizer.kind, found.clip is not None) if found else ("adamw", False)
        return [*(replace(c, times=c.times * rounds) for c in made), self.update(step.program, kind, clipped, rounds)]

    def update(self, program: Program, kind: str, clipped: bool, rounds: int) -> Call:
        weights = [v for v in program.graph.ins if v.kind == "param"]
        copies = [prod(program.sizes.integer(a.size) or 1 for a in v.axes if a.role == "copies") for v in weights]
        return update(float(sum(program.sizes.integer(v.size) or 0 for v in weights)), sum(copies), kind, clipped, rounds)


def by_phase(found: Sequence[Call]) -> dict[str, list[Call]]:
    return {p: mine for p in PHASES if (mine := [c for c in found if c.phase == p])}


def cases(path: Path, model: str | None, settings: tuple[Override, ...], batch: int | None, device: str = "cpu", dtype: str | None = None,
          kernels: Mapping[str, str] | None = None) -> Iterator[Case]:
    """Every model of the file, or the one asked for, at every combination of the values that settings list."""
    varied = tuple(o.path[-1] for o in settings if len(o.values) > 1)
    count = prod(len(o.values) for o in settings)
    if count > MOST_SWEPT:
        raise error("E0505", f"these lists have {count:,} combinations: a prediction has at most {MOST_SWEPT:,}", help="--set n=1Ki,4Ki")
    original = parse(files.read(path), str(path))
    opened = [files.resolved(original, tuple(replace(o, values=(v,)) for o, v in zip(settings, values)), path.parent)
              for values in product(*(o.values for o in settings))]
    for name in [chosen(opened[0], model)] if model else opened[0].models:
        for file in opened:
            found = recipe(file.spec, name, file.values(name))
            precision = "bfloat16" if found and found.precision == "bf16" else "float32"
            names = tuple(v for v in varied if v in file.names_of(name).entries)
            yield Case(file, name, names, batch or batch_of(file, name, whole=True), device, dtype or precision, kernels or {})


def predicted(path: Path, model: str | None = None, settings: tuple[Override, ...] = (), batch: int | None = None, steps: int | None = None,
              machine: Path | None = None, measure: bool = False, kernels: Mapping[str, str] | None = None,
              told: Callable[[str], None] = lambda line: None) -> Predictions:
    """Raises PlaitError where the machine has not been measured, and no other one is given."""
    given = read(machine) if machine else None
    if given is not None and measure: _here(given)
    found = list(cases(path, model, settings, batch, given.about.device if given else "cpu", given.about.dtype if given else None, kernels))
    if not found: raise error("E0408", f"{path} has no model", help="model m { … }")
    on = given or here(found[0].dtype)
    rows = [c.predicted(on) for c in found]
    if measure: rows = measured(found, rows, told)
    return Predictions(str(path), on, tuple(rows), steps)


def _here(given: Measured) -> None:
    if not given.about.measured or given.about.device != "cpu":
        raise error("E0505", "what is measured is measured here, and these numbers are another machine's",
                    help="leave --machine away, or --measure")


def here(dtype: str = "float32", device: str = "cpu") -> Measured:
    """This machine, as it was measured with as many threads as torch takes."""
    import platform

    import torch
    return known(device, dtype, torch.get_num_threads(), platform.node(), torch.__version__)


def measured(found: Sequence[Case], rows: Sequence[Prediction], told: Callable[[str], None]) -> list[Prediction]:
    """All in turn: every round makes one step of each."""
    import torch

    from plait.runtime.laboratory.steps import Subject, step_of
    from plait.runtime.laboratory.turns import in_turn
    from plait.runtime.surroundings import repeatable
    device = torch.device("cpu")
    with repeatable(device):
        runs = {}
        for k, c in enumerate(found):
            told(f"compiling {c.model} ({k + 1} of {len(found)})")
            runs[str(k)] = step_of(Subject(c.file, c.program(), c.batch, c.kernels), device, c.at_once)
            runs[str(k)]()
        times = in_turn(runs, ROUNDS, told=lambda k: told(f"round {k} of {ROUNDS}"))
    return [replace(r, measured=(t := times[str(k)]).median, low=t.low, high=t.high) for k, r in enumerate(rows)]


def slowest(case: Case, machine: Measured, count: int = 10) -> list[tuple[Call, Seconds]]:
    """The calls that take the most of a step."""
    return sorted(((c, seconds(c, machine.machine)) for c in case.calls()), key=lambda p: -p[1].total)[:count]


# -- what is told ----------------------------------------------------------------------------------------------------------
def time(t: float) -> str:
    """`12.3 ms`, `1.25 s`"""
    return f"{1e3 * t:,.1f} ms" if t < 1 else f"{t:,.2f} s"


def duration(h: float) -> str:
    """`11.1 h`; from two days on, days; below an hour, minutes."""
    return f"{60 * h:,.1f} min" if h < 1 else f"{h:,.1f} h" if h < 48 else f"{h / 24:,.1f} days"


def share(part: float, of: float) -> str: return f"{part / of:.0%}" if of else ""


Cell = Callable[[Prediction, int | None], str]
CELLS: dict[str, tuple[str, Cell]] = {
    "step": ("predicted", lambda r, s: time(r.seconds)),
    "arithmetic": ("arithmetic", lambda r, s: share(r.parts.arithmetic, r.seconds)),
    "traffic": ("traffic", lambda r, s: share(r.parts.traffic, r.seconds)),
    "latency": ("latency", lambda r, s: share(r.parts.latency, r.seconds)),
    **{p: (p, lambda r, s, p=p: share(r.phases[p].total, r.seconds) if p in r.phases else "") for p in PHASES},          # type: ignore[misc]
    "training": ("training", lambda r, s: duration(r.hours(s)) if s else ""),
    "measured": ("measured", lambda r, s: time(r.measured) if r.measured is not None else ""),
    "error": ("error", lambda r, s: f"{r.error:+.0%}" if r.error is not None else ""),
}
USUAL = ("step", "arithmetic", "traffic", "latency")


def told(found: Predictions, columns: Sequence[str] | None = None) -> str:
    """A table, a row a model and setting."""
    shown = columns or (*USUAL, *(["training"] if found.steps else []), *(["measured", "error"] if found.errors else []))
    names = list(dict.fromkeys(name for r in found.rows for name in r.set))
    grid = [["", *names, "batch", *(CELLS[c][0] for c in shown)]]
    for r in found.rows:
        grid.append([r.model, *(whole(r.set.get(n)) for n in names), f"{r.batch:,}", *(CELLS[c][1](r, found.steps) for c in shown)])
    if found.steps and "training" in shown: grid[0][grid[0].index("training")] = f"{found.steps:,} steps"
    wide = [max(len(row[k]) for row in grid) for k in range(len(grid[0]))]
    lines = ["  ".join([row[0].ljust(wide[0]), *(t.rjust(w) for t, w in zip(row[1:], wide[1:]))]).rstrip() for row in grid]
    below = [f"a training step on {found.machine.about}"]
    if found.errors: below.append(f"error: {statistics.median(found.errors):.0%} on the median, {max(found.errors):.0%} at worst")
    return "\n".join([*lines, *below])


def columns_of(text: str | None) -> tuple[str, ...] | None:
    """`step,latency`. Raises PlaitError."""
    if text is None: return None
    wanted = tuple(t.strip() for t in text.split(",") if t.strip())
    strange = [t for t in wanted if t not in CELLS]
    if strange or not wanted:
        raise error("E0505", f"a prediction has no column `{strange[0] if strange else ''}`", help=f"--columns {','.join(CELLS)}")
    return wanted


def steps_of(text: str | None) -> int | None:
    """`100k`. Raises PlaitError."""
    from plait.dsl.numerals import BadNumber
    from plait.dsl.numerals import read as number
    if text is None: return None
    try: value, bytes_ = number(text)
    except BadNumber as why: raise error("E0505", why.message, help=why.help or "--steps 100k") from None
    if bytes_ or not isinstance(value, int) or value < 1:
        raise error("E0505", f"`{text}` is no number of steps", help="--steps 100k") from None
    return value


def calibrated(found: Measured) -> str:
    """What was measured, in a few lines."""
    m, a = found.machine, found.about
    def rate(r: float) -> str: return f"{r / 1e9:,.1f} G/s"
    band = ", ".join(f"{v / 1e9:,.0f} GB/s at {size(int(s))}" for s, v in m.bandwidth)
    kinds = [f"  {kind}: {rate(k.rate)} at most" + (f", half of it at {', '.join(f'{h:,.0f}' for h in k.half)}" if k.half else "")
             for kind, k in m.kernels.items() if kind not in (*HOST, "columns", "scatter")]
    calls = ", ".join(f"{kind} {1e6 * (k.call + k.operand * 10):,.0f} µs" for kind, k in m.kernels.items() if kind in HOST and k.call)
    lines = [str(a), f"multiply-adds: {rate(m.rate)} at most; of a call by its sizes:", *kinds, f"bandwidth: {band}",
             f"a call: {1e6 * m.latency:,.1f} µs; with ten tensors: {calls}"]
    if a.noise is not None: lines.append(f"times of a kernel differ by {a.noise:.0%} on the median; {a.took:,.0f} s")
    return "\n".join(lines)
