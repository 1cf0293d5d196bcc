"""Ideal work: the multiply-adds that masks leave. A product of scores counts only the pairs that the mask allows, a weighted sum
only the weights that are not zero, a window only what lies inside the sequence. Exact, by counting lattice points.

None where a mask is data (padding counts in full; LSH's order cannot be counted)."""
from __future__ import annotations

from collections.abc import Callable, Iterable

import sympy as sp

from plait.compiler.axis import volume
from plait.compiler.costs import affine
from plait.compiler.costs.affine import TRUE, Case, Cases, Line, Unreadable, tidy
from plait.compiler.costs.order import added, over_trips, per_sequence
from plait.compiler.costs.reading import Reading, Seen
from plait.compiler.costs.work import visits
from plait.compiler.graph import Graph, Node, Value
from plait.compiler.prims import Contract, Loop, Map, Region, Sort
from plait.compiler.sizes import Sizes

Watched = dict[int, tuple[list[Seen], list[Seen]]]


def ideal(graph: Graph, source: Value, sizes: Sizes, wanted: Callable[[Node], bool] = lambda n: True) -> sp.Expr | None:
    """Contraction MACs of one sequence without what the masks exclude; None where that depends on the data or cannot be counted."""
    if any(isinstance(n.op, Sort) and wanted(n) for n in graph.walk()): return None
    seen: Watched = {}
    kept: list[Node] = []                                     # an id is a node's only while the node lives

    def watch(n: Node, ins: list[Seen], outs: list[Seen], _: Reading) -> None:
        seen[id(n)] = ins, outs
        kept.append(n)

    reading = Reading(sizes, False, watch)
    try:
        reading.graph(graph, [reading.source(v) if v == source else reading.entry(v) for v in graph.ins])
        asked = needs(graph, dict.fromkeys(graph.outs, TRUE), seen)
        terms = [per_sequence(over_trips(pairs(n, seen, asked), loops)) for n, loops in visits(graph)
                 if isinstance(n.op, Contract) and wanted(n)]
    except Unreadable: return None
    return added(terms)


def ranges_of(values: Iterable[Value]) -> dict[str, affine.Size]:
    return {a.name: tidy(a.size) for v in values for a in v.axes}


def needs(graph: Graph, wanted: dict[Value, Cases], seen: Watched) -> dict[Value, Cases]:
    """Value → where an element of it is read by something that counts. What is chosen away by a known mask is not."""
    need: dict[Value, Cases] = dict(wanted)

    def ask(v: Value, cases: Cases) -> None:
        need[v] = affine.union([*need.get(v, ()), *cases], ranges_of([v])) if v in need else cases

    for n in reversed(graph.nodes):
        out = need.get(n.outs[0], TRUE)
        if isinstance(n.op, Map):
            for k, v in enumerate(n.ins): ask(v, _through(n, k, v, out, seen))
        elif isinstance(n.op, Region):
            inner = needs(n.op.body, {o: need.get(v, TRUE) for o, v in zip(n.op.body.outs, n.outs)}, seen)
            need |= {v: c for v, c in inner.items() if v not in n.op.body.ins}
            for v, i in zip(n.ins, n.op.body.ins): ask(v, _same_axes(v, i, inner.get(i, TRUE)))
        elif isinstance(n.op, Loop):
            need |= {v: c for v, c in needs(n.op.body, dict.fromkeys(n.op.body.outs, TRUE), seen).items() if v not in n.op.body.ins}
            for v in n.ins: ask(v, TRUE)
        else:
            for v in n.ins: ask(v, TRUE)
    return need


def _same_axes(v: Value, i: Value, cases: Cases) -> Cases:
    return cases if set(v.names) == set(i.names) else TRUE


def _through(n: Node, k: int, v: Value, out: Cases, seen: Watched) -> Cases:
    """Where operand k of a pointwise step is needed, given where its result is."""
    if set(v.names) != set(n.outs[0].names): return TRUE      # one element serves several: needed if any of them is
    ins = seen.get(id(n), ([], []))[0]
    if n.op == Map("where") and k in (1, 2) and ins and isinstance(ins[0].known, tuple):
        mask = ins[0].known if k == 1 else affine.negated(ins[0].known, ranges_of(n.ins))
        return affine.both(out, mask, ranges_of(n.ins))
    return out


def pairs(n: Node, seen: Watched, need: dict[Value, Cases]) -> sp.Expr:
    """Multiply-adds of one contraction that count: both factors alive, the result read."""
    r = ranges_of(n.ins)
    cases = need.get(n.outs[0], TRUE)
    for x in seen[id(n)][0] if id(n) in seen else (): cases = affine.both(cases, x.live if x.empty == "zero" else TRUE, r)
    axes = {a.name: a for v in n.ins for a in v.axes}
    return count(cases, r) * volume([a for a in axes.values() if a.name not in _mentioned(cases)])


def _mentioned(cases: Cases) -> set[str]:
    return {a for case in cases for e in case for a in e.axes}


def count(cases: Cases, r: dict[str, affine.Size]) -> sp.Expr:
    """Lattice points of a union of disjoint cases over the axes that they mention."""
    axes = _mentioned(cases)
    for k, c in enumerate(cases):
        if any(affine.both((c,), (d,), r) for d in cases[:k]): raise Unreadable("cases of a mask that overlap")
    return sp.Add(*[_points(c, {a: r[a] for a in axes}) for c in cases])


def _points(case: Case, r: dict[str, affine.Size]) -> sp.Expr:
    """One case: a point, a triangle, or a window that slides over a sequence."""
    pinned = [a for a in r if Line(((a, -1),)) in case]                             # −a ≥ 0: only place 0
    if pinned and all(set(e.axes) <= set(pinned) for e in case):
        return sp.Mul(*[r[a] for a in r if a not in pinned])
    lines = sorted(case, key=str)
    named = sorted({a for e in lines for a in e.axes})
    rest = sp.Mul(*[r[a] for a in r if a not in named])
    if not lines: return rest
    if len(lines) == 1 and len(named) == 2 and affine.same(r[named[0]], r[named[1]]):
        i, j = named
        if {lines[0].coefficient(i), lines[0].coefficient(j)} == {1, -1}: return rest * _triangle(sp.sympify(r[i]), lines[0].const)
    if len(named) == 2: return rest * _sliding(lines, named, r)
    raise Unreadable("a mask that has no closed count")


def _triangle(n: sp.Expr, above) -> sp.Expr:
    """Pairs of 0 … n − 1 with i − j + above ≥ 0."""
    if affine.sure(above): return n**2 - (n - 1 - above) * (n - above) / 2
    return (n + above) * (n + above + 1) / 2


def _sliding(lines: list[Line], named: list[str], r: dict[str, affine.Size]) -> sp.Expr:
    """Places of a window w at a position i with 0 ≤ i + step·w − left·step < n."""
    i = next((a for a in named if all(e.coefficient(a) in (1, -1) for e in lines)), None)
    if i is None: raise Unreadable("a mask that has no closed count")
    w = next(a for a in named if a != i)
    n, width = sp.sympify(r[i]), sp.sympify(r[w])
    low = next((e for e in lines if e.coefficient(i) == 1), None)
    high = next((e for e in lines if e.coefficient(i) == -1), None)
    for e, border in ((low, None), (high, n - 1)):
        if e is not None and border is None: step, start = e.coefficient(w), e.const
        elif e is not None: step, start = -sp.sympify(e.coefficient(w)), tidy(n - 1 - e.const)
    if len(lines) > 2 or low and high and tidy(low.plus(high).const - (n - 1)) != 0: raise Unreadable("a mask that has no closed count")
    left = -sp.sympify(start) / step
    before, after = left if low else sp.Integer(0), width - 1 - left if high else sp.Integer(0)
    inside = width - (0 if low else left) - (0 if high else width - 1 - left)       # places that the border never cuts
    return sp.expand((inside - before - after) * n + _side(before, n, step) + _side(after, n, step))


def _side(reach: sp.Expr, n: sp.Expr, step) -> sp.Expr:
    """Σ over t = 1 … reach of max(0, n − t·step)."""
    if reach == 0: return sp.Integer(0)
    most = sp.Min(reach, sp.floor((n - 1) / sp.sympify(step)))
    return most * n - step * most * (most + 1) / 2
