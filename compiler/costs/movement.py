"""The reading of movement: merges, shifts, windows, positions beside each other, choices of positions."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from plait.compiler.axis import Axis
from plait.compiler.costs import affine
from plait.compiler.costs.affine import FALSE, TRUE, Line, Size, Unreadable, along, inside, same, tidy
from plait.compiler.costs.connections import Shift, then
from plait.compiler.costs.sums import Read, Seen
from plait.compiler.graph import Value
from plait.compiler.prims import Window

if TYPE_CHECKING:
    from plait.compiler.costs.reading import Reading


def merged(x: Seen, p: str, q: str, fast: Size, to: Axis) -> Seen:
    def line(e: Line) -> Line:
        c, d = e.coefficient(p), e.coefficient(q)
        if c == 0 and d == 0: return e
        if not same(c, d * fast): raise Unreadable("a merge of positions that were not split from one")
        return e.put(p, Line()).put(q, Line()).plus(along(to.name), d)
    told = line(x.known) if isinstance(x.known, Line) else x.known if x.known == TRUE else None
    live = tuple(frozenset(map(line, case)) for case in x.live)
    return Seen(tuple(replace(read, line=line(read.line)) for read in x.reads), live, x.empty, told)


def moved(reading: Reading, x: Seen, axis: str, by: Size, old: Size, new: Size) -> Seen:
    """Element i of the new axis is element i − by of the old one; zeros where there is none."""
    out = reading.put(x, axis, along(axis).moved(-by))
    r, there = {**reading.hidden, axis: new}, (inside(along(axis).moved(-by), old),)
    reads = []
    for before, q in zip(x.reads, out.reads):
        if before.line == along(axis): q = Read(then(before.base, Shift(by, new)), along(axis), new)
        elif affine.union(there, r) != TRUE: raise Unreadable("a pad of neighbourhoods, or of what is the same everywhere")
        reads.append(q)
    told = affine.both(out.known, there, r) if isinstance(out.known, tuple) else out.known if affine.union(there, r) == TRUE else None
    live = out.live
    if x.empty == "minus" or not x.reads and live != FALSE: live = affine.both(live, TRUE, r)
    return Seen(tuple(reads), live, x.empty, told)


def windowed(reading: Reading, x: Seen, op: Window, r) -> Seen:
    axis, dilation = op.axis, reading.number(op.dilation)
    for q in x.reads:
        if axis in q.line.axes and not (q.line == along(axis) and q.size is not None and same(q.size, r[axis])):
            raise Unreadable("a window of a window")
    line = along(axis).plus(along(op.into.name), dilation).moved(tidy(-reading.number(op.left) * dilation))
    out, there = reading.put(x, axis, line), inside(line, r[axis])
    told = affine.union([case | there for case in out.known], r) if isinstance(out.known, tuple) else None
    if x.live != TRUE and x.empty == "minus": raise Unreadable("a window of a masked value")
    return Seen(out.reads, affine.union([case | there for case in out.live], r), "zero", told)


def joined(reading: Reading, name: str, xs: list[Seen], ins: Sequence[Value], out: Value) -> Seen:
    xs = [reading.settled(x) for x in xs]
    if name not in reading.ranges(*ins) or not any(x.reads for x in xs): return Seen(tuple(q for x in xs for q in x.reads))
    start, total, reads = 0, reading.number(out.axis(name).size), []
    for x, v in zip(xs, ins):
        for q in x.reads:
            if q.line != along(name): raise Unreadable("beside each other, positions that are not simply along the axis")
            reads.append(Read(then(q.base, Shift(start, total)), along(name), total))
        start = tidy(start + reading.number(v.axis(name).size))
    return Seen(tuple(reads))


def gathered(reading: Reading, name: str, xs: list[Seen], ins: Sequence[Value]) -> Seen:
    x, index = xs
    if name not in reading.ranges(ins[0]): return Seen(x.reads + reading.settled(index).reads, x.live, x.empty)
    if isinstance(index.known, Line): return reading.put(x, name, index.known)
    if any(name in q.line.axes for q in x.reads) or any(name in e.axes for case in x.live for e in case):
        raise Unreadable("a choice of positions that depends on the data")
    return Seen(x.reads + reading.settled(index).reads, x.live, x.empty)
