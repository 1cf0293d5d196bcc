"""A graph that begins at the vectors of its symbols: where gradients can be asked for."""
from __future__ import annotations

from dataclasses import replace

from plait.compiler.graph import Graph, Value
from plait.compiler.prims import Gather


def from_vectors(graph: Graph, source: Value) -> tuple[Graph, Value] | None:
    """The graph with what a lookup makes of the symbols `source` as an input, and that input; for a stream of reals the graph itself.
    None where the symbols are looked up in several places, or in none."""
    if source.kind == "real": return graph, source
    made: set[Value] = {source}
    lookups = []
    for n in graph.nodes:
        if not any(v in made for v in n.ins): continue
        if isinstance(n.op, Gather) and n.ins[0].kind in ("param", "real") and n.ins[1] in made and n.ins[0] not in made: lookups.append(n)
        elif n.body is None and n.outs[0].kind in ("index", "mask"): made.update(n.outs)
        else: return None
    if len(lookups) != 1: return None
    value = lookups[0].outs[0]
    nodes = tuple(n for n in graph.nodes if n is not lookups[0])
    return replace(graph, ins=(*graph.ins, value), nodes=nodes), value
