"""The output layer and the loss in pieces where the spec has them whole: the logits are never all there. A pass from graph to graph."""
from __future__ import annotations

from dataclasses import replace

import sympy as sp

from plait.compiler.builder import Builder
from plait.compiler.graph import Graph, Node, live
from plait.compiler.losses import in_pieces, output_layer
from plait.compiler.prims import Reduce, Region
from plait.compiler.sizes import Sizes
from plait.compiler.verify import verify


def loss_in_pieces(graph: Graph, sizes: Sizes, pieces: int) -> Graph:
    """The same sums, of a sequence cut into so many pieces; the graph itself where there is no loss over a sequence by an output layer."""
    found = _loss(graph, sizes)
    if found is None: return graph
    loss, total = found
    b = Builder.continuing(graph, sizes)
    at = graph.nodes.index(total)
    b.nodes = list(graph.nodes[:at])
    with b.located(loss.at, loss.span):
        made, = in_pieces(b, *loss.ins, loss.op.arg("smoothing"), sp.Integer(pieces), "loss")                          # type: ignore
    rest = [replace(n, ins=tuple(made if v == total.outs[0] else v for v in n.ins)) for n in graph.nodes[at + 1:]]
    outs = tuple(made if v == total.outs[0] else v for v in graph.outs)
    return verify(Graph(graph.ins, live([*b.nodes, *rest], outs), outs), sizes)


def _loss(graph: Graph, sizes: Sizes) -> tuple[Node, Node] | None:
    """The region of the losses, and their sum, where the logits are read by nothing else."""
    read = [v for n in graph.nodes for v in n.ins] + list(graph.outs)
    readers = {v: n for n in graph.nodes for v in n.ins}
    for n in graph.nodes:
        if not (isinstance(n.op, Region) and n.op.name == "cross_entropy"): continue
        total = readers.get(n.outs[0])
        _, tail = output_layer(Builder.continuing(graph, sizes), n.ins[0])
        alone = all(read.count(v) == 1 for v in (n.ins[0], n.outs[0], *(v for m in tail for v in m.outs)))
        if tail and alone and n.ins[0].has("n") and total is not None and total.op == Reduce("sum", n.outs[0].names): return n, total
    return None
