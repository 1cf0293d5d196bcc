"""What a value is seen as, and a sum over its positions: the reads of its summands become bands, or everything. An edge into a
sum weighs 1."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plait.compiler.axis import POSITIONAL, Axis
from plait.compiler.costs.affine import (
    TRUE,
    Case,
    Cases,
    Line,
    Ranges,
    Size,
    Unreadable,
    along,
    greater,
    inside,
    same,
    simplified,
    smaller,
    sure,
    tidy,
)
from plait.compiler.costs.connections import STEP, All, Band, Base, Clip, Spread, then
from plait.compiler.costs.masks import Known
from plait.compiler.graph import Value


@dataclass(frozen=True)
class Read:
    """An element looks at position `line` (of its own axes) of a base of `size` positions. None: the base is one place."""
    base: Base
    line: Line
    size: Size | None


@dataclass(frozen=True)
class Seen:
    """`live`: where elements are alive, and reads hold; `empty`: what stands elsewhere, zero or minus (−∞)."""
    reads: tuple[Read, ...] = ()
    live: Cases = TRUE
    empty: str = "zero"
    known: Known = None


NOTHING = Seen()


def spots(v: Value) -> tuple[Axis, ...]:
    return tuple(a for a in v.axes if a.role in POSITIONAL)


def through(q: Read, case: Case, over: Sequence[str], r: Ranges, alone: bool) -> list[Read]:
    """The reads of a sum over axes, of summands that read `q` where `case` holds. `alone`: there is no other case, so what it
    asks of the axes that stay is said of the sum itself."""
    hit = [a for a in over if q.line.coefficient(a) != 0]
    if not hit: return [Read(then(q.base, STEP), q.line, q.size)]
    if len(hit) > 1 or q.size is None: raise Unreadable("a sum over two axes that share positions")
    a, border = hit[0], inside(q.line, q.size)
    held = [e for e in case if e not in border]
    about = [e for e in held if e.coefficient(a) != 0]
    if any(e.coefficient(o) != 0 for e in about for o in over if o != a): raise Unreadable("a mask over two axes that are summed")
    other = q.line.put(a, Line())
    stay = simplified(frozenset(e for e in held if all(e.coefficient(o) == 0 for o in over)), r)
    if stay is None: return []
    rows = _rows(stay, r) if stay and not alone else None
    read = _neighbours(q, a, other, about, r) if other.terms else _others(q, a, about, r, rows)
    if read is None or rows is None: return [read] if read else []
    t, lo, hi = rows
    if read.line != along(t): raise Unreadable("a mask of rows")
    return [Read(then(read.base, Clip(lo, hi)), read.line, read.size)]


def _rows(stay: Case, r: Ranges) -> tuple[str, Size, Size]:
    """What a case asks of the axis that stays: from where to where along it."""
    t, *more = {x for e in stay for x in e.axes} or {""}
    if more or not t: raise Unreadable("a mask of rows along two axes")
    lo, hi = _bounds(list(stay), t, 0, tidy(r[t] - 1))
    assert lo is not None and hi is not None
    return t, lo, hi


def _neighbours(q: Read, a: str, other: Line, about: list[Line], r: Ranges) -> Read | None:
    """The base is read at t + coefficient·a + const: a band, as wide as a runs."""
    if len(other.terms) != 1 or other.terms[0][1] != 1: raise Unreadable("mixing along an axis that is cut into pieces")
    t, step, size = other.axes[0], q.line.coefficient(a), q.size
    assert size is not None
    if not same(size, r[t]): raise Unreadable("neighbours in a sequence of another length")
    base, clip = q.base, [e for e in about if e.axes != (a,)]
    first, last = _bounds([e for e in about if e.axes == (a,)], a, 0, tidy(r[a] - 1))
    assert first is not None and last is not None
    if sure(first - last - 1): return None
    if clip:
        lo: Size | None = None
        hi: Size | None = None
        for e in clip:
            if e.terms == q.line.terms: lo = greater(lo, tidy(q.line.const - e.const))
            elif e.terms == q.line.times(-1).terms: hi = smaller(hi, tidy(e.const + q.line.const))
            else: raise Unreadable("a mask across a window")
        base = then(base, Clip(lo, hi))
    ends = [tidy(-q.line.const - step * last), tidy(-q.line.const - step * first)]
    if not sure(step): ends.reverse()
    return Read(then(base, Band(ends[0], ends[1], step if sure(step) else tidy(-step), window=True)), along(t), size)


def _others(q: Read, a: str, about: list[Line], r: Ranges, rows: tuple[str, Size, Size] | None) -> Read | None:
    """The base is read at a + const: everything, but for what a mask takes away."""
    if q.line.coefficient(a) != 1: raise Unreadable("a sum over every so manieth position")
    size, c, base = q.size, q.line.const, q.base
    assert size is not None
    ranks = {x for e in about for x in e.axes if x != a}
    if len(ranks) > 1: raise Unreadable("a mask over three axes")
    first, last = _bounds([e for e in about if e.axes == (a,)], a, 0, tidy(r[a] - 1))
    assert first is not None and last is not None
    if sure(first - last - 1): return None
    lowest, highest = tidy(first + c), tidy(last + c)
    if not (sure(-lowest) and sure(highest - size + 1)):
        base = then(base, Clip(None if sure(-lowest) else lowest, None if sure(highest - size + 1) else highest))
    if not ranks and rows is not None:            # a box of pairs: the offsets that it can hold
        t, top, bottom = rows
        if not same(size, r[t]): return Read(then(base, All(), Spread(r[t])), along(t), r[t])
        return Read(then(base, Band(tidy(top - highest), tidy(bottom - lowest))), along(t), size)
    if not ranks: return Read(then(base, All()), Line(), None)
    t, = ranks
    if not same(size, r[t]): raise Unreadable("a mask between sequences of different lengths")
    lo: Size | None = None
    hi: Size | None = None
    for e in about:
        if e.axes == (a,): continue
        if (e.coefficient(a), e.coefficient(t)) == (-1, 1): lo = greater(lo, tidy(-e.const - c))
        elif (e.coefficient(a), e.coefficient(t)) == (1, -1): hi = smaller(hi, tidy(e.const - c))
        else: raise Unreadable("a slanted mask")
    return Read(then(base, Band(lo, hi)), along(t), size)


def _bounds(lines: list[Line], axis: str, lo: Size | None, hi: Size | None) -> tuple[Size | None, Size | None]:
    for e in lines:
        if e.axes != (axis,) or e.coefficient(axis) not in (1, -1): raise Unreadable("a mask of every so manieth position")
        if e.coefficient(axis) == 1: lo = greater(lo, tidy(-e.const))
        else: hi = smaller(hi, e.const)
    return lo, hi
