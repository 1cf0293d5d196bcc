"""What a recurrence computes of its input alone moves in front of it, over the whole sequence at once. A pass from graph to graph.

Only products move, with what leads to them: a product over all positions is one large matrix product instead of many small ones, and it
need not wait for the states. What is done with them element by element costs a step nothing, and a pass over all positions much."""
from __future__ import annotations

from dataclasses import replace

from plait.compiler.graph import Graph, Node, Value, live
from plait.compiler.prims import (
    Broadcast,
    Concat,
    Const,
    Contract,
    Gather,
    Loop,
    Map,
    Merge,
    Pad,
    Reduce,
    Region,
    Rename,
    Slice,
    Split,
    infer,
)
from plait.compiler.sizes import Sizes
from plait.compiler.verify import verify

MOVABLE = (Broadcast, Concat, Const, Contract, Gather, Map, Merge, Pad, Reduce, Rename, Slice, Split)     # along any further axis the same


def hoist(graph: Graph, sizes: Sizes) -> Graph:
    """The same values and the same products, those of a recurrence's input outside of its loop. Claimed regions stay as they are."""
    return verify(hoisted(graph, sizes), sizes)


def hoisted(graph: Graph, sizes: Sizes) -> Graph:
    nodes: list[Node] = []
    for n in graph.nodes:
        if isinstance(n.op, Loop) or isinstance(n.op, Region) and not n.op.kernel:
            n = replace(n, op=replace(n.op, body=hoisted(n.op.body, sizes)))
        nodes += _parted(n, n.op, sizes) if isinstance(n.op, Loop) and n.op.axis.role == "sequence" else [n]
    return replace(graph, nodes=tuple(nodes))


def _parted(n: Node, op: Loop, sizes: Sizes) -> list[Node]:
    """What moves in front of the loop, and the loop without it."""
    moving = _moving(op)
    if not moving: return [n]
    left = tuple(m for m in op.body.nodes if m not in moving)
    read = {v for m in left for v in m.ins} | set(op.body.outs)
    border = [v for m in moving for v in m.outs if v in read and not isinstance(m.op, Const)]
    again = tuple(m for m in moving if isinstance(m.op, Const) and m.outs[0] in read)         # a number is made where it is used
    outside, whole = _whole(n, op, moving, sizes)
    travels = [v for v in border if whole[v].has(op.axis.name)]
    rests = [v for v in border if v not in travels]
    c, s = op.carried, op.carried + op.sliced
    pairs = [*zip(op.body.ins, n.ins)]
    sliced = [p for p in pairs[c:s] if p[0] in read] + [(v, whole[v]) for v in travels]
    fixed = [p for p in pairs[s:] if p[0] in read] + [(v, whole[v]) for v in rests]
    inner, outer = zip(*pairs[:c], *sliced, *fixed)
    body = Graph(inner, (*again, *left), op.body.outs)
    return [*outside, replace(n, op=replace(op, body=body, sliced=len(sliced)), ins=outer)]


def _moving(op: Loop) -> list[Node]:
    """The products of slices with each other or with what stays the same, and what they are made from."""
    body, end = op.body, op.carried + op.sliced
    alone = {v for v in body.ins[op.carried:] if not v.has(op.axis.name)}                     # known before the first trip
    sliced = set(body.ins[op.carried:end])                                                   # different from trip to trip
    made: dict[Value, Node] = {}
    products: list[Value] = []
    for n in body.nodes:
        if not isinstance(n.op, MOVABLE) or n.symbols & {op.index} or not all(v in alone for v in n.ins): continue
        alone.update(n.outs)
        made[n.outs[0]] = n
        if any(v in sliced for v in n.ins): sliced.update(n.outs)
        if isinstance(n.op, Contract) and n.outs[0] in sliced: products += n.outs
    return [n for n in live(body.nodes, products) if n.outs[0] in made]


def _whole(n: Node, op: Loop, moving: list[Node], sizes: Sizes) -> tuple[list[Node], dict[Value, Value]]:
    """The nodes that move, over the whole sequence; a value of the body → what holds it for every trip, the loop's axis in front."""
    nodes: list[Node] = []
    whole = dict(zip(op.body.ins, n.ins))
    read = {v for m in moving for v in m.ins}
    for v, outer in zip(op.body.ins[op.carried:op.carried + op.sliced], n.ins[op.carried:]):
        axes = (op.axis, *v.axes)
        if v not in read or outer.names == tuple(a.name for a in axes): continue
        whole[v] = Value(f"{v.name}.whole", axes, "real" if outer.kind in ("param", "const") else outer.kind)
        nodes.append(replace(n, op=Broadcast(axes), ins=(outer,), outs=(whole[v],), name=""))
    for m in moving:
        ins = tuple(whole[v] for v in m.ins)
        along = any(v.has(op.axis.name) for v in ins)
        change = Broadcast((op.axis, *m.op.axes)) if isinstance(m.op, Broadcast) and along else m.op
        ((axes, kind),) = infer(change, ins, sizes)
        whole[m.outs[0]] = Value(f"{m.outs[0].name}.whole", axes, kind)
        nodes.append(replace(m, op=change, ins=ins, outs=(whole[m.outs[0]],)))
    return nodes, whole
