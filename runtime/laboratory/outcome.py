"""What came of an experiment: curves, each run's own minimum, the models in order."""
from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from plait.compiler.equal import Equal
from plait.runtime.comparison import Comparison
from plait.runtime.folder import rows
from plait.runtime.laboratory.turns import Times, unsteady
from plait.runtime.sources import METRICS


@dataclass(frozen=True)
class Point:
    """One validation: loss and the other metrics, where it stands in steps, and in seconds of steps measured in turn."""
    step: int
    seconds: float
    loss: float
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Trained:
    """One run of an experiment and its validations. diverged: its loss was not finite in the end."""
    model: str
    rate: float | None
    seed: int
    folder: Path
    curve: tuple[Point, ...]
    diverged: bool = False

    @property
    def best(self) -> Point:
        """Its own minimum; an infinite loss where it diverged before it was evaluated."""
        return min(self.curve, key=lambda p: p.loss, default=Point(0, 0.0, math.inf))


@dataclass(frozen=True)
class Compared:
    """runs: all, in the order in which they were made. equals: model → its size; times: model → seconds of a step, measured in turn."""
    comparison: Comparison
    folder: Path
    equals: Mapping[str, Equal]
    times: Mapping[str, Times]
    runs: tuple[Trained, ...]

    def __repr__(self) -> str:
        best = ", ".join(f"{m} {statistics.mean(r.best.loss for r in self.chosen(m)):.4f}" for m in self.ranking)
        return f"Compared({str(self.folder)!r}: {best})"

    def chosen(self, model: str) -> list[Trained]:
        """The runs of a model at its best learning rate: the one with the lowest loss of the first seed."""
        own = [r for r in self.runs if r.model == model]
        rate = min((r for r in own if r.seed == own[0].seed), key=lambda r: r.best.loss).rate
        return [r for r in own if r.rate == rate]

    @property
    def ranking(self) -> list[str]:
        """The models by the mean of their best validation losses."""
        return sorted(self.equals, key=lambda m: statistics.mean(r.best.loss for r in self.chosen(m)))

    @property
    def unsteady(self) -> float | None:
        """How far the ratios of these times may lie from those of another measurement; None where there were too few rounds to tell."""
        every = list(self.times.values())
        return unsteady([(t, every[-1]) for t in every[:-1]])


@dataclass(frozen=True)
class Patience:
    """Ends a run after so many evaluations without a better loss; None: never."""
    folder: Path
    evaluations: int | None

    def spent(self) -> bool:
        if self.evaluations is None: return False
        losses = [p.loss for p in curve(self.folder, 1.0)]
        return bool(losses) and len(losses) - 1 - losses.index(min(losses)) >= self.evaluations


def curve(folder: Path, seconds: float) -> tuple[Point, ...]:
    """The validations of a run. seconds: of a step."""
    found = []
    for r in rows(folder):
        loss = r.get("loss")
        if r.get("split") != "validation" or not isinstance(loss, float | int) or not math.isfinite(loss): continue
        others = {k: float(v) for k, v in r.items() if k in METRICS and k != "loss" and isinstance(v, float | int)}
        found.append(Point(r["step"], r["step"] * seconds, float(loss), others))
    return tuple(found)
