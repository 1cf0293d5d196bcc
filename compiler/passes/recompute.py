"""Recompute selection: parts of a graph keep their operands only and run again in backward. A pass from graph to graph.

A part becomes a loop of one trip that is recomputed, so that its costs, its backward and its lowering are those of every loop."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import sympy as sp

from plait.compiler.axis import axis
from plait.compiler.graph import Graph, Node, Value, live
from plait.compiler.prims import Const, Contract, Gather, Loop, Random
from plait.compiler.sizes import Sizes
from plait.compiler.verify import verify

ONCE = axis("once", sp.Integer(1), "chunk")


@dataclass(frozen=True)
class Part:
    """Nodes of a graph that stand in a row, with the statement that they come from; `copies`: the whole body of a repeat."""
    at: str
    nodes: tuple[Node, ...]
    copies: bool = False


def recomputed(graph: Graph, sizes: Sizes, wanted: Callable[[Part], bool]) -> Graph:
    """The same values, with the wanted ones of `parts` recomputed. Inside a reversible or a recomputed body nothing is kept anyway."""
    return verify(_recomputed(graph, wanted), sizes)


def _recomputed(graph: Graph, wanted: Callable[[Part], bool]) -> Graph:
    nodes = []
    for n in graph.nodes:
        if _repeats(n):
            whole = wanted(Part(n.at, (n,), True))
            n = replace(n, op=replace(n.op, keep="recompute") if whole else replace(n.op, body=_recomputed(n.body, wanted)))   # type: ignore
        nodes.append(n)
    graph = replace(graph, nodes=tuple(nodes))
    for part in _statements(graph):
        if wanted(part): graph = _wrapped(graph, part)
    return graph


def parts(graph: Graph) -> Iterator[Part]:
    """What may be recomputed, the larger before what it is made of: bodies of repeats, and the statements in them and beside them."""
    for n in graph.nodes:
        if not _repeats(n): continue
        yield Part(n.at, (n,), True)
        yield from parts(n.body)                                                                                       # type: ignore
    yield from _statements(graph)


def _repeats(n: Node) -> bool:
    return isinstance(n.op, Loop) and n.op.axis.role == "copies" and n.op.keep == "save"


def _statements(graph: Graph) -> list[Part]:
    """The statements of a body that hold products, where there are several; of a single one (a block), those in it."""
    nodes = [n for n in graph.nodes if n.at.count("/") >= 2]
    level = min((n.at.count("/") for n in nodes), default=0) + 1
    while nodes:
        runs: list[list[Node]] = []
        for n in graph.nodes:
            if n not in nodes: runs.append([])
            elif runs and runs[-1] and _place(runs[-1][-1], level) == _place(n, level): runs[-1].append(n)
            else: runs.append([n])
        found = [Part(_place(r[0], level), tuple(r)) for r in runs if _worth(r)]
        if len(found) != 1: return found
        single = list(found[0].nodes)
        if all(n.at.count("/") < level for n in single): return found
        nodes, level = single, level + 1
    return []


def _place(n: Node, level: int) -> str: return "/".join(n.at.split("/")[:level])


def _worth(nodes: list[Node]) -> bool:
    """Holds a product, and no loop that keeps nothing anyway."""
    if any(isinstance(n.op, Loop) for n in nodes): return False
    return any(isinstance(m.op, Contract) for m in Graph((), tuple(nodes), ()).walk())


def _wrapped(graph: Graph, part: Part) -> Graph:
    """The graph with a part in a loop of one trip. Numbers, positions and keys are made where they are used, not handed over."""
    free = _free(graph)
    moved = [n for n in part.nodes if n not in free]
    inside = set(moved)
    read = {v for n in graph.nodes if n not in inside for v in n.ins} | set(graph.outs)
    outs = tuple(v for n in moved for v in n.outs if v in read)
    nodes = live([*free, *moved], outs)
    made = {v for n in nodes for v in n.outs}
    taken = tuple(dict.fromkeys(v for n in nodes for v in n.ins if v not in made))
    here = {v: replace(v, name=f"{v.name}.again") for v in (*taken, *made)}
    body = Graph(tuple(here[v] for v in taken), tuple(_renamed(n, here) for n in nodes), tuple(here[v] for v in outs))
    stacks = tuple(Value(f"{v.name}.once", (ONCE, *v.axes), v.kind) for v in outs)
    first = Value(f"{outs[0].name}.first", (), "const")
    span = moved[0].span
    loop = [Node(Loop(body, ONCE, 0, 0, "recompute"), taken, stacks, part.at, "recompute", span=span),
            Node(Const(sp.Integer(0)), (), (first,), part.at, span=span),
            *(Node(Gather("once"), (s, first), (v,), part.at, span=span) for s, v in zip(stacks, outs))]
    k = graph.nodes.index(moved[0])
    rest = [[n for n in ns if n not in inside] for ns in (graph.nodes[:k], graph.nodes[k:])]
    return replace(graph, nodes=live([*rest[0], *loop, *rest[1]], graph.outs))


def _renamed(n: Node, names: dict[Value, Value]) -> Node:
    return replace(n, ins=tuple(names[v] for v in n.ins), outs=tuple(names[v] for v in n.outs))


def _free(graph: Graph) -> list[Node]:
    """The nodes that read no input but keys, in order; not the random numbers themselves."""
    known = {v for v in graph.ins if v.kind == "index" and not v.axes}
    found = []
    for n in graph.nodes:
        if n.body is not None or isinstance(n.op, Random) or not all(v in known for v in n.ins): continue
        known.update(n.outs)
        found.append(n)
    return found
