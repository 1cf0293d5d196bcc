"""Feed-forward and loss in 16 pieces, with 32,000 symbols, against the same unchunked.

The peak is what lies above the results, which are the same in both: the output, and the gradients of input and parameters."""
from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from benchmarks.harness import LOSS, Row, agree, at_most, back_and_forth, in_turn, layer, milliseconds, model
from plait.runtime.audit.measure import peak

PIECES = 16


def _rows(what: str, runs: Mapping[str, Callable[[], None]], results: list[Tensor]) -> list[Row]:
    times = in_turn(runs)
    given = sum(t.nbytes for t in results)
    most = {name: peak(fn) - given for name, fn in runs.items()}
    size = ", ".join(f"{name} {m / 2**20:,.0f} MiB" for name, m in most.items())
    return [at_most(what + ", peak above its results", "whole", 1 / 8, most["in pieces"] / most["whole"], size),
            at_most(what + ", time", "whole", 1.1, times["in pieces"] / times["whole"], milliseconds(times))]


def rows(n: int = 4096, d: int = 512, symbols: int = 32_000, length: int = 2048) -> list[Row]:
    x = torch.randn(1, n, d)
    inner = "linear(4 * d); gelu; linear(d)"
    parts = {"whole": layer(inner, n, d), "in pieces": layer(f"chunked(over = n, pieces = {PIECES}) {{ {inner} }}", n, d)}
    with torch.no_grad(): agree(parts["in pieces"](x), parts["whole"](x))
    found = _rows(f"feed-forward in {PIECES} pieces, n = {n:,}, d = {d}, forward + backward",
                  {k: back_and_forth(m, x) for k, m in parts.items()}, [x, x, *parts["whole"].parameters()])
    x, text = torch.randn(1, length, d), torch.randint(symbols, (1, length))
    losses = {name: model(f"""dims {{ n = {length}; V = {symbols}; d = {d} }}

model m {{
  input x: stream[n, d]
  input text: tokens[n] of V
  logits = x {{ unembed(V) }}
  output logits: [n, V]
}}
""" + LOSS.replace("next(text))", f"text, pieces = {pieces})")) for name, pieces in (("whole", 1), ("in pieces", PIECES))}
    with torch.no_grad(): agree(losses["in pieces"].loss(x, text), losses["whole"].loss(x, text))

    def run(m) -> Callable[[], None]:
        def step() -> None:
            given = x.detach().requires_grad_()
            torch.autograd.grad(m.loss(given, text), [given, *m.parameters()])
        return step
    what = f"output layer and loss in {PIECES} pieces, V = {symbols:,}, n = {length:,}, d = {d}, forward + backward"
    return found + _rows(what, {k: run(m) for k, m in losses.items()}, [x, *losses["whole"].parameters()])
