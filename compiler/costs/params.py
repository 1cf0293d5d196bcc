"""Parameters: numbers that live between steps. A shared table is one input of the graph, so it counts once."""
from __future__ import annotations

from collections.abc import Callable

import sympy as sp

from plait.compiler.graph import Graph, Value


def params(graph: Graph, wanted: Callable[[Value], bool] = lambda v: True) -> sp.Expr:
    """How many, exactly."""
    return sp.expand(sp.Add(*[v.size for v in graph.ins if v.kind == "param" and wanted(v)]))
