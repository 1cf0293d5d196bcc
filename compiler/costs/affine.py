"""What is known of indices and masks: affine forms over axes, and masks as unions of conjunctions of affine inequalities.

A mask is a tuple of cases; a case is a frozenset of lines, each of them ≥ 0. Coefficients and constants are ints or sympy
expressions. An axis runs over 0 … size − 1: what follows from that alone is proved away."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TypeAlias

import sympy as sp

Size: TypeAlias = int | sp.Expr
Ranges: TypeAlias = Mapping[str, Size]                       # axis → size


class Unreadable(Exception):
    """The reading does not know what a node does to positions. Says where."""


@dataclass(frozen=True)
class Line:
    """const + Σ coefficient·axis."""
    terms: tuple[tuple[str, Size], ...] = ()
    const: Size = 0

    def __str__(self) -> str:
        parts = [f"{c}·{a}" if c != 1 else a for a, c in self.terms] + ([str(self.const)] if self.const != 0 or not self.terms else [])
        return " + ".join(parts)

    def coefficient(self, axis: str) -> Size:
        return dict(self.terms).get(axis, 0)

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(a for a, _ in self.terms)

    def plus(self, other: Line, times: Size = 1) -> Line:
        out = dict(self.terms)
        for a, c in other.terms: out[a] = tidy(out.get(a, 0) + c * times)
        return Line(_sorted(out), tidy(self.const + other.const * times))

    def times(self, k: Size) -> Line:
        return Line().plus(self, k)

    def moved(self, by: Size) -> Line:
        return Line(self.terms, tidy(self.const + by))

    def put(self, axis: str, by: Line) -> Line:
        """With a line in the place of an axis."""
        c = self.coefficient(axis)
        return self if c == 0 else Line(tuple(t for t in self.terms if t[0] != axis), self.const).plus(by, c)


def _sorted(terms: Mapping[str, Size]) -> tuple[tuple[str, Size], ...]:
    return tuple(sorted((a, c) for a, c in terms.items() if c != 0))


def along(axis: str) -> Line:
    return Line(((axis, 1),))


def tidy(x):
    """An int where it is one, else the expression expanded: equal forms compare equal."""
    if isinstance(x, int): return x
    x = _expanded(x)
    return int(x) if x.is_Integer else x


@lru_cache(4096)
def _expanded(x: sp.Expr) -> sp.Expr:
    y = sp.expand(x)
    divided = any(p.exp.is_negative for p in y.atoms(sp.Pow))
    return sp.cancel(y) if divided and not y.has(sp.floor, sp.ceiling) else y


def sure(x) -> bool:
    """Is x ≥ 0 whatever the dims are? False: not proved."""
    return x >= 0 if isinstance(x, int) else _sure(x)


@lru_cache(4096)
def _sure(x: sp.Expr) -> bool:
    if x is sp.oo: return True
    if x.is_nonnegative is not None: return bool(x.is_nonnegative)
    if isinstance(x, sp.floor | sp.ceiling): return sure(x.args[0])
    x = sp.expand(x)
    if _rises(x): return True
    while (f := _rounded(x)) is not None:         # ⌊u⌋ > u − 1 and ⌈u⌉ ≥ u; from above ⌊u⌋ ≤ u and ⌈u⌉ < u + 1
        c, u = x.coeff(f), f.args[0]
        rest = sp.expand(x - c * f)
        if rest.has(f) or not (c.is_positive or c.is_negative): return False
        low, high = (u - 1, u) if isinstance(f, sp.floor) else (u, u + 1)
        x = sp.expand(rest + c * (low if c.is_positive else high))
    return bool(x.is_nonnegative) or _from(x, 1)


def _rounded(x: sp.Expr) -> sp.Expr | None:
    """A floor or ceiling that stands in no other; always the same one."""
    found = x.atoms(sp.floor, sp.ceiling)
    return min((f for f in found if not any(f is not g and g.has(f) for g in found)), key=str, default=None)


def _rises(x: sp.Expr) -> bool:
    """c·⌈u⌉ − c·⌈v⌉ (or floors), where u ≥ v: by the signs of the factors of u − v."""
    if not isinstance(x, sp.Add) or len(x.args) != 2: return False
    for p, q in (x.args, x.args[::-1]):
        (c, f), (m, g) = (t.as_coeff_Mul() for t in (p, q))
        if c.is_positive and m == -c and type(f) is type(g) and isinstance(f, sp.floor | sp.ceiling):
            return _signed(sp.factor(sp.together(f.args[0] - g.args[0])))
    return False


def _signed(x: sp.Expr) -> bool:
    """Is a product ≥ 0, wherever it has a value?"""
    if x.is_number: return bool(x.is_nonnegative)
    minus = 0
    for e in sp.Mul.make_args(x):
        base, times = e.as_base_exp()
        if times.is_even or sure(base): continue
        if not (times.is_odd and sure(-base)): return False
        minus += 1
    return minus % 2 == 0


def _from(x, least_dim: int) -> bool:
    """Is a polynomial ≥ 0 where every dim is at least this? By its coefficients around that corner."""
    names = sp.sympify(x).free_symbols
    if not names or not all(s.is_positive for s in names) or not x.is_polynomial(*names): return False
    return all(c.is_nonnegative for c in sp.Poly(x.subs({s: s + least_dim for s in names}, simultaneous=True), *names).coeffs())


def generally(x) -> bool:
    """Is x ≥ 0 for dims of 2 and more? Closed forms are for those: widths of 1 connect nothing."""
    return sure(x) or not isinstance(x, int) and _from(sp.expand(x), 2)


def same(x, y) -> bool:
    return x == y or (not (isinstance(x, int) and isinstance(y, int)) and tidy(sp.sympify(x) - y) == 0)


# ---- masks ------------------------------------------------------------------------------------------------------------
Case = frozenset
Cases = tuple[Case, ...]
TRUE: Cases = (frozenset(),)
FALSE: Cases = ()


def least(e: Line, ranges: Ranges) -> Size:
    """A lower bound: axes with a positive coefficient at 0, the others at their end."""
    low = e.const
    for a, c in e.terms:
        if not sure(c):
            if not sure(-c): raise Unreadable(f"the sign of {c} is not known")
            low = low + c * (ranges[a] - 1)
    return tidy(low)


def never(e: Line, ranges: Ranges) -> bool:
    return sure(least(e.times(-1), ranges) - 1)


def simplified(case: Case, ranges: Ranges) -> Case | None:
    """Without what holds anyway; None if two of its lines contradict each other."""
    kept = frozenset(e for e in case if not sure(least(e, ranges)) and not (not e.terms and generally(e.const)))
    if any(not e.terms and generally(-e.const - 1) for e in kept): return None
    if any(never(e, ranges) or any(never(e.plus(f), ranges) for f in kept if f is not e) for e in kept): return None
    return kept


def union(cases, ranges: Ranges) -> Cases:
    found = [c for c in (simplified(c, ranges) for c in cases) if c is not None]
    found = [c for c in dict.fromkeys(found) if not any(d < c for d in found)]
    if len(found) > 1 and not negated(tuple(found), ranges, cover=False): return TRUE
    return tuple(found)


def both(x: Cases, y: Cases, ranges: Ranges) -> Cases:
    if x == TRUE: return y
    if y == TRUE: return x
    return union((p | q for p, q in product(x, y)), ranges)


def negated(x: Cases, ranges: Ranges, cover: bool = True) -> Cases:
    out: list[Case] = [frozenset()]
    for case in x:
        out = [c for c in (simplified(p | {e.times(-1).moved(-1)}, ranges) for p in out for e in case) if c is not None]
    return union(out, ranges) if cover else tuple(out)


def put(x: Cases, axis: str, by: Line) -> Cases:
    return tuple(frozenset(e.put(axis, by) for e in case) for case in x)


def inside(e: Line, size: Size) -> Case:
    """0 ≤ e < size."""
    return frozenset((e, e.times(-1).moved(size - 1)))


def exists(case: Case, axis: str, ranges: Ranges) -> Case | None:
    """The case without an axis: what must hold of the others for some place along it to fulfil the case. Exact (Fourier and
    Motzkin's elimination is, on integers, where the coefficients are 1); None: there is never one."""
    held = [e for e in case if e.coefficient(axis) != 0]
    rest = {e for e in case if e.coefficient(axis) == 0}
    if not held: return simplified(frozenset(rest), ranges)
    if not all(e.coefficient(axis) in (1, -1) for e in held): return _by_witness(held, rest, axis, ranges)
    low = [e for e in held if e.coefficient(axis) == 1] + [along(axis)]
    high = [e for e in held if e.coefficient(axis) == -1] + [along(axis).times(-1).moved(ranges[axis] - 1)]
    return simplified(frozenset(rest | {p.plus(q) for p in low[:-1] for q in high} | {low[-1].plus(q) for q in high[:-1]}), ranges)


def _by_witness(held: list[Line], rest: set[Line], axis: str, ranges: Ranges) -> Case | None:
    """Steps wider than 1: a place that fulfils the case wherever the others stand, such as a window's own place."""
    for place in (0, tidy(ranges[axis] - 1), *(tidy(-sp.sympify(e.const) / e.coefficient(axis)) for e in held)):
        if not (isinstance(place, int) or place.is_integer) or not (sure(place) and sure(ranges[axis] - 1 - place)): continue
        if all(sure(least(f.put(axis, Line((), place)), ranges)) for f in held): return simplified(frozenset(rest), ranges)
    raise Unreadable("a mask on a dilated window")


def greater(x: Size | None, y: Size) -> Size:
    """The greater bound; None is none."""
    if x is None or sure(y - x): return y
    return x if sure(x - y) else sp.Max(x, y)


def smaller(x: Size | None, y: Size) -> Size:
    if x is None or sure(x - y): return y
    return x if sure(y - x) else sp.Min(x, y)
