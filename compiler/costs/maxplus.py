"""Sums of dims under a maximum: the arithmetic of depth. A `Late` is a set of alternatives, each a sum of monomials; the
latest of them counts. No alternatives: never. sympy's own nested Max grows without bound; here one that another covers goes."""
from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache

import sympy as sp

from plait.compiler.sizes import Latest

Sum = dict                                                    # monomial → coefficient; the constant stands under 1
Late = tuple[Sum, ...]
NEVER: Late = ()
ONE = sp.S.One
MOST = 4                                                     # alternatives that are carried along


def late(e) -> Late:
    """An expression without a maximum, as a Late."""
    return _late(sp.sympify(e))


@lru_cache(None)
def _late(e: sp.Expr) -> Late:
    return ({k: _plain(v) for k, v in sp.expand(e).as_coefficients_dict().items() if v != 0},)


def _plain(v: sp.Rational) -> int | Fraction:
    """A Python number: thousands of comparisons are made of them."""
    return int(v) if v.is_Integer else Fraction(int(v.p), int(v.q))


NOW = late(0)


def plus(x: Late, y: Late) -> Late:
    """Both one after the other."""
    return pruned(_added(a, b) for a in x for b in y)


def _added(a: Sum, b: Sum) -> Sum:
    out = dict(a)
    for k, v in b.items():
        total = out.get(k, 0) + v
        if total: out[k] = total
        else: out.pop(k, None)
    return out


def times(x: Late, n: sp.Expr) -> Late:
    """n runs in a row, n ≥ 0."""
    return pruned(form for a in x for form in late(n * expression(a)))


def latest(xs: Iterable[Late]) -> Late:
    some: dict[int, Late] = {id(x): x for x in xs if x}
    if len(some) == 1: return next(iter(some.values()))
    return pruned(a for x in some.values() for a in x)


def pruned(alternatives: Iterable[Sum]) -> Late:
    kept: list[Sum] = []
    for a in alternatives:
        if any(covers(k, a) for k in kept): continue
        kept = [k for k in kept if not covers(a, k)] + [a]
    return tuple(kept) if len(kept) <= MOST else _whole(kept)


def covers(x: Sum, y: Sum) -> bool:
    """Is x ≥ y whatever the dims are? What y has more of a monomial, x has more of that monomial times dims, which are 1 or more;
    a negative constant may lean on products of dims."""
    more: Sum = {}
    less: Sum = {}
    for k, v in y.items():
        c = v - x.get(k, 0)
        if c > 0: less[k] = c
    for k, v in x.items():
        c = v - y.get(k, 0)
        if c > 0: more[k] = c
        elif c < 0 and k not in y: less[k] = -c
    if len(less) > 4: return False
    constant = less.pop(ONE, 0) - more.pop(ONE, 0)
    if not less and constant <= 0: return True
    for k, need in less.items() if len(less) < 2 else sorted(less.items(), key=lambda i: _name(i[0])):
        above = [p for p in more if multiple(p, k)]
        for p in above if len(above) < 2 else sorted(above, key=_name):
            taken = min(need, more[p])
            more[p], need = more[p] - taken, need - taken
            if not need: break
        if need: return False
    return bool(constant <= sum(c for k, c in more.items() if at_least_one(k)))


@lru_cache(None)
def _name(monomial: sp.Expr) -> str:
    """Sums are gone through in one order, whatever the hashes are."""
    return str(monomial)


@lru_cache(None)
def multiple(p: sp.Expr, k: sp.Expr) -> bool:
    """Is p a product of dims times k?"""
    return at_least_one(p / k)


@lru_cache(None)
def at_least_one(monomial: sp.Expr) -> bool:
    """A product of positive integer dims, without division."""
    return all(f.is_Symbol and f.is_positive or f.is_Pow and f.base.is_Symbol and f.exp.is_Integer and f.exp > 0
               for f in sp.Mul.make_args(monomial))


def expression(a: Sum) -> sp.Expr:
    return sp.Add(*[k * sp.Rational(v.numerator, v.denominator) for k, v in a.items()])


def _whole(alternatives: list[Sum]) -> Late:
    """Too many to be carried along: what they share, and the maximum of the rest as one term."""
    shared, rest = _parted(alternatives)
    return (_added(shared, {Latest(*map(expression, rest)): 1}),)


def _parted(alternatives) -> tuple[Sum, list[Sum]]:
    """What all alternatives have, and what each has beside it."""
    shared = {k: min(a.get(k, 0) for a in alternatives) for k in alternatives[0] if all(k in a for a in alternatives)}
    return shared, [_added(a, {k: -v for k, v in shared.items()}) for a in alternatives]


def written(x: Late) -> sp.Expr:
    """As sympy: a sum, with a maximum of what its alternatives do not share; −∞ for never."""
    if not x: return -sp.oo
    if len(x) == 1: return expression(x[0])
    shared, rest = _parted(list(x))
    return sp.Add(expression(shared), Latest(*map(expression, rest)))
