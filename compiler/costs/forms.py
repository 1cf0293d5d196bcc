"""Closed forms: `hops(offset)` of a chain whose windows are contiguous and hold offset 0 is a step function on either side, the
same at every position and in every order of the layers. No numpy here. Widths of 1 connect nothing: forms are for 2 and more,
and for distances of 1 and more."""
from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import sympy as sp

from plait.compiler.costs.affine import Size, generally, same, sure, tidy
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
    Factor,
    Power,
    Scan,
    Shift,
    Spread,
    Upto,
)

oo = sp.oo
ZERO, ONE = sp.Integer(0), sp.Integer(1)


class NoForm(Exception):
    """The term has no closed form of this kind; its numbers come from the engine."""


@dataclass(frozen=True)
class Alt:
    """`cost` hops are due and carry `reach` positions; then (hops, positions, how many) may be bought, in any order."""
    cost: sp.Expr
    reach: sp.Expr
    packs: tuple = ()


Side = tuple[Alt, ...]                            # the lightest of them counts
HERE: Side = (Alt(ZERO, ZERO),)


def side(chain: Chain, right: bool) -> Side:
    """What a chain reaches on one side: right, outputs behind the input (i > j); left, outputs before it."""
    return reduce(then, (_factor(f, right) for f in chain), HERE)


def _factor(f: Factor, right: bool) -> Side:
    match f:
        case Band(lo, hi, step, weight, window):
            if not window and not {lo, hi} <= {None, 0}: raise NoForm("a mask that is narrow itself")
            far = (oo if hi is None else sp.sympify(hi)) if right else (oo if lo is None else -sp.sympify(lo))
            if step != 1 and far != 0: raise NoForm("a dilated window outside a contiguous group")
            if far != oo and not sure(tidy(far)): raise NoForm("a window without its own place")
            return (Alt(sp.Integer(weight), far),)
        case Scan(forward): return (Alt(ONE, ZERO, ((ONE, ONE, oo),) if forward == right else ()),)
        case All(weight): return (Alt(sp.Integer(weight), oo),)
        case Spread(): return HERE
        case Choice(chains): return pareto(tuple(a for c in chains for a in side(c, right)))
        case Power(chain, times, None): return power(side(chain, right), times)
        case Power(chain, times, index): return dilated(chain, times, index, right)
        case Upto(chain, times):
            x = side(chain, right)
            if len(x) != 1 or x[0].packs: raise NoForm("any number of copies of a choice")
            return (Alt(ZERO, ZERO, merge(((x[0].cost, x[0].reach, sp.sympify(times)),))),)
        case At() | Shift() | Clip() | Chunks(): raise NoForm("positions that are not alike")


def then(x: Side, y: Side) -> Side:
    return pareto(tuple(Alt(a.cost + b.cost, a.reach + b.reach, merge(a.packs + b.packs)) for a in x for b in y))


def merge(packs) -> tuple:
    count: dict = {}
    for c, r, k in packs:
        if r != 0: count[c, r] = count.get((c, r), 0) + k
    return tuple(sorted(((c, r, k) for (c, r), k in count.items()), key=str))


def power(x: Side, times: Size) -> Side:
    times = sp.sympify(times)
    if len(x) == 1:
        a, = x
        return (Alt(a.cost * times, oo if a.reach == oo else a.reach * times, merge(tuple((c, r, k * times) for c, r, k in a.packs))),)
    twice = then(x, x)
    if set(twice) == set(x): return x                      # residual scans, residual attention: L copies are one
    if not times.is_Integer or times > 64: raise NoForm("a symbolic number of copies of a choice")
    return reduce(then, [x] * int(times), HERE)


def dilated(chain: Chain, times: Size, index: sp.Symbol, right: bool) -> Side:
    """Windows of growing dilation, one after another: contiguous iff no dilation is beyond what the smaller ones cover."""
    i, j = sp.Dummy("i", integer=True, nonnegative=True), sp.Dummy("j", integer=True, nonnegative=True)
    r, step, cost = growing(chain, right)
    r, step = sp.sympify(r).subs(index, i), sp.sympify(step).subs(index, i)
    if r == 0: return (Alt(cost * times, ZERO),)
    if r == oo: raise NoForm("an open band that grows")
    gap = tidy(1 + summed(r.subs(i, j), j, i) - step)
    if not sure(gap): raise NoForm("gaps")
    return (Alt(cost * times, summed(r, i, sp.sympify(times))),)


def growing(chain: Chain, right: bool) -> tuple:
    """The reach, the step and the price of the one window in a chain."""
    windows = [f for f in chain if isinstance(f, Band) and (f.lo, f.hi) != (0, 0)]
    if len(windows) != 1 or not all(isinstance(f, Band) for f in chain): raise NoForm("a residual around a dilated window: digit sums")
    w, = windows
    if w.lo is None or w.hi is None: raise NoForm("an open band that grows")
    return (w.hi if right else -sp.sympify(w.lo)), w.step, sp.Integer(sum(f.weight for f in chain if isinstance(f, Band)))


def ratio(r: sp.Expr, i: sp.Symbol) -> sp.Expr | None:
    """The base b of a geometric r = r₀·b^i."""
    now, power = sp.expand(sp.expand_power_exp(r)), sp.Dummy()
    after = sp.expand(sp.expand_power_exp(r.subs(i, i + 1)))
    for p in now.atoms(sp.Pow):                            # cancel knows rational functions: the one power of i becomes a letter
        if i in p.free_symbols: now, after = now.xreplace({p: power}), after.xreplace({p: power})
    b = sp.cancel(after / now)
    return None if {i, power} & b.free_symbols else b


def summed(r: sp.Expr, i: sp.Symbol, times: sp.Expr) -> sp.Expr:
    """Σ r over i < times."""
    if i not in r.free_symbols: return r * times
    b = ratio(r, i)
    if b is not None: return sp.cancel(r.subs(i, 0) / (b - 1)) * (b ** times - 1)
    total = sp.summation(r, (i, 0, times - 1))
    if total.has(sp.Sum): raise NoForm("dilations that do not add up")
    return sp.factor(total)


def pareto(alts: Side) -> Side:
    """Drop what another alternative dominates; join `stay` and `stay, or pay c to reach r` into one optional pack."""
    alts = tuple(dict.fromkeys(alts))
    if len(alts) == 1: return alts
    for a in alts:
        for b in alts:
            if a is not b and a.cost == 0 and a.reach == 0 and not a.packs and not b.packs and b.cost.is_positive:
                rest = tuple(c for c in alts if c is not a and c is not b)
                return pareto((Alt(a.cost, a.reach, merge(((b.cost, b.reach, ONE),))), *rest))
    return tuple(b for k, b in enumerate(alts)
                 if not any(beats(a, b) and not (beats(b, a) and m > k) for m, a in enumerate(alts) if m != k))


def beats(a: Alt, b: Alt) -> bool:
    more = {(c, r): k for c, r, k in a.packs}
    return sure(tidy(b.cost - a.cost)) and (a.reach == oo or b.reach != oo and sure(tidy(a.reach - b.reach))) and all(
        (c, r) in more and (more[c, r] == oo or k != oo and sure(tidy(more[c, r] - k))) for c, r, k in b.packs if a.reach != oo)


def total(a: Alt) -> sp.Expr:
    return a.reach + sum((r * k for _, r, k in a.packs), ZERO)


def closed(x: Side, offset: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
    """(hops at that offset, the farthest offset reached). Exact when all packs of an alternative cost the same, since then the
    longest are bought first."""
    if len(x) > 1 and generally(tidy(offset)): x = tuple(a for a in x if total(a) != 0) or x        # who stays does not get there
    if len(x) == 1: return _bought(x[0], offset), total(x[0])
    if all(total(a) == oo for a in x): return sp.Min(*(_bought(a, offset) for a in x)), oo
    raise NoForm("alternatives of different reach")


def _bought(a: Alt, offset: sp.Expr) -> sp.Expr:
    if a.reach == oo: return a.cost
    if len({c for c, _, _ in a.packs}) > 1: raise NoForm("packs of different price: a knapsack")
    need, out = offset - a.reach, a.cost
    for c, r, k in ordered(a.packs):
        rest = need if a.reach == 0 and need == offset else sp.Max(0, need)
        if r == oo:
            far = generally(tidy(need if need == offset else need - 1))
            return out + c * (ONE if far else sp.Piecewise((1, need > 0), (0, True)))
        steps = rest / r if r == 1 else sp.ceiling(rest / r)
        out += c * (steps if k == oo or len(a.packs) == 1 else sp.Min(k, steps))
        need = need - r * k if k != oo else ZERO
    return out


def ordered(packs) -> list:
    """The widest first, by provable comparison."""
    out: list = []
    for p in packs:
        k = 0
        while k < len(out):
            d = oo if p[1] == oo else -oo if out[k][1] == oo else tidy(p[1] - out[k][1])
            if d == oo or d != -oo and sure(d) and not sure(-d): break
            if d != -oo and not sure(-d): raise NoForm("which window is wider is not known")
            k += 1
        out.insert(k, p)
    return out


def filled(x: Side, offset: int) -> int | None:
    """The number at an offset, where all sizes are numbers and packs of any price: filled like a knapsack. None: not reached."""
    best: int | None = None
    for a in x:
        need, rate = int(offset - a.reach) if a.reach != oo else 0, any(r == 1 and k == oo for _, r, k in a.packs)
        far = [0]                                          # far[t]: most positions for t hops
        for c, r, k in a.packs:
            if k == oo and r == 1 or need <= 0: continue
            for _ in range(1 if r == oo else int(min(k, -(-need // r)))):
                far += [far[-1]] * int(c)
                far = [max(far[t], min(need, far[t - int(c)] + r) if t >= c else 0) for t in range(len(far))]
        for t, f in enumerate(far):
            if f >= need or rate:
                cost = int(a.cost) + t + max(0, need - int(f))
                best = cost if best is None else min(best, cost)
    return best


# ---- a whole chain -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Solved:
    """A chain by its two sides; `shift`: positions that it moves everything by; `copies`: how it is made longer."""
    right: Side
    left: Side
    shift: Size = 0
    chain: Chain = ()


def solved(chain: Chain, n: Size) -> Solved:
    shift: Size = 0
    rest: list[Factor] = []
    for f in chain:
        if isinstance(f, Shift):
            if not same(f.length, n): raise NoForm("sequences of different lengths")
            shift = tidy(shift + f.by)
        else: rest.append(f)
    if rest and isinstance(rest[-1], At):
        last = rest.pop()
        if not same(last.place, last.length - 1): raise NoForm("one place in the middle")      # type: ignore[union-attr]
        if shift != 0: raise NoForm("a shift before one place")
        return Solved(side(tuple(rest), True), HERE, 0, ())
    out = Solved(side(tuple(rest), True), side(tuple(rest), False), shift, tuple(rest))
    everything = all(a.reach == oo for a in (*out.right, *out.left))
    if shift != 0 and not everything and not (sure(shift) and idle(out.left)): raise NoForm("a shift among two-sided windows")
    return out


def idle(x: Side) -> bool:
    return all(total(a) == 0 for a in x)


def bounds(x: Side) -> sp.Expr:
    """The farthest offset of all alternatives."""
    far = [total(a) for a in x]
    return oo if oo in far else sp.Max(*far) if len(far) > 1 else far[0]


def path(s: Solved, n: Size) -> tuple[sp.Expr, sp.Expr]:
    """(the longest lightest path, how much farther than needed the farther side that must connect reaches: ≥ 0 if it does).
    At the far ends, since hops only grow with distance."""
    need = sp.sympify(n) - 1 - s.shift
    found = [closed(x, need) for x in (s.right, s.left) if not idle(x)]
    if not found: return sp.Min(*(a.cost for a in s.right)), oo
    spare = [far - need for _, far in found if far != oo]
    return _most([p for p, _ in found]), (_least(spare) if spare else oo)


def _most(xs: list) -> sp.Expr:
    out: list = []
    for x in xs:
        if any(sure(tidy(y - x)) for y in out): continue
        out = [y for y in out if not sure(tidy(x - y))] + [x]
    return sp.Max(*out, evaluate=False) if len(out) > 1 else out[0]


def _least(xs: list) -> sp.Expr:
    out: list = []
    for x in xs:
        if any(sure(tidy(x - y)) for y in out): continue
        out = [y for y in out if not sure(tidy(y - x))] + [x]
    return sp.Min(*out, evaluate=False) if len(out) > 1 else out[0]


def stacked(s: Solved, n: Size) -> tuple[sp.Expr, sp.Expr]:
    """(copies, path): the fewest copies that connect every allowed pair, and the path then."""
    n = sp.sympify(n)
    if s.shift != 0: raise NoForm("a stack of shifts")
    grown = growing_alone(((SOURCE, s.chain),))
    if grown is not None: return extended(grown, n)
    sides = [x for x in (s.right, s.left) if not idle(x)]
    if not sides: return ONE, sp.Min(*(a.cost for a in s.right))
    per = _least([b for b in map(bounds, sides) if b != oo] or [oo])
    if per == 0 or per.is_zero: raise NoForm("it reaches nothing")
    copies = ONE if per == oo else sp.ceiling((n - 1) / per) if per != 1 else n - 1
    return copies, _most([closed(power(x, copies) if copies != 1 else x, n - 1)[0] for x in sides])


def growing_alone(base: Base) -> Power | None:
    """The indexed repeat that a term is: stacked, it runs on instead of starting anew."""
    if len(base) != 1 or base[0][0] != SOURCE or len(base[0][1]) != 1: return None
    p = base[0][1][0]
    return p if isinstance(p, Power) and p.index is not None else None


def extended(p: Power, n: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
    """An indexed repeat runs on: the fewest trips whose windows, geometrically growing, add up to n − 1."""
    i = sp.Dummy("i", integer=True, nonnegative=True)
    assert p.index is not None
    found = []
    for right in (True, False):
        r, _, cost = growing(p.chain, right)
        r = sp.sympify(r).subs(p.index, i)
        if r == 0: continue
        dilated(p.chain, p.times, p.index, right)          # contiguous, or it has no form
        b = ratio(r, i)
        if b is None: raise NoForm("dilations that do not grow geometrically")
        found.append((sp.ceiling(sp.log(sp.cancel((n - 1) * (b - 1) / r.subs(i, 0) + 1)) / sp.log(b)), cost))
    if not found: raise NoForm("it reaches nothing")
    trips = _most([t for t, _ in found])
    return trips, trips * found[0][1]
