"""Derived expressions as JavaScript: calls of the functions of exact.js, which evaluates as `compiler/sizes.py` does."""
from __future__ import annotations

import sympy as sp
from sympy.logic.boolalg import Boolean

from plait.compiler.sizes import CeilLog2, Latest, log_base

RELATIONS = {sp.Eq: "eq({0}, {1})", sp.Ne: "ne({0}, {1})", sp.Lt: "lt({0}, {1})", sp.Le: "le({0}, {1})",
             sp.Gt: "lt({1}, {0})", sp.Ge: "le({1}, {0})"}
CALLS = {sp.Add: "add", sp.Mul: "mul", sp.Pow: "pow", sp.Max: "most", Latest: "most", sp.Min: "least", sp.Mod: "mod", sp.log: "log",
         sp.exp: "exp", sp.cos: "cos", sp.floor: "floor", sp.ceiling: "ceil"}


class Unprintable(Exception):
    """An expression that JavaScript has no word for here."""


def expression(e: sp.Expr, indices: dict[sp.Symbol, str] | None = None) -> str:
    """The expression over an object `s` that has a BigInt for every dim: `mul(2n, s.d, pow(s.n, 2n))`. indices: the variables of the
    sums around it. Raises Unprintable."""
    known = indices or {}
    def printed(x: sp.Basic) -> str: return expression(x, known)
    if isinstance(e, sp.Symbol): return known[e] if e in known else f"s.{e.name}" if e.name.isidentifier() else f's["{e.name}"]'
    if isinstance(e, sp.Integer): return f"{int(e)}n"
    if isinstance(e, sp.Rational): return f"ratio({int(e.p)}n, {int(e.q)}n)"
    if isinstance(e, sp.Float | sp.NumberSymbol): return repr(float(e))
    if e in (sp.oo, -sp.oo): return "Infinity" if e == sp.oo else "-Infinity"
    if isinstance(e, CeilLog2): return f"ceilLog({printed(e.args[0])}, 2n)"
    if isinstance(e, sp.ceiling) and (found := log_base(e.args[0])) is not None: return f"ceilLog({', '.join(map(printed, found))})"
    if isinstance(e, sp.Piecewise):
        return "(" + " : ".join(f"{condition(c, known)} ? {printed(v)}" for v, c in e.args) + ' : fail("no case holds"))'
    if isinstance(e, sp.Sum): return _sum(e, known)
    if isinstance(e, sp.Abs): return f"most({printed(e.args[0])}, {printed(-e.args[0])})"
    for kind, name in CALLS.items():
        if isinstance(e, kind): return f"{name}({', '.join(map(printed, e.args))})"
    raise Unprintable(f"{type(e).__name__}: {e}")


def _sum(e: sp.Sum, known: dict[sp.Symbol, str]) -> str:
    """The outermost index is the last of its limits; the others stay inside."""
    i, low, high = e.limits[-1]
    inner = sp.Sum(e.function, *e.limits[:-1]) if len(e.limits) > 1 else e.function
    name = f"i{len(known)}"
    closed = e.doit()
    more = "" if closed.has(sp.Sum) else f", () => {expression(closed, known)}"
    return f"total({expression(low, known)}, {expression(high, known)}, {name} => {expression(inner, {**known, i: name})}{more})"


def condition(c: Boolean, indices: dict[sp.Symbol, str] | None = None) -> str:
    """A condition as JavaScript, true or false. Raises Unprintable."""
    known = indices or {}
    if c in (True, sp.true): return "true"
    if c in (False, sp.false): return "false"
    if isinstance(c, sp.And | sp.Or):
        return "(" + (" && " if isinstance(c, sp.And) else " || ").join(condition(x, known) for x in c.args) + ")"
    if type(c) not in RELATIONS: raise Unprintable(f"{type(c).__name__}: {c}")
    return RELATIONS[type(c)].format(*(expression(x, known) for x in c.args))
