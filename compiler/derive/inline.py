"""Before the derivation: regions that run their body become that body, and what a kernel decides by comparing stands in front of it."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from plait.compiler.graph import Graph, Node, Value, live
from plait.compiler.prims import Loop, Reduce, Region, Sort


@dataclass
class Inlined:
    """A graph without regions but for those that a kernel with a backward of its own runs. `bodies`: (place, kernel) of the kernels
    that were replaced by their body, because their backward is the body's."""
    graph: Graph
    bodies: list[tuple[str, str]] = field(default_factory=list)


def inline(graph: Graph, known: Callable[[str], bool]) -> Inlined:
    """known: does this kernel have a backward of its own?"""
    found = Inlined(graph)
    found.graph = _graph(graph, known, found.bodies)
    return found


def _graph(graph: Graph, known: Callable[[str], bool], bodies: list) -> Graph:
    instead: dict[Value, Value] = {}
    nodes: list[Node] = []
    _nodes(graph.nodes, known, bodies, instead, nodes)
    outs = tuple(instead.get(v, v) for v in graph.outs)
    return Graph(graph.ins, live(nodes, outs), outs)


def _nodes(given: tuple[Node, ...], known: Callable[[str], bool], bodies: list, instead: dict[Value, Value], nodes: list[Node]) -> None:
    for n in given:
        ins = tuple(instead.get(v, v) for v in n.ins)
        op = n.op
        if isinstance(op, Region) and known(op.kernel): nodes += decided(op, replace(n, ins=ins))
        elif isinstance(op, Region):
            if op.kernel: bodies.append((n.at, op.kernel))
            instead.update(zip(op.body.ins, ins))
            _nodes(op.body.nodes, known, bodies, instead, nodes)
            instead.update({o: instead.get(v, v) for o, v in zip(n.outs, op.body.outs)})
        elif isinstance(op, Loop): nodes.append(replace(n, op=replace(op, body=_graph(op.body, known, bodies)), ins=ins))
        else: nodes.append(replace(n, ins=ins))


def chosen(n: Node) -> bool:
    """An order or an argmax of reals. Made again from rounded activations it could differ, and with it everything after: so it is kept."""
    return (isinstance(n.op, Sort) or isinstance(n.op, Reduce) and n.op.fn == "argmax") and n.ins[0].kind not in ("index", "mask")


def decided(op: Region, n: Node) -> list[Node]:
    """A claimed region, with what it chooses (LSH's buckets) made in front of it, from primitives, and handed to it."""
    body = op.body
    choices = tuple(v for p in body.nodes if chosen(p) for v in p.outs)
    if not choices: return [n]
    outer = dict(zip(body.ins, n.ins))
    first = live(body.nodes, choices)
    rest = live([p for p in body.nodes if p.outs[0] not in choices], body.outs)
    inner = {v: replace(v, name=f"{v.name}.given") for v in choices}
    shifted = tuple(replace(p, ins=tuple(inner.get(v, v) for v in p.ins)) for p in rest)
    read = {v for p in shifted for v in p.ins}
    ins = tuple(v for v in body.ins if v in read)
    made = [replace(p, ins=tuple(outer.get(v, v) for v in p.ins)) for p in first]
    # what the choosing and the rest both compute stands twice: a region captures nothing
    twice = {v: replace(v, name=f"{v.name}.again") for p in shifted for v in p.outs if any(v in q.outs for q in first)}
    shifted = tuple(replace(p, ins=tuple(twice.get(v, v) for v in p.ins), outs=tuple(twice.get(v, v) for v in p.outs)) for p in shifted)
    region = replace(op, body=Graph((*ins, *inner.values()), shifted, tuple(twice.get(v, v) for v in body.outs)))
    return [*made, replace(n, op=region, ins=(*(outer[v] for v in ins), *choices))]
