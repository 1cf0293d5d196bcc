"""A decoder's training step: against the same model by hand, eager and compiled, and x-transformers; and the rate it reaches."""
from __future__ import annotations

import sympy as sp
import torch

from benchmarks.harness import LOSS, Row, agree, faster, in_turn, model, training
from benchmarks.peers.transformer import Decoder, Library
from plait.compiler.step import Step
from plait.runtime.module import Module

SYMBOLS = 256
SQUARE = 2048


def ours(n: int, d: int, heads: int, layers: int, compile: bool = True) -> Module:
    return model(f"""dims {{ n = {n}; d = {d}; V = {SYMBOLS} }}

model m {{
  input text: tokens[n] of V
  logits = text {{
    embed(V, width = d)
    positions(learned)
    repeat {layers} {{
      residual {{ attention(heads = {heads}, causal = true) }}
      residual {{ feed_forward(4 * d, activation = gelu) }}
    }}
    layer_norm
    unembed(V, bias = true)
  }}
  output logits: [n, V]
}}
""" + LOSS, compile)


def products(module: Module, batch: int, **free: int) -> int:
    """Multiply-adds of the matrix products of a step, derived; free: the dims that have no value."""
    program = module.program
    work = Step(lambda: program).work
    return int(program.sizes.bind(b=batch, **free).integer(batch * sp.Add(*(ledgers["contraction"] for ledgers in work.values()))))


def rows(n: int = 256, d: int = 512, heads: int = 8, layers: int = 2, batch: int = 16) -> list[Row]:
    text = torch.randint(SYMBOLS, (batch, n + 1))
    plait = ours(n, d, heads, layers)
    hand = {name: Decoder(SYMBOLS, n, d, heads, layers) for name in ("by hand", "by hand, compiled")}
    hand["by hand"].take(plait)
    with torch.no_grad(): agree(plait.loss(text), hand["by hand"].loss(text))
    others = {name: Library(SYMBOLS, n, d, heads, layers) for name in ("x-transformers", "x-transformers, compiled")}
    losses = {"plait": (plait, plait.loss), "by hand": (hand["by hand"], hand["by hand"].loss),
              "by hand, compiled": (m := hand["by hand, compiled"], torch.compile(m.loss)),
              "x-transformers": (m := others["x-transformers"], m.loss),
              "x-transformers, compiled": (m := others["x-transformers, compiled"], torch.compile(m.loss))}
    square = torch.randn(SQUARE, SQUARE)
    times = in_turn({**{name: training(lambda fn=fn: fn(text), m.parameters()) for name, (m, fn) in losses.items()},
                     "torch.mm": lambda: torch.mm(square, square)})
    what = f"decoder, n = {n}, d = {d}, {layers} layers, batch {batch}, training step"
    count = products(plait, batch)
    rate = count / times["plait"] / (SQUARE ** 3 / times["torch.mm"])
    return [faster(what, "the fastest of by hand and x-transformers, each eager and compiled", 1.0, times, "plait",
                   tuple(name for name in losses if name != "plait")),
            Row(what, f"the rate of `torch.mm`, {SQUARE:,} × {SQUARE:,}", "≥ 0.6×", rate, rate >= 0.6, f"{count:,} multiply-adds")]
