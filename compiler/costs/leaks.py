"""Which offsets i − j a term can reach at most, and where a graph lets the future in. Intervals only: always derivable."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

import sympy as sp

from plait.compiler.costs.affine import Size, along, generally, greater, smaller, sure, tidy
from plait.compiler.costs.connections import (
    SOURCE,
    All,
    At,
    Band,
    Base,
    Chain,
    Choice,
    Chunks,
    Clip,
    Power,
    Root,
    Scan,
    Shift,
    Spread,
    System,
    Token,
    Upto,
)
from plait.compiler.costs.reading import Reading
from plait.compiler.costs.sums import Seen, spots
from plait.compiler.graph import Graph, Node, Value
from plait.compiler.sizes import Sizes

Extent = tuple[Size | None, Size | None]          # the least and the greatest offset i − j; None: unbounded


def hull(extents: Sequence[Extent]) -> Extent:
    lo, hi = extents[0]
    for p, q in extents[1:]:
        lo = None if lo is None or p is None else smaller(lo, p)
        hi = None if hi is None or q is None else greater(hi, q)
    return lo, hi


def plus(x: Extent, y: Extent) -> Extent:
    lo, hi = (None if p is None or q is None else tidy(p + q) for p, q in zip(x, y))
    return lo, hi


def times(x: Extent, count: Size) -> Extent:
    lo, hi = (None if p is None else tidy(p * count) for p in x)
    return lo, hi


def extent(base: Base, env: Mapping[Root, Extent] | None = None) -> Extent | None:
    """None: the base reads nothing."""
    env = env or {SOURCE: (0, 0)}
    found: list[Extent] = []
    for root, chain in base:
        start = _system(root, env) if isinstance(root, System) else env.get(root, (0, 0))
        if start is not None: found.append(plus(start, _chain(chain)))
    return hull(found) if found else None


def _chain(chain: Chain) -> Extent:
    out: Extent = (0, 0)
    for f in chain:
        match f:
            case Band(lo, hi): out = plus(out, (lo, hi))
            case Scan(forward): out = plus(out, (0, None) if forward else (None, 0))
            case Chunks(size, back, ahead, causal, wrap):
                if wrap and not causal: out = None, None
                else: out = plus(out, (0 if causal else tidy(1 - (ahead + 1) * size), tidy((back + 1) * size - 1)))
            case All() | At() | Spread(): out = None, None
            case Shift(by): out = plus(out, (by, by))
            case Choice(chains): out = plus(out, hull([_chain(c) for c in chains]))
            case Power(inner, count, None): out = plus(out, times(_chain(inner), count))
            case Power(inner, count, index): out = plus(out, _summed(_chain(inner), count, index))
            case Upto(inner, count): out = plus(out, hull([(0, 0), times(_chain(inner), count)]))
            case Clip(): pass
    return out


def _summed(x: Extent, count: Size, index: sp.Symbol) -> Extent:
    i = sp.Dummy("i", integer=True, nonnegative=True)
    lo, hi = (None if e is None else tidy(sp.summation(sp.sympify(e).subs(index, i), (i, 0, sp.sympify(count) - 1))) for e in x)
    return lo, hi


def _system(s: System, env: Mapping[Root, Extent]) -> Extent | None:
    """A side that still grows after a few trips is unbounded."""
    states = [extent(b, env) for b in s.starts]
    for trip in range(2 * len(states) + 2):
        inner: dict[Root, Extent] = {**env, **{Token(s.loop, k): e for k, e in enumerate(states) if e is not None}}
        there = [tuple((r, c) for r, c in b if r in inner or not (isinstance(r, Token) and r.loop == s.loop)) for b in s.outs]
        seen = [extent(b, inner) for b in there]
        if seen == states: break
        if trip >= len(states):
            seen = [p if p is None or q is None else (p[0] if p[0] == q[0] else None, p[1] if p[1] == q[1] else None)
                    for p, q in zip(seen, states)]
        states = seen
    return states[s.which]


def reads_ahead(x: Extent | None) -> bool:
    """May an output read an input that stands after it? A least offset whose sign is not known may."""
    return x is not None and (x[0] is None or not (sure(x[0]) or generally(x[0])))


def leak(graph: Graph, source: Value, sizes: Sizes, output: Value | None = None) -> tuple[str, ...]:
    """The places (`at`) from the source to the output along which the future leaks; () where it does not. Raises Unreadable."""
    seen: dict[int, tuple[list[Seen], list[Seen]]] = {}
    kept: list[Node] = []                         # an id is a node's only while the node lives

    def watch(n: Node, ins: list[Seen], outs: list[Seen], _: Reading) -> None:
        seen[id(n)] = ins, outs
        kept.append(n)

    reading = Reading(sizes, False, watch)
    reading.graph(graph, [reading.source(v) if v == source else reading.entry(v) for v in graph.ins])
    out = output if output is not None else graph.outs[0]
    return tuple(dict.fromkeys(place for place in _traced(graph, out, seen, True) if place))


def _future(x: Seen, v: Value) -> bool:
    at = spots(v)
    return any(not q.line.terms and bool(at) or q.line in [along(a.name) for a in at] and reads_ahead(extent(q.base)) for q in x.reads)


def _traced(graph: Graph, out: Value, seen: Mapping[int, tuple], ahead: bool) -> list[str]:
    """Back from a value; while `ahead`, along values that read the future, then along any that reads the source."""
    made = {v: (n, k) for n in graph.nodes for k, v in enumerate(n.outs)}
    places: list[str] = []
    while out in made:
        n, k = made[out]
        ins, outs = seen.get(id(n), ([], []))
        if not ins or not outs[k].reads or ahead and not places and not _future(outs[k], out): break
        early = [v for x, v in zip(ins, n.ins) if x.reads and (not ahead or _future(x, v))]
        if ahead and not early:
            if n.body is not None: places += reversed(_traced(n.body, n.body.outs[k], seen, True))
            ahead, early = False, [v for x, v in zip(ins, n.ins) if x.reads]
        places.append(n.at)
        if not early: break
        out = early[0]
    return places[::-1]
