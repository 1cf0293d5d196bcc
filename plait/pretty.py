"""Expressions and numbers in one line, as a person reads them."""
from __future__ import annotations

import sympy as sp

from plait.compiler.sizes import CeilLog2, Latest

SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def pretty(e: sp.Expr) -> str:
    """`2·d·n²`, `⌈(n − 1)/(k − 1)⌉`: an expression in one line."""
    if isinstance(e, sp.Add):
        parts = [pretty(a) for a in e.as_ordered_terms()]
        return parts[0] + "".join(f" − {p[1:]}" if p.startswith("−") else f" + {p}" for p in parts[1:])
    if isinstance(e, sp.Mul): return _product(e)
    if isinstance(e, sp.Pow):
        if e.exp == sp.Rational(1, 2): return f"√{_grouped(e.base)}"
        if e.exp.is_Integer and e.exp > 0:
            base = f"({pretty(e.base)})" if isinstance(e.base, sp.log) else _grouped(e.base)
            return base + str(e.exp).translate(SUPERSCRIPT)
        if e.exp.is_number and e.exp < 0: return f"1/{_grouped(1 / e)}"
        return f"{_grouped(e.base)}^{_grouped(e.exp)}"
    if isinstance(e, CeilLog2): return f"⌈log₂ {_grouped(e.args[0])}⌉"
    if isinstance(e, sp.ceiling): return f"⌈{pretty(sp.together(e.args[0]))}⌉"
    if isinstance(e, sp.floor): return f"⌊{pretty(sp.together(e.args[0]))}⌋"
    if isinstance(e, sp.log): return f"log {_grouped(e.args[0])}"
    if isinstance(e, Latest): return f"max({', '.join(map(pretty, e.args))})"
    if isinstance(e, sp.Max | sp.Min): return f"{type(e).__name__.lower()}({', '.join(map(pretty, e.args))})"
    if isinstance(e, sp.Sum): return f"Σ_{e.limits[0][0]} {_grouped(e.function)}"
    if isinstance(e, sp.Piecewise): return pretty(e.args[0][0])
    if e == sp.oo: return "∞"
    return str(e).replace("-", "−")


def _product(e: sp.Mul) -> str:
    top, bottom = sp.fraction(e)
    if bottom != 1: return f"{_grouped(top, mul=True)}/{_grouped(bottom)}"
    c, rest = e.as_coeff_Mul()
    factors = [_grouped(f) for f in rest.as_ordered_factors()] if rest != 1 else []
    if c == -1: return "−" + "·".join(factors)
    return "·".join(([str(c).replace("-", "−")] if c != 1 else []) + factors)


def _grouped(e: sp.Expr, mul: bool = False) -> str:
    text = pretty(e)
    return f"({text})" if isinstance(e, sp.Add) or isinstance(e, sp.Mul) and not mul else text


def whole(v) -> str:
    """`1,024`, or four digits of what is not whole; nothing for None."""
    return "" if v is None else f"{int(v):,}" if int(v) == v else f"{float(v):,.4g}"
