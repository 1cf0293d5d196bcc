"""The end of a recomputed body that need not run again: its gradients read what goes into it, not what comes out.

In a chunked feed-forward that is the second product: its operands are made again, the product is not."""
from __future__ import annotations

from dataclasses import dataclass, replace

from plait.compiler.derive import derive
from plait.compiler.graph import Graph, Node, Value, live
from plait.compiler.prims import VIEWS, Const, Contract, Map, Pad, Region, Slice
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
    body = _open(body)
    nodes = _last(body)
    if not any(isinstance(n.op, Contract) for n in nodes): return None
    mine = {v for n in nodes for v in n.outs}
    if not mine.issuperset(body.outs): return None
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


def _open(body: Graph) -> Graph:
    """With dropout written out: its gradient reads the mask, not what is dropped."""
    nodes: list[Node] = []
    for n in body.nodes:
        if not (isinstance(n.op, Region) and n.op.name == "dropout" and not n.op.kernel):
            nodes.append(n)
            continue
        outer = dict(zip((*n.op.body.ins, *n.op.body.outs), (*n.ins, *n.outs)))
        for m in n.op.body.nodes:
            ins, outs = (tuple(outer.get(v, v) for v in vs) for vs in (m.ins, m.outs))
            nodes.append(replace(m, ins=ins, outs=outs))
    return replace(body, nodes=tuple(nodes))


def _linear(n: Node) -> bool:
    """In its real operands; a number is nobody's operand."""
    if isinstance(n.op, Const): return True
    if not isinstance(n.op, Map): return isinstance(n.op, VIEWS | Contract | Pad | Slice)
    match n.op.fn:
        case "where": return n.ins[0].kind == "mask"
        case "div": return n.ins[1].kind == "const"
        case fn: return fn in LINEAR


def _last(body: Graph) -> tuple[Node, ...]:
    """The linear nodes at the end: each is read by nobody but the others, or handed out."""
    readers: dict[Value, list[Node]] = {}
    for n in body.nodes:
        for v in n.ins: readers.setdefault(v, []).append(n)
    found: list[Node] = []
    for n in reversed(body.nodes):
        inside = all(m in found for v in n.outs for m in readers.get(v, []))
        wanted = n.outs[0] in body.outs or readers.get(n.outs[0])
        if _linear(n) and inside and wanted and (isinstance(n.op, Const) or n.outs[0].kind == "real"): found.append(n)
    return tuple(n for n in body.nodes if n in found)
