"""Whole attention: the library's fused call, and one in blocks of rows that holds no n² of anything."""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from plait.compiler.graph import Graph
from plait.compiler.kernels import BLOCK_ROWS
from plait.compiler.lowering import tensors
from plait.compiler.lowering.derivatives import first_only
from plait.compiler.lowering.emission import KernelCall
from plait.compiler.lowering.tensors import LOW, scrambled
from plait.compiler.prims import Random


class Layout:
    """An attention region's operands brought to q [b, h, n, k], k [b, h, n', k], v [b, h, n', v], and its result back.

    order: the queries' head axes, those that keys and values have first; grouped: queries have one more than keys.
    keys: the name of the sequence axis of the keys."""

    def __init__(self, call: KernelCall, keys: str):
        self.call = call
        q, k = (t.names for t in call.ins[:2])
        shared = tuple(a for a in k if a not in ("b", keys, "k"))
        self.order = (*shared, *(a for a in q if a not in ("b", "n", "k", *shared)))
        self.grouped = len(shared) < len(self.order)
        self.into = call.into(0, "b", *self.order, "n", "k"), call.into(1, "b", *shared, keys, "k"), call.into(2, "b", *shared, keys, "v")
        self.out = call.back("b", *self.order, "n", "v")

    def operands(self, *qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = [_one_head(order(t)) for order, t in zip(self.into, qkv)]
        return q, k, v

    def back(self, o: Tensor, q: Tensor) -> Tensor:
        """o [b, h, n, v]; q as the region got it."""
        names = self.call.ins[0].names
        return self.out(o.reshape(o.shape[0], *[q.shape[names.index(a)] for a in self.order], *o.shape[-2:]))

    def rest(self, operands: tuple[Tensor, ...]) -> tuple[Tensor | None, Tensor | None]:
        """The mask [b, n'] and the key, where the region has them."""
        return operands[0] if self.call.region.arg("masked") else None, operands[-1] if self.call.region.arg("dropout") else None


def _one_head(t: Tensor) -> Tensor:
    """[b, heads…, n, k] with one axis for all heads."""
    return t if t.dim() == 4 else t.reshape(t.shape[0], -1, *t.shape[-2:])


def allowed(rows: Tensor, columns: Tensor, mask: Tensor | None, causal: bool, own: bool) -> Tensor | None:
    """Who sees whom, [b or 1, 1, rows, columns], or None where all see all. rows, columns: positions.

    own = False: a position sees itself only where it would see nothing else."""
    i, j = rows[:, None], columns[None, :]
    ok = (j <= i)[None, None] if causal else None
    if mask is not None: ok = mask[:, None, None, :] if ok is None else ok & mask[:, None, None, :]
    if own: return ok
    same = (i == j)[None, None]
    other = ~same if ok is None else ok & ~same
    stays = same & ~other.any(-1, keepdim=True)
    return other | (stays if ok is None else stays & ok)


def fused(call: KernelCall) -> Callable:
    """torch's scaled_dot_product_attention: flash, memory-efficient or cuDNN, as the device has them."""
    layout, told = Layout(call, "n'"), call.region.arg
    causal, own, masked = bool(told("causal")), bool(told("own", True)), bool(told("masked"))
    scale = call.number("scale")
    plain = own and not masked

    def run(q: Tensor, k: Tensor, v: Tensor, *rest: Tensor) -> Tensor:
        qs, ks, vs = layout.operands(q, k, v)
        mask = layout.rest(rest)[0]
        ok = None
        if not plain:
            n, m = qs.shape[-2], ks.shape[-2]
            ok = allowed(torch.arange(n, device=q.device), torch.arange(m, device=q.device), mask, causal, own)
            if ok is not None: ok = ok.expand(qs.shape[0], 1, n, m)
        o = F.scaled_dot_product_attention(qs, ks, vs, ok, is_causal=causal and plain, scale=scale, enable_gqa=layout.grouped)
        return layout.back(o, q)
    return run


ROWS = BLOCK_ROWS


def rowwise(call: KernelCall) -> Callable:
    """Blocks of rows, recomputed in backward; saves q, k, v, the output and a number a row. Kitaev et al. 2020, section 2.

    Dropout too: an element's bits are a function of its number, so a block makes just its own."""
    layout, told = Layout(call, "n'"), call.region.arg
    causal, own = bool(told("causal")), bool(told("own", True))
    scale, drop = float(call.number("scale")), float(call.number("dropout", default=0))
    order = dropped_axes(call.region.body) if drop else ()

    def run(q: Tensor, k: Tensor, v: Tensor, *rest: Tensor) -> Tensor:
        qs, ks, vs = layout.operands(q, k, v)
        if layout.grouped:
            ks, vs = (t.repeat_interleave(qs.shape[1] // t.shape[1], 1) for t in (ks, vs))
        mask, key = layout.rest(rest)
        strides = None
        if drop:
            sizes = {**dict(zip(call.ins[0].names, q.shape)), "n'": k.shape[call.ins[1].names.index("n'")]}
            strides = tuple(number_of_elements(order, sizes, ("b",), layout.order))
        how = How(causal, own, scale, drop, strides)
        if torch.is_autocast_enabled(q.device.type): qs, ks, vs = (t.to(torch.get_autocast_dtype(q.device.type)) for t in (qs, ks, vs))
        with torch.autocast(q.device.type, enabled=False): o = Rowwise.apply(qs, ks, vs, mask, key, how)
        return layout.back(o, q)
    return run


def dropped_axes(body: Graph) -> tuple[str, ...]:
    """The axes of the scores in the order in which the body numbers their elements."""
    return next(tuple(a.name for a in n.op.axes) for n in body.walk() if isinstance(n.op, Random) and n.op.fn == "uniform")


def number_of_elements(order: tuple[str, ...], sizes: dict, batch: tuple[str, ...], heads: tuple[str, ...]):
    """(numbers of the first elements of every [b, h] as nested starts, sizes and strides, the strides of n and n'). Other processes may
    have other parts of the batch: see `tensors.elements`."""
    part, parts = tensors.SHARE
    stride, strides = 1, {}
    for a in reversed(order): strides[a], stride = stride, stride * sizes[a] * (parts if a in batch else 1)
    return [(part * sizes[a] if a in batch else 0, sizes[a], strides[a]) for a in (*batch, *heads)], strides["n"], strides["n'"]


@dataclass(frozen=True)
class How:
    causal: bool
    own: bool
    scale: float
    drop: float
    strides: tuple | None

    def kept(self, key: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """Which scores stay, [b, h, rows, columns]: the same bits as `random` gives the same elements."""
        assert self.strides is not None
        outer, of_row, of_column = self.strides
        first = torch.zeros((), dtype=torch.int64, device=rows.device)
        for start, size, stride in outer: first = first[..., None] + torch.arange(start, start + size, device=rows.device) * stride
        first = first.reshape(outer[0][1], -1)
        inner = (rows * of_row)[:, None] + columns * of_column
        bits = scrambled(scrambled((first[:, :, None, None] + inner).bitwise_xor_(key & LOW)).bitwise_xor_(key >> 32))
        return bits.bitwise_right_shift_(8) >= math.ceil(self.drop * 2**24)                   # as whole numbers: the steps are 2⁻²⁴


class Rowwise(torch.autograd.Function):
    """softmax(q kᵀ·scale) v over q [b, h, n, k], k [b, h, n', k], v [b, h, n', v]. A block is a call of its own: what it holds is gone
    before the next one."""

    @staticmethod
    def forward(ctx, q, k, v, mask, key, how: How):
        out, total = q.new_empty(*q.shape[:-1], v.shape[-1]), q.new_empty(q.shape[:-1], dtype=torch.promote_types(q.dtype, torch.float32))
        for rows, seen in Rowwise.blocks(q, k, how):
            out[:, :, rows], total[:, :, rows] = Rowwise.ahead(q, k, v, mask, key, how, rows, seen)
        ctx.save_for_backward(q, k, v, mask, key, out, total)
        ctx.how = how
        return out

    @staticmethod
    def blocks(q, k, how: How) -> Iterator[tuple[Tensor, Tensor]]:
        """Some rows and the columns that any of them sees."""
        n, m = q.shape[-2], k.shape[-2]
        columns = torch.arange(m, device=q.device)
        for a in range(0, n, ROWS):
            rows = torch.arange(a, min(n, a + ROWS), device=q.device)
            yield rows, columns[:a + len(rows)] if how.causal and m > a + len(rows) else columns

    @staticmethod
    def scores(q, k, mask, how: How, rows, seen) -> Tensor:
        s = (q[:, :, rows] @ k[:, :, :len(seen)].transpose(-1, -2)).to(torch.promote_types(q.dtype, torch.float32)).mul_(how.scale)
        ok = allowed(rows, seen, None if mask is None else mask[:, :len(seen)], how.causal, how.own)
        return s if ok is None else s.masked_fill_(~ok, float("-inf"))

    @staticmethod
    def ahead(q, k, v, mask, key, how: How, rows, seen) -> tuple[Tensor, Tensor]:
        """A block's rows of the output, and the logarithms of their sums."""
        kept = how.kept(key, rows, seen) if how.drop else None                                 # first: its whole numbers are large
        s = Rowwise.scores(q, k, mask, how, rows, seen)
        top = s.amax(-1, keepdim=True).clamp(min=torch.finfo(s.dtype).min)
        p = s.sub_(top).exp_()
        row = p.sum(-1, keepdim=True)
        p.div_(torch.where(row > 0, row, 1))
        if kept is not None: p.mul_(kept).div_(1 - how.drop)
        total = torch.where(row > 0, top + row.log(), float("inf")).squeeze(-1)               # a row that sees nothing: exp gives 0
        return p.to(v.dtype) @ v[:, :, :len(seen)], total

    @staticmethod
    @first_only
    def backward(ctx, grad):
        q, k, v, mask, key, out, total = ctx.saved_tensors
        how: How = ctx.how
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k, dtype=total.dtype), torch.zeros_like(v, dtype=total.dtype)
        delta = (grad.to(total.dtype) * out).sum(-1, keepdim=True)
        for rows, seen in Rowwise.blocks(q, k, how):
            back = total[:, :, rows, None], delta[:, :, rows], grad[:, :, rows]
            dq[:, :, rows] = Rowwise.back(q, k, v, mask, key, how, rows, seen, *back, dk, dv)
        return dq, dk.to(k.dtype), dv.to(v.dtype), None, None, None

    @staticmethod
    def back(q, k, v, mask, key, how: How, rows, seen, total, delta, g, dk, dv) -> Tensor:
        """The gradient of a block's queries; those of keys and values are added to dk and dv."""
        w = len(seen)
        kept = how.kept(key, rows, seen) if how.drop else None
        p = Rowwise.scores(q, k, mask, how, rows, seen).sub_(total).exp_()
        dp = (g @ v[:, :, :w].transpose(-1, -2)).to(p.dtype)
        used = p
        if kept is not None:
            dp.mul_(kept).div_(1 - how.drop)
            used = (p * kept).div_(1 - how.drop)
        dv[:, :, :w] += used.to(g.dtype).transpose(-1, -2) @ g
        del used
        ds = dp.sub_(delta).mul_(p).mul_(how.scale).to(q.dtype)
        dk[:, :, :w] += ds.transpose(-1, -2) @ q[:, :, rows]
        return ds @ k[:, :, :w]
