"""Work: what is computed, in multiply-adds and in further ledgers. A fold over every node, times the trips around it."""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import assert_never

import sympy as sp

from plait.compiler.axis import volume
from plait.compiler.costs.order import added, over_trips, per_sequence
from plait.compiler.graph import Graph, Node
from plait.compiler.prims import (
    FUNCTIONS,
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

LEDGERS = ("contraction", "pointwise", "transcendental", "comparisons", "movement")


def visits(graph: Graph, loops: tuple[Loop, ...] = ()) -> Iterator[tuple[Node, tuple[Loop, ...]]]:
    """Every node that is not a body itself, with the loops around it, outermost first."""
    for n in graph.nodes:
        match n.op:
            case Region(_, body): yield from visits(body, loops)
            case Loop(body): yield from visits(body, (*loops, n.op))
            case _: yield n, loops


def once(n: Node) -> tuple[str, sp.Expr]:
    """(ledger, count) of one run of a node, for the whole batch.

    Contract: output × contracted sizes, in multiply-adds. Sort: n·⌈log₂ n⌉ comparisons a row. Views and copies are movement."""
    y = n.outs[0]
    match n.op:
        case Contract(over): return "contraction", y.size * volume([n.ins[0].axis(o) for o in over])
        case Map(fn): return FUNCTIONS[fn], y.size
        case Reduce() | Fold() | Scatter(): return "pointwise", n.ins[0].size
        case Random(): return "pointwise", y.size
        case Sort(along): return "comparisons", y.size * ceil_log2(y.axis(along).size)
        case Const(): return "movement", sp.Integer(0)
        case (Position() | Broadcast() | Rename() | Split() | Merge() | Slice() | Pad() | Concat() | Window() | Gather()):
            return "movement", y.size
        case Region() | Loop(): raise TypeError("a body is visited, not counted")
        case _: assert_never(n.op)


def work(graph: Graph, wanted: Callable[[Node], bool] = lambda n: True) -> dict[str, sp.Expr]:
    """Ledger → exact count for one sequence, of the nodes that are wanted. Every ledger is there."""
    out: dict[str, list[sp.Expr]] = defaultdict(list)
    for n, loops in visits(graph):
        if wanted(n):
            ledger, count = once(n)
            out[ledger].append(per_sequence(over_trips(count, loops)))
    return {ledger: added(out[ledger]) for ledger in LEDGERS}


def macs(graph: Graph, wanted: Callable[[Node], bool] = lambda n: True) -> sp.Expr:
    """The headline: multiply-adds of contractions, for one sequence."""
    return added(per_sequence(over_trips(once(n)[1], loops))
                              for n, loops in visits(graph) if isinstance(n.op, Contract) and wanted(n))
