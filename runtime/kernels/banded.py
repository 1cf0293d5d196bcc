"""Windowed attention by overlapping blocks: O(n·r) work and memory, never an n² mask."""
from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from plait.compiler.kernels import band
from plait.compiler.lowering.emission import KernelCall
from plait.runtime.kernels.attention import Layout


def banded(call: KernelCall) -> Callable:
    """q [b, n, h…, k], k [b, n, h…, k], v [b, n, h…, v]: query i sees keys i + w − left, w in 0 … window − 1.

    Queries in blocks of B; a block's keys are B + window − 1 rows of an overlapping view, not a copy; one mask, shared by all
    blocks but where padding stands."""
    layout, told = Layout(call, "n"), call.region.arg
    window, left, own, masked = int(call.number("window")), int(call.number("left")), bool(told("own", True)), bool(told("masked"))
    scale, rows = call.number("scale"), int(band(window))

    def run(q: Tensor, k: Tensor, v: Tensor, *rest: Tensor) -> Tensor:
        qs, ks, vs = layout.operands(q, k, v)
        if layout.grouped:
            ks, vs = [t.repeat_interleave(qs.shape[1] // t.shape[1], 1) for t in (ks, vs)]
        b, h, n, _ = qs.shape
        # Where n is free, a choice for the compiler to make: from the smaller of two sizes it would make no code.
        size, extra = (rows, -n % rows) if n > rows else (n, 0)
        blocks = (n + extra) // rows if n > rows else 1
        qs = F.pad(qs, (0, 0, 0, extra)).reshape(b * h, blocks, size, -1)
        ks, vs = [_overlapping(t, left, window, size, extra).flatten(0, 1) for t in (ks, vs)]
        mask = layout.rest(rest)[0] if masked else None
        ok = _seen(blocks, size, window, left, n, own, mask, q.device)
        if masked: ok = ok.repeat_interleave(h, 0)
        o = F.scaled_dot_product_attention(qs, ks, vs, ok, scale=scale)
        return layout.back(o.reshape(b, h, n + extra, -1)[:, :, :n], q)
    return run


def _overlapping(t: Tensor, left: int, window: int, size: int, extra: int) -> Tensor:
    """[b, h, n, d] → [b, h, blocks, size + window − 1, d]: the keys that each block may see. A view of the padded input."""
    padded = F.pad(t, (0, 0, left, window - 1 - left + extra))
    return padded.unfold(2, size + window - 1, size).transpose(-1, -2)


def _seen(blocks: int, size: int, window: int, left: int, n: int, own: bool, mask: Tensor | None, device) -> Tensor:
    """[b or 1, blocks, size, size + window − 1]: key column j of block t stands at t·size + j − left."""
    i, j = torch.arange(size, device=device)[:, None], torch.arange(size + window - 1, device=device)
    at = torch.arange(blocks, device=device)[:, None, None] * size + j - left
    ok = ((j >= i) & (j < i + window) & (at >= 0) & (at < n))[None]
    if mask is not None:
        there = F.pad(mask, (left, window - 1 - left + blocks * size - n)).unfold(1, size + window - 1, size)
        ok = ok & there[:, :, None, :]
    if own: return ok
    same = (j == i + left)[None, None]
    other = ok & ~same
    return other | (ok & same & ~other.any(-1, keepdim=True))
