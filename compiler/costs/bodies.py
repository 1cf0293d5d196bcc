"""The reading of regions and of the three loops: recurrences, copies, pieces."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from plait.compiler.axis import POSITIONAL, Axis
from plait.compiler.costs.affine import Line, Unreadable, along, tidy
from plait.compiler.costs.connections import STEP, At, Band, Base, Chunks, Factor, Scan, Shift, Token, copies, either, hangs, then
from plait.compiler.costs.sums import NOTHING, Read, Seen, spots
from plait.compiler.graph import Node, Value
from plait.compiler.prims import Loop, Region, Sort

if TYPE_CHECKING:
    from plait.compiler.costs.reading import Reading


def region(reading: Reading, op: Region, xs: list[Seen], n: Node) -> list[Seen]:
    sorts, causal = any(isinstance(m.op, Sort) for m in op.body.nodes), bool(op.arg("causal", False))
    if not sorts and op.name != "local_attention": return reading.graph(op.body, xs)
    if not any(x.reads for x in xs): return [NOTHING] * len(n.outs)
    factor: Factor = Band(0 if causal else None, None)
    if sorts: reading.assumed = True             # data decide who meets whom: every pair that the mask allows may
    else:                                        # which chunk a position is in is no line: a factor of its own
        factor = Chunks(reading.number(op.arg("chunk")), int(op.arg("look_back")), int(op.arg("look_ahead")), causal, bool(op.arg("wrap")))
    outs = []
    for v in n.outs:
        a, = spots(v)
        read = reading.at([Read(base, along(a.name) if at else Line(), reading.number(at.size) if at else None)
                        for base, at in (reading.base(x, u) for x, u in zip(xs, n.ins)) if base], a)
        outs.append(Seen((replace(read, base=then(read.base, factor)),)))
    return outs


def pieces(reading: Reading, op: Loop, xs: list[Seen]) -> list[Seen]:
    """Pieces of a split axis: the line keeps the piece. Along copies there are no positions to keep."""
    with reading.inside(op.axis if op.axis.role in POSITIONAL else None):
        return [reading.settled(x) for x in reading.graph(op.body, xs)]


def scan(reading: Reading, op: Loop, xs: list[Seen]) -> list[Seen]:
    """A state reads the step's input and the states before, for 1 each; what hangs on no state passes for 0."""
    c, a, size = op.carried, op.axis, reading.number(op.axis.size)
    if any(reading.settled(x).reads for x in xs[:c]): raise Unreadable("a recurrence whose first state comes from the source")
    if any(v.has(a.name) for v in op.body.ins): raise Unreadable("a scan step that sees the whole sequence")
    with reading.inside(a) as loop:
        states = [Seen((Read(((Token(loop, k), ()),), along(a.name), size),)) for k in range(c)]
        outs = [reading.settled(x) for x in reading.graph(op.body, [*states, *xs[c:]])]
    parts = [_parts(reading, x, loop, a) for x in outs]
    fed = {ext for tokens, ext in parts[:c] if tokens}
    if len(fed) > 1 or any(ext and not tokens for tokens, ext in parts[:c]): raise Unreadable("states that read different inputs")
    ext = fed.pop() if fed else ()
    state = then(ext, Scan(not op.reverse))
    last = Seen((Read(then(state, At(0 if op.reverse else tidy(size - 1), size)), Line(), None),)) if ext else NOTHING
    stacks = []
    for x, (tokens, mine) in zip(outs[c:], parts[c:]):
        bases = [state] if mine == ext else [then(state, Shift(-1 if op.reverse else 1, size), STEP), then(mine, STEP)]
        made = either([b for b in bases if b])
        stacks.append(x if not tokens else Seen((Read(made, along(a.name), size),)) if made else NOTHING)
    return [last] * c + stacks


def _parts(reading: Reading, x: Seen, loop: int, a: Axis) -> tuple[bool, Base]:
    """Does it hang on a state; and what it reads beside, along the sequence."""
    base = reading.at(x.reads, a).base if x.reads else ()
    mine = [chain for root, chain in base if isinstance(root, Token) and root.loop == loop]
    if any(mine) or hangs(base, loop, inside=True): raise Unreadable("a sum over positions inside a scan step")
    return bool(mine), tuple((root, chain) for root, chain in base if not (isinstance(root, Token) and root.loop == loop))


def repeated(reading: Reading, op: Loop, xs: list[Seen]) -> list[Seen]:
    """Copies: a trip read once, on tokens for the states; then the term of all trips."""
    c, body = op.carried, op.body
    if any(x.reads for x in xs[c:c + op.sliced]): raise Unreadable("copies that are told apart by the source")
    starts = tuple(reading.base(x, v)[0] for x, v in zip(xs, body.ins))[:c]
    with reading.inside(None) as loop:
        def trip(numbers: Sequence[int]) -> tuple[Base, ...]:
            tokens = [token(reading, v, Token(loop, k)) for v, k in zip(body.ins, numbers)]
            outs = reading.graph(body, [*tokens, *xs[c:]])
            if any(x.reads for x in outs[c:]): raise Unreadable("values of all copies side by side")
            return tuple(reading.base(x, v)[0] for x, v in zip(outs, body.outs[:c]))
        outs = trip(range(c))
        joint = None
        if c > 1 and len(set(starts)) == 1:
            alike = set(trip([0] * c))
            joint = alike.pop() if len(alike) == 1 else None
    ends = copies(starts, outs, loop, reading.number(op.axis.size), op.index, joint)
    return [standing(reading, v, b) for v, b in zip(body.outs, ends)] + [NOTHING] * (len(body.outs) - c)


def token(reading: Reading, v: Value, t: Token) -> Seen:
    return standing(reading, v, ((t, ()),))


def standing(reading: Reading, v: Value, base: Base) -> Seen:
    at = spots(v)
    if not base: return NOTHING
    if len(at) > 1: raise Unreadable(f"a state {v} with positions along two axes")
    return Seen((Read(base, along(at[0].name), reading.number(at[0].size)),)) if at else Seen((Read(base, Line(), None),))
