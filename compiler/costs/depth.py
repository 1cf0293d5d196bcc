"""Depth: the longest chain of operations that must wait for each other, per whole tensor.

`unit` is the paper's "sequential operations" (Vaswani et al. 2017, Table 1): a contraction, a reduction or a sort weighs 1,
everything pointwise or moved 0. `tree` lets sums run as balanced trees of pairs. What depends on no input (a mask, a table of
angles) is there before the first step and weighs nothing."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

import sympy as sp

from plait.compiler.axis import volume
from plait.compiler.costs.maxplus import NEVER, NOW, Late, late, latest, plus, times, written
from plait.compiler.costs.order import added
from plait.compiler.costs.power import Rates, after, handed_out
from plait.compiler.graph import Graph, Node, Value
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


def chain(graph: Graph, entry: Sequence[Late], weigh: Weigh) -> list[Late]:
    """When each output is there, given when each input is. NEVER marks what does not depend on any input considered."""
    at = dict(zip(graph.ins, entry))
    for n in graph.nodes:
        ins = [at[v] for v in n.ins]
        match n.op:
            case Region(_, body): outs = chain(body, ins, weigh)
            case Loop(): outs = trips(n.op, ins, weigh)
            case _:
                weight = weigh(n)
                outs = [latest(ins) if weight == 0 else plus(latest(ins), late(weight))]
        at.update(zip(n.outs, outs))
    return [at[v] for v in graph.outs]


def trips(op: Loop, entry: Sequence[Late], weigh: Weigh) -> list[Late]:
    """A loop in closed form: when its states are there after the last trip, and all that its trips hand out.

    Pieces run one after another, each as long as its whole. Else a trip waits for the states of the one before it and for what it reads
    from outside, each in its own time: what runs beside the memory of a decoder is not counted behind it. A scan step weighs at least
    1, from what it reads to the states and from state to state."""
    return _pieces(op, entry, weigh) if op.axis.role == "chunk" else _states(op, entry, weigh)


def _pieces(op: Loop, entry: Sequence[Late], weigh: Weigh) -> list[Late]:
    if not latest(entry): return [NEVER] * len(op.body.outs)
    one = chain(op.body, entry, weigh)
    each = chain(op.body, [NEVER if _key(v) else NOW for v in op.body.ins], weigh)             # once the piece before is through
    # what a piece makes early does not wait for the rest of the last piece
    before = plus(latest([NOW, *one]), times(latest([NOW, *each]), op.axis.size - 2))
    return [latest([x, plus(before, y or NOW)]) for x, y in zip(one, each)]


def _key(v: Value) -> bool:
    return v.kind == "index" and not v.axes


def _states(op: Loop, entry: Sequence[Late], weigh: Weigh) -> list[Late]:
    count, outside = op.carried, list(entry[op.carried:])
    ways = [chain(op.body, [NOW if k == i else NEVER for k in range(len(entry))], weigh) for i in range(count)]
    read = chain(op.body, [NEVER] * count + outside, weigh)
    least = late(1) if op.axis.role == "sequence" else NOW

    def stepped(x: Late, base: Late) -> Late: return latest([x, plus(base, least)]) if x else NEVER
    step = [[stepped(way[k], NOW) for k in range(count)] for way in ways]
    rates = Rates(op, step, [stepped(x, latest(outside)) for x in read[:count]], [e or NOW for e in entry[:count]])
    return [*after(rates), *handed_out(rates, [way[count:] for way in ways], read[count:])]


