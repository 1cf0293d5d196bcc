"""A recurrent language model in plain PyTorch: by the library's layer, or by a loop over its cell."""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LAYERS = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
CELLS = {"rnn": nn.RNNCell, "lstm": nn.LSTMCell, "gru": nn.GRUCell}


class Recurrent(nn.Module):
    def __init__(self, kind: str, symbols: int, width: int, hidden: int, loop: bool = False):
        super().__init__()
        self.embed = nn.Embedding(symbols, width)
        self.layer = CELLS[kind](width, hidden) if loop else LAYERS[kind](width, hidden, batch_first=True)
        self.loop = loop
        self.norm = nn.LayerNorm(hidden)
        self.out = nn.Linear(hidden, symbols)

    def forward(self, text: Tensor) -> Tensor:
        x = self.embed(text)
        if not self.loop: return self.out(self.norm(self.layer(x)[0]))
        state, seen = None, []
        for step in x.unbind(1):
            state = self.layer(step, state)
            seen.append(state[0] if isinstance(state, tuple) else state)
        return self.out(self.norm(torch.stack(seen, 1)))

    def loss(self, text: Tensor) -> Tensor:
        return F.cross_entropy(self(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
