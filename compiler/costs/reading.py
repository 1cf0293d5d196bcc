"""A graph read for one source: which positions of every value read which of the source's, as terms of `connections`.

A value is a small set of reads (a base, and the line that says which of its positions an element looks at), with where it is
alive and what is known of it. A dead element is a zero, or a −∞ under an exponential, that a known mask put there: a product
with it carries nothing. Movement and pointwise work weigh 0, an edge into a sum over positions 1, a scan step 1. Masks that
come in from outside (padding) are taken as true everywhere. What is not understood is Unreadable, never a guess."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import assert_never

import sympy as sp

from plait.compiler.axis import POSITIONAL, Axis
from plait.compiler.costs import affine, bodies, movement
from plait.compiler.costs.affine import FALSE, TRUE, Cases, Line, Size, Unreadable, along, inside, same, tidy
from plait.compiler.costs.connections import START, At, Base, Clip, Spread, either, then
from plait.compiler.costs.masks import Count, Indicator, known, reduced
from plait.compiler.costs.sums import NOTHING, Read, Seen, spots, through
from plait.compiler.graph import Graph, Node, Value
from plait.compiler.prims import (
    TRUTH,
    Broadcast,
    Concat,
    Const,
    Contract,
    Fold,
    Gather,
    Loop,
    Map,
    Merge,
    Pad,
    Position,
    Random,
    Reduce,
    Region,
    Rename,
    Scatter,
    Slice,
    Sort,
    Split,
    Window,
)
from plait.compiler.sizes import Free, Sizes, evaluate

KEEP_ZERO = ("relu", "neg", "gelu", "silu", "tanh", "sin")        # functions that are 0 at 0


class Reading:
    """`bound`: positions are counted by the numbers that dims have; else by their names. `watch` hears of every node read."""

    def __init__(self, sizes: Sizes, bound: bool, watch: Callable[[Node, list[Seen], list[Seen], Reading], None] | None = None):
        self.sizes, self.bound, self.watch = sizes, bound, watch
        self.hidden: dict[str, Size] = {}         # axes of the loops around, along which a slice still stands
        self.loops, self.assumed = 0, False

    def number(self, e) -> Size:
        e = sp.sympify(e)
        if self.bound:
            try: e = sp.sympify(evaluate(e, self.sizes.bound))
            except Free: e = e.xreplace({s: sp.Integer(v) for s, v in self.sizes.bound.items()})
        return tidy(e)

    def ranges(self, *values: Value) -> dict[str, Size]:
        return {**self.hidden, **{a.name: self.number(a.size) for v in values for a in spots(v)}}

    def source(self, v: Value) -> Seen:
        """The source itself: each of its positions reads itself."""
        at = spots(v)
        if len(at) != 1: raise Unreadable(f"{v} has no one sequence")
        return Seen((Read(START, along(at[0].name), self.number(at[0].size)),))

    def entry(self, v: Value) -> Seen:
        """Another input: a mask is taken as true, a real as alive."""
        return Seen(known=TRUE) if v.kind == "mask" else NOTHING

    # -- the walk ----------------------------------------------------------------------------------------------------------
    def graph(self, g: Graph, entry: Sequence[Seen]) -> list[Seen]:
        env = dict(zip(g.ins, entry))
        for n in g.nodes:
            ins = [env[v] for v in n.ins]
            outs = [self.unified(x, v) for x, v in zip(self.node(n, ins), n.outs)]
            env.update(zip(n.outs, outs))
            if self.watch is not None: self.watch(n, ins, outs, self)
        return [env[v] for v in g.outs]

    def node(self, n: Node, xs: list[Seen]) -> list[Seen]:
        try: return self._node(n, xs)
        except Unreadable as e:
            if e.__cause__ is not None or str(e).startswith("at "): raise
            raise Unreadable(f"at {n.at or 'the root'}, {type(n.op).__name__}{f' ({n.name})' if n.name else ''}: {e}") from None

    def _node(self, n: Node, xs: list[Seen]) -> list[Seen]:
        op, r = n.op, self.ranges(*n.ins)
        match op:
            case Const(value):
                v = sp.sympify(value)
                if v == -sp.oo: return [Seen(live=FALSE, empty="minus")]
                return [Seen(live=FALSE if v == 0 else TRUE, known=Line((), self.number(v)))]
            case Position(a): return [Seen(known=along(a.name)) if a.role in POSITIONAL else NOTHING]
            case Random(): return [NOTHING]
            case Map(fn): return [self.mapped(fn, xs, n.ins, n.outs[0])]
            case Contract(over): return [self.contracted(over, xs, n.ins)]
            case Reduce(fn, over):
                at = {a.name for a in spots(n.ins[0])} & set(over)
                x = replace(xs[0], known=reduced(fn, xs[0].known, sorted(at), r))
                return [self.summed(x, sorted(at), r) if at else x]
            case Broadcast(): return xs
            case Rename(old, new): return [self.put(xs[0], old, along(new.name)) if new.role in POSITIONAL else xs[0]]
            case Split(name, (slow, fast)) if name in r:
                return [self.put(xs[0], name, along(fast.name).plus(along(slow.name), self.number(fast.size)))]
            case Merge((p, q), to) if p in r and q in r: return [movement.merged(xs[0], p, q, r[q], to)]
            case Split() | Merge(): return xs
            case Slice(name, start, size) if name in r:
                return [movement.moved(self, xs[0], name, -self.number(start), r[name], self.number(size))]
            case Pad(name, before, after) if name in r:
                return [movement.moved(self, xs[0], name, self.number(before), r[name], self.number(r[name] + before + after))]
            case Slice() | Pad(): return xs
            case Concat(name): return [movement.joined(self, name, xs, n.ins, n.outs[0])]
            case Window(): return [movement.windowed(self, xs[0], op, {**r, op.into.name: self.number(op.into.size)})]
            case Gather(name): return [movement.gathered(self, name, xs, n.ins)]
            case Sort() | Fold() | Scatter():
                if any(x.reads for x in xs): raise Unreadable("the positions depend on the data")
                return [NOTHING]
            case Region(): return bodies.region(self, op, xs, n)
            case Loop():
                if op.axis.role == "sequence": return bodies.scan(self, op, xs)
                return bodies.pieces(self, op, xs) if op.carried == 0 else bodies.repeated(self, op, xs)
            case _: assert_never(op)

    # -- values --------------------------------------------------------------------------------------------------------------
    def unified(self, x: Seen, v: Value) -> Seen:
        """Reads of one line made one; along a single axis those of all positions and those of the same, too."""
        if len(x.reads) < 2: return x
        found: dict[tuple[Line, Size | None], list[Base]] = {}
        for q in x.reads: found.setdefault((q.line, q.size), []).append(q.base)
        reads = tuple(Read(either(bases), line, size) for (line, size), bases in found.items())
        at = spots(v)
        if len(reads) > 1 and len(at) == 1 and all(not q.line.terms or q.line == along(at[0].name) for q in reads):
            reads = (self.at(reads, at[0]),)
        return replace(x, reads=reads)

    def at(self, reads: Sequence[Read], a: Axis) -> Read:
        """One read for every position of an axis."""
        size, bases = self.number(a.size), []
        for q in reads:
            if q.line == along(a.name) and q.size is not None and same(q.size, size): bases.append(q.base)
            elif not q.line.terms: bases.append(then(self.place(q), Spread(size)))
            else: raise Unreadable(f"reads {q.line} along {a.name}")
        return Read(either(bases), along(a.name), size)

    def place(self, q: Read) -> Base:
        return q.base if q.size is None else then(q.base, At(q.line.const, q.size))

    def base(self, x: Seen, v: Value) -> tuple[Base, Axis | None]:
        """All that a value reads, as one base along its one axis, or as one place."""
        at, x = spots(v), self.settled(x)
        if not x.reads: return (), at[0] if at else None
        if len(at) > 1: raise Unreadable(f"{v} has positions along two axes")
        if at: return self.at(x.reads, at[0]).base, at[0]
        if any(q.line.terms for q in x.reads): raise Unreadable("a slice of positions")
        return either([self.place(q) for q in x.reads]), None

    def settled(self, x: Seen) -> Seen:
        """Alive everywhere: its reads confined to where it was."""
        if x.live == TRUE: return x
        reads = [q for q in x.reads if x.live != FALSE]
        return Seen(tuple(self.confined(q, x.live) for q in reads), known=x.known)

    def confined(self, q: Read, live: Cases) -> Read:
        border = inside(q.line, q.size) if q.size is not None else frozenset()
        left = [case - border for case in live]
        if any(not case for case in left): return q
        if len(q.line.terms) != 1 or q.line != along(q.line.axes[0]): raise Unreadable("a masked value is used unmasked")
        return replace(q, base=either([then(q.base, self.clip(case, q.line.axes[0])) for case in left]))

    def clip(self, case, axis: str) -> Clip:
        lo: Size | None = None
        hi: Size | None = None
        for e in case:
            if e.axes != (axis,) or e.coefficient(axis) not in (1, -1): raise Unreadable("a masked value is used unmasked")
            if e.coefficient(axis) == 1: lo = affine.greater(lo, tidy(-e.const))
            else: hi = affine.smaller(hi, e.const)
        return Clip(lo, hi)

    # -- arithmetic ----------------------------------------------------------------------------------------------------------
    def mapped(self, fn: str, xs: list[Seen], ins: Sequence[Value], out: Value) -> Seen:
        r = self.ranges(*ins)
        if fn == "where": return self.chosen(xs, r)
        told = known(fn, [x.known for x in xs], r) if out.kind in ("index", "mask", "const") else None
        live, empty, first = TRUE, "zero", xs[0]
        kept: list[Seen] = []                     # operands whose dead elements make dead ones
        if fn == "mul": kept = [x for x in xs if x.empty == "zero"]
        elif fn == "add": kept, empty = [x for x in xs if x.empty == "minus"], "minus"
        elif fn == "div" or fn == "sub" and first.empty == "minus": kept, empty = [first], first.empty
        elif fn in KEEP_ZERO and first.empty == "zero" or fn == "exp" and first.empty == "minus": kept = [first]
        for x in kept: live = affine.both(live, x.live, r)
        reads = tuple(q for x in xs for q in (x if any(x is k for k in kept) else self.settled(x)).reads)
        return Seen(reads if live != FALSE and fn not in TRUTH or reads else (), live, empty, told)

    def chosen(self, xs: list[Seen], r) -> Seen:
        mask, p, q = xs
        if not isinstance(mask.known, tuple):
            return Seen(tuple(read for x in xs for read in self.settled(x).reads))
        told = Indicator(mask.known) if (p.known, q.known) == (Line((), 1), Line((), 0)) else None
        if mask.known in (TRUE, FALSE):
            x = p if mask.known == TRUE else q
            return x if told is None else replace(x, known=told)
        for x, other, cases in ((p, q, mask.known), (q, p, None)):
            if other.live != FALSE: continue
            cases = affine.negated(mask.known, r) if cases is None else cases
            live = affine.both(x.live, cases, r)
            if live != cases and x.empty != other.empty: x, live = self.settled(x), cases
            return Seen(x.reads, live, other.empty, told)
        if p.reads or q.reads: raise Unreadable("a choice by position between two values")
        return Seen(known=told)

    def contracted(self, over: tuple[str, ...], xs: list[Seen], ins: Sequence[Value]) -> Seen:
        r = self.ranges(*ins)
        xs = [x if x.empty == "zero" else self.settled(x) for x in xs]
        x = Seen(xs[0].reads + xs[1].reads, affine.both(xs[0].live, xs[1].live, r))
        at = sorted({a.name for v in ins for a in spots(v)} & set(over))
        return self.summed(x, at, r) if at else x

    def summed(self, x: Seen, over: Sequence[str], r) -> Seen:
        if not x.reads: return Seen(known=x.known)
        reads, live = [], []
        for case in x.live:
            rest: affine.Case | None = case
            for a in over: rest = affine.exists(rest, a, r) if rest is not None else None
            if rest is None: continue
            live.append(rest)
            for q in x.reads: reads += through(q, case, over, r, alone=len(x.live) == 1)
        return Seen(tuple(dict.fromkeys(reads)), affine.union(live, r), x.empty, x.known)

    # -- movement --------------------------------------------------------------------------------------------------------------
    def put(self, x: Seen, axis: str, by: Line) -> Seen:
        """Everything said of an axis, said of what stands for it."""
        told = x.known
        if isinstance(told, Line): told = told.put(axis, by)
        elif isinstance(told, tuple): told = affine.put(told, axis, by)
        elif isinstance(told, Indicator | Count): told = type(told)(affine.put(told.cases, axis, by))
        return Seen(tuple(replace(q, line=q.line.put(axis, by)) for q in x.reads), affine.put(x.live, axis, by), x.empty, told)

    # -- bodies ----------------------------------------------------------------------------------------------------------------
    @contextmanager
    def inside(self, axis: Axis | None):
        """A loop's body; gives the loop a number of its own, by which its states are known."""
        before = self.hidden
        self.loops += 1
        if axis is not None: self.hidden = {**before, axis.name: self.number(axis.size)}
        try: yield self.loops
        finally: self.hidden = before
