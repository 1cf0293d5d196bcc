"""The optimiser of a recipe. Its learning rate is set before every step from the recipe's formula."""
from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby

import torch
from torch import Tensor, nn

from plait.compiler.program import Program
from plait.dsl.errors import error
from plait.runtime.formula import Unbound
from plait.runtime.matrices import hidden
from plait.runtime.optimizers import Adafactor, Muon, MuonAndAdam
from plait.runtime.ranks import whole
from plait.runtime.recipe import Described, Recipe


def build(module: nn.Module, described: Described) -> torch.optim.Optimizer:
    """Decay falls on matrices and embeddings, not on norms and biases, unless `decay_all`. adam: an L2 penalty (Kingma & Ba 2015);
    sgd: the same; the others: decoupled (Loshchilov & Hutter 2019)."""
    named = {name: p for name, p in module.named_parameters() if p.requires_grad}
    return OPTIMIZERS[described.kind](module, named, described.arguments)


def _groups(named: Mapping[str, Tensor], a: Mapping) -> list[dict]:
    """With decay, and without."""
    told = {name: bool(a.get("decay_all")) or is_matrix(name, p) for name, p in named.items()}
    parts = [([p for name, p in named.items() if told[name] is decayed], a["decay"] if decayed else 0.0) for decayed in (True, False)]
    return [{"params": params, "weight_decay": decay} for params, decay in parts if params] or [{"params": []}]


def is_matrix(name: str, p: Tensor) -> bool:
    """A weight of two axes or more: biases of heads and of gates have several too, and are none."""
    return p.dim() >= 2 and "bias" not in name.rpartition(".")[2]


def _adam(make: Callable[..., torch.optim.Optimizer]) -> Callable[..., torch.optim.Optimizer]:
    def built(module: nn.Module, named: Mapping[str, Tensor], a: Mapping) -> torch.optim.Optimizer:
        fused = all(p.device.type in ("cpu", "cuda") and p.is_floating_point() for p in named.values())
        return make(_groups(named, a), lr=0.0, betas=a["betas"], eps=a["eps"], fused=fused)
    return built


def _sgd(module: nn.Module, named: Mapping[str, Tensor], a: Mapping) -> torch.optim.Optimizer:
    return torch.optim.SGD(_groups(named, a), lr=0.0, momentum=a["momentum"], nesterov=a["nesterov"])


def _adafactor(module: nn.Module, named: Mapping[str, Tensor], a: Mapping) -> torch.optim.Optimizer:
    return Adafactor(_groups(named, a), clip=a["clip"])


def _muon(module: nn.Module, named: Mapping[str, Tensor], a: Mapping) -> torch.optim.Optimizer:
    hidden = {name: at for name, at in hidden_matrices(module).items() if name in named}
    groups = [{"params": [named[name] for name in names], "weight_decay": a["decay"], "apart": apart, "rows": rows}
              for (apart, rows), names in groupby(sorted(hidden, key=lambda n: hidden[n]), lambda n: hidden[n])]
    muon = Muon(groups or [{"params": []}], momentum=a["momentum"], nesterov=a["nesterov"])
    return MuonAndAdam(muon, _adam(torch.optim.AdamW)(module, {k: p for k, p in named.items() if k not in hidden}, a))  # type: ignore[arg-type]


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": _adam(torch.optim.Adam), "adamw": _adam(torch.optim.AdamW), "sgd": _sgd, "adafactor": _adafactor, "muon": _muon}


def hidden_matrices(module: nn.Module) -> dict[str, tuple[int, int]]:
    """Name → (axes that tell matrices apart, axes that are rows), of the weights between hidden layers, every copy by its name."""
    program: Program = module.program                                                      # type: ignore[assignment]
    return {".".join(path): at for v, at in hidden(program).items() for path in _paths(module._places[v.name])}   # type: ignore[index]


def _paths(place: object) -> Iterator[tuple[str, ...]]:
    """Of every copy."""
    if isinstance(place, list):
        for p in place: yield from _paths(p)
    else: yield place                                                                      # type: ignore[misc]


# ---- a step ------------------------------------------------------------------------------------------------------------
def rate(recipe: Recipe, step: int, last: int) -> float:
    """The learning rate of a step. Raises PlaitError where the formula gives no number, or a negative one."""
    try: lr = recipe.lr(step, last)
    except Unbound as missing:
        raise error("E0638", f"`{missing.name}` has no value", recipe.keys.get("lr"), help=f"--set {missing.name}=…") from None
    if math.isfinite(lr) and lr >= 0: return lr
    raise error("E0635", f"the learning rate is {'negative' if lr < 0 else 'not a number'} at step {step:,}", recipe.keys.get("lr"),
                numbers=f"lr({step:,}) = {lr:g}")


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups: group["lr"] = lr


def clip(parameters: Iterable[Tensor], norm: float | None) -> float:
    """Scales the gradients down to a total norm of `norm`, if one is given. Gives their norm before that. One that is not finite would
    spoil them all: then they are left as they are, for the cause to be found."""
    moved = [p for p in parameters if p.grad is not None]
    total = whole(nn.utils.get_total_norm([p.grad for p in moved if p.grad is not None]))
    value = total.item()
    if norm is not None and math.isfinite(value): nn.utils.clip_grads_with_norm_(moved, norm, total)
    return value


# ---- what is remembered ------------------------------------------------------------------------------------------------
def state_tensors(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """All that the optimiser remembers: `PARAMETER/exp_avg` and so on."""
    return {f"{name}/{key}": value for name, p in module.named_parameters() for key, value in optimizer.state.get(p, {}).items()
            if isinstance(value, Tensor)}


def restore(module: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Puts back what `state_tensors` gave. Raises KeyError for a parameter that the module does not have."""
    parameters = dict(module.named_parameters())
    fused = {p: bool(group.get("fused")) for group in optimizer.param_groups for p in group["params"]}
    optimizer.state.clear()
    for name, value in tensors.items():
        parameter, _, key = name.rpartition("/")
        p = parameters[parameter]
        on = p.device if key != "step" or fused.get(p) else torch.device("cpu")
        optimizer.state[p][key] = value.to(on)


class Average:
    """The mean of the parameters after every step, weighted by decay^age (Polyak & Juditsky 1992 with a window). The weights add up to 1
    from the first step on, so that the first values are no part of it."""

    def __init__(self, module: nn.Module, decay: float):
        self.module, self.decay = module, decay
        self.values = {name: p.detach().clone() for name, p in module.named_parameters()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        weight = (1 - self.decay) / (1 - self.decay ** step)
        for name, p in self.module.named_parameters(): self.values[name].lerp_(p, weight)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """The module has the mean for its parameters meanwhile."""
        self._swap()
        try: yield
        finally: self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, p in self.module.named_parameters():
            kept = p.clone()
            p.copy_(self.values[name])
            self.values[name].copy_(kept)
