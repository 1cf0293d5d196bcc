"""LSH attention: hash, sort, attend in chunks, one softmax over the union of the rounds. Kitaev et al. 2020, section 2.

A row holds a position's query and value side by side, so one gather fetches both. Each round is a list of rows sorted by bucket and
cut into chunks; a slab of chunks is gathered into scratch memory, and "own and previous chunk" is an overlapping view of it.
Products write into scratch; what lies between two products is one fused loop when compiled. Backward makes the scores again.

Who sees whom: with the code u = 2·bucket + chunk (chunk alone where buckets do not matter), which grows along the sorted list, i sees
j in a round exactly if u_i − u_j is 0 or 1. Neighbouring sequences are kept apart by a large step. A pair that several rounds have
counts in the first of them: the same union as the paper's log N, with half the tests."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from plait.compiler import kernels
from plait.compiler.lowering.emission import KernelCall
from plait.compiler.lowering.inverse import choose
from plait.compiler.lowering.tensors import mix, random
from plait.runtime.kernels import lsh_pieces as pieces
from plait.runtime.kernels.lsh_pieces import FAR

SLAB = {"cpu": kernels.SLAB}                   # chunks a slab: scratch that stays in the cache; on other devices few, large ones
LARGE_SLAB = 4096


def lsh_attention(call: KernelCall) -> Callable:
    """q [b, n, h, k], v [b, n, h, v], a key, and a mask [b, n] where padding is possible → [b, n, h, v]."""
    told = call.region.arg
    order = "b", "n", "h"
    q_into, v_into, back = call.into(0, *order, "k"), call.into(1, *order, "v"), call.back(*order, "v")
    causal, within, dedup, shared = (bool(told(k)) for k in ("causal", "within_bucket", "dedup", "share_rotations"))

    def run(q: Tensor, v: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
        operands = (q, v, key)
        chunk, rounds = int(call.number("chunk", *operands)), int(call.number("rounds", *operands))
        factors = [int(call.value(f, *operands)) for f in told("buckets")]
        q, v = q_into(q), v_into(v)
        work = torch.promote_types(torch.promote_types(q.dtype, v.dtype), torch.float32)
        with torch.autocast(q.device.type, enabled=False):
            made = q.detach().to(work)
            bucket = choose(lambda: buckets(made, key, factors, rounds, shared, call.compiled), _product(factors))
            o = attend(q.to(work), v.to(work), bucket, _product(factors), chunk, mask, causal, within, dedup, call.compiled)
        return back(o.to(v.dtype))
    return run


def _product(factors: list[int]) -> int:
    out = 1
    for f in factors: out *= f
    return out


# -- hashing and sorting --------------------------------------------------------------------------------------------------
@torch.no_grad()
def buckets(q: Tensor, key: Tensor, factors: list[int], rounds: int, shared: bool, compiled: bool) -> Tensor:
    """q [b, n, h, k] → the bucket of every position, [rounds, b, h, n]: argmax of (q R, −q R), a digit a factor."""
    b, n, h, k = q.shape
    turned = q.permute(2, 0, 1, 3).reshape(h, b * n, k)
    out, worth = torch.zeros(rounds, h, b * n, dtype=torch.int64, device=q.device), 1
    for digit, f in enumerate(factors):
        rotations = random("normal", [*(() if shared else (h,)), rounds, k, f // 2], mix(key, 2 + digit), q)
        for r in range(rounds):                # a round at a time: positions × buckets numbers are held
            turn = rotations[r].expand(h, -1, -1) if shared else rotations[:, r]
            out[r] += worth * pieces.compiled(pieces.argmax, compiled, q.dtype)(torch.bmm(turned, turn))
        worth *= f
    return out.view(rounds, h, b, n).transpose(1, 2)


@dataclass(frozen=True)
class Order:
    """rows [rounds, places]: the row ((b·n + position)·h + head) at each sorted place, b·n·h where padding stands; place [rounds, rows]:
    the way back; code [rounds, rows + 1] of a row as a query, seen: as a key (None: the same; FAR: nobody may see it)."""
    rows: Tensor
    place: Tensor
    code: Tensor
    seen: Tensor | None


@torch.no_grad()
def sort(bucket: Tensor, count: int, chunk: int, mask: Tensor | None, within: bool) -> Order:
    """bucket [rounds, b, h, n] of `count` buckets; what does not exist sorts last."""
    rounds, b, h, n = bucket.shape
    chunks = -(-n // chunk)
    total, rows, device = chunks * chunk, b * n * h, bucket.device
    if mask is not None: bucket = torch.where(mask[None, :, None, :], bucket, count)
    lists = rounds * b * h
    padded = F.pad(bucket, (0, total - n), value=count + 1).reshape(lists, total)
    number = torch.arange(lists, device=device)[:, None]
    # One flat stable sort for all lists: the list is the leading digit.
    perm = torch.sort((padded + number * (count + 2)).reshape(-1), stable=True)[1].view(lists, total) - number * total
    perm = perm.view(rounds, b, h, total)
    sequence = torch.arange(b * h, device=device).view(1, b, h, 1)
    at = (sequence // h * n + perm) * h + sequence % h
    at = torch.where(perm < n, at, rows).view(rounds, -1)
    place = torch.empty(rounds, rows + 1, dtype=torch.int64, device=device)
    place.scatter_(1, at, torch.arange(at.shape[1], device=device).expand(rounds, -1))
    place = place[:, :-1]
    row = torch.arange(rows, device=device)
    sequence = row // (n * h) * h + row % h
    # A chunk looks back into the list before its own at most: odd and even ones, a large step apart, keep lists from each other.
    code = place // chunk - sequence * chunks + sequence % 2 * (4 * (count + chunks) + 8)
    if within: code = code + 2 * bucket.permute(0, 1, 3, 2).reshape(rounds, -1)
    code = F.pad(code.to(torch.int32), (0, 1), value=FAR)
    seen = None
    if mask is not None:
        there = F.pad(mask[:, :, None].expand(b, n, h).reshape(-1), (0, 1))
        seen = torch.where(there, code, FAR)
    return Order(at, place, code, seen)


def attend(q: Tensor, v: Tensor, bucket: Tensor, count: int, chunk: int, mask: Tensor | None, causal: bool, within: bool, dedup: bool,
           compiled: bool) -> Tensor:
    """q [b, n, h, k], v [b, n, h, v], bucket [rounds, b, h, n] → [b, n, h, v]."""
    b, n, h, k = q.shape
    order = sort(bucket, count, chunk, mask, within)
    how = How(chunk, k, h, n, causal, within, dedup, SLAB.get(q.device.type, LARGE_SLAB), compiled)
    qv = torch.cat((q, v), -1).view(b * n * h, -1)
    return Attend.apply(qv, order.rows, order.place, order.code, order.seen, how).view(b, n, h, -1)


# -- attending ------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class How:
    chunk: int
    width: int                                 # of queries; values are the rest of a row
    heads: int
    length: int
    causal: bool
    within: bool
    dedup: bool
    slab: int
    compiled: bool

    def run(self, fn: Callable, x: Tensor, *key) -> Callable:
        return pieces.compiled(fn, self.compiled, x.dtype, x.device.type, x.shape[-1], self.chunk, self.width, *key)

    def slabs(self, chunks: int) -> list[tuple[int, int]]:
        count = -(-chunks // self.slab)
        return [(chunks * i // count, chunks * (i + 1) // count) for i in range(count)]


@dataclass
class Slab:
    """A slab of chunks in a round. rows: the rows of its places, those of the chunk before it in front; c: its number of chunks."""
    c: int
    low: int
    high: int
    rows: Tensor
    gathered: Tensor
    inverse: Tensor
    codes: list[Tensor]
    seen: list[Tensor]
    at: Tensor
    how: How

    def view(self, t: Tensor, first: int, count: int, offset: int, width: int) -> Tensor:
        """[chunks, count, width] of a tensor of rows, chunk by chunk, starting at row `first`; overlapping where count > chunk."""
        w = t.shape[-1]
        return t.as_strided((self.c, count, width), (self.how.chunk * w, w, 1), t.storage_offset() + first * w + offset)

    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """queries [c, chunk, k], keys [c, 2·chunk, k] (not yet of unit length), values [c, 2·chunk, v]"""
        m, k, w = self.how.chunk, self.how.width, self.gathered.shape[-1]
        return self.view(self.gathered, m, m, 0, k), self.view(self.gathered, 0, 2 * m, 0, k), self.view(self.gathered, 0, 2 * m, k, w - k)


class Attend(torch.autograd.Function):
    """Saves the rows, the output, a total per row, and the order: not the scores."""

    @staticmethod
    def slabs(qv: Tensor, inverse: Tensor, rows: Tensor, code: Tensor, seen: Tensor, r: int, how: How, scratch: Tensor) -> Iterator[Slab]:
        count, m = qv.shape[0], how.chunk
        x = F.pad(rows[r], (m, 0), value=count)                               # a chunk of nothing in front
        there = x.clamp(max=count - 1)
        first = 0 if how.dedup else r
        codes, keys = ([t[i].index_select(0, x) for i in range(first, r + 1)] for t in (code, seen))
        inv, at = inverse.index_select(0, there), (x // how.heads) % how.length
        for a, b in how.slabs(rows.shape[1] // m):
            low, high = a * m, (b + 1) * m
            g = torch.index_select(qv, 0, there[low:high], out=scratch[:high - low])
            yield Slab(b - a, low, high, x, g, inv[low:high], [t[low:high] for t in codes], [t[low:high] for t in keys], at[low:high], how)

    @staticmethod
    def forward(ctx, qv: Tensor, rows: Tensor, place: Tensor, code: Tensor, seen: Tensor | None, how: How):
        count, width = qv.shape
        m, k = how.chunk, how.width
        inverse = how.run(pieces.inverse_norm, qv)(qv[:, :k])
        out, top, total = qv.new_empty(count + 1, width - k), qv.new_empty(count + 1), qv.new_empty(count + 1)
        most = max(b - a for a, b in how.slabs(rows.shape[1] // m))
        scores, scratch, sums = qv.new_empty(most, m, 2 * m), qv.new_empty((most + 1) * m, width), qv.new_empty(most, m, width - k)
        for r in range(rows.shape[0]):
            for s in Attend.slabs(qv, inverse, rows, code, code if seen is None else seen, r, how, scratch):
                q, keys, values = s.parts()
                raw = torch.bmm(q, keys.transpose(1, 2), out=scores[:s.c])
                fn = how.run(pieces.softmax, qv, len(s.codes), how.within, how.causal)
                p, high, row = fn(raw, s.inverse, s.codes, s.seen, s.at, m, how.within, how.causal)
                o, to = torch.bmm(p, values, out=sums[:s.c]).view(-1, width - k), s.rows[s.low + m:s.high]
                if r: o, high, row = how.run(pieces.merge, qv)(o, high, row, *(t.index_select(0, to) for t in (out, top, total)))
                for t, made in ((out, o), (top, high), (total, row)): t.index_copy_(0, to, made)
        result, lse = how.run(pieces.finish, qv)(out[:count], top[:count], total[:count], qv[:, k:])
        ctx.save_for_backward(qv, result, lse, rows, place, code, seen)
        ctx.how = how
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        qv, result, lse, rows, place, code, seen = ctx.saved_tensors
        how: How = ctx.how
        count, width = qv.shape
        m, k = how.chunk, how.width
        grad = grad.contiguous()
        inverse = how.run(pieces.inverse_norm, qv)(qv[:, :k])
        delta = F.pad(how.run(pieces.inner, qv)(grad, result), (0, 1))
        total = F.pad(lse, (0, 1), value=float("inf"))
        places = rows.shape[1]
        most = max(b - a for a, b in how.slabs(places // m))
        scratch, around = qv.new_empty((most + 1) * m, width), qv.new_empty(most * m, width - k)
        scores, slopes = qv.new_empty(most, m, 2 * m), qv.new_empty(most, m, 2 * m)
        dq_, dk_ = qv.new_empty(most, m, k), qv.new_empty(most, 2 * m, k)
        by_place = qv.new_empty(places + m, k), qv.new_empty(places + m, width - k)
        made = torch.zeros_like(qv)
        for r in range(rows.shape[0]):
            for t in by_place: t[:m] = 0
            for s in Attend.slabs(qv, inverse, rows, code, code if seen is None else seen, r, how, scratch):
                q, keys, values = s.parts()
                to = s.rows[s.low + m:s.high]
                g = torch.index_select(grad, 0, to.clamp(max=count - 1), out=around[:s.c * m]).view(s.c, m, -1)
                raw, slope = torch.bmm(q, keys.transpose(1, 2), out=scores[:s.c]), torch.bmm(g, values.transpose(1, 2), out=slopes[:s.c])
                fn = how.run(pieces.slopes, qv, len(s.codes), how.within, how.causal)
                of_row = (t.index_select(0, to) for t in (total, delta))
                fn(raw, slope, s.inverse, s.codes, s.seen, s.at, *of_row, m, how.within, how.causal)
                dq, dk = torch.bmm(slope, keys, out=dq_[:s.c]), torch.bmm(slope.transpose(1, 2), q, out=dk_[:s.c])
                Attend.spread(s, raw, dq, dk, g, by_place)
            at = place[r] + m
            how.run(pieces.add, qv, "q")(made[:, :k], by_place[0], at)
            how.run(pieces.add, qv, "v")(made[:, k:], by_place[1], at)
        made[:, k:] += torch.where(lse.isinf()[:, None], grad, 0)             # who saw nothing gave its own value
        return made, None, None, None, None, None

    @staticmethod
    def spread(s: Slab, p: Tensor, dq: Tensor, dk: Tensor, g: Tensor, by_place: tuple[Tensor, Tensor]) -> None:
        """A slab's gradients onto the places of its chunks (written) and of the chunks before them (added)."""
        m, k, how = s.how.chunk, s.how.width, s.how
        to_q, to_v = by_place

        def own(t: Tensor) -> Tensor: return t[s.low + m:s.high].view(s.c, m, -1)

        def before(t: Tensor) -> Tensor: return t[s.low:s.high - m].view(s.c, m, -1)

        how.run(pieces.own, to_q)(own(to_q), dq, dk[:, m:], s.gathered[m:, :k], s.inverse[m:])
        how.run(pieces.before, to_q)(before(to_q), dk[:, :m], s.gathered[:-m, :k], s.inverse[:-m])
        torch.bmm(p[:, :, m:].transpose(1, 2), g, out=own(to_v))
        before(to_v).baddbmm_(p[:, :, :m].transpose(1, 2), g)
