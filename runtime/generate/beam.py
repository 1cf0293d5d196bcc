"""Beam search: the likeliest continuations, a batch of sequences at once, with the caches of the model put in order as beams change."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plait.dsl.errors import error
from plait.runtime.generate.steps import Progress, Stepper


@dataclass(frozen=True)
class Beam:
    """width: hypotheses of a sequence that are kept; 1 is greedy. penalty: α of the length penalty of Wu et al. 2016, equation 14:
    a hypothesis Y is worth log P(Y) / ((5 + |Y|)^α / 6^α), its end symbol counted."""
    width: int = 4
    penalty: float = 0.6

    def __post_init__(self):
        if self.width < 1 or not 0 <= self.penalty < float("inf"):
            raise error("E0625", "a beam is at least 1 wide, and its length penalty at least 0")

    def divisor(self, length: int) -> float:
        return ((5 + length) / 6) ** self.penalty


@dataclass(frozen=True)
class Found:
    """The symbols without the end symbol, and the log probability divided by the length penalty."""
    symbols: tuple[int, ...]
    score: float


def search(run: Stepper, prompts: Tensor, inputs: dict[str, Tensor], limits: Sequence[int], beam: Beam, end: int | None = None,
           symbols: int | None = None) -> list[Found]:
    """The best continuation of each row of `prompts` [b, k]: at most `limits[row]` symbols, the end symbol among them.

    inputs: the model's other inputs, [b, …] each. symbols: only the first so many may be said. Of the `width` likeliest extensions of all
    hypotheses those that end are complete (Sutskever et al. 2014, section 3.2); the search of a sequence stops when no other can be
    worth more, or at its limit, where a hypothesis is taken as it is. The module is in evaluation mode."""
    b, width = len(prompts), beam.width
    device = prompts.device
    best: list[Found | None] = [None] * b
    rows = list(range(b))                                                    # the sequences that are still searched
    said = torch.zeros((b, width, 0), dtype=torch.int64, device=device)
    scores = torch.full((b, width), -torch.inf, dtype=torch.float64, device=device)
    scores[:, 0] = 0
    each = torch.arange(b, device=device).repeat_interleave(width)
    at: Progress = run.begin(b * width, **{k: x[each] for k, x in inputs.items()})
    new = _given(run, prompts)[each]
    for length in range(1, max(limits) + 1):
        logits, at = run.step(new, at)
        scores, said, parents = _extended(logits[:, -1], scores, said, symbols)
        live = torch.isfinite(scores)
        if end is not None:
            ended = (said[:, :, -1] == end) & live
            for k, j in ended.nonzero().tolist(): _better(best, rows[k], said[k, j, :-1], float(scores[k, j]) / beam.divisor(length))
            scores = scores.masked_fill(ended, -torch.inf)
        stays = []
        for k, (row, top) in enumerate(zip(rows, scores.max(1).values.tolist())):
            if length >= limits[row] and top > -torch.inf:
                _better(best, row, said[k, int(scores[k].argmax())], top / beam.divisor(length))
            done = best[row]
            if length < limits[row] and top > -torch.inf and (done is None or top / beam.divisor(limits[row]) > done.score): stays.append(k)
        if not stays: break
        rows = [rows[k] for k in stays]
        keep = torch.tensor(stays, device=device)
        at = run.choose(at, (keep[:, None] * width + parents[keep]).flatten())
        scores, said = scores[keep], said[keep]
        new = said[:, :, -1].reshape(-1, 1)
    return [f if f is not None else Found((), -torch.inf) for f in best]


def _given(run: Stepper, prompts: Tensor) -> Tensor:
    """What the first positions are given."""
    return torch.cat([prompts.new_zeros(len(prompts), 1), prompts], 1) if run.delayed else prompts


def _extended(logits: Tensor, scores: Tensor, said: Tensor, symbols: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """logits [b·width, V] → the scores [b, width], symbols [b, width, length] and parents [b, width] of the likeliest extensions."""
    b, width = scores.shape
    p = logits.double().log_softmax(-1)
    if p.isnan().any(): raise error("E0622", "the model's output is not finite", help="train again with a smaller lr, or clip = 1.0")
    if symbols is not None: p = p[:, :symbols]
    every = (scores[:, :, None] + p.view(b, width, -1)).flatten(1)
    found, at = every.topk(min(width, every.shape[1]), 1)
    if found.shape[1] < width:                                               # fewer extensions than the beam is wide
        found = torch.nn.functional.pad(found, (0, width - found.shape[1]), value=-torch.inf)
        at = torch.nn.functional.pad(at, (0, width - at.shape[1]))
    parents, symbol = at // p.shape[-1], at % p.shape[-1]
    before = said.gather(1, parents[:, :, None].expand(-1, -1, said.shape[2]))
    return found, torch.cat([before, symbol[:, :, None]], 2), parents


def _better(best: list[Found | None], row: int, symbols: Tensor, score: float) -> None:
    before = best[row]
    if before is None or score > before.score: best[row] = Found(tuple(symbols.tolist()), score)
