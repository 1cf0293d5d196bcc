"""The graph of one place of a spec, cut out of the whole: what one layer reads, does and gives."""
from __future__ import annotations

from collections.abc import Iterator

from plait.compiler.graph import Graph, Node, Value
from plait.compiler.prims import Loop


def part(graph: Graph, at: str) -> Graph | None:
    """The nodes that come from exactly this place, as a graph of their own. Its inputs are what they read from elsewhere, its
    outputs what others read. None if nothing comes from there. (A layer in a loop leaves a few nodes in front of it, the trip
    numbers of its keys say: the scope with most of its nodes is where it stands.)"""
    scope, inside, _ = home(graph, at)
    if not inside: return None
    mine = set(map(id, inside))
    made = {v for n in inside for v in n.outs}
    read = tuple(dict.fromkeys(v for n in inside for v in n.ins if v not in made))
    elsewhere = {v for n in scope.nodes if id(n) not in mine for v in n.ins} | set(scope.outs)
    outs = tuple(v for n in inside for v in n.outs if v in elsewhere)
    return Graph(read, inside, outs or inside[-1].outs)


def home(graph: Graph, at: str) -> tuple[Graph, tuple[Node, ...], tuple[Loop, ...]]:
    """The scope where a place stands, its nodes there, and the loops around that scope, outermost first."""
    return max(scopes(graph, at), key=lambda found: len(found[1]))


def scopes(graph: Graph, at: str, loops: tuple[Loop, ...] = ()) -> Iterator[tuple[Graph, tuple[Node, ...], tuple[Loop, ...]]]:
    """Every scope with its nodes from this place; what stands inside one of these, but for loops, is not looked at."""
    yield graph, tuple(n for n in graph.nodes if n.at == at), loops
    for n in graph.nodes:
        if isinstance(n.op, Loop): yield from scopes(n.op.body, at, (*loops, n.op))
        elif n.body is not None and n.at != at: yield from scopes(n.body, at, loops)


def main_output(graph: Graph) -> Value:
    """The output that goes on as the stream: the last of real numbers with a batch."""
    return next((v for v in reversed(graph.outs) if v.kind == "real" and v.has("b")), graph.outs[-1])


def stream_inputs(graph: Graph) -> tuple[Value, ...]:
    """The inputs with a sequence of their own: neither parameters nor masks nor positions."""
    return tuple(v for v in graph.ins if v.kind in ("real", "index") and any(a.role == "sequence" for a in v.axes) and v.has("b"))
