"""Weight reuse: multiply-adds done with a parameter each time it is fetched. It says whether a machine can be kept busy:
b·n in a projection, b in a recurrence, which fetches its matrix at every step."""
from __future__ import annotations

from collections.abc import Callable, Iterator

import sympy as sp

from plait.compiler.axis import volume
from plait.compiler.costs.order import smallest
from plait.compiler.graph import Graph, Node, Value
from plait.compiler.prims import VIEWS, Contract, Loop, Region


def products(graph: Graph, weights: frozenset[Value]) -> Iterator[tuple[Node, Value]]:
    """Every contraction with a parameter (or a view of one), and that operand."""
    known = set(weights)
    for n in graph.nodes:
        if isinstance(n.op, Region | Loop):
            yield from products(n.op.body, frozenset(i for v, i in zip(n.ins, n.op.body.ins) if v in known))
        elif isinstance(n.op, Contract):
            yield from ((n, v) for v in n.ins if v in known)
        elif isinstance(n.op, VIEWS) and n.ins[0] in known: known.add(n.outs[0])


def reuse(graph: Graph, wanted: Callable[[Node], bool] = lambda n: True) -> sp.Expr | None:
    """The least over the parameters: output × contracted sizes ÷ the parameter's size, of one run. In b and the dims.
    None where no parameter is multiplied."""
    weights = frozenset(v for v in graph.ins if v.kind == "param")
    return smallest(sp.cancel(n.outs[0].size * volume([n.ins[0].axis(o) for o in n.op.over]) / v.size)          # type: ignore[union-attr]
                    for n, v in products(graph, weights) if wanted(n))
