"""The blocks of a decoder, each checkpointed, in plain PyTorch."""
from __future__ import annotations

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from benchmarks.peers.transformer import Block


class Checkpointed(nn.Module):
    def __init__(self, width: int, heads: int, layers: int):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks: x = checkpoint(block, x, use_reentrant=False)
        return x
