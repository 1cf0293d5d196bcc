"""Expressions at many places at once, in float64: for curves and for searches, whose ends are then settled exactly."""
from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import reduce

import numpy as np
import sympy as sp

from plait.compiler.sizes import CeilLog2, Free, Latest

Array = np.ndarray
MOST_TERMS = 4096                                             # of a sum over an index that are added one by one

_RELATIONS: dict[type, Callable[[Array, Array], Array]] = {
    sp.Eq: operator.eq, sp.Ne: operator.ne, sp.Lt: operator.lt, sp.Le: operator.le, sp.Gt: operator.gt, sp.Ge: operator.ge}
_FUNCTIONS: dict[type, Callable[[Array], Array]] = {sp.log: np.log, sp.exp: np.exp, sp.cos: np.cos}


def values(e: sp.Expr, at: Mapping[sp.Symbol, Array | float]) -> Array:
    """The values of an expression, elementwise over the arrays of `at`. Whole numbers are exact below 2^53.
    Raises Free for a symbol without a value."""
    def of(x: sp.Expr) -> Array: return values(x, at)

    if isinstance(e, sp.Symbol):
        if e not in at: raise Free(str(e))
        return np.asarray(at[e], np.float64)
    if e.is_number and not e.args: return np.asarray(float(e))
    if isinstance(e, sp.Add): return reduce(np.add, map(of, e.args))
    if isinstance(e, sp.Mul): return reduce(np.multiply, map(of, e.args))
    if isinstance(e, sp.Pow): return of(e.args[0]) ** of(e.args[1])
    if isinstance(e, CeilLog2): return _ceil_log2(of(e.args[0]))
    if isinstance(e, sp.ceiling): return np.ceil(_cleaned(of(e.args[0])))
    if isinstance(e, sp.floor): return np.floor(_cleaned(of(e.args[0])))
    if isinstance(e, sp.Max | Latest): return reduce(np.maximum, map(of, e.args))
    if isinstance(e, sp.Min): return reduce(np.minimum, map(of, e.args))
    if isinstance(e, sp.Mod): return np.mod(of(e.args[0]), of(e.args[1]))
    if type(e) in _FUNCTIONS: return _FUNCTIONS[type(e)](of(e.args[0]))
    if isinstance(e, sp.Piecewise): return _cases(e, at)
    if isinstance(e, sp.Sum): return _sum(e, at)
    raise TypeError(f"no values for {type(e).__name__}: {e}")


def truths(condition: sp.Basic, at: Mapping[sp.Symbol, Array | float]) -> Array:
    """Where a condition holds."""
    if condition in (True, sp.true, False, sp.false): return np.asarray(bool(condition))
    if isinstance(condition, sp.And | sp.Or):
        join = np.logical_and if isinstance(condition, sp.And) else np.logical_or
        return reduce(join, [truths(c, at) for c in condition.args])
    return _RELATIONS[type(condition)](*(values(a, at) for a in condition.args))


def _cleaned(x: Array) -> Array:
    """A quotient of logarithms may miss a whole number by its last bits."""
    near = np.round(x)
    return np.where(np.abs(x - near) < 1e-12 * np.maximum(1, np.abs(near)), near, x)


def _ceil_log2(x: Array) -> Array:
    fraction, exponent = np.frexp(x)                          # x = fraction · 2^exponent, ½ ≤ fraction < 1
    return exponent - (fraction == 0.5)


def _cases(e: sp.Piecewise, at: Mapping[sp.Symbol, Array | float]) -> Array:
    out: Array | None = None
    with np.errstate(all="ignore"):
        for value, condition in reversed(e.args):
            found, holds = values(value, at), truths(condition, at)
            out = np.where(holds, found, np.nan if out is None else out)
    assert out is not None
    return out


def _sum(e: sp.Sum, at: Mapping[sp.Symbol, Array | float]) -> Array:
    i, low, high = e.limits[-1]
    inner = sp.Sum(e.function, *e.limits[:-1]) if len(e.limits) > 1 else e.function
    first, last = values(low, at), values(high, at)
    start, end = int(first.min()), int(last.max())
    if end - start > MOST_TERMS: raise Free(str(e))
    terms = (np.where((t >= first) & (t <= last), values(inner, {**at, i: float(t)}), 0.0) for t in range(start, end + 1))
    return reduce(np.add, terms, np.asarray(0.0))
