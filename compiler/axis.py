"""Axes: a name, a symbolic size, a role. Every value is a tensor over named axes; their order is its layout."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import sympy as sp

BATCH_SIZE = sp.Symbol("b", integer=True, positive=True)
POSITIONAL = ("sequence", "window", "chunk")         # roles along which elements stand at different positions


@dataclass(frozen=True)
class Axis:
    """`role` is one of batch, sequence, window, chunk, round, copies, head, feature."""
    name: str
    size: sp.Expr
    role: str = "feature"

    def __repr__(self) -> str:
        return f"{self.name}:{self.size}"

    def resized(self, size) -> Axis:
        return Axis(self.name, sp.sympify(size), self.role)


BATCH = Axis("b", BATCH_SIZE, "batch")


def axis(name: str, size, role: str = "feature") -> Axis:
    return Axis(name, sp.sympify(size), role)


def without(axes: Iterable[Axis], names: Iterable[str]) -> tuple[Axis, ...]:
    gone = set(names)
    return tuple(a for a in axes if a.name not in gone)


def swap(axes: Iterable[Axis], name: str, *new: Axis) -> tuple[Axis, ...]:
    """The axes with `new` in the place of the one called `name`."""
    return tuple(b for a in axes for b in (new if a.name == name else (a,)))


def volume(axes: Sequence[Axis]) -> sp.Expr:
    return sp.Mul(*[a.size for a in axes])
