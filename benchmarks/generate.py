"""Sampling: 512 symbols of a decoder by its incremental step, against all positions anew for each symbol."""
from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.harness import Row, agree, faster, in_turn
from benchmarks.transformer import ours
from plait.runtime.generate.steps import Stepper, stepper


def continued(run: Stepper, text: Tensor) -> Tensor:
    """The logits of text [b, n], a step a symbol."""
    at, outs = run.begin(len(text)), []
    for symbol in text.split(1, 1):
        y, at = run.step(symbol, at)
        outs.append(y)
    return torch.cat(outs, 1)


def rows(n: int = 512, d: int = 512, h: int = 8, layers: int = 6, rounds: int = 3) -> list[Row]:
    text = torch.randint(256, (1, n), generator=torch.Generator().manual_seed(0))
    eager, compiled = ours(n, d, h, layers, compile=False).eval(), ours(n, d, h, layers).eval()
    run = stepper(eager)
    with torch.no_grad():
        agree(continued(run, text), eager(text), 1e-5)
        runs = {"all": lambda: continued(run, text), "all anew": lambda: eager(text), "all anew, compiled": lambda: compiled(text)}
        times = in_turn(runs, rounds)
    each = {**times, "a symbol": times["all"] / n}
    return [faster(f"sampling of a decoder, {layers} layers, n = {n}, d = {d}, a symbol", "all positions anew", 10, each, "a symbol",
                   ("all anew", "all anew, compiled"))]
