"""Which positions of a value read which positions of a source, and at what price: the terms that a graph is read into.

A *chain* is a tuple of factors, applied one after another to `hops[position]`. A *base* is what a value's positions read: for
each root (the source, or the state of a loop that is being read) one chain. Terms know nothing of numbers or of closed forms;
`hops` evaluates them, `forms` solves them."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import sympy as sp

from plait.compiler.costs.affine import Size, greater, smaller, sure, tidy


@dataclass(frozen=True)
class Band:
    """Output i reads inputs j with i − j in {lo, lo + step, …, hi}; None: unbounded. `window`: it is as wide as an axis that could
    be longer; what is narrow otherwise is so by a mask."""
    lo: Size | None
    hi: Size | None
    step: Size = 1
    weight: int = 1
    window: bool = False


@dataclass(frozen=True)
class Scan:
    """A recurrence: input to state weighs 1, state to state weighs 1."""
    forward: bool = True


@dataclass(frozen=True)
class Chunks:
    """Output i reads the inputs of its own chunk of `size`, of `back` chunks before it and of `ahead` after it, in one sum; causal: none of
    them behind itself. wrap: the chunks are a ring."""
    size: Size
    back: int
    ahead: int
    causal: bool = False
    wrap: bool = False


@dataclass(frozen=True)
class All:
    """One place that reads every position."""
    weight: int = 1


@dataclass(frozen=True)
class At:
    """One place that reads one position."""
    place: Size
    length: Size


@dataclass(frozen=True)
class Spread:
    """Every position reads the one place."""
    length: Size


@dataclass(frozen=True)
class Shift:
    """Output i of `length` reads input i − by, if there is one. Weighs 0."""
    by: Size
    length: Size


@dataclass(frozen=True)
class Clip:
    """Only positions from lo to hi; None: unbounded."""
    lo: Size | None
    hi: Size | None


@dataclass(frozen=True)
class Choice:
    """The lightest of several chains."""
    chains: tuple[Chain, ...]


@dataclass(frozen=True)
class Power:
    """The chain `times` times; `index` (in its sizes) counts 0, 1, …"""
    chain: Chain
    times: Size
    index: sp.Symbol | None = None


@dataclass(frozen=True)
class Upto:
    """The chain any number of times, at most `times`."""
    chain: Chain
    times: Size


@dataclass(frozen=True)
class Token:
    """State `k` of the loop of that number, while it is being read."""
    loop: int
    k: int


@dataclass(frozen=True)
class System:
    """State `which` of a loop after `times` trips: `outs` are the states after a trip, over tokens and what lies around."""
    starts: tuple[Base, ...]
    outs: tuple[Base, ...]
    loop: int
    times: Size
    index: sp.Symbol | None
    which: int


Factor = Band | Scan | Chunks | All | At | Spread | Shift | Clip | Choice | Power | Upto
Chain = tuple[Factor, ...]
Root = str | Token | System
Base = tuple[tuple[Root, Chain], ...]
SOURCE = "source"
START: Base = ((SOURCE, ()),)
STEP = Band(0, 0)                                 # into a sum, at the same position


def then(base: Base, *factors: Factor) -> Base:
    return tuple((root, _join(chain, factors)) for root, chain in base)


def _join(chain: Chain, factors: Chain) -> Chain:
    for f in factors:
        if isinstance(f, Band) and (f.lo, f.hi, f.weight) == (0, 0, 0): continue
        if chain and isinstance(chain[-1], Shift) and isinstance(f, Shift) and _nothing_lost(chain[-1], f):
            by = tidy(chain[-1].by + f.by)
            chain = (*chain[:-1], Shift(by, f.length))
        else: chain = (*chain, f)
    return chain


def _nothing_lost(first: Shift, second: Shift) -> bool:
    """Is the second a cut of what the first made? Then the two are one shift."""
    return sure(-second.by) and sure(first.length + second.by - second.length)


def either(bases: Iterable[Base]) -> Base:
    """The lighter of several, root by root; their common beginning is factored out, and what another dominates falls."""
    found: dict[Root, list[Chain]] = {}
    for base in bases:
        for root, chain in base: found.setdefault(root, []).append(chain)
    return tuple((root, choice(chains)) for root, chains in found.items())


def choice(chains: list[Chain]) -> Chain:
    chains = list(dict.fromkeys(chains))
    if len(chains) == 1: return chains[0]
    k = 0
    while all(len(c) > k and c[k] == chains[0][k] for c in chains): k += 1
    prefix, flat = chains[0][:k], []
    for c in chains:
        tail = c[k:]
        flat += [(*d, *tail[1:]) for d in tail[0].chains] if tail and isinstance(tail[0], Choice) else [tail]
    kept: list[Chain] = []
    for c in dict.fromkeys(flat):
        for d in list(kept):
            joint = _union(c, d)
            if joint is not None: kept, c = [e for e in kept if e != d], joint
        if any(dominates(d, c) for d in kept): continue
        kept = [d for d in kept if not dominates(c, d)] + [c]
    return (*prefix, *kept[0]) if len(kept) == 1 else (*prefix, Choice(tuple(kept)))


def _union(p: Chain, q: Chain) -> Chain | None:
    """Two bands side by side are one."""
    if len(p) != 1 or len(q) != 1 or not isinstance(p[0], Band) or not isinstance(q[0], Band): return None
    f, g = p[0], q[0]
    def meets(hi, lo): return hi is None or lo is None or sure(hi + 1 - lo)
    if (f.step, g.step, f.weight) != (1, 1, g.weight) or not (meets(f.hi, g.lo) and meets(g.hi, f.lo)): return None
    lo = None if f.lo is None or g.lo is None else smaller(f.lo, g.lo)
    hi = None if f.hi is None or g.hi is None else greater(f.hi, g.hi)
    if any(isinstance(e, sp.Max | sp.Min) for e in (lo, hi)): return None
    for e in (f, g):                              # an end that a mask set must not be taken for one that grows
        if f.window != g.window and not e.window and (lo not in (None, 0) and lo == e.lo or hi not in (None, 0) and hi == e.hi): return None
    return (Band(lo, hi, 1, f.weight, f.window or g.window),)


# ---- dominance: a cheap and sufficient test ------------------------------------------------------------------------------
def dominates(p: Chain, q: Chain) -> bool:
    """Is every pair that q connects connected by p, and no dearer?"""
    if q[:len(p)] == p:
        rest = q[len(p):]
        if all(isinstance(f, Band) and (f.lo, f.hi) == (0, 0) or isinstance(f, Clip) for f in rest): return True
        # the same for all positions already: nothing that comes after is lighter
        if len(p) > 1 and isinstance(p[-1], Spread) and isinstance(p[-2], All) and not _moves(rest): return True
    inner, outer = _span(p, True), _span(q, False)
    if inner is None or outer is None: return False
    return sure(outer[2] - inner[2]) and _within(outer[1], inner[1]) and _within(outer[0], inner[0])


def _moves(chain: Chain) -> bool:
    """Can it end at other places than it began, or leave some empty? (Then it is not only dearer.)"""
    return any(isinstance(f, All | At | Spread) for f in chain)


def _within(x: Size | None, y: Size | None) -> bool:
    return y is None or (x is not None and sure(y - x))


def _span(chain: Chain, inner: bool) -> tuple | None:
    """(reach ahead, reach back, price). Inner: all that it surely connects; outer: all that it may connect, at the least price."""
    ahead: Size | None = 0
    back: Size | None = 0
    price: Size = 0
    for f in chain:
        match f:
            case Band(lo, hi, step, weight, window):
                if inner and not window and not {lo, hi} <= {None, 0}: return None         # a wider window would reach beyond
                if inner and (step != 1 or not (lo is None or sure(-lo)) or not (hi is None or sure(hi))): return None
                if not inner and step != 1 and not (lo is not None and hi is not None and sure(step)): return None
                ahead = None if ahead is None or lo is None else tidy(ahead - lo)
                back = None if back is None or hi is None else tidy(back + hi)
                price += weight
            case All(weight): ahead, back, price = None, None, price + weight
            case Spread(): pass
            case Clip() if not inner: pass
            case Scan(forward) if not inner:
                ahead, back, price = (ahead, None, price + 1) if forward else (None, back, price + 1)
            case Choice(chains) if not inner:
                spans = [_span(c, False) for c in chains]
                if any(s is None for s in spans): return None
                found = [s for s in spans if s is not None]
                least = next((s[2] for s in found if all(sure(t[2] - s[2]) for t in found)), 0)
                far = [next((s[k] for s in found if all(_within(t[k], s[k]) for t in found)), None) for k in (0, 1)]
                ahead = None if ahead is None or far[0] is None else tidy(ahead + far[0])
                back = None if back is None or far[1] is None else tidy(back + far[1])
                price = tidy(price + least)
            case _: return None
    return ahead, back, price


# ---- loops ---------------------------------------------------------------------------------------------------------------
def copies(starts: tuple[Base, ...], outs: tuple[Base, ...], loop: int, times: Size, index: sp.Symbol | None,
           joint: Base | None) -> list[Base]:
    """The states after `times` trips. `joint`: what a trip makes of one state given to all, if it gives the same to all."""
    if len(outs) == 1 and not hangs(outs[0], loop, inside=True):
        mine = dict(outs[0]).get(Token(loop, 0))
        around = tuple((r, c) for r, c in outs[0] if r != Token(loop, 0))
        if mine is None and not _indexed(around, index): return [around]
        if mine is not None and not around: return [then(starts[0], *_power(mine, times, index))]
        if mine is not None and not _indexed(outs[0], index):
            late = tuple((r, choice([c, (*c, *mine)]) if dominates(c, (*c, *mine)) else (*c, Upto(mine, times - 1))) for r, c in around)
            return [either([then(starts[0], *_power(mine, times, index)), late])]
    elif joint is not None and len(set(starts)) == 1 and [r for r, _ in joint] == [Token(loop, 0)]:
        return [then(starts[0], *_power(joint[0][1], times, index))] * len(outs)
    return [((System(starts, outs, loop, times, index, k), ()),) for k in range(len(outs))]


def hangs(base: Base, loop: int, inside: bool = False) -> bool:
    """Does a base read a state of a loop? `inside`: within the loops that it reads, only."""
    return any(isinstance(root, System) and any(hangs(b, loop) for b in (*root.starts, *root.outs))
               or isinstance(root, Token) and root.loop == loop and not inside for root, _ in base)


def _indexed(base: Base, index: sp.Symbol | None) -> bool:
    return index is not None and index in symbols(base)


def symbols(term) -> frozenset[sp.Symbol]:
    """The dims in the sizes of a term."""
    if isinstance(term, sp.Expr): return frozenset(term.free_symbols)
    parts = term if isinstance(term, tuple) else [getattr(term, f) for f in getattr(term, "__dataclass_fields__", ())]
    return frozenset().union(*map(symbols, parts))


def ends(term) -> list[sp.Expr]:
    """The ends of the bands of a term that are not plain numbers."""
    if isinstance(term, Band): return [e for e in (term.lo, term.hi) if isinstance(e, sp.Expr)]
    parts = term if isinstance(term, tuple) else [getattr(term, f) for f in getattr(term, "__dataclass_fields__", ())]
    return [e for p in parts for e in ends(p)]


def _power(chain: Chain, times: Size, index: sp.Symbol | None) -> Chain:
    indexed = index is not None and index in symbols(chain)
    return chain if not chain or times == 1 and not indexed else (Power(chain, times, index if indexed else None),)
