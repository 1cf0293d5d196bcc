"""Parts that are padded and added up, and together fill an axis, stand side by side instead. A pass from graph to graph."""
from __future__ import annotations

from dataclasses import replace

from plait.compiler.graph import Graph, Node, Value, live
from plait.compiler.prims import Concat, Map, Pad
from plait.compiler.sizes import Sizes
from plait.compiler.verify import verify


def tiles(graph: Graph, sizes: Sizes) -> Graph:
    """The same values: the gradient of what was taken apart is put together by one movement, without additions of zeros."""
    def changed(g: Graph) -> Graph:
        g = g.map_bodies(changed)
        makes = {v: n for n in g.nodes for v in n.outs}
        return replace(g, nodes=live([_joined(n, makes, sizes) for n in g.nodes], g.outs))
    return verify(changed(graph), sizes)


def _joined(n: Node, makes: dict[Value, Node], sizes: Sizes) -> Node:
    """The sum as a concatenation, if its terms are parts of one axis that meet end to end."""
    terms = _terms(n, makes) if n.op == Map("add") else []
    if len(terms) < 2: return n
    along = {str(t.op.axis) for t in terms}                                                         # type: ignore[union-attr]
    if len(along) > 1 or any(t.outs[0].names != n.outs[0].names for t in terms): return n
    name = along.pop()
    terms.sort(key=lambda t: t.op.before.sort_key())                                                # type: ignore[union-attr]
    at = 0
    for t in terms:
        if not sizes.same(t.op.before, at): return n                                                # type: ignore[union-attr]
        at = at + t.ins[0].axis(name).size
    return replace(n, op=Concat(name), ins=tuple(t.ins[0] for t in terms)) if sizes.same(at, n.outs[0].axis(name).size) else n


def _terms(n: Node, makes: dict[Value, Node]) -> list[Node]:
    """The paddings that a chain of sums adds up; none where it adds something else, too."""
    found: list[Node] = []
    for v in n.ins:
        m = makes.get(v)
        if m is not None and isinstance(m.op, Pad): found.append(m)
        elif m is not None and m.op == Map("add") and (inner := _terms(m, makes)): found += inner
        else: return []
    return found
