"""The end of a recomputed body that need not run again: its gradients read what goes into it, not what comes out.

In a chunked feed-forward that is the second product: its operands are made again, the product is not."""
from __future__ import annotations

from dataclasses import dataclass

from plait.compiler.derive import derive
from plait.compiler.graph import Graph, Node, Value, live
from plait.compiler.prims import VIEWS, Contract, Map, Pad, Slice
from plait.compiler.sizes import Sizes

LINEAR = ("add", "sub", "neg")


@dataclass(frozen=True)
class Tail:
    """before: from the body's operands to what the tail reads of it. pull: from all that the tail reads and the gradients of the body's
    results to the gradients of what the tail reads. reads: for each, the number of a result of `before`, or of an operand (from −1
    down). found: which of the reads have a gradient, in the order of pull's results."""
    before: Graph
    pull: Graph
    reads: tuple[int, ...]
    found: tuple[int, ...]


def tail(body: Graph, sizes: Sizes) -> Tail | None:
    """The tail of a body, where it holds a product; None where there is nothing to leave out."""
    nodes = _last(body)
    if not any(isinstance(n.op, Contract) for n in nodes): return None
    mine = {v for n in nodes for v in n.outs}
    read = list(dict.fromkeys(v for n in nodes for v in n.ins if v not in mine))
    joint = derive(Graph(tuple(read), nodes, body.outs), sizes)
    grads = [(k, joint.gradients[v.name]) for k, v in enumerate(read) if v.name in joint.gradients]
    outs = tuple(g for _, g in grads)
    pull = Graph(joint.graph.ins, live(joint.graph.nodes, outs), outs)
    if any(n.phase == "forward" and isinstance(n.op, Contract) for n in pull.nodes): return None
    made = [v for v in read if v not in body.ins]
    before = Graph(body.ins, live([n for n in body.nodes if n not in nodes], made), tuple(made))
    places = tuple(made.index(v) if v in made else -1 - body.ins.index(v) for v in read)
    return Tail(before, pull, places, tuple(k for k, _ in grads))


def _last(body: Graph) -> tuple[Node, ...]:
    """The linear nodes at the end: each is read by nobody but the others, or handed out."""
    readers: dict[Value, list[Node]] = {}
    for n in body.nodes:
        for v in n.ins: readers.setdefault(v, []).append(n)
    found: list[Node] = []
    for n in reversed(body.nodes):
        linear = isinstance(n.op, VIEWS | Contract | Pad | Slice) or isinstance(n.op, Map) and n.op.fn in LINEAR
        inside = all(m in found for v in n.outs for m in readers.get(v, []))
        if linear and inside and n.outs[0].kind == "real" and (n.outs[0] in body.outs or readers.get(n.outs[0])): found.append(n)
    return tuple(n for n in body.nodes if n in found)
