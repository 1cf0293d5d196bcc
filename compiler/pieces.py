"""A sequence in pieces, one after another, and the check that nothing in a piece mixes positions."""
from __future__ import annotations

from plait.compiler.axis import axis
from plait.compiler.builder import Builder
from plait.compiler.graph import Value
from plait.compiler.layer import Mistake, sequence
from plait.compiler.prims import Contract, Fold, Loop, Merge, Pad, Position, Reduce, Region, Rename, Slice, Sort, Split, Window
from plait.dsl.errors import PlaitError, error


def pieces_of(b: Builder, x: Value, pieces, fn) -> Value:
    """Apply fn to each piece of the sequence axis n; nothing in fn may mix positions."""
    n = sequence(x)
    length = b.sizes.quotient(n.size, pieces)
    total = length * pieces
    ragged = not b.sizes.equal(total, n.size)
    whole = b.pad(x, "n", 0, total - n.size) if ragged else x
    p, c, short = axis("piece", pieces, "chunk"), axis("c", length, "sequence"), axis("n", length, "sequence")
    split = b.split(whole, "n", p, c)
    inner, _, (cut,) = b.scope(p, [], [split])
    y = fn(inner, inner.rename(cut, "c", short))
    unmixed(inner, cut)
    if not y.has("n"): raise Mistake("E0308", "the body of chunked keeps the sequence")
    out, = b.close(inner, p, [], [split], [inner.rename(y, "n", c)], keep="recompute")
    # layout: the batch in front again, then the pieces
    batch = [a for a in out.axes if a.role == "batch"]
    rest = [a for a in out.axes if a.role != "batch" and a.name not in ("piece", "c")]
    y = b.merge(b.broadcast(out, *batch, p, c, *rest), "piece", "c", axis("n", total, "sequence"))
    return b.slice(y, "n", 0, n.size) if ragged else y


def pieces_of_many(b: Builder, values, pieces, fn) -> tuple[Value, ...]:
    """Apply fn to each piece of the sequence axis n of several values at once; each result is
    the sum of what fn gives for a piece, one a piece [piece]."""
    n = values[0].axis("n")
    length = b.sizes.quotient(n.size, pieces)
    total = length * pieces
    p, c, short = axis("piece", pieces, "chunk"), axis("c", length, "sequence"), axis("n", length, "sequence")
    whole = [v if b.sizes.equal(total, n.size) else b.pad(v, "n", 0, total - n.size) for v in values]
    split = [b.split(v, "n", p, c) for v in whole]
    inner, _, cuts = b.scope(p, [], split)
    outs = fn(inner, [inner.rename(v, "c", short) for v in cuts])
    return b.close(inner, p, [], split, [inner.sum(v, *v.names) for v in outs], keep="recompute")


def unmixed(b: Builder, source: Value) -> None:
    """In a chunked body every position stands for itself: what mixes along the chunked axis is a mistake, at its place."""
    tainted: dict[Value, set[str]] = {source: {"c"}}

    def refused(n) -> PlaitError:
        return error("E0308", "this layer mixes positions, and chunked handles each piece by itself", n.span, help="move it out of chunked")

    def looped(n, op: Loop, tainted) -> set[str]:
        """A loop hands its states on from trip to trip: marks gather until nothing is new."""
        marks = [tainted.get(v, set()) for v in n.ins]
        while True:
            inside = {i: m & set(i.names) for i, m in zip(op.body.ins, marks)}
            check(op.body.nodes, inside)
            after = [m | inside.get(o, set()) for m, o in zip(marks[:op.carried], op.body.outs)]
            if after == marks[:op.carried]: return set().union(*(inside.get(o, set()) for o in op.body.outs), set())
            marks[:op.carried] = after

    def check(nodes, tainted) -> None:
        for n in nodes:
            marks = set().union(*(tainted.get(v, set()) for v in n.ins), set())
            op = n.op
            mixes = isinstance(op, Position) and op.axis.role == "sequence"
            # a table with a row a position would be counted anew in every piece
            mixes |= any(v.kind == "param" and a.role == "sequence" for v in n.ins for a in v.axes)
            match op:
                case Contract(over) | Reduce(_, over): mixes = bool(marks & set(over))
                case Sort(along) | Window(along) | Slice(along) | Pad(along) | Fold(along): mixes = along in marks
                case Split(along): mixes = along in marks
                case Merge(pair): mixes = bool(marks & set(pair))
                case Rename(old, new): marks = {new.name if m == old else m for m in marks}
                case Loop(_, over):
                    mixes = over.name in marks
                    if not mixes: marks = looped(n, op, tainted)
                case Region(_, body):
                    inside = {i: tainted.get(v, set()) for v, i in zip(n.ins, body.ins)}
                    check(body.nodes, inside)
            if mixes: raise refused(n)
            for v in n.outs: tainted[v] = marks & set(v.names)

    check(b.nodes, tainted)
