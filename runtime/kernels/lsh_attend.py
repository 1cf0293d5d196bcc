"""Attending in LSH attention: slabs of chunks are gathered into scratch memory, and a chunk with the one before it is an overlapping view
of that. Products write into scratch, what lies between two products is one fused loop when compiled, and backward makes the scores
again. What a round makes lies by place; one gather brings it to the rows."""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from plait.compiler.lowering.derivatives import first_only
from plait.runtime.kernels import lsh_pieces as pieces
from plait.runtime.kernels.fused import compiled


@dataclass(frozen=True)
class How:
    chunk: int
    heads: int
    length: int
    causal: bool
    within: bool
    dedup: bool
    slab: int                                  # chunks at hand at once
    compiled: bool

    def run(self, fn: Callable, x: Tensor, *key) -> Callable:
        return compiled(fn, self.compiled, x.dtype, x.device.type, x.shape[-1], self.chunk, *key)


@dataclass(frozen=True)
class Round:
    """A round by its places, those of a chunk of nothing in front. rows: what is not there reads the last row; inverse: of a key's norm;
    mine, theirs: codes as queries and as keys, of this round last; at: what causality compares."""
    rows: Tensor
    inverse: Tensor
    mine: Tensor
    theirs: Tensor
    at: Tensor


@dataclass(frozen=True)
class Slab:
    """A slab of C chunks of m queries with 2·m keys each. own: their places, numbered without the chunk in front; pairs: their codes
    [tests, C, m] and [tests, C, 2·m], and what causality compares."""
    own: slice
    q: Tensor                                  # [C, m, k]
    keys: Tensor                               # [C, 2·m, k], not yet of unit length
    values: Tensor                             # [C, 2·m, v]
    inverse: Tensor                            # [C, 2·m]
    pairs: tuple[Tensor, Tensor, Tensor, Tensor]


class Walk:
    """The rounds and their slabs, and memory that is used again from slab to slab."""

    def __init__(self, q: Tensor, v: Tensor, rows: Tensor, code: Tensor, seen: Tensor | None, how: How):
        self.q, self.v, self.rows, self.code, self.seen, self.how = q, v, rows, code, code if seen is None else seen, how
        self.inverse = how.run(pieces.inverse_norm, q)(q)
        self.held: dict[str, Tensor] = {}

    def memory(self, name: str, *shape: int) -> Tensor:
        size = math.prod(shape)
        if name not in self.held or self.held[name].numel() < size: self.held[name] = self.q.new_empty(size)
        return self.held[name][:size].view(shape)

    def gathered(self, name: str, t: Tensor, rows: Tensor) -> Tensor:
        return torch.index_select(t, 0, rows, out=self.memory(name, len(rows), t.shape[-1]))

    def round(self, r: int) -> Round:
        how, count = self.how, len(self.q)
        x = F.pad(self.rows[r], (how.chunk, 0), value=count)
        first = 0 if how.dedup else r
        mine = self.code[first:r + 1].index_select(1, x)
        theirs = mine if self.seen is self.code else self.seen[first:r + 1].index_select(1, x)
        # Inside a bucket the sorted order is the order of positions.
        by_place = how.within or not how.causal
        at = torch.arange(len(x), device=x.device) if by_place else (x // how.heads) % how.length
        there = x.clamp(max=count - 1)
        return Round(there, self.inverse.index_select(0, there), mine, theirs, at.to(torch.int32))

    def slabs(self, look: Round) -> Iterator[Slab]:
        m, chunks = self.how.chunk, self.rows.shape[1] // self.how.chunk
        count = -(-chunks // self.how.slab)
        for i in range(count):
            low, high = chunks * i // count, chunks * (i + 1) // count
            first, c = low * m, high - low
            rows = look.rows[first:(high + 1) * m]
            q, v = self.gathered("q", self.q, rows), self.gathered("v", self.v, rows)
            pairs = (cut(look.mine, first + m, c, m, m), cut(look.theirs, first, c, 2 * m, m),
                     cut(look.at, first + m, c, m, m), cut(look.at, first, c, 2 * m, m))
            yield Slab(slice(first, high * m), rows_of(q, m, c, m, m), rows_of(q, 0, c, 2 * m, m), rows_of(v, 0, c, 2 * m, m),
                       cut(look.inverse, first, c, 2 * m, m), pairs)

    def product(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        """a [C, m, w], b [C, 2·m, w] → a bᵀ"""
        return torch.bmm(a, b.mT, out=self.memory(name, len(a), a.shape[1], b.shape[1]))


def rows_of(t: Tensor, first: int, count: int, width: int, step: int) -> Tensor:
    """[count, width, …] of a tensor of rows, one every `step` rows from row `first` on; overlapping where width > step."""
    w = t.shape[-1]
    return t.as_strided((count, width, w), (step * w, w, 1), t.storage_offset() + first * w)


def cut(t: Tensor, first: int, count: int, width: int, step: int) -> Tensor:
    """[…, count, width] of the last dimension, likewise."""
    return t.as_strided((*t.shape[:-1], count, width), (*t.stride()[:-1], step, 1), t.storage_offset() + first)


class Attend(torch.autograd.Function):
    """Saves queries, values, the output, a total per row, and the order: not the scores."""

    @staticmethod
    def forward(ctx, q: Tensor, v: Tensor, rows: Tensor, place: Tensor, code: Tensor, seen: Tensor | None, how: How):
        rounds, places = rows.shape
        walk = Walk(q, v, rows, code, seen, how)
        found = v.new_empty(places, v.shape[-1]), q.new_empty(places), q.new_empty(places)                     # by place
        made: tuple[Tensor, ...] = ()
        for r in range(rounds):
            look = walk.round(r)
            for s in walk.slabs(look): Attend.attended(walk, s, *(t[s.own] for t in found))
            if r: how.run(pieces.merge, v)(*made, *(t.index_select(0, place[r]) for t in found))
            elif rounds > 1: made = tuple(t.index_select(0, place[r]) for t in found)
        if rounds == 1: result, lse = how.run(pieces.finish, v, "by place")(*found, v, place[0])
        else: result, lse = how.run(pieces.finish, v)(*made, v, None)
        ctx.save_for_backward(q, v, result, lse, rows, place, code, seen)
        ctx.how = how
        return result

    @staticmethod
    def attended(walk: Walk, s: Slab, out: Tensor, top: Tensor, total: Tensor) -> None:
        """A slab's output [C·m, v], not yet divided, maximum and sum."""
        c, m, _ = s.q.shape
        p = walk.product("scores", s.q, s.keys)
        fn = walk.how.run(pieces.softmax, walk.q, len(s.pairs[0]), walk.how.causal)
        fn(p, s.inverse, *s.pairs, top.view(c, m), total.view(c, m), walk.how.causal)
        torch.bmm(p, s.values, out=out.view(c, m, -1))

    @staticmethod
    @first_only
    def backward(ctx, grad: Tensor):
        q, v, result, lse, rows, place, code, seen = ctx.saved_tensors
        how: How = ctx.how
        (rounds, places), m = rows.shape, how.chunk
        grad = grad.contiguous()
        walk = Walk(q, v, rows, code, seen, how)
        delta = how.run(pieces.inner, v)(grad, result)
        by_place: list[Tensor] = []
        made: list[Tensor] = []
        for r in range(rounds):
            look = walk.round(r)
            if not by_place: by_place = [t.new_empty(places + m, t.shape[-1]) for t in (q, v)]
            of_place = tuple(t.index_select(0, look.rows[m:]) for t in (lse, delta))
            for s in walk.slabs(look):
                g = walk.gathered("grad", grad, look.rows[m:][s.own])
                total, slope = (t[s.own] for t in of_place)
                Attend.spread(walk, s, g, total, slope, look.inverse, by_place)
            at = place[r] + m
            if r:
                for to, t in zip(made, by_place): how.run(pieces.add, t)(to, t, at)
            elif rounds > 1: made = [t.index_select(0, at) for t in by_place]
            else:                                                            # one after the other, so that less is held at once
                while by_place: made.append(by_place.pop(0).index_select(0, at))
        alone = lse.isinf()                                                  # who saw nothing gave its own value
        if v.device.type != "cpu": made[1].addcmul_(grad, alone[:, None].to(grad.dtype))
        else:                                                                # few rows; elsewhere the host would wait for their number
            few = alone.nonzero()[:, 0]
            made[1].index_copy_(0, few, made[1].index_select(0, few) + grad.index_select(0, few))
        return *made, None, None, None, None, None

    @staticmethod
    def spread(walk: Walk, s: Slab, g: Tensor, total: Tensor, delta: Tensor, inverse: Tensor, by_place: list[Tensor]) -> None:
        """A slab's gradients onto its places (written), and onto those of the chunk before it (added). g [C·m, v]; total, delta [C·m]."""
        how, (c, m, k) = walk.how, s.q.shape
        g = g.view(c, m, -1)
        p, slope = walk.product("scores", s.q, s.keys), walk.product("slopes", g, s.values)
        fn = how.run(pieces.slopes, walk.q, len(s.pairs[0]), how.causal)
        fn(p, slope, s.inverse, *s.pairs, total.view(c, m), delta.view(c, m), how.causal)
        first, last = s.own.start, s.own.stop
        to_q, to_v = (t[first + m:last + m].view(c, m, -1) for t in by_place)
        torch.bmm(slope, s.keys, out=to_q)
        # Of a chunk: what falls on the one before it, then on itself. Nothing falls on the last one from the one behind it.
        dk, dv = walk.memory("dk", c + 1, 2 * m, k), walk.memory("dv", c + 1, 2 * m, g.shape[-1])
        torch.bmm(slope.mT, s.q, out=dk[:c])
        torch.bmm(p.mT, g, out=dv[:c])
        for t in (dk, dv): t[c, :m] = 0
        how.run(pieces.own, to_q)(to_q, to_v, dk, dv, s.q, inverse[first + m:last + m].view(c, m))
        if not first: return                                                 # before the first there is nothing
        to_q, to_v = (t[first:first + m] for t in by_place)
        how.run(pieces.before, to_q)(to_q, to_v, dk[0, :m], dv[0, :m], s.keys[0, :m], inverse[first:first + m])
