"""The (max, +) power of a loop's state matrix: when its states are there after many trips, each waiting for others at its own rate.

A trip adds step[i][k] on the way from state i to state k. The longest walk of many steps stays at one state's own loop, but for a step
to it and a step away from it (Cohen, Dubois, Quadrat and Viot 1985, where the heaviest circle decides: here it is a state's own; that
this is so is checked against trips that are walked). Where trips differ by their number there is one state that others wait for."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import sympy as sp

from plait.compiler.costs.depth import Weigh, chain
from plait.compiler.costs.maxplus import NEVER, NOW, Late, covers, expression, late, latest, plus, times, written
from plait.compiler.prims import Loop
from plait.compiler.sizes import evaluate

WALKED = 6                                                   # trips that are walked one by one, to check or where there are no more
LONGEST = 2000                                               # terms that are worth comparing
SIZES = (2, 700, 3, 37, 5, 90, 11, 1009, 7, 64, 13)


def at_rates(op: Loop, entry: Sequence[Late], weigh: Weigh) -> list[Late]:
    """When the results of a loop are there, each by itself, of a forward or a backward pass: states that wait for each other at several
    rates (gradients, their sums, streams that are made again), pieces that hand out early what they make early.

    Pieces run one after another, each as long as its whole. Else a trip waits for the states of the one before it and for what it reads
    from outside, each in its own time. A scan step weighs at least 1, from what it reads to the states and from state to state."""
    return _pieces(op, entry, weigh) if op.axis.role == "chunk" else _states(op, entry, weigh)


def _pieces(op: Loop, entry: Sequence[Late], weigh: Weigh) -> list[Late]:
    if not latest(entry): return [NEVER] * len(op.body.outs)
    one = chain(op.body, entry, weigh, at_rates)
    keys = [v.kind == "index" and not v.axes for v in op.body.ins]
    each = chain(op.body, [NEVER if k else NOW for k in keys], weigh, at_rates)                # once the piece before is through
    before = plus(latest([NOW, *one]), times(latest([NOW, *each]), op.axis.size - 2))
    return [latest([x, plus(before, y or NOW)]) for x, y in zip(one, each)]


def _states(op: Loop, entry: Sequence[Late], weigh: Weigh) -> list[Late]:
    count, outside = op.carried, list(entry[op.carried:])
    ways = [chain(op.body, [NOW if k == i else NEVER for k in range(len(entry))], weigh, at_rates) for i in range(count)]
    read = chain(op.body, [NEVER] * count + outside, weigh, at_rates)
    least = late(1) if op.axis.role == "sequence" else NOW

    def stepped(x: Late, base: Late) -> Late: return latest([x, plus(base, least)]) if x else NEVER
    step = [[stepped(way[k], NOW) for k in range(count)] for way in ways]
    rates = Rates(op, step, [stepped(x, latest(outside)) for x in read[:count]], [e or NOW for e in entry[:count]])
    return [*after(rates), *handed_out(rates, [way[count:] for way in ways], read[count:])]


@dataclass(frozen=True)
class Rates:
    """Of a loop: step[i][k], from state i to state k in one trip; brought[k], when what a trip reads from outside has come to state k;
    start[k], when the state is there at first."""
    op: Loop
    step: list[list[Late]]
    brought: list[Late]
    start: list[Late]

    def trip(self, now: list[Late], t: int | None = None) -> list[Late]:
        """The states after one more trip; t: its number, where trips differ."""
        states = range(len(now))
        return [latest([*(plus(now[i], self.at(self.step[i][k], t)) for i in states if self.step[i][k]), self.at(self.brought[k], t)])
                for k in states]

    def at(self, x: Late, t: int | None) -> Late:
        """In trip number t, from 0 on; negative: from the end."""
        if t is None or not self.indexed(x): return x
        n = self.op.axis.size
        k = sp.Integer(t) if t >= 0 else n + t
        return latest(late(expression(a).subs(self.op.index, n - 1 - k if self.op.reverse else k)) for a in x)

    def indexed(self, x: Late) -> bool:
        return bool(x) and self.op.index is not None and self.op.index in written(x).free_symbols


def after(r: Rates, last: int = 0) -> list[Late]:
    """When each state is there after all trips but the `last` ones (0 or 1). NotImplementedError where no closed form is known."""
    n = r.op.axis.size
    if n.is_Integer and n <= WALKED:
        now = list(r.start)
        for t in range(int(n) - last): now = r.trip(now, t)
        return now
    if any(r.indexed(x) for row in [*r.step, r.brought] for x in row): return _differing(r, last)
    return _closed(r, last)


def _closed(r: Rates, last: int) -> list[Late]:
    """The longest walks with few steps beside those at one state, held against the first trips. (Where there are fewer trips than such
    steps, the result may be a little too large.)"""
    for away in (1, 2, 3):
        now, right = list(r.start), True
        for t in range(1, WALKED):
            now = r.trip(now)
            right = right and (t <= away or all(map(_equal, now, _stayed(r, sp.Integer(t), away))))
        if right: return _stayed(r, r.op.axis.size - last, away)
    raise NotImplementedError("the states of this loop wait for each other in a longer circle")


def _stayed(r: Rates, trips, away: int) -> list[Late]:
    """Each state after so many trips (a number or an expression), by the longest walk that goes to a state in at most one trip, stays
    there, and leaves in at most so many."""
    states = range(len(r.start))
    reading = [j for j in states if any(r.step[j][k] for k in states if k != j)]               # others wait for these
    # what the last trip brings is no later than what the first brought, if that stayed
    found: list[list[Late]] = [[] if r.step[k][k] else [x] for k, x in enumerate(r.brought)]
    for j in states:
        own = r.step[j][j]
        if not own: continue
        later = latest([*(plus(r.start[i], r.step[i][j]) for i in reading if i != j and r.step[i][j]), r.brought[j]])
        for arrived, used in ((r.start[j], 0), (later, 1)):
            if not arrived: continue
            way = [NOW if k == j else NEVER for k in states]
            for q in range(away + 1 if j in reading else 1):
                if q: way = [latest(plus(way[i], r.step[i][k]) for i in reading if way[i] and r.step[i][k]) for k in states]
                stayed = plus(arrived, times(own, trips - used - q))
                for k in states:
                    if way[k] and (k != j or not q): found[k].append(plus(stayed, way[k]))
    return [latest(x) for x in found]


def _equal(x: Late, y: Late) -> bool:
    """By their alternatives, or, where a maximum inside hides them, at sizes without a pattern."""
    if all(any(covers(b, a) for b in y) for a in x) and all(any(covers(b, a) for b in x) for a in y): return True
    p, q = written(x), written(y)
    if max(map(_length, (p, q))) > LONGEST: raise NotImplementedError("too many sizes that nothing orders")
    symbols = sorted(p.free_symbols | q.free_symbols, key=str)
    points = [dict(zip(symbols, [SIZES[(k * step + step) % len(SIZES)] for k in range(len(symbols))])) for step in (1, 3, 5, 7)]
    return bool(x) == bool(y) and all(evaluate(p, at) == evaluate(q, at) for at in points)


def _length(e: sp.Expr) -> int:
    """The number of terms of an expression, counted as far as it matters."""
    return sum(1 for _ in islice(sp.preorder_traversal(e), LONGEST + 1))


# -- trips that differ -----------------------------------------------------------------------------------------------------------
def _differing(r: Rates, last: int) -> list[Late]:
    states = range(len(r.start))
    moving = [i for i in states if any(r.step[i][k] for k in states if k != i)]
    if len(moving) > 1 or any(r.step[i][moving[0]] for i in states if moving and i != moving[0]):
        raise NotImplementedError("the states of a loop whose trips differ wait for each other")
    return [_collected(r, moving, k, last) for k in states]


def _collected(r: Rates, moving: list[int], k: int, last: int) -> Late:
    """A state that waits for itself, for what each trip reads, and, if another one moves, for that one."""
    own, first = r.step[k][k], [r.at(r.brought[k], 0)]
    found = [r.at(r.brought[k], -1 - last)]
    for i in moving:
        if i == k or not r.step[i][k]: continue
        first.append(plus(r.start[i], r.at(r.step[i][k], 0)))
        found.append(plus(_collected(r, moving, i, last + 1), r.at(r.step[i][k], -1 - last)))
    if own: found += [plus(r.start[k], _grown(r, own, 0, last)), *(plus(f, _grown(r, own, 1, last)) for f in first if f)]
    return latest(found)


def _grown(r: Rates, x: Late, first: int, last: int) -> Late:
    """A weight in every trip, one after another, but for the first or last ones."""
    n = r.op.axis.size
    if not r.indexed(x): return times(x, n - first - last)
    low, high = (last, n - 1 - first) if r.op.reverse else (first, n - 1 - last)
    return late(sp.Sum(written(x), (r.op.index, low, high)))


def handed_out(r: Rates, ways: list[list[Late]], read: list[Late]) -> list[Late]:
    """When the values that each trip hands out are there, all of them: ways[i][k], from state i; read[k], from outside. The first trip
    and the last one decide."""
    before = after(r, 1)
    found = []
    for k, outside in enumerate(read):
        ends = ((r.start, 0), (before, -1))
        found.append(latest([x for now, t in ends for x in (
            r.at(outside, t), *(plus(s, r.at(way[k], t)) for s, way in zip(now, ways) if way[k]))] or [NEVER]))
    return found
