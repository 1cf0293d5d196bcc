"""One training step of every model at every length, in turn; and beside the time what was derived."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import sympy as sp
import torch

from plait.compiler.prims import Region
from plait.runtime.laboratory.steps import Subject, step_of
from plait.runtime.laboratory.turns import ROUNDS, STEADY, WARM, Times, in_turn, ratio, unsteady, waiting
from plait.runtime.measured import rate
from plait.runtime.surroundings import repeatable

RECURRENT = ("rnn", "lstm", "gru")
LOOP, EAGER = "Python loop", "eager"


@dataclass(frozen=True)
class Measured:
    """A step of a model at a length. way: "" as the plan has it, else how instead. work: derived multiply-adds of products of a step of
    the whole batch, forward, recomputed and backward; depth: of forward and backward, in units; None where they have no number."""
    model: str
    length: int
    way: str
    times: Times
    work: int | None
    depth: int | None

    @property
    def name(self) -> str: return f"{self.model}, {self.way}" if self.way else self.model


@dataclass(frozen=True)
class Bench:
    """rows: in the order of the models, then of the lengths. batch: sequences of a step, at each length. rate: multiply-adds a second of a
    large product on this machine. against: the model that the others are divided by."""
    rows: tuple[Measured, ...]
    lengths: tuple[int, ...]
    batch: tuple[int, ...]
    rounds: int
    rate: float
    against: str

    def __repr__(self) -> str:
        return f"Bench({', '.join(self.names)}: at {', '.join(map(str, self.lengths))}, {self.rounds} rounds)"

    def of(self, name: str, length: int) -> Measured:
        """Raises KeyError."""
        return {(r.name, r.length): r for r in self.rows}[name, length]

    @property
    def names(self) -> tuple[str, ...]: return tuple(dict.fromkeys(r.name for r in self.rows))

    def growth(self, name: str) -> float:
        """How much longer a step takes at the last length than at the first."""
        return ratio(self.of(name, self.lengths[-1]).times, self.of(name, self.lengths[0]).times)

    def ratio(self, name: str, length: int) -> float:
        return ratio(self.of(name, length).times, self.of(self.against, length).times)

    def share(self, row: Measured) -> float | None:
        """Of the machine's rate of products."""
        return None if row.work is None else row.work / row.times.median / self.rate

    @property
    def looped(self) -> tuple[str, ...]:
        """Models that ran as a loop in Python, too."""
        return tuple(dict.fromkeys(r.model for r in self.rows if r.way == LOOP))

    def loop(self, model: str, length: int) -> float:
        """How many times as long a loop in Python takes as the same model run eagerly."""
        return ratio(self.of(f"{model}, {LOOP}", length).times, self.of(f"{model}, {EAGER}", length).times)

    @cached_property
    def apart(self) -> dict[str, float]:
        """Ratio that is shown → by what part of it that of another such run lies from it, at a guess; {} where there are too few rounds to
        tell."""
        first, last = self.lengths[0], self.lengths[-1]
        pairs = {f"growth of {m}": (self.of(m, last), self.of(m, first)) for m in self.names} if last != first else {}
        pairs |= {f"{m} at {n:,}": (self.of(m, n), self.of(self.against, n)) for m in self.names if m != self.against for n in self.lengths}
        pairs |= {f"{m}, loop by eager, at {n:,}": (self.of(f"{m}, {LOOP}", n), self.of(f"{m}, {EAGER}", n))
                  for m in self.looped for n in self.lengths}
        found = {name: unsteady([(a.times, b.times)]) for name, (a, b) in pairs.items()}
        return {name: u for name, u in found.items() if u is not None}

    @property
    def unsteady(self) -> float | None:
        """The largest of `apart`."""
        return max(self.apart.values(), default=None)

    @property
    def noisy(self) -> bool | None: return None if self.unsteady is None else self.unsteady > STEADY


def measure(subjects: Mapping[tuple[str, int], Subject], *, rounds: int = ROUNDS, device: torch.device, against: str,
            python_loop: bool = False, told: Callable[[int], None] = lambda k: None) -> Bench:
    """Times a step of every subject, (model, length) → subject, round by round. python_loop: of models with a recurrence also as a plain
    loop, eagerly, and, so that the loop alone makes the difference, as planned but eagerly. Raises PlaitError where a dim has no value."""
    found = {(model, n, ""): s for (model, n), s in subjects.items()}
    if python_loop:
        for (model, n), s in subjects.items():
            if recurrences(s): found |= {(model, n, way): t for way, t in _as_loops(s).items()}
    runs = {key: step_of(s, device) for key, s in found.items()}
    with repeatable(device): times = in_turn({str(key): run for key, run in runs.items()}, rounds, WARM, told, waiting(device))
    derived = {(model, n): _derived(s, device.type) for (model, n), s in subjects.items()}          # of the plan, whatever the way
    rows = [Measured(model, n, way, times[str((model, n, way))], *derived[model, n]) for model, n, way in found]
    order = list(dict.fromkeys((r.model, r.way) for r in rows))
    rows.sort(key=lambda r: (order.index((r.model, "")), order.index((r.model, r.way)), r.length))
    lengths = tuple(dict.fromkeys(n for _, n in subjects))
    batch = tuple({n: s.batch for (_, n), s in subjects.items()}.values())
    return Bench(tuple(rows), lengths, batch, rounds, rate(device, torch.float32), against)


def recurrences(subject: Subject) -> tuple[str, ...]:
    """The kinds of recurrence that a model has."""
    graph = subject.program.loss or subject.program.graph
    return tuple(r for r in RECURRENT if any(isinstance(n.op, Region) and n.op.name == r for n in graph.walk()))


def _as_loops(s: Subject) -> dict[str, Subject]:
    bodies = {r: "body" for r in recurrences(s)}
    return {EAGER: Subject(s.file, s.program, s.batch, s.kernels, False),
            LOOP: Subject(s.file, s.program, s.batch, {**s.kernels, **bodies}, False, True)}


def _derived(s: Subject, device: str) -> tuple[int | None, int | None]:
    """Multiply-adds of products of a step, and its depth."""
    step = s.derived(device)
    sizes = step.program.sizes
    one = sizes.integer(sp.Add(*(ledgers["contraction"] for ledgers in step.work.values())))
    return None if one is None else one * s.batch, None if step.unit is None else sizes.bind(b=s.batch).integer(step.unit)
