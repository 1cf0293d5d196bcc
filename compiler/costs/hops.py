"""The numbers of a term: `hops[source position, position]` pushed through it, in O(n log width) a band. Exact, borders included.

`how`: "plain"; "allowed", every window as wide as its mask lets it grow, so that what is connected is what the masks allow;
"ahead" and "back", only steps that do not go back (or ahead). No path of those leaves the sequence, so its length, by distance,
bounds the true one from above at every position."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce

import numpy as np
import sympy as sp

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
    Root,
    Scan,
    Shift,
    Spread,
    System,
    Token,
    Upto,
)
from plait.compiler.sizes import evaluate

FAR = np.int32(1 << 28)                           # not connected


MOST_TRIPS = 2000                                 # copies that are walked one by one


class TooMany(Exception):
    """A stack that never comes to rest has more copies than can be walked."""


class Unbounded(Exception):
    """One-sided steps give no bound for this term."""


class Engine:
    """Evaluates terms where the dims have the values `at`."""

    def __init__(self, at: Mapping, how: str = "plain"):
        self.at, self.how = dict(at), how
        self.solved: dict = {}

    def number(self, e) -> int:
        return e if isinstance(e, int) else int(evaluate(sp.sympify(e), self.at))

    def base(self, base: Base, env: Mapping[Root, np.ndarray]) -> np.ndarray:
        rows = next(iter(env.values())).shape[0]
        far = np.full((rows, 1), FAR, np.int32)
        return reduce(np.minimum, (self.chain(chain, self.root(root, env)) for root, chain in base), far)

    def root(self, root: Root, env: Mapping[Root, np.ndarray]) -> np.ndarray:
        return self.system(root, env) if isinstance(root, System) else env[root]

    def chain(self, chain: Chain, h: np.ndarray) -> np.ndarray:
        for f in chain: h = self.push(f, h)
        return h

    def push(self, f: Factor, h: np.ndarray) -> np.ndarray:
        match f:
            case Band(): return self.band(f, h)
            case Scan(forward): return self.scan(forward, h)
            case Chunks(): return self.chunks(f, h)
            case All(weight):
                if self.how in ("ahead", "back"): return _weighed(h[:, :1] if self.how == "ahead" else h[:, -1:], weight)
                return _weighed(h.min(-1, keepdims=True), weight)
            case At(place):
                if self.how in ("ahead", "back"): raise Unbounded
                return h[:, [self.number(place)]]
            case Spread(length): return np.repeat(h, self.number(length), -1)
            case Shift(by, length): return shifted(h, self.number(by), self.number(length))
            case Clip(lo, hi):
                if self.how in ("ahead", "back"): raise Unbounded
                out = np.full_like(h, FAR)
                first = 0 if lo is None else max(0, self.number(lo))
                last = h.shape[-1] if hi is None else self.number(hi) + 1
                if last > first: out[:, first:last] = h[:, first:last]
                return out
            case Choice(chains): return reduce(np.minimum, (self.chain(c, h) for c in chains))
            case Power(chain, times, index):
                for i in self.trips(times):
                    if index is not None: self.at[index] = i
                    last, h = h, self.chain(chain, h)
                    if index is None and np.array_equal(h, last): break         # residual stacks come to rest
                return h
            case Upto(chain, times):
                start = h
                for _ in self.trips(times):
                    last, h = h, np.minimum(start, self.chain(chain, h))
                    if np.array_equal(h, last): break
                return h

    def trips(self, times) -> Iterator[int]:
        """0, 1, … for the copies of a stack. Whoever comes to rest stops asking; raises TooMany if nobody does."""
        count = self.number(times)
        yield from range(min(count, MOST_TRIPS))
        if count > MOST_TRIPS: raise TooMany(f"{count:,} copies are too many to walk")

    def scan(self, forward: bool, h: np.ndarray) -> np.ndarray:
        if self.how == "allowed": return self.band(Band(0, None) if forward else Band(None, 0), h)
        if self.how in ("ahead", "back") and forward != (self.how == "ahead"): return _weighed(h, 1)
        if not forward: return np.ascontiguousarray(_scan(h[:, ::-1])[:, ::-1])
        return _scan(h)

    def band(self, f: Band, h: np.ndarray) -> np.ndarray:
        lo, hi = (None if e is None else self.number(e) for e in (f.lo, f.hi))
        step = self.number(f.step)
        if lo is not None and hi is not None and lo > hi: return np.full_like(h, FAR)
        if self.how == "allowed" and f.window:
            lo, hi, step = (None if lo is None or lo < 0 else lo), (None if hi is None or hi > 0 else hi), 1
        elif self.how == "ahead": lo = 0 if lo is None else lo if lo >= 0 else lo % step
        elif self.how == "back": hi = 0 if hi is None else hi if hi <= 0 else -(-hi % step)
        if lo is not None and hi is not None and lo > hi: return np.full_like(h, FAR)
        return _weighed(banded(h, lo, hi, step), f.weight)

    def chunks(self, f: Chunks, h: np.ndarray) -> np.ndarray:
        if self.how == "allowed": return _weighed(banded(h, 0 if f.causal else None, None, 1), 1)
        if self.how in ("ahead", "back"): raise Unbounded
        size, n = self.number(f.size), h.shape[-1]
        count = -(-n // size)
        cut = np.full((h.shape[0], count * size), FAR, np.int32)
        cut[:, :n] = h
        cut = cut.reshape(-1, count, size)
        each = cut.min(-1)                                 # the least of every chunk
        if f.causal:
            own, before = np.minimum.accumulate(cut, -1), np.full_like(each, FAR)
            if f.back: before = banded(each, 1, f.back, 1)
            out = np.minimum(own, before[..., None])
        else:
            beside = banded(each, -f.ahead, f.back, 1)
            if f.wrap: beside = reduce(np.minimum, (np.roll(each, by, -1) for by in range(-f.ahead, f.back + 1)))
            out = np.repeat(beside[..., None], size, -1)
        return _weighed(out.reshape(h.shape[0], -1)[:, :n], 1)

    def system(self, s: System, env: Mapping[Root, np.ndarray]) -> np.ndarray:
        key = (s.starts, s.outs, s.times, s.index, tuple(self.at.items()), tuple(map(id, env.values())))
        if key not in self.solved:
            states = [self.base(b, env) for b in s.starts]
            for i in self.trips(s.times):
                if s.index is not None: self.at[s.index] = i
                inner: dict[Root, np.ndarray] = {**env, **{Token(s.loop, k): h for k, h in enumerate(states)}}
                last, states = states, [self.base(b, inner) for b in s.outs]
                if s.index is None and all(np.array_equal(p, q) for p, q in zip(states, last)): break
            self.solved[key] = states, list(env.values())          # kept, so that an id stays what it was
        return self.solved[key][0][s.which]


def _weighed(h: np.ndarray, weight: int) -> np.ndarray:
    return np.minimum(h + np.int32(weight), FAR) if weight else h


def _scan(h: np.ndarray) -> np.ndarray:
    at = np.arange(h.shape[-1], dtype=np.int32)
    return np.minimum(np.minimum.accumulate(h - at, -1) + at + 1, FAR)


def shifted(h: np.ndarray, by: int, length: int) -> np.ndarray:
    """out[i] = h[i − by] where there is one."""
    out = np.full((h.shape[0], length), FAR, np.int32)
    first, last = max(0, by), min(length, h.shape[-1] + by)
    if last > first: out[:, first:last] = h[:, first - by:last - by]
    return out


def banded(h: np.ndarray, lo: int | None, hi: int | None, step: int) -> np.ndarray:
    """The minimum over h[i − o] for o = lo, lo + step, …, hi. Running minima where a side is open, doubling elsewhere."""
    n = h.shape[-1]
    if step == 1:
        lo, hi = (None if lo is None or lo <= 1 - n else lo), (None if hi is None or hi >= n - 1 else hi)
        if lo is None and hi is None: return np.repeat(h.min(-1, keepdims=True), n, -1)
        if hi is None:
            assert lo is not None
            low = np.minimum.accumulate(h, -1)
            out = shifted(low, lo, n)
            if lo < 0: out[:, n + lo:] = low[:, -1:]                            # past the end the minimum stays what it was
            return out
        if lo is None: return np.ascontiguousarray(banded(h[:, ::-1], -hi, None, 1)[:, ::-1])
    if lo is None:                                         # an open side of wider steps: as far as it can hit
        assert hi is not None
        lo = hi - step * max(0, (hi + n) // step)
    if hi is None: hi = lo + step * max(0, (n - lo) // step)
    while lo <= -n and lo < hi: lo += step * max(1, (-n - lo) // step)          # taps that can only miss
    while hi >= n and hi > lo: hi -= step * max(1, (hi - n) // step)
    if hi <= -n or lo >= n: return np.full_like(h, FAR)
    taps, wide = (hi - lo) // step + 1, n + hi - lo
    w = np.full((h.shape[0], wide), FAR, np.int32)
    w[:, :n] = h
    have = 1
    while have < taps:                                     # the minimum over `have` taps, doubled
        by = min(have, taps - have)
        w[:, by * step:] = np.minimum(w[:, by * step:], w[:, :wide - by * step].copy())
        have += by
    return shifted(w, lo, n)


def hops(base: Base, n: int, sources, at: Mapping, how: str = "plain") -> np.ndarray:
    """[sources, positions of the base]: FAR where not connected."""
    sources = np.asarray(sources)
    h = np.full((len(sources), n), FAR, np.int32)
    h[np.arange(len(sources)), sources] = 0
    return Engine(at, how).base(base, {SOURCE: h})
