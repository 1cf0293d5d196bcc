"""A pre-norm decoder in plain PyTorch, as one would write it for speed: one product for queries, keys and values, the fused kernel."""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.peers.attention import Full


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), Full(heads, width)
        self.norm2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self, symbols: int, n: int, width: int, heads: int, layers: int):
        super().__init__()
        self.embed, self.positions = nn.Embedding(symbols, width), nn.Parameter(torch.randn(n, width) * width ** -0.5)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, symbols)

    @torch.no_grad()
    def take(self, other: nn.Module) -> None:
        """The weights of the same decoder from a spec, whose parameters come in the order of the forward pass."""
        theirs = [p.flatten() for p in other.parameters()]

        def fill(*own: Tensor) -> None:
            for p in own: p.copy_(theirs.pop(0).view_as(p))
        fill(self.embed.weight, self.positions)
        for b in self.blocks:
            fill(b.norm.weight, b.norm.bias)
            product = b.attention.qkv
            for weight, bias in zip(product.weight.chunk(3), product.bias.chunk(3)): fill(weight, bias)
            fill(b.attention.out.weight, b.attention.out.bias, b.norm2.weight, b.norm2.bias)
            fill(b.up.weight, b.up.bias, b.down.weight, b.down.bias)
        fill(self.norm.weight, self.norm.bias, self.out.weight, self.out.bias)
        assert not theirs

    def forward(self, text: Tensor) -> Tensor:
        x = self.embed(text) + self.positions
        for block in self.blocks: x = block(x)
        return self.out(self.norm(x))

    def loss(self, text: Tensor) -> Tensor:
        return F.cross_entropy(self(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())


class Library(nn.Module):
    """The decoder of x-transformers with its fused attention."""

    def __init__(self, symbols: int, n: int, width: int, heads: int, layers: int):
        super().__init__()
        from x_transformers import Decoder, TransformerWrapper
        self.net = TransformerWrapper(num_tokens=symbols, max_seq_len=n, attn_layers=Decoder(
            dim=width, depth=layers, heads=heads, attn_dim_head=width // heads, attn_flash=True))

    def loss(self, text: Tensor) -> Tensor:
        return F.cross_entropy(self.net(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
