"""Windowed attention by blocks of queries, each with the keys that one of them may see: O(n·r) work and memory, never an n² mask.

On a CPU an own function, head by head: slabs of blocks write their products into scratch memory that stays in the cache, what lies between
two products is one fused loop when compiled, and backward makes the scores again. Elsewhere the library's fused attention on the
blocks."""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from plait.compiler.kernels import BAND_SLAB, band
from plait.compiler.lowering.derivatives import first_only
from plait.compiler.lowering.emission import KernelCall
from plait.runtime.kernels.attention import Layout
from plait.runtime.kernels.fused import compiled


def banded(call: KernelCall) -> Callable:
    """q [b, n, h…, k], k [b, n, h…, k], v [b, n, h…, v]: query i sees keys i + w − left, w in 0 … window − 1."""
    layout, told = Layout(call, "n"), call.region.arg
    window, before, own, scale = int(call.number("window")), int(call.number("left")), bool(told("own", True)), float(call.number("scale"))

    def within(n: int) -> How:
        """Of the window what can be there of n positions."""
        left = min(before, n - 1)
        return How(left + min(window - 1 - before, n - 1) + 1, left, own, scale, call.compiled)

    def run(q: Tensor, k: Tensor, v: Tensor, *rest: Tensor) -> Tensor:
        qs, ks, vs = layout.operands(q, k, v)
        mask = layout.rest(rest)[0] if told("masked") else None
        how = within(qs.shape[2])
        if q.device.type != "cpu": return layout.back(fused_on_blocks(qs, ks, vs, mask, how), q)
        work = torch.promote_types(torch.promote_types(q.dtype, v.dtype), torch.float32)
        with torch.autocast("cpu", enabled=False):
            o = Banded.apply(*(t.to(work) for t in (qs, ks, vs)), mask, how)
        return layout.back(o.to(v.dtype), q)
    return run


@dataclass(frozen=True)
class How:
    window: int
    left: int
    own: bool                                  # does a position see itself, where it sees another one?
    scale: float
    compiled: bool

    def run(self, fn: Callable, x: Tensor) -> Callable:
        return compiled(fn, self.compiled, x.dtype, x.device.type, x.shape[1:], self.window, self.left, self.own)


# -- the own function -----------------------------------------------------------------------------------------------------
class Head:
    """One head of one sequence in blocks: `count` blocks of `size` queries, each with `span` keys, a multiple of the size. Its rows are
    copied in turn into the same memory, with nothing around them: queries and what belongs to them from row span − size on, keys from
    row `left` on, where those of block t start at row t·size."""

    def __init__(self, like: Tensor, n: int, how: How):
        self.like, self.n, self.how = like, n, how
        self.size = min(int(band(how.window)), n)
        self.count = -(-n // self.size)
        self.over = -(-(how.window - 1) // self.size)                        # blocks of keys beyond the one of a block's own size
        self.span = self.size * (self.over + 1)
        self.slab = max(min(BAND_SLAB, self.count), self.over)
        self.held: dict[str, Tensor] = {}

    def zeros(self, name: str, *shape: int) -> Tensor:
        """Memory that is 0 when it is first used."""
        if name not in self.held: self.held[name] = self.like.new_zeros(shape)
        return self.held[name]

    def queries(self, name: str, x: Tensor) -> Tensor:
        made = self.zeros(name, self.size * (self.count + 2 * self.over), x.shape[-1])
        made[self.span - self.size:][:self.n] = x
        return made

    def keys(self, name: str, x: Tensor) -> Tensor:
        made = self.zeros(name, self.size * (self.count + self.over), x.shape[-1])
        made[self.how.left:][:self.n] = x
        return made

    def there(self, mask: Tensor | None, device) -> Tensor:
        """Which keys there are, by row."""
        made = torch.zeros(self.size * (self.count + self.over), dtype=torch.bool, device=device)
        made[self.how.left:][:self.n] = True if mask is None else mask
        return made

    def scores(self, name: str) -> Tensor:
        """Scores of a slab, as a product writes them: [slab, size, span]."""
        return self.zeros(name, self.slab, self.size, self.span)

    def weights(self, name: str) -> Tensor:
        """Scores of a slab, behind those of as many blocks before it as see the same keys. A block has room for `size` numbers more: so
        the columns that a block of keys has in the blocks that see it stand one below the other, and are one matrix."""
        return self.zeros(name, (self.slab + self.over) * self.size * (self.span + 1) + self.span)

    def of_queries(self, t: Tensor, c: int) -> Tensor:
        """[c, size, span] of scores: the blocks of a slab."""
        step = self.size * (self.span + 1)
        return t.as_strided((c, self.size, self.span), (step, self.span, 1), self.over * step)

    def of_keys(self, t: Tensor, c: int) -> Tensor:
        """[c, span, size] of scores: for each of c blocks of keys the blocks of queries that see it, one below the other."""
        return t.as_strided((c, self.span, self.size), (self.size * (self.span + 1), self.span, 1), self.over * self.size)

    def kept(self, t: Tensor, c: int) -> None:
        """After a slab of c blocks: its last ones are those before the next."""
        step = self.over * self.size * (self.span + 1)
        t[:step] = t[c * self.size * (self.span + 1):][:step].clone()

    def blocks(self, t: Tensor, first: int, c: int, width: int) -> Tensor:
        """[c, width, …] of a tensor of rows, one every `size` rows from block `first` on; overlapping where width > size."""
        w = t.shape[-1]
        return t.as_strided((c, width, w), (self.size * w, w, 1), t.storage_offset() + first * self.size * w)

    def slabs(self) -> Iterator[tuple[int, int]]:
        """(first block, number of blocks)"""
        return ((a, min(self.slab, self.count - a)) for a in range(0, self.count, self.slab))


class Banded(torch.autograd.Function):
    """q [b, h, n, k], k, v [b, h', n, ·], each of h' for some heads in a row; mask [b, n]. Saves them, the output and a number a row."""

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, how: How) -> Tensor:
        b, h, n, _ = q.shape
        out = v.new_empty(b, n, h, v.shape[-1]).transpose(1, 2)
        lse = q.new_empty(b, h, n)
        head, group = Head(q, n, how), h // k.shape[1]
        scores, made = head.scores("scores"), head.zeros("out", head.count * head.size, v.shape[-1])
        of_row, total = head.zeros("lse", head.count, head.size), head.zeros("total", head.count, head.size)
        for x in range(b):
            there = head.there(None if mask is None else mask[x], q.device)
            for y in range(h):
                qs = head.queries("q", q[x, y]).mul_(how.scale)
                ks, vs = head.keys("k", k[x, y // group]), head.keys("v", v[x, y // group])
                for first, c in head.slabs():
                    s, own = scores[:c], slice(first, first + c)
                    torch.bmm(head.blocks(qs, first + head.over, c, head.size), head.blocks(ks, first, c, head.span).mT, out=s)
                    seen = head.blocks(there[:, None], first, c, head.span)[..., 0]
                    how.run(softmax, s)(s, seen, of_row[own], total[own], how.window, how.left, how.own)
                    torch.bmm(s, head.blocks(vs, first, c, head.span), out=head.blocks(made, first, c, head.size))
                torch.div(made[:n], total.view(-1, 1)[:n], out=out[x, y])
                lse[x, y] = of_row.view(-1)[:n]
        ctx.save_for_backward(q, k, v, mask, out, lse)
        ctx.how = how
        return out

    @staticmethod
    @first_only
    def backward(ctx, grad: Tensor):
        q, k, v, mask, out, lse = ctx.saved_tensors
        how: How = ctx.how
        b, h, n, _ = q.shape
        head, group = Head(q, n, how), h // k.shape[1]
        dq, dk, dv = (torch.zeros_like(t) if group > 1 else torch.empty_like(t) for t in (q, k, v))
        delta = (grad * out).sum(-1)
        for x in range(b):
            there = head.there(None if mask is None else mask[x], q.device)
            for y in range(h):
                z = y // group
                numbers = [F.pad(t[x, y], (0, head.count * head.size - n), value=w).view(head.count, -1)
                           for t, w in ((lse, math.inf), (delta, 0))]
                qs = head.queries("q", q[x, y]).mul_(how.scale)
                ks, vs, gs = head.keys("k", k[x, z]), head.keys("v", v[x, z]), head.queries("grad", grad[x, y])
                made = Banded.of_head(head, qs, ks, vs, gs, there, *numbers)
                torch.mul(made[0][:n], how.scale, out=dq[x, y])
                for to, found in ((dk[x, z], made[1]), (dv[x, z], made[2])):
                    if group > 1: to += found[how.left:][:n]
                    else: to.copy_(found[how.left:][:n])
        return dq, dk, dv, None, None

    @staticmethod
    def of_head(head: Head, q: Tensor, k: Tensor, v: Tensor, g: Tensor, there: Tensor, lse: Tensor, delta: Tensor) -> tuple[Tensor, ...]:
        """Gradients of the scaled queries, by row from 0 on, and of keys and values, by their rows."""
        how, over, size, span = head.how, head.over, head.size, head.span
        raw, slope = head.scores("scores"), head.scores("slopes")
        p_, ds_ = head.weights("p"), head.weights("ds")
        for t in (p_, ds_): t[:over * size * (span + 1)] = 0
        dq = head.zeros("dq", head.count * size, q.shape[-1])
        dk, dv = (head.zeros(name, size * (head.count + over), t.shape[-1]) for name, t in (("dk", k), ("dv", v)))
        behind = [(head.count, over)] if over else []                        # behind the last queries there are keys still
        for first, c in [*head.slabs(), *behind]:
            p, ds = head.of_queries(p_, c), head.of_queries(ds_, c)
            if first < head.count:
                ks, vs = head.blocks(k, first, c, span), head.blocks(v, first, c, span)
                torch.bmm(head.blocks(q, first + over, c, size), ks.mT, out=raw[:c])
                torch.bmm(head.blocks(g, first + over, c, size), vs.mT, out=slope[:c])
                seen = head.blocks(there[:, None], first, c, span)[..., 0]
                own = slice(first, first + c)
                how.run(slopes, raw)(raw[:c], slope[:c], p, ds, seen, lse[own], delta[own], how.window, how.left, how.own)
                torch.bmm(ds, ks, out=head.blocks(dq, first, c, size))
            else:
                for t in (p, ds): t.zero_()
            torch.bmm(head.of_keys(ds_, c).mT, head.blocks(q, first, c, span), out=head.blocks(dk, first, c, size))
            torch.bmm(head.of_keys(p_, c).mT, head.blocks(g, first, c, span), out=head.blocks(dv, first, c, size))
            for t in (p_, ds_): head.kept(t, c)
        return dq, dk, dv


def hidden(there: Tensor, size: int, window: int, left: int, own: bool) -> Tensor:
    """there [c, span] → who is not seen by whom [c, size, span]; without own: not itself either."""
    i, j = _places(there, size)
    seen = (j >= i) & (j < i + window)
    if not own: seen = seen & (j != i + left)
    return (there.unsqueeze(1) & seen).logical_not_()


def itself(there: Tensor, size: int, left: int) -> Tensor:
    """Who is itself there, 0 or 1."""
    i, j = _places(there, size)
    return there.unsqueeze(1) & (j == i + left)


def _places(there: Tensor, size: int) -> tuple[Tensor, Tensor]:
    i, j = (torch.arange(x, device=there.device, dtype=torch.int32) for x in (size, there.shape[1]))
    return i.view(size, 1), j


def softmax(s: Tensor, there: Tensor, lse: Tensor, total: Tensor, window: int, left: int, own: bool) -> None:
    """In place: scores [c, size, span] become weights, not yet divided by total [c, size]; lse [c, size]: ∞ where a row sees none."""
    size = s.shape[1]
    s.masked_fill_(hidden(there, size, window, left, own), float("-inf"))
    top = s.amax(-1, keepdim=True).clamp(min=-1e30)
    s.sub_(top).exp_()
    row = s.sum(-1, keepdim=True)
    some = row > 0
    lse.copy_(torch.where(some, top + row.log(), float("inf")).squeeze(-1))
    total.copy_(torch.where(some, row, 1.0).squeeze(-1))
    if not own: s.copy_(torch.where(some, s, itself(there, size, left).to(s.dtype)))


def slopes(s: Tensor, dp: Tensor, p: Tensor, ds: Tensor, there: Tensor, lse: Tensor, delta: Tensor, window: int, left: int, own: bool):
    """Writes the weights p and the gradient of the scores, ds, from the scores and the gradient of the weights, which are used up."""
    size = s.shape[1]
    s.sub_(lse.unsqueeze(-1)).exp_().masked_fill_(hidden(there, size, window, left, own), 0.0)
    ds.copy_(dp.sub_(delta.unsqueeze(-1)).mul_(s))
    p.copy_(s if own else torch.where(lse.unsqueeze(-1) == float("inf"), itself(there, size, left).to(s.dtype), s))


# -- the library's --------------------------------------------------------------------------------------------------------
def fused_on_blocks(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, how: How) -> Tensor:
    """q [b, h, n, k], k, v [b, h', n, ·]: keys of a block are an overlapping view, not a copy; one mask, shared by all blocks but where
    padding stands."""
    b, h, n, _ = q.shape
    if h > k.shape[1]: k, v = (t.repeat_interleave(h // t.shape[1], 1) for t in (k, v))
    size = min(int(band(how.window)), n)
    extra = -n % size
    blocks = (n + extra) // size
    qs = F.pad(q, (0, 0, 0, extra)).reshape(b * h, blocks, size, -1)
    ks, vs = (_overlapping(t, how.left, how.window, size, extra).flatten(0, 1) for t in (k, v))
    ok = _seen(blocks, size, how, n, mask, q.device)
    if mask is not None: ok = ok.repeat_interleave(h, 0)
    o = F.scaled_dot_product_attention(qs, ks, vs, ok, scale=how.scale)
    return o.reshape(b, h, n + extra, -1)[:, :, :n]


def _overlapping(t: Tensor, left: int, window: int, size: int, extra: int) -> Tensor:
    """[b, h, n, d] → [b, h, blocks, size + window − 1, d]: the keys that each block may see. A view of the padded input."""
    padded = F.pad(t, (0, 0, left, window - 1 - left + extra))
    return padded.unfold(2, size + window - 1, size).transpose(-1, -2)


def _seen(blocks: int, size: int, how: How, n: int, mask: Tensor | None, device) -> Tensor:
    """[b or 1, blocks, size, size + window − 1]: key column j of block t stands at t·size + j − left."""
    left, window = how.left, how.window
    i, j = torch.arange(size, device=device)[:, None], torch.arange(size + window - 1, device=device)
    at = torch.arange(blocks, device=device)[:, None, None] * size + j - left
    ok = ((j >= i) & (j < i + window) & (at >= 0) & (at < n))[None]
    if mask is not None:
        there = F.pad(mask, (left, window - 1 - left + blocks * size - n)).unfold(1, size + window - 1, size)
        ok = ok & there[:, :, None, :]
    if how.own: return ok
    same = (j == i + left)[None, None]
    other = ok & ~same
    return other | (ok & same & ~other.any(-1, keepdim=True))
