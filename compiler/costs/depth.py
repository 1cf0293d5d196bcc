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
    """The depth of a graph whose inputs are all there at the start. A graph that computes nothing has depth 0."""
    return written(latest([NOW, *chain(graph, [NOW] * len(graph.ins), weigh)]))


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
    """A loop in closed form. Pieces run one after another: the body's depth times their number. A recurrence or copies: entry +
    max(w, c) + c·(n − 1), with w the chain from input to state and c the one from state to state; a scan step weighs at least 1."""
    count, n, start = op.carried, op.axis.size, latest([*entry, NOW])
    inside = len(entry)
    if not count or op.axis.role == "chunk":
        whole = latest([NOW, *chain(op.body, [NOW] * inside, weigh)])
        return [plus(start, times(whole, n))] * len(op.body.outs)
    free = chain(op.body, [NEVER] * count + [NOW] * (inside - count), weigh)               # input to state
    rows = [chain(op.body, [NOW if k == i else NEVER for k in range(inside)], weigh) for i in range(count)]    # state to state
    held = [latest(row[k] for row in rows) for k in range(len(op.body.outs))]
    least = late(1 if op.axis.role == "sequence" else 0)
    step = latest([*held[:count], least])
    if not any(_equal(latest([row[i], least]), step) for i, row in enumerate(rows)):
        # the closed form holds where the heaviest chain of a trip leads from a state back to itself: it is walked trip after trip
        raise NotImplementedError("the states of this loop wait for each other at several rates")
    rest = plus(start, times(step, n - 1))
    state = plus(rest, latest([*free[:count], step]))
    # what a trip hands out besides the state: it waits for the state before that trip, or for the trip's own input
    return [state] * count + [latest([state, plus(rest, h), plus(rest, f)]) for h, f in zip(held[count:], free[count:])]


def _equal(x: Late, y: Late) -> bool:
    return set(map(expression, x)) == set(map(expression, y))
