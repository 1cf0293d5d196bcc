"""The graph of evaluation: the same without dropout. A pass from graph to graph."""
from __future__ import annotations

from dataclasses import replace

import sympy as sp

from plait.compiler.graph import Graph, Node, Value, live
from plait.compiler.prims import Loop, Region
from plait.compiler.sizes import Sizes
from plait.compiler.verify import verify


def evaluation(graph: Graph, sizes: Sizes) -> Graph:
    """Every dropout gives its input, every region that could drop out is told not to and loses a key that it no longer reads.

    Inputs of the graph stay, the seed too: other things may be random (LSH's rotations)."""
    return verify(without_dropout(graph), sizes)


def without_dropout(graph: Graph) -> Graph:
    instead: dict[Value, Value] = {}
    nodes: list[Node] = []
    for n in graph.nodes:
        ins = tuple(instead.get(v, v) for v in n.ins)
        if isinstance(n.op, Region) and n.op.name == "dropout":
            instead[n.outs[0]] = ins[0]
            continue
        if isinstance(n.op, Region): n, ins = _region(n, n.op, ins)
        elif isinstance(n.op, Loop): n = replace(n, op=replace(n.op, body=without_dropout(n.op.body)))
        nodes.append(replace(n, ins=ins))
    outs = tuple(instead.get(v, v) for v in graph.outs)
    return Graph(graph.ins, live(nodes, outs), outs)


def _region(n: Node, op: Region, ins: tuple[Value, ...]) -> tuple[Node, tuple[Value, ...]]:
    body = without_dropout(op.body)
    args = tuple((k, sp.Integer(0) if k == "dropout" else v) for k, v in op.args)
    if op.arg("dropout"):
        read = {v for p in body.nodes for v in p.ins} | set(body.outs)
        stays = [v in read or v.kind != "index" or v.axes != () for v in body.ins]
        body = replace(body, ins=tuple(v for v, s in zip(body.ins, stays) if s))
        ins = tuple(v for v, s in zip(ins, stays) if s)
    return replace(n, op=replace(op, body=body, args=args)), ins
