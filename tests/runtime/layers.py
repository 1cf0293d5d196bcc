"""A model of every layer of the registry by itself, from what its arguments say."""
from __future__ import annotations

from plait.compiler.layer import LAYERS

FILLED = {"size": "4", "number": "1 / 2", "probability": "1 / 2", "count": "1"}
IO = {"embed": ("tokens[n] of 4", "[n, d]"), "unembed": ("stream[n, d]", "[n, 4]"), "pool": ("stream[n, d]", "[d]")}
CALLS = {"embed": "embed(4, width = d)", "linear": "linear(d)", "rnn": "rnn(d)", "lstm": "lstm(d)", "gru": "gru(d)",
         "conv": "conv(d, kernel = 3)", "separable_conv": "separable_conv(d, kernel = 3)"}


def call(name: str) -> str:
    """The layer with what it needs, by the kinds of its arguments; sizes that must fit the stream are named above."""
    if name in CALLS: return CALLS[name]
    needed = [a for a in LAYERS[name].arguments if a.required]
    values = [(a, a.choices[0] if a.choices else FILLED[next(k for k in a.kinds if k in FILLED)]) for a in needed]
    return f"{name}({', '.join(v if a.positional and k == 0 else f'{a.name} = {v}' for k, (a, v) in enumerate(values))})"


def of_layer(name: str) -> str:
    io, out = IO.get(name, ("stream[n, d]", "[n, d]"))
    return f"plait 1\ndims {{ n = 7; d = 8 }}\nmodel m {{\n  input x: {io}\n  y = x {{ {call(name)} }}\n  output y: {out}\n}}\n"
