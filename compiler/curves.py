"""Derived costs over a range of one dim: the points of a plot, and where two curves cross."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import sympy as sp

from plait.compiler.arrays import values
from plait.compiler.file import open_file
from plait.compiler.solve import Asked, Search, freed
from plait.dsl import spec as ast
from plait.dsl.errors import PlaitError, error
from plait.dsl.parser import parse_expression

POINTS = 65                                                   # of a curve, spaced evenly on a logarithmic axis
MOST_COMPARED = 15                                            # pairs of curves whose crossings are looked for


@dataclass(frozen=True)
class Curve:
    """One cost of one model. x: allowed values of the dim, y: the cost there (nan where it has none)."""
    model: str
    quantity: str
    x: np.ndarray
    y: np.ndarray


@dataclass(frozen=True)
class Crossing:
    """The first allowed value at which the order of two curves is another than before."""
    quantity: str
    models: tuple[str, str]
    x: int
    y: float


def curves(spec: ast.Spec, unknown: str, quantities: Sequence[str], models: Sequence[str], low: int, high: int,
           batch: int = 1) -> tuple[tuple[Curve, ...], tuple[Crossing, ...]]:
    """The costs of models over the allowed values of a dim from `low` to `high`, and their crossings.
    Raises PlaitError for names that are not there, other free dims, and a range without an allowed value."""
    asked = Asked(open_file(freed(spec, unknown)), unknown, batch)
    costs = {}
    for q, m in ((q, m) for q in quantities for m in models):
        try: costs[q, m] = asked.of(q, m)
        except PlaitError as missing:                         # a model without parameters has no reuse: the others have
            if missing.diagnostics[0].code != "E0501" or len(models) == 1: raise
    if not costs: raise error("E0501", f"none of {', '.join(models)} has {' or '.join(quantities)} as an expression")
    free = {s.name for e in costs.values() for s in e.free_symbols} - {unknown} - {s.name for s in asked.known}
    if free: raise error("E0638", f"`{min(free)}` has no value", help=f"--set {min(free)}=…")
    search = Search(asked, sp.true, ())
    wanted = np.unique(np.round(np.geomspace(low, high, POINTS)))
    near = (search.next(float(v)) for v in wanted)
    x = np.asarray(sorted({v for v in near if v is not None and v <= high}), np.float64)
    if not len(x):
        raise error("E0304", f"no {unknown} from {low:,} to {high:,} meets what the file requires", help="--from and --to choose a range")
    known = {s: float(v) for s, v in asked.known.items()}
    with np.errstate(all="ignore"):
        found = tuple(Curve(m, q, x, np.broadcast_to(values(e, {**known, asked.unknown: x}), x.shape)) for (q, m), e in costs.items())
    return found, tuple(c for q in quantities for c in _crossings(asked, q, [c for c in found if c.quantity == q]))


def _crossings(asked: Asked, quantity: str, found: list[Curve]) -> list[Crossing]:
    """Between two points where the order changes, the first allowed value of the new order, by bisection on exact values."""
    out = []
    for a, b in list(combinations(found, 2))[:MOST_COMPARED]:
        search = Search(asked, *asked.condition(parse_expression(f"{quantity}({a.model}) < {quantity}({b.model})")))
        below = a.y < b.y
        for k in np.flatnonzero(below[1:] != below[:-1]):
            if np.isnan(a.y[k:k + 2]).any() or np.isnan(b.y[k:k + 2]).any(): continue
            at = search.turn(int(a.x[k]), int(a.x[k + 1]))
            out.append(Crossing(quantity, (a.model, b.model), at, float(np.interp(np.log(at), np.log(a.x), a.y))))
    return out

