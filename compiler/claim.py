"""Claims: which kernel runs which region. A pass from graph to graph."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from plait.compiler.graph import Graph
from plait.compiler.kernels import KERNELS, Target
from plait.compiler.prims import Loop, Region

BODY = "body"


def claim(graph: Graph, target: Target, forced: Mapping[str, str] | None = None) -> Graph:
    """Every region takes the first kernel that is available, at the highest place first; where none is, its body is searched.

    forced: region → kernel name or `body`, for every region of that name, before a region's own `kernel` argument (`kernel = rowwise`
    in the spec). A kernel that is asked for and not available leaves the body. Raises KeyError for a forced kernel that does not exist."""
    wanted = dict(forced or {})
    nodes = []
    for n in graph.nodes:
        op = n.op
        if isinstance(op, Region):
            name = choose(op, target, wanted)
            op = replace(op, kernel=name) if name else replace(op, body=claim(op.body, target, wanted))
        elif isinstance(op, Loop): op = replace(op, body=claim(op.body, target, wanted))
        nodes.append(replace(n, op=op))
    return replace(graph, nodes=tuple(nodes))


def choose(region: Region, target: Target, forced: Mapping[str, str]) -> str:
    """The name of the kernel that takes this region; "" where its body runs."""
    asked = region.arg("kernel", "auto")                   # a convolution's `kernel` is its width
    want = forced.get(region.name) or (asked if isinstance(asked, str) else "auto")
    if want == BODY: return ""
    here = [k for k in KERNELS if k.region == region.name]
    if want != "auto" and want not in {k.name for k in here}: raise KeyError(f"no kernel {want} for region {region.name}")
    return next((k.name for k in here if (want == k.name or want == "auto" and k.unasked(target)) and k.available(region, target)), "")


def unclaimed(graph: Graph) -> Graph:
    """The same graph with every region run by its body, which for a claimed region of a joint graph is what its kernel computes."""
    graph = graph.map_bodies(unclaimed)
    return replace(graph, nodes=tuple(replace(n, op=replace(n.op, kernel="")) if isinstance(n.op, Region) else n for n in graph.nodes))
