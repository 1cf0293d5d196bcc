"""What is known of an index, a mask or a count of a mask: enough to read causal masks, windows and who is left alone."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plait.compiler.costs import affine
from plait.compiler.costs.affine import Cases, Line, Ranges, tidy


@dataclass(frozen=True)
class Indicator:
    """1 where a mask holds, else 0."""
    cases: Cases


@dataclass(frozen=True)
class Count:
    """A number of places, above 0 exactly in these cases."""
    cases: Cases


Known = Line | Cases | Indicator | Count | None


def known(fn: str, of: Sequence[Known], r: Ranges) -> Known:
    """What a pointwise function makes of what is known; None: nothing."""
    if any(k is None for k in of): return None
    match fn, *of:
        case "add", Line() as x, Line() as y: return x.plus(y)
        case "sub", Line() as x, Line() as y: return x.plus(y, -1)
        case "neg", Line() as x: return x.times(-1)
        case "mul", Line() as x, Line() as y if not x.terms: return y.times(x.const)
        case "mul", Line() as x, Line() as y if not y.terms: return x.times(y.const)
        case "le", Line() as x, Line() as y: return affine.union([frozenset([y.plus(x, -1)])], r)
        case "lt", Line() as x, Line() as y: return affine.union([frozenset([y.plus(x, -1).moved(-1)])], r)
        case "eq", Line() as x, Line() as y: return affine.union([frozenset([y.plus(x, -1), x.plus(y, -1)])], r)
        case "eq", Count(cases), Line() as y if y == Line(): return affine.negated(cases, r)
        case "and", tuple() as x, tuple() as y: return affine.both(x, y, r)
        case "or", tuple() as x, tuple() as y: return affine.union([*x, *y], r)
        case "not", tuple() as x: return affine.negated(x, r)
    return None


def reduced(fn: str, of: Known, over: Sequence[str], r: Ranges) -> Known:
    """What is known of a sum or a maximum over axes."""
    match of:
        case Indicator(cases) if fn == "sum" and over:
            found: list[affine.Case] = []
            for case in cases:
                rest: affine.Case | None = case
                for a in over: rest = affine.exists(rest, a, r) if rest is not None else None
                if rest is not None: found.append(rest)
            return Count(affine.union(found, r))
        case Line() if fn == "max":
            for a in over:
                if not affine.sure(of.coefficient(a)): return None
                of = of.put(a, Line((), tidy(r[a] - 1)))
            return of
    return None
