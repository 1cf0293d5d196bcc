"""Depth with every loop unrolled trip by trip, at numbers: what the closed forms are held against."""
from __future__ import annotations

from collections.abc import Callable, Sequence

import sympy as sp

from plait.compiler.derive import Joint
from plait.compiler.graph import Graph, Node
from plait.compiler.prims import Loop
from plait.compiler.sizes import Sizes

NEVER = None
Time = int | None


def depth(graph: Graph, weigh: Callable[[Node], sp.Expr], sizes: Sizes) -> int:
    """The longest chain from any input to any output; what depends on no input is there before the first step."""
    entry: list[Time] = [NEVER if v.kind == "index" and not v.axes else 0 for v in graph.ins]
    return max((t for t in _graph(graph, entry, weigh, sizes) if t is not None), default=0)


def training(joint: Joint, weigh: Callable[[Node], sp.Expr], sizes: Sizes) -> int:
    """Forward and backward: the gradient of an output starts when the forward is through."""
    def before(v) -> Time: return NEVER if v.kind == "index" and not v.axes else 0
    forward = joint.forward
    end = _latest([0, *_graph(forward, [before(v) for v in forward.ins], weigh, sizes)]) or 0
    seeds = set(joint.seeds.values())
    found = _graph(joint.graph, [end if v in seeds else before(v) for v in joint.graph.ins], weigh, sizes)
    return _latest([end, *found]) or 0


def _graph(graph: Graph, entry: Sequence[Time], weigh: Callable, sizes: Sizes) -> list[Time]:
    at = dict(zip(graph.ins, entry))
    for n in graph.nodes:
        ins = [at[v] for v in n.ins]
        if isinstance(n.op, Loop): outs = _trips(n.op, ins, weigh, sizes)
        elif n.body is not None: outs = _graph(n.body, ins, weigh, sizes)
        else:
            known = [t for t in ins if t is not None]
            outs = [max(known) + int(sizes.value(weigh(n)) or 0) if known else NEVER]
        at.update(zip(n.outs, outs))
    return [at[v] for v in graph.outs]


def _latest(times: Sequence[Time]) -> Time:
    return max((t for t in times if t is not None), default=NEVER)


def _trips(op: Loop, entry: Sequence[Time], weigh: Callable, sizes: Sizes) -> list[Time]:
    """A piece waits for the piece before it; a scan step takes 1 at least, from its input and from each state that it reads."""
    c, count = op.carried, int(sizes.value(op.axis.size) or 0)
    state, rest = [e or 0 for e in entry[:c]], list(entry[c:])
    outs: list[Time] = [NEVER] * len(op.body.outs)
    last: Time = NEVER
    for t in range(count):
        bound = sizes if op.index is None else Sizes({**sizes.bound, op.index: count - 1 - t if op.reverse else t})
        if op.axis.role == "chunk" and last is not None:
            rest = [r if r is None else max(r, last) for r in rest]
            state = [max(s, last) for s in state]
        got = _graph(op.body, [*state, *rest], weigh, bound)
        if op.axis.role == "sequence": got = _stepped(op, got, state, rest, weigh, bound)
        state, last = [g or 0 for g in got[:c]], _latest(got)
        outs = [_latest(pair) for pair in zip(outs, got)]
    return [*state, *outs[c:]]


def _stepped(op: Loop, got: list[Time], state: list[int], rest: list[Time], weigh: Callable, sizes: Sizes) -> list[Time]:
    c, inside = op.carried, len(op.body.ins)
    ways = [_graph(op.body, [0 if i == k else NEVER for i in range(inside)], weigh, sizes) for k in range(c)]
    outside = _graph(op.body, [*[NEVER] * c, *rest], weigh, sizes)
    def least(k: int) -> Time:
        entered = [_latest(rest)] if outside[k] is not None else []
        return _latest([*(s for s, way in zip(state, ways) if way[k] is not None), *entered])
    return [_latest([g, None if (b := least(k)) is None else b + 1]) if k < c else g for k, g in enumerate(got)]
