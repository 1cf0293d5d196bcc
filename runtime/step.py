"""One update: the gradient of a batch, part by part, and what the optimiser makes of it."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from plait.dsl.errors import PlaitError, Span, error
from plait.runtime import optim
from plait.runtime.blame import first_not_finite
from plait.runtime.evaluate import mix
from plait.runtime.ranks import ALONE, Ranks, Spread, alone, local
from plait.runtime.recipe import Recipe


class NotFinite(Exception):
    """A loss or a gradient is NaN or infinite: a clause that says which and where, the numbers, and the layer's place in the spec."""

    def __init__(self, what: str, numbers: str, layer: Span | None):
        super().__init__(what)
        self.what, self.numbers, self.layer = what, numbers, layer


def gradient(module: nn.Module, parts: Sequence[tuple[Tensor, ...]], seed: Callable[[int], None],
             stopped: Callable[[], bool] = lambda: False, spread: Spread | None = None) -> tuple[Tensor, Tensor] | None:
    """Fills the parameters' gradients with that of the summed loss over all parts (and ranks). Gives the sum and how many targets count;
    None where it was `stopped` between two parts. `seed` is called with the number of a part before it is computed."""
    spread = spread or alone(module)
    module.zero_grad(set_to_none=True)
    totals, counts = [], []
    for k, part in enumerate(parts):
        if k and stopped():
            module.zero_grad(set_to_none=True)
            return None
        seed(k)
        with spread.part(k + 1 == len(parts)):
            _, total, count = spread.losses(*part)
            spread.back(total)                             # before a number is asked for: on a GPU to read it is to wait
        totals.append(total.detach())
        counts.append(count)
    total, count = spread.ranks.sums(torch.stack(totals).sum(), torch.stack(counts).sum())
    return total, count


def mean(module: nn.Module, count: Tensor) -> None:
    """From the gradient of a sum to that of the mean over `count` targets."""
    by = count.clamp(min=1).float()
    for p in module.parameters():
        if p.grad is not None: local(p.grad).div_(by)


def update(module: nn.Module, optimizer: torch.optim.Optimizer, recipe: Recipe, parts: Sequence[tuple[Tensor, ...]], step: int, lr: float,
           stopped: Callable[[], bool] = lambda: False, spread: Spread | None = None) -> tuple[float, float] | None:
    """One step: the mean loss before it over all targets of the batch, and the norm of its gradient before clipping. None where it was
    `stopped` between two parts: then nothing is updated.

    Raises NotFinite where loss or gradient are not; nothing is updated then either."""
    def seed(k: int) -> None: torch.manual_seed(mix(recipe.seed, step, k))

    found = gradient(module, parts, seed, stopped, spread)
    if found is None: return None
    total, count = found
    mean(module, count)
    value, norm = (total / count.clamp(min=1)).item(), math.nan
    if math.isfinite(value): norm = optim.clip(module.parameters(), recipe.clip)
    if not (math.isfinite(value) and math.isfinite(norm)):
        what = "gradient" if math.isfinite(value) else "loss"
        where, layer = _blamed(module, parts, what, seed, spread.ranks if spread else ALONE)
        numbers = f"loss = {value:g}, gradient norm = {norm:g}, lr = {lr:g}"
        raise NotFinite(f"the {what} is not finite at step {step:,}: {where}", numbers, layer)
    optim.set_rate(optimizer, lr)
    optimizer.step()
    return value, norm


def _blamed(module: nn.Module, parts: Sequence[tuple[Tensor, ...]], what: str, seed: Callable[[int], None], ranks: Ranks
            ) -> tuple[str, Span | None]:
    """What was first not finite, on the first rank that can name a layer."""
    if ranks.parts: return "its layer is not looked for where each rank has a part of the parameters", None
    found = ranks.all_of(first_not_finite(module, parts, what, seed))
    return next((f for f in found if f[1] is not None), found[0])


def spoiled(module: nn.Module) -> str | None:
    """The first parameter that holds NaN or infinity, in what of it lies here."""
    return next((name for name, p in module.named_parameters() if not torch.isfinite(local(p)).all()), None)


def diverged(recipe: Recipe, what: str, numbers: str, saved: Sequence[int], layer: Span | None = None) -> PlaitError:
    """saved: the steps that have a checkpoint; none where the first values are not finite."""
    last = f"the last checkpoint is step {saved[-1]:,}" if saved else "there is no checkpoint yet"
    return error("E0622", what, layer or recipe.keys.get("lr"), numbers=f"{numbers}; {last}",
                 help="a smaller lr, a longer warm-up, or clip = 1.0")
