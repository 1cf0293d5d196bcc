"""How things are measured: in turn, in one process, medians; and the rows that come out."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from plait import files
from plait.compiler.expand import expand
from plait.runtime.laboratory import turns
from plait.runtime.module import Module

ROUNDS = 7
WARM = 2
LOSS = """
train {
  data = bytes("a")
  loss = cross_entropy(logits, next(text))
  stop = 1 steps
}
"""


@dataclass(frozen=True)
class Row:
    """One line of the results. ratio: how many times faster or smaller than `against`, or how much it grew: `goal` says which."""
    what: str
    against: str
    goal: str
    ratio: float
    met: bool
    detail: str = ""

    def as_dict(self) -> dict: return asdict(self)


def faster(what: str, against: str, goal: float, times: Mapping[str, float], ours: str, peers: tuple[str, ...] | str) -> Row:
    """A row for `ours` against the fastest of the peers: at least `goal` times as fast."""
    names = (peers,) if isinstance(peers, str) else peers
    best = min(names, key=lambda p: times[p])
    ratio = times[best] / times[ours]
    return Row(what, against, f"≥ {goal}×", ratio, ratio >= goal, milliseconds({ours: times[ours], **{p: times[p] for p in names}}))


def at_most(what: str, against: str, goal: float, ratio: float, detail: str = "") -> Row:
    return Row(what, against, f"≤ {goal:.3g}×", ratio, ratio <= goal, detail)


def milliseconds(times: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {1e3 * t:.1f} ms" for name, t in times.items())


def in_turn(runs: Mapping[str, Callable[[], object]], rounds: int = ROUNDS, warm: int = WARM) -> dict[str, float]:
    """Name → median seconds of one call. Every round calls each once, so that what disturbs the machine disturbs all."""
    return {name: found.median for name, found in turns.in_turn(runs, rounds, warm).items()}


def model(text: str, compile: bool = True, **how) -> Module:
    """The only model of a spec's text, the same weights every time."""
    torch.manual_seed(0)
    file = files.opened(Path("benchmark.plait"), text="plait 1\n\n" + text)
    (name,) = file.models
    return Module(expand(file, name, loss="\ntrain" in text), compile=compile, **how)


def layer(chain: str, n: int, d: int, compile: bool = True, **how) -> Module:
    """A chain of layers from [n, d] to [n, d]."""
    return model(f"dims {{ n = {n}; d = {d} }}\n\nmodel m {{\n  input x: stream[n, d]\n  y = x {{ {chain} }}\n  output y: [n, d]\n}}\n",
                 compile, **how)


def back_and_forth(module: nn.Module, x: Tensor) -> Callable[[], None]:
    """Forward and backward of one layer: gradients of the input and of every parameter, as in the middle of a model."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    weight = torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).to(x.device)

    def run() -> None:
        given = x.detach().requires_grad_()
        out = module(given)
        torch.autograd.grad(out, [given, *parameters], weight)
    return run


def training(loss: Callable[[], Tensor], parameters) -> Callable[[], None]:
    """A training step: gradients gone, forward, backward, AdamW."""
    own = list(parameters)
    optimizer = torch.optim.AdamW(own, lr=1e-4)

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()
    return run


def agree(ours: Tensor, theirs: Tensor, tolerance: float = 1e-4) -> None:
    """Before two are timed that compute the same function."""
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
