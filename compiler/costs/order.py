"""Algebra of costs: which term dominates, and what is left of an expression when only growth counts."""
from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import sympy as sp

from plait.compiler.axis import BATCH_SIZE
from plait.compiler.prims import Loop
from plait.compiler.sizes import CeilLog2, Latest


def per_sequence(e: sp.Expr) -> sp.Expr:
    """The cost of one sequence: the batch is 1. (What does not depend on the batch, a mask say, is counted once.)"""
    return sp.sympify(e).xreplace({BATCH_SIZE: sp.Integer(1)})


def over_trips(e: sp.Expr, loops: Iterable[Loop]) -> sp.Expr:
    """A term of a body over all trips of the loops around it (outermost first). Indexed loops stay a Sum."""
    for loop in reversed(tuple(loops)):
        e, i = sp.sympify(e), loop.index
        e = sp.Sum(e, (i, 0, loop.axis.size - 1)) if i is not None and i in e.free_symbols else e * loop.axis.size
    return e


def smallest(xs: Iterable[sp.Expr]) -> sp.Expr | None:
    """The minimum of monomials, without those that are another times a product of dims. None for none."""
    kept: list[sp.Expr] = []
    for x in dict.fromkeys(xs):
        if any(x == k or _outgrows(x, k) for k in kept): continue
        kept = [k for k in kept if not _outgrows(k, x)] + [x]
    return None if not kept else kept[0] if len(kept) == 1 else sp.Min(*kept, evaluate=False)


def added(terms: Iterable[sp.Expr]) -> sp.Expr:
    """A sum, expanded; what does not hold the index comes out of a Sum over it."""
    return sp.expand(sp.Add(*terms)).replace(lambda e: isinstance(e, sp.Sum), _pulled_out)


def _pulled_out(e: sp.Sum) -> sp.Expr:
    """Term by term, with the factors that do not hold the index in front."""
    out = e.function
    for i, low, high in e.limits:
        parts = [t.as_independent(i, as_Add=False) for t in sp.Add.make_args(sp.expand(out))]
        out = sp.Add(*[free * (high - low + 1 if held == 1 else sp.Sum(held, (i, low, high))) for free, held in parts])
    return sp.expand(out)


# ---- leading order --------------------------------------------------------------------------------------------------------
@lru_cache(4096)
def order(e: sp.Expr) -> sp.Expr:
    """The leading order: coefficients gone, ⌈x⌉ as x, and of the terms those that no other outgrows. A term falls if another
    divided by it is a product of non-negative powers of dims, not all zero. `max(…)` keeps the order of each argument."""
    e = sp.sympify(e)
    if e == 0: return sp.Integer(0)
    if isinstance(e, sp.Piecewise): return order(e.args[0][0])
    if e.has(sp.Sum): e = e.replace(lambda x: isinstance(x, sp.Sum), _growing)
    choices = [t for t in sp.Add.make_args(e) if isinstance(t, sp.Max | sp.Min | Latest)]
    if choices: return _of_choices(sp.Add(*[t for t in sp.Add.make_args(e) if t not in choices]), choices)
    e = _smooth(e).replace(lambda x: isinstance(x, sp.Max | sp.Min | Latest), lambda x: type(x)(*map(order, x.args)))
    if e.is_Mul or e.is_Pow:
        top, bottom = sp.fraction(e)
        if bottom.has(sp.Add) or top.has(sp.Add) and bottom.free_symbols: return order(top) / order(bottom)
    return sp.Add(*_leading([t for t in map(_bare, sp.Add.make_args(sp.expand(e))) if t != 0]))


def _growing(e: sp.Sum) -> sp.Expr:
    """A Sum of the leading terms of what is summed, those that are taken off left out."""
    terms = [t for t in sp.Add.make_args(sp.expand(e.function)) if not t.could_extract_minus_sign()]
    leading = order(sp.Add(*terms))
    return sp.Sum(leading, *e.limits) if leading != 0 else sp.Integer(0)


def _of_choices(shared: sp.Expr, choices: list) -> sp.Expr:
    """A sum with maxima in it: what the rest outgrows falls out of them."""
    sets = [[s for a in c.args for s in _alternatives(a)] if isinstance(c, sp.Max | Latest) else
            [set(sp.Add.make_args(order(a))) - {0} for a in c.args] for c in choices]
    base = set(sp.Add.make_args(order(shared))) - {0}
    kept = set(_leading([*base, *(t for s in sets for a in s for t in a)]))
    out = [sp.Add(*(base & kept))]
    for c, s in zip(choices, sets):
        rest = list(dict.fromkeys(sp.Add(*sorted((a & kept) - base, key=str)) for a in s))
        if isinstance(c, sp.Max | Latest): rest = _undominated([r for r in rest if r != 0])
        if rest: out.append(rest[0] if len(rest) == 1 else (Latest(*rest) if isinstance(c, Latest) else type(c)(*rest, evaluate=False)))
    return sp.Add(*out)


def _alternatives(e: sp.Expr) -> list[set[sp.Expr]]:
    """The terms of an order, once for each choice of a maximum in it."""
    found: list[set[sp.Expr]] = [set()]
    for t in sp.Add.make_args(order(e)):
        ways = [_alternatives(a) for a in t.args] if isinstance(t, sp.Max | Latest) else [[{t}]]
        found = [f | w for f in found for way in ways for w in way]
    return [f - {sp.Integer(0)} for f in found]


def _undominated(alternatives: list[sp.Expr]) -> list[sp.Expr]:
    """Without those whose every term is in another, or outgrown there."""
    def below(x: sp.Expr, y: sp.Expr) -> bool:
        return all(any(u == t or _outgrows(u, t) for u in sp.Add.make_args(y)) for t in sp.Add.make_args(x))
    kept: list[sp.Expr] = []
    for x in sorted(alternatives, key=str):
        if any(below(x, y) for y in kept): continue
        kept = [y for y in kept if not below(y, x)] + [x]
    return kept


def _smooth(e: sp.Expr) -> sp.Expr:
    """Without ceilings and floors; of a Piecewise its first case."""
    e = e.replace(lambda x: isinstance(x, CeilLog2), lambda x: sp.log(x.args[0]))
    e = e.replace(lambda x: isinstance(x, sp.Piecewise), lambda x: x.args[0][0])
    return e.replace(lambda x: isinstance(x, sp.ceiling | sp.floor), lambda x: x.args[0])


def _bare(term: sp.Expr) -> sp.Expr:
    """A term without its number; logarithms lose their base."""
    factors = [f for f in sp.Mul.make_args(term) if f.free_symbols]
    return sp.Mul(*[order(f) if isinstance(f, sp.Max | sp.Min) else f for f in factors])


def _leading(terms: list[sp.Expr]) -> list[sp.Expr]:
    """The terms that no other outgrows, each once."""
    terms = list(dict.fromkeys(terms))
    return [t for t in terms if not any(u != t and _outgrows(u, t) for u in terms)]


@lru_cache(1 << 16)
def _outgrows(u: sp.Expr, t: sp.Expr) -> bool:
    """Is u / t a product of non-negative powers of dims (and their logarithms), not all zero?"""
    powers = dict(u.as_powers_dict())
    for base, e in t.as_powers_dict().items(): powers[base] = powers.get(base, 0) - e
    left = {base: e for base, e in powers.items() if e != 0 and not base.is_number}
    return bool(left) and all(e.is_number and e > 0 and (base.is_Symbol or isinstance(base, sp.log)) for base, e in left.items())
