"""Depth: the longest chain of operations that must wait for each other, per whole tensor.

`unit` is the paper's "sequential operations" (Vaswani et al. 2017, Table 1): a contraction, a reduction or a sort weighs 1,
everything pointwise or moved 0. `tree` lets sums run as balanced trees of pairs. What depends on no input (a mask, a table of
angles) is there before the first step and weighs nothing."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

import sympy as sp

from plait.compiler.axis import volume
from plait.compiler.costs.maxplus import NEVER, NOW, Late, expression, late, latest, plus, times, written
from plait.compiler.costs.order import added
from plait.compiler.graph import Graph, Node
from plait.compiler.prims import (
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
from plait.compiler.sizes import ceil_log2

Weigh = Callable[[Node], sp.Expr]
Through = Callable[[Loop, Sequence[Late], Weigh], list[Late]]           # (loop, when its operands are there, weights) → its results
ZERO = sp.Integer(0)


def unit(n: Node) -> sp.Expr:
    """1 for what waits for many numbers at once, 0 for the rest."""
    match n.op:
        case Contract() | Reduce() | Sort() | Fold() | Scatter(): return sp.Integer(1)
        case (Const() | Position() | Random() | Map() | Broadcast() | Rename() | Split() | Merge() | Slice() | Pad() | Concat() | Window()
              | Gather() | Region() | Loop()): return ZERO
        case _: assert_never(n.op)


def tree(n: Node) -> sp.Expr:
    """A contraction over K terms 1 + ⌈log₂ K⌉, a reduction ⌈log₂ K⌉, a pointwise step 1, a sort as a bitonic network (assumed)."""
    match n.op:
        case Contract(over): return 1 + ceil_log2(volume([n.ins[0].axis(o) for o in over]))
        case Reduce(_, over): return ceil_log2(volume([n.ins[0].axis(o) for o in over]))
        case Fold(_, window): return ceil_log2(n.ins[0].axis(window).size)
        case Scatter(along): return ceil_log2(n.ins[0].size / n.outs[0].size * along.size)
        case Sort(along):
            rounds = ceil_log2(n.ins[0].axis(along).size)
            return rounds * (rounds + 1) / 2
        case Map(): return sp.Integer(1)
        case (Const() | Position() | Random() | Broadcast() | Rename() | Split() | Merge() | Slice() | Pad() | Concat() | Window()
              | Gather() | Region() | Loop()): return ZERO
        case _: assert_never(n.op)


def depth(graph: Graph, weigh: Weigh = unit) -> sp.Expr:
    """The depth of a graph whose inputs are all there at the start; its keys of random numbers, which need no input, before it.
    A graph that computes nothing has depth 0."""
    entry = [NEVER if v.kind == "index" and not v.axes else NOW for v in graph.ins]
    found = written(latest([NOW, *chain(graph, entry, weigh)]))
    return added([found]) if found.has(sp.Sum) else found


def chain(graph: Graph, entry: Sequence[Late], weigh: Weigh, loop: Through | None = None) -> list[Late]:
    """When each output is there, given when each input is. NEVER marks what does not depend on any input considered.
    loop: how a loop is gone through (default: `trips`)."""
    at = dict(zip(graph.ins, entry))
    for n in graph.nodes:
        ins = [at[v] for v in n.ins]
        match n.op:
            case Region(_, body): outs = chain(body, ins, weigh, loop)
            case Loop(): outs = (loop or trips)(n.op, ins, weigh)
            case _:
                weight = weigh(n)
                outs = [latest(ins) if weight == 0 else plus(latest(ins), late(weight))]
        at.update(zip(n.outs, outs))
    return [at[v] for v in graph.outs]


def trips(op: Loop, entry: Sequence[Late], weigh: Weigh) -> list[Late]:
    """A loop in closed form: the first trip, and then c for each of the others, with c the chain from state to state (the depth
    of a piece, where pieces run one after another). The first trip has its states when the states before it and whatever else it
    reads, each in its own time, have come through: what runs beside the memory of a decoder is not counted behind it. A scan
    step weighs at least 1, from input to state and from state to state."""
    count, inside = op.carried, len(entry)
    others = [NOW if e else NEVER for e in entry]
    if not count or op.axis.role == "chunk":
        whole, first = latest([NOW, *chain(op.body, others, weigh)]), latest([NOW, *chain(op.body, entry, weigh)])
        return [plus(_at_first(first, op), _others(whole, op))] * len(op.body.outs)
    rows = [chain(op.body, [NOW if k == i else NEVER for k in range(inside)], weigh) for i in range(count)]    # state to state
    least = late(1) if op.axis.role == "sequence" else NEVER
    step = latest([*(row[k] for row in rows for k in range(count)), least, NOW])
    if not any(_equal(latest([row[i], least, NOW]), step) for i, row in enumerate(rows)):
        # the closed form holds where the heaviest chain of a trip leads from a state back to itself: it is walked trip after trip
        raise NotImplementedError("the states of this loop wait for each other at several rates")
    start = [e or NOW for e in entry[:count]]
    read = chain(op.body, [NEVER] * count + list(entry[count:]), weigh)                    # from what is no state
    first = latest([*read[:count], *(plus(s, step if least else row[k]) for s, row in zip(start, rows) for k in range(count)),
                    plus(latest([*entry[count:], *start]), least)])
    state = plus(_at_first(first, op), _others(step, op))
    # what a trip hands out besides the state: it waits for the state before the last trip, or for the trip's own input
    before = plus(latest(start), _others(step, op))
    return [state] * count + [latest([state, read[k], *(plus(before, row[k]) for row in rows)]) for k in range(count, len(op.body.outs))]


def _at_first(x: Late, op: Loop) -> Late:
    """Of the first trip, where the body reads the trip's number."""
    return x if op.index is None else latest(late(expression(a).subs(op.index, 0)) for a in x)


def _others(x: Late, op: Loop) -> Late:
    """Of all trips but the first, one after another."""
    e, last = written(x), op.axis.size - 1
    return times(x, last) if op.index is None or op.index not in e.free_symbols else late(sp.Sum(e, (op.index, 1, last)))


def _equal(x: Late, y: Late) -> bool:
    return set(map(expression, x)) == set(map(expression, y))
