"""One product for what a layer multiplies by several weights: queries, keys and values. A pass from graph to graph, for compiled code.

Three products of a row with three matrices are one with the three side by side, which the libraries do faster, and its gradient by the row
is one product instead of three and two sums. Run eagerly, cutting the result would cost more than that: there it stays as it is."""
from __future__ import annotations

from dataclasses import replace

import sympy as sp

from plait.compiler.axis import Axis, axis, volume, without
from plait.compiler.graph import Graph, Node, Value
from plait.compiler.prims import Concat, Contract, Loop, Merge, Op, Region, Rename, Slice, Split, infer
from plait.compiler.sizes import Sizes
from plait.compiler.verify import verify

WIDE = "wide"                                                  # the axis of all results side by side


def joined(graph: Graph, sizes: Sizes) -> Graph:
    """The same values; products of one operand with several parameters, in one statement, as one product. Claimed regions stay."""
    return verify(_joined(graph, sizes), sizes)


def _joined(graph: Graph, sizes: Sizes) -> Graph:
    groups: dict[tuple, list[Node]] = {}
    nodes: list[Node] = []
    for n in graph.nodes:
        if isinstance(n.op, Loop) or isinstance(n.op, Region) and not n.op.kernel:
            n = replace(n, op=replace(n.op, body=_joined(n.op.body, sizes)))
        if isinstance(n.op, Contract) and len(n.op.over) == 1 and n.ins[1].kind == "param" and n.ins[0].kind == "real":
            x, w = n.ins
            if not {a.name for a in without(w.axes, n.op.over)} & set(x.names): groups.setdefault((n.at, n.op, x), []).append(n)
        nodes.append(n)
    for group in groups.values():
        if len(group) < 2: continue
        at = nodes.index(group[0])
        inside = set(group)
        nodes = [*nodes[:at], *_one(group, sizes), *(n for n in nodes[at:] if n not in inside)]
    return replace(graph, nodes=tuple(nodes))


def _one(group: list[Node], sizes: Sizes) -> list[Node]:
    first, made = group[0], []

    def emit(name: str, op: Op, *ins: Value) -> Value:
        ((axes, kind),) = infer(op, ins, sizes)
        out = Value(name, axes, kind)
        made.append(replace(first, op=op, ins=ins, outs=(out,), name=first.name if isinstance(op, Contract) else ""))
        return out

    def flat(w: Value, name: str) -> Value:
        """A weight with its own axes as one."""
        own = _own(w, first)
        while len(own) > 1:
            both = axis(WIDE if len(own) == 2 else f"{own[0].name}.{own[1].name}", own[0].size * own[1].size)
            w = emit(f"{name}.{len(own)}", Merge((own[0].name, own[1].name), both), w)
            own = (both, *own[2:])
        return w if own[0].name == WIDE else emit(f"{name}.wide", Rename(own[0].name, axis(WIDE, own[0].size)), w)

    names = [n.outs[0].name for n in group]
    weights = [flat(n.ins[1], f"{name}.weight") for n, name in zip(group, names)]
    whole = emit(f"{names[0]}.weights", Concat(WIDE), *weights)
    y = emit(f"{names[0]}.all", first.op, first.ins[0], whole)
    start = sp.Integer(0)
    for n, name in zip(group, names):
        own = _own(n.ins[1], first)
        part = emit(f"{name}.part", Slice(WIDE, start, volume(own)), y)
        start += volume(own)
        _cut(made, n, part, own, name, sizes)
    return made


def _own(w: Value, n: Node) -> tuple[Axis, ...]: return without(w.axes, n.op.over)                                     # type: ignore


def _cut(made: list[Node], n: Node, part: Value, own: tuple[Axis, ...], name: str, sizes: Sizes) -> None:
    """The part with its own axes again, as the value that others read."""
    last = WIDE
    for k in range(len(own) - 1):
        rest = axis(f"{name}.rest{k}", volume(own[k + 1:]))
        op: Op = Split(last, (own[k], own[-1] if k == len(own) - 2 else rest))
        ((axes, kind),) = infer(op, (part,), sizes)
        out = n.outs[0] if k == len(own) - 2 else Value(f"{name}.cut{k}", axes, kind)
        made.append(replace(n, op=op, ins=(part,), outs=(out,), name=""))
        part, last = out, rest.name
    if len(own) == 1: made.append(replace(n, op=Rename(last, own[0]), ins=(part,), outs=n.outs, name=""))
