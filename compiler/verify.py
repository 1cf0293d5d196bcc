"""The invariants of a graph, checked after every pass: closed, single assignment, types re-inferred."""
from __future__ import annotations

from plait.compiler.graph import Graph
from plait.compiler.prims import Loop, Region, Wrong, infer
from plait.compiler.sizes import Sizes


def verify(graph: Graph, sizes: Sizes) -> Graph:
    """The graph itself, if it is well formed; Wrong says where it is not."""
    known = set(graph.ins)
    if len(known) != len(graph.ins): raise Wrong("an input stands twice")
    for n in graph.nodes:
        where = f"{n.at} {type(n.op).__name__}"
        for v in n.ins:
            if v not in known: raise Wrong(f"{where} reads {v}, which nothing made")
        made = infer(n.op, n.ins, sizes)
        if len(made) != len(n.outs): raise Wrong(f"{where} gives {len(made)} values, not {len(n.outs)}")
        for (axes, kind), v in zip(made, n.outs):
            if [(a.name, a.role) for a in axes] != [(a.name, a.role) for a in v.axes] or kind != v.kind:
                raise Wrong(f"{where} makes {axes} ({kind}), written {v} ({v.kind})")
            if not all(sizes.same(p.size, q.size) for p, q in zip(axes, v.axes)): raise Wrong(f"{where} makes {axes}, written {v}")
            if v in known: raise Wrong(f"{where} makes {v} a second time")
            known.add(v)
        if isinstance(n.op, Region | Loop):
            if len(n.op.body.ins) != len(n.ins): raise Wrong(f"{where} takes {len(n.op.body.ins)} operands, given {len(n.ins)}")
            for k, (outer, inner) in enumerate(zip(n.ins, n.op.body.ins)):
                cut = isinstance(n.op, Loop) and n.op.carried <= k < n.op.carried + n.op.sliced
                names = set(outer.names) - ({n.op.axis.name} if cut else set())                    # type: ignore[union-attr]
                if names != set(inner.names): raise Wrong(f"{where}: operand {outer} for {inner}")
            verify(n.op.body, sizes)
    for v in graph.outs:
        if v not in known: raise Wrong(f"output {v} is never made")
    return graph
