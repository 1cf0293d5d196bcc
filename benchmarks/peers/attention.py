"""Attention by hand, in plain PyTorch."""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Full(nn.Module):
    """Causal attention of a stream with itself, by the fused kernel; with its projections where a width is given."""

    def __init__(self, heads: int, width: int | None = None):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width) if width else None
        self.out = nn.Linear(width, width) if width else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1) if self.qkv else (x, x, x)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(o.transpose(1, 2).flatten(-2))


class Blocks(nn.Module):
    """Causal attention over a window, by the fused kernel on blocks of queries, each with the keys it can see."""

    def __init__(self, heads: int, window: int, block: int = 64):
        super().__init__()
        self.heads, self.window, self.block = heads, window, block
        self.span = block + window - 1
        self.made: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        n, block, span = x.shape[1], self.block, self.span
        pad, count = -n % block, -(-n // block)
        q = x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        b, h, _, w = q.shape
        keys = F.pad(q, (0, 0, span - block, pad)).unfold(2, span, block).transpose(-1, -2).flatten(0, 1)        # a view of the padded keys
        queries = F.pad(q, (0, 0, 0, pad)).reshape(b * h, count, block, w)
        o = F.scaled_dot_product_attention(queries, keys, keys, attn_mask=self.mask(count, x.device))
        return o.reshape(b, h, n + pad, w)[:, :, :n].transpose(1, 2).flatten(-2)

    def mask(self, count: int, device: torch.device) -> Tensor:
        """[blocks, queries, keys], made once for a length."""
        if self.made is None or len(self.made) != count:
            rows = torch.arange(self.block, device=device)[:, None] + self.span - self.block
            columns = torch.arange(self.span, device=device)
            there = torch.arange(count, device=device)[:, None, None] * self.block + columns >= self.span - self.block
            self.made = (columns <= rows) & (rows - columns < self.window) & there
        return self.made
