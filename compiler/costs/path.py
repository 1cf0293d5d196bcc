"""Path length: how many steps lie between an input position and an output position that it may tell of.

The position graph has a node for each (op, position). Movement and pointwise ops weigh 0, an edge into a sum over a sequence,
window or chunk axis 1, a scan step 1 from input to state and from state to state, the bypass of a residual 0. The path length
is the maximum, over all pairs that the masks allow (those connected once every window grows as far as its mask lets it), of the
lightest path. Vaswani et al. 2017, table 1, "maximum path length"; Kolen and Kremer 2001, chapter 14.

A graph is read into terms (`reading`, `connections`); closed forms come from their two sides (`forms`), numbers from those, or,
where there is no form, from an exact push through the positions (`hops`, which alone needs numpy)."""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import sympy as sp

from plait.compiler.costs import forms
from plait.compiler.costs.affine import Size, Unreadable, same, tidy
from plait.compiler.costs.connections import SOURCE, Base, Chain, ends, symbols
from plait.compiler.costs.forms import NoForm, Solved
from plait.compiler.costs.leaks import Extent, extent, leak, reads_ahead
from plait.compiler.costs.reading import Reading
from plait.compiler.graph import Graph, Value
from plait.compiler.sizes import Free, Sizes

__all__ = ["Path", "Unreadable", "as_written", "leak", "reach", "reads_ahead", "stacked"]
UNREAD = "the output does not read this input"
WHOLE = 1024                                      # up to so many positions every source is followed
MOST_COPIES, FEW_COPIES = 64, 12                  # tried one by one where there is no closed form; few for more than 256 positions


@dataclass(frozen=True)
class Path:
    """exact: the closed form where one is known to be exact, for widths of 2 and more. value: the number; None while a dim is
    free, or not connected. connected: None while that depends on free dims (`why` says on what). copies: of a stack. reach:
    back, ahead and positions, each with exact and value. witness: (input, output), not connected, or farthest apart. assumed:
    some reach is data-dependent, and taken as all that the mask allows. needs: what must be 1 or more for the closed form to hold, for
    whoever puts other values into it."""
    exact: sp.Expr | None = None
    value: int | None = None
    connected: bool | None = None
    copies: sp.Expr | None = None
    copies_value: int | None = None
    reach: dict[str, dict[str, Any]] | None = None
    witness: tuple[int, int] | None = None
    assumed: bool = False
    why: str = ""
    needs: tuple[sp.Expr, ...] = ()


@dataclass(frozen=True)
class _Read:
    """An output as read for one source. `length`: of the output, None if it is one place."""
    base: Base
    n: Size
    length: Size | None
    assumed: bool

    @property
    def chain(self) -> Chain:
        if len(self.base) != 1 or self.base[0][0] != SOURCE: raise NoForm("several states at once")
        return self.base[0][1]


def _read(graph: Graph, source: Value, sizes: Sizes, output: Value | None, bound: bool) -> _Read:
    reading = Reading(sizes, bound)
    if source not in graph.ins: raise Unreadable(f"{source} is not an input of the graph")
    entry = [reading.source(v) if v == source else reading.entry(v) for v in graph.ins]
    k = 0 if output is None else graph.outs.index(output)
    seen = reading.graph(graph, entry)[k]
    base, at = reading.base(seen, graph.outs[k])
    n = entry[graph.ins.index(source)].reads[0].size
    assert n is not None
    return _Read(base, n, None if at is None else reading.number(at.size), reading.assumed)


def _numbers(graph: Graph, source: Value, sizes: Sizes, output: Value | None) -> _Read | None:
    """Read by numbers; None while a dim that counts is free."""
    try: r = _read(graph, source, sizes, output, True)
    except (Unreadable, Free): return None
    return r if isinstance(r.n, int) and (r.length is None or isinstance(r.length, int)) else None


NARROW = "the closed form is for widths of 2 and more"


def _narrow(r: _Read, sizes: Sizes, shift: Size = 0) -> bool:
    """Is some width 1, or is there no distance to go?"""
    distance = sizes.integer(sp.sympify(r.n) - 1 - shift)
    if distance is not None and distance < 1: return True
    dims = symbols(r.base) | symbols(sp.sympify(r.n))
    return any(sizes.integer(s) == 1 for s in dims) or any(sizes.integer(e) == 0 for e in ends(r.base))


def _needs(r: _Read, shift: Size = 0) -> tuple[sp.Expr, ...]:
    """What `_narrow` asks, as expressions that are 1 or more."""
    n = sp.sympify(r.n)
    widths = sorted(symbols(r.base) | symbols(n), key=str)
    return tuple(dict.fromkeys([n - 1 - shift, *(w - 1 for w in widths), *map(abs, ends(r.base))]))


def _kept(p: Path, exact: sp.Expr, needs: tuple[sp.Expr, ...], sizes: Sizes) -> Path:
    """A counted path with the closed form, if that holds here too."""
    try: return replace(p, exact=exact, needs=needs) if p.value is not None and sizes.value(exact) == p.value else p
    except ZeroDivisionError: return p


def as_written(graph: Graph, source: Value, sizes: Sizes, output: Value | None = None) -> Path:
    """The path through the graph as it stands. What cannot be read is null, with the reason."""
    try: r = _read(graph, source, sizes, output, False)
    except Unreadable as e: return _counted(graph, source, sizes, output, str(e))
    if not r.base: return Path(why=UNREAD)
    try:
        s = forms.solved(r.chain, r.n)
        exact, spare = forms.path(s, r.n)
    except NoForm as e: return _counted(graph, source, sizes, output, f"no closed form: {e}")
    needs = (*_needs(r, s.shift), *([sp.sympify(spare) + 1] if spare != sp.oo else []))
    if _narrow(r, sizes, s.shift): return _kept(_counted(graph, source, sizes, output, NARROW), exact, needs, sizes)
    room, length = sizes.integer(spare) if spare != sp.oo else 0, sizes.integer(r.n)
    connected = True if spare == sp.oo or forms.sure(tidy(spare)) else None if room is None else room >= 0
    witness = None if length is None else _ends(s, length, sizes, connected)
    why = "" if connected else f"connected where {sp.sympify(r.n) - 1} ≤ {tidy(spare + r.n - 1)}"
    return Path(exact if connected is not False else None, sizes.integer(exact) if connected else None, connected,
                reach=_reach(s, r.n, sizes), witness=witness, assumed=r.assumed, why=why, needs=needs)


def _ends(s: Solved, n: int, sizes: Sizes, connected: bool | None) -> tuple[int, int]:
    """The pair farthest apart: on the side that does not reach, else on the longer one."""
    need = n - 1 - sp.sympify(s.shift)
    sides = [(x, pair) for x, pair in ((s.right, (0, n - 1)), (s.left, (n - 1, 0))) if not forms.idle(x)]
    if not sides or n == 1: return 0, min(n - 1, sizes.integer(s.shift) or 0)
    def price(x):
        p, far = forms.closed(x, need)
        value = sizes.value(p) if far == sp.oo or connected or (sizes.value(far - need) or 0) >= 0 else None
        return float("inf") if value is None else value
    return max(sides, key=lambda side: price(side[0]))[1]


def _reach(s: Solved, n: Size, sizes: Sizes) -> dict[str, dict[str, Any]]:
    n = sp.sympify(n)
    back, ahead = forms.bounds(s.right), forms.bounds(s.left)
    whole, both = back == sp.oo or ahead == sp.oo, back == ahead == sp.oo
    # one side unbounded: a shift costs what it moves out; both: what it moves out may stand before or behind what sees everything
    lost = 0 if both else abs(sp.sympify(s.shift))
    back, ahead = (n - 1 if back == sp.oo else tidy(back + s.shift)), (n - 1 if ahead == sp.oo else tidy(ahead - s.shift))
    positions = n - lost if whole else sp.sympify(tidy(sp.sympify(back) + ahead + 1))
    if forms.sure(tidy(-sp.sympify(ahead))): ahead = 0                 # a shift: even the nearest input stands behind
    most = sizes.integer(n)
    def entry(e, top):
        v = sizes.integer(e)
        return {"exact": sp.sympify(e), "value": v if v is None or top is None else min(v, top)}
    edge = None if most is None else most - 1
    return {"back": entry(back, edge), "ahead": entry(ahead, edge),
            "positions": entry(positions, None if most is None else most - (sizes.integer(lost) or 0))}


# ---- by numbers, where there is no closed form ---------------------------------------------------------------------------
def _counted(graph: Graph, source: Value, sizes: Sizes, output: Value | None, why: str) -> Path:
    r = _numbers(graph, source, sizes, output)
    if r is None: return Path(why=why)
    if not r.base: return Path(why=UNREAD)
    import numpy as np  # only where numbers are asked that no form gives

    from plait.compiler.costs.hops import FAR, TooMany, Unbounded, hops
    n = int(r.n)
    at = np.arange(n) if n <= WHOLE else np.array([0, n - 1])
    try:
        plain, allowed = (hops(r.base, n, at, sizes.bound, how) for how in ("plain", "allowed"))
    except Free as e: return Path(assumed=r.assumed, why=f"{why}; {e} has no value")
    except TooMany as e: return Path(assumed=r.assumed, why=f"{why}; {e}")
    d = np.where(allowed < FAR, plain, -1)
    j, i = np.unravel_index(int(d.argmax()), d.shape)
    low, witness = int(d[j, i]), (int(at[j]), int(i))
    if low < 0: return Path(assumed=r.assumed, why="the masks allow no pair")
    reaches = _reached(plain < FAR, at, r.length) if n <= WHOLE else None
    if low >= FAR: return Path(None, None, False, reach=reaches, witness=witness, assumed=r.assumed, why=why)
    if n > WHOLE:
        ends_of = ((0, 0, "ahead"), (1, n - 1, "back"))
        try: high = max(_most(hops(r.base, n, [e], sizes.bound, how)[0], allowed[k]) for k, e, how in ends_of)
        except Unbounded: high = int(FAR)
        if high > low:
            most = f", at most {high}" if high < FAR else ""
            return Path(assumed=r.assumed, why=f"{why}; at {n} positions at least {low}{most}")
    return Path(None, low, True, reach=reaches, witness=witness, assumed=r.assumed, why=why)


def _most(hops, allowed) -> int:
    return int(max((h for h, a in zip(hops.tolist(), allowed.tolist()) if a < 1 << 28), default=0))


def _reached(connected, at, length: Size | None) -> dict[str, dict[str, Any]] | None:
    """Offsets and how many inputs one output reads at most, over all pairs that are connected."""
    if length is None or not connected.any(): return None
    j, i = connected.nonzero()
    offsets = i - at[j]
    def entry(v): return {"exact": None, "value": int(v)}
    return {"back": entry(max(0, offsets.max())), "ahead": entry(max(0, -offsets.min())), "positions": entry(connected.sum(0).max())}


# ---- stacked ---------------------------------------------------------------------------------------------------------------
def stacked(graph: Graph, source: Value, sizes: Sizes) -> Path | None:
    """The path when the graph is repeated the fewest times that connect every allowed pair. None: it cannot be repeated."""
    try: r = _read(graph, source, sizes, None, False)
    except Unreadable as e: return _stack(graph, source, sizes, str(e))
    if r.length is None or not same(r.length, r.n) or not r.base: return None
    try:
        s = forms.solved(r.chain, r.n)
        copies, exact = forms.stacked(s, r.n)
    except NoForm as e: return _stack(graph, source, sizes, f"no closed form: {e}")
    if _narrow(r, sizes):
        counted = _stack(graph, source, sizes, NARROW)
        return None if counted is None else _kept(counted, exact, _needs(r), sizes)
    count = sizes.integer(copies)
    return Path(exact, sizes.integer(exact), True, copies, max(1, count) if count is not None else None, assumed=r.assumed, needs=_needs(r))


def _stack(graph: Graph, source: Value, sizes: Sizes, why: str) -> Path | None:
    r = _numbers(graph, source, sizes, None)
    if r is None or not r.base: return Path(why=why)
    if r.length != r.n: return None
    n = int(r.n)
    if forms.growing_alone(r.base) is None:
        try: found = _filled(forms.solved(r.chain, n), n)
        except NoForm: found = None
        if found is not None: return Path(None, found[1], True, None, found[0], assumed=r.assumed, why=why)
    return _tried(r, n, sizes, why)


def _filled(s: Solved, n: int) -> tuple[int, int] | None:
    """(copies, path) by the two sides, where all their sizes are numbers."""
    sides = [x for x in (s.right, s.left) if not forms.idle(x)]
    if s.shift != 0 or not sides: return None
    numbers = [e for x in sides for a in x for e in (a.cost, a.reach, *(e for pack in a.packs for e in pack))]
    if not all(isinstance(e, sp.Integer) or e == sp.oo for e in numbers): return None
    per = min(forms.bounds(x) for x in sides)
    if per == 0: return None
    count = 1 if per == sp.oo else max(1, -(-(n - 1) // int(per)))
    found = [forms.filled(forms.power(x, count), n - 1) for x in sides]
    return None if None in found else (count, max(v for v in found if v is not None))


NEVER = "no number of copies connects every pair"


def _tried(r: _Read, n: int, sizes: Sizes, why: str) -> Path:
    """Copies one after another, until they connect or no longer reach farther."""
    if n > WHOLE: return Path(assumed=r.assumed, why=f"{why}; {n} positions are too many to follow each")
    import numpy as np

    from plait.compiler.costs.hops import FAR, Engine, TooMany
    grown = forms.growing_alone(r.base)
    plain, allowed = Engine(sizes.bound), Engine(sizes.bound, "allowed")
    h = np.full((n, n), FAR, np.int32)
    np.fill_diagonal(h, 0)
    g = h
    most = MOST_COPIES if n <= 256 else FEW_COPIES
    for copies in range(1, most + 1):
        before = h, g
        try:
            if grown is not None:
                for engine in (plain, allowed): engine.at[grown.index] = copies - 1
                h, g = plain.chain(grown.chain, h), allowed.chain(grown.chain, g)
            else: h, g = plain.base(r.base, {SOURCE: h}), allowed.base(r.base, {SOURCE: g})
        except Free as e: return Path(assumed=r.assumed, why=f"{why}; {e} has no value")
        except TooMany as e: return Path(assumed=r.assumed, why=f"{why}; {e}")
        d = np.where(g < FAR, h, -1)
        j, i = np.unravel_index(int(d.argmax()), d.shape)
        if d[j, i] < 0:                           # moved out, all of them
            if copies == 1: return Path(assumed=r.assumed, why="the masks allow no pair")
            return Path(None, None, False, assumed=r.assumed, why=NEVER)
        witness = int(j), int(i)
        if d[j, i] < FAR: return Path(None, int(d[j, i]), True, None, copies, witness=witness, assumed=r.assumed, why=why)
        if grown is None and all(np.array_equal(x < FAR, y < FAR) for x, y in zip((h, g), before)):
            return Path(None, None, False, witness=witness, assumed=r.assumed, why=NEVER)
    return Path(assumed=r.assumed, why=f"{why}; not connected by {most} copies")


def reach(graph: Graph, source: Value, sizes: Sizes, output: Value | None = None) -> Extent | None:
    """The least and the greatest offset i − j at which output i reads input j; None in a place: unbounded; None: it reads
    nothing. `reads_ahead` of it says whether the future may be read. Raises Unreadable."""
    return extent(_read(graph, source, sizes, output, False).base)
