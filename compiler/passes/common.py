"""Common subexpressions: what is computed twice from the same operands is computed once. A pass from graph to graph."""
from __future__ import annotations

from dataclasses import replace

from plait.compiler.graph import Graph, Node, Value, live
from plait.compiler.prims import Loop, Op
from plait.compiler.sizes import Sizes
from plait.compiler.verify import verify


def common(graph: Graph, sizes: Sizes) -> Graph:
    """The same graph without doubles and without what nothing reads, bodies included; every primitive is a pure function of its operands,
    `Random` too. Of two loops or regions only one and the same body is known to be equal."""
    return verify(without_doubles(graph), sizes)


def without_doubles(graph: Graph) -> Graph:
    instead: dict[Value, Value] = {}
    seen: dict[tuple[Op, tuple[Value, ...]], Node] = {}
    nodes: list[Node] = []
    for n in graph.nodes:
        n = replace(n, ins=tuple(instead.get(v, v) for v in n.ins))
        # what a kernel computes is its region's body, in its own names: it is left as it is written
        if isinstance(n.op, Loop): n = replace(n, op=replace(n.op, body=without_doubles(n.op.body)))
        first = seen.setdefault((n.op, n.ins), n)
        if first is n: nodes.append(n)
        else: instead |= dict(zip(n.outs, first.outs))
    outs = tuple(instead.get(v, v) for v in graph.outs)
    return Graph(graph.ins, live(nodes, outs), outs)
