"""Algebra of costs: which term dominates, and what is left of an expression when only growth counts."""
from __future__ import annotations

from collections.abc import Iterable

import sympy as sp

from plait.compiler.axis import BATCH_SIZE
from plait.compiler.prims import Loop
from plait.compiler.sizes import CeilLog2


def per_sequence(e: sp.Expr) -> sp.Expr:
    """The cost of one sequence: the batch is 1. (What does not depend on the batch, a mask say, is counted once.)"""
    return sp.sympify(e).xreplace({BATCH_SIZE: sp.Integer(1)})


def over_trips(e: sp.Expr, loops: Iterable[Loop]) -> sp.Expr:
    """A term of a body over all trips of the loops around it (outermost first). Indexed loops stay a Sum."""
    for loop in reversed(tuple(loops)):
        e, i = sp.sympify(e), loop.index
        e = sp.Sum(e, (i, 0, loop.axis.size - 1)) if i is not None and i in e.free_symbols else e * loop.axis.size
    return e


def covers(x: sp.Expr, y: sp.Expr) -> bool:
    """Is x ≥ y whatever the dims are? True only where it is plain: every term of x − y has a coefficient of 0 or more.
    (Dims are positive integers, so a product of them is at least 1: a negative constant may lean on a positive term.)"""
    if x == sp.oo or y == -sp.oo or x == y: return True
    if x == -sp.oo or y == sp.oo: return False
    terms = sp.expand(x - y).as_coefficients_dict()
    slack = sp.Integer(0)
    for term, c in terms.items():
        if term == 1: slack += c
        elif not (term.is_nonnegative or _product_of_dims(term)) or not c.is_number or c < 0: return False
        elif _product_of_dims(term): slack += c
    return bool(slack >= 0)


def _product_of_dims(term: sp.Expr) -> bool:
    return all(f.is_Symbol and f.is_positive and f.is_integer or f.is_Pow and f.base.is_Symbol and f.exp.is_Integer and f.exp > 0
               for f in sp.Mul.make_args(term))


def smallest(xs: Iterable[sp.Expr]) -> sp.Expr | None:
    """The minimum, without the arguments that cover another. None for none."""
    kept: list[sp.Expr] = []
    for x in dict.fromkeys(xs):
        if any(covers(x, k) for k in kept): continue
        kept = [k for k in kept if not covers(k, x)] + [x]
    return None if not kept else kept[0] if len(kept) == 1 else sp.Min(*kept, evaluate=False)


# ---- leading order --------------------------------------------------------------------------------------------------------
def order(e: sp.Expr) -> sp.Expr:
    """The leading order: coefficients gone, ⌈x⌉ as x, and of the terms those that no other outgrows. A term falls if another
    divided by it is a product of non-negative powers of dims, not all zero. `max(…)` keeps the order of each argument."""
    e = _smooth(sp.sympify(e))
    if isinstance(e, sp.Max | sp.Min): return type(e)(*_leading([order(a) for a in e.args], isinstance(e, sp.Max)), evaluate=False)
    if isinstance(e, sp.Sum): return e
    top, bottom = sp.fraction(sp.together(e))
    if bottom.free_symbols and not bottom.is_Mul and not bottom.is_Symbol and not bottom.is_Pow:
        return order(top) / order(bottom)
    terms = [_bare(t) for t in sp.Add.make_args(sp.expand(e))]
    return sp.Add(*_leading([t for t in terms if t != 0], True)) if e != 0 else sp.Integer(0)


def _smooth(e: sp.Expr) -> sp.Expr:
    """Without ceilings and floors; of a Piecewise its first case."""
    e = e.replace(lambda x: isinstance(x, CeilLog2), lambda x: sp.log(x.args[0]))
    e = e.replace(lambda x: isinstance(x, sp.Piecewise), lambda x: x.args[0][0])
    return e.replace(lambda x: isinstance(x, sp.ceiling | sp.floor), lambda x: x.args[0])


def _bare(term: sp.Expr) -> sp.Expr:
    """A term without its number; logarithms lose their base."""
    factors = [f for f in sp.Mul.make_args(term) if f.free_symbols]
    return sp.Mul(*[order(f) if isinstance(f, sp.Max | sp.Min) else f for f in factors]) if factors else sp.Integer(1)


def _leading(terms: list[sp.Expr], most: bool) -> list[sp.Expr]:
    terms = list(dict.fromkeys(terms))
    return [t for t in terms if not any(u != t and _outgrows(u, t) for u in terms)] if most else terms


def _outgrows(u: sp.Expr, t: sp.Expr) -> bool:
    """Is u / t a product of non-negative powers of dims, not all zero?"""
    q = sp.powsimp(u / t)
    return q != 1 and all(f.is_Symbol or isinstance(f, sp.log) or f.is_Pow and (f.base.is_Symbol or isinstance(f.base, sp.log)) and f.exp.is_number and f.exp > 0
                          for f in sp.Mul.make_args(q))
