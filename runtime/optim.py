"""The optimiser of a recipe. Its learning rate is set before every step from the recipe's formula."""
from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from plait.dsl.errors import error
from plait.runtime.formula import Unbound
from plait.runtime.recipe import Described, Recipe

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def build(module: nn.Module, described: Described) -> torch.optim.Optimizer:
    """Adam: decay is an L2 penalty (Kingma & Ba 2015); AdamW: it is decoupled (Loshchilov & Hutter 2019).

    Decay falls on parameters with two dimensions or more (matrices, embeddings), not on norms and biases (a bias of heads has
    two dimensions), unless `decay_all`."""
    a = described.arguments
    named = {name: p for name, p in module.named_parameters() if p.requires_grad}
    parameters = list(named.values())
    decayed = [p for name, p in named.items() if a["decay_all"] or p.dim() >= 2 and not name.endswith("bias")]
    rest = [p for name, p in named.items() if not (a["decay_all"] or p.dim() >= 2 and not name.endswith("bias"))]
    groups = [{"params": ps, "weight_decay": decay} for ps, decay in ((decayed, a["decay"]), (rest, 0.0)) if ps]
    fused = all(p.device.type in ("cpu", "cuda") and p.is_floating_point() for p in parameters)
    return OPTIMIZERS[described.kind](groups, lr=0.0, betas=a["betas"], eps=a["eps"], fused=fused)


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
    """Scales the gradients down to a total norm of `norm`, if one is given. Gives their norm before that."""
    moved = [p for p in parameters if p.grad is not None]
    total = nn.utils.get_total_norm([p.grad for p in moved if p.grad is not None])
    if norm is not None: nn.utils.clip_grads_with_norm_(moved, norm, total)
    return total.item()


def state_tensors(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """All that the optimiser remembers: `PARAMETER/exp_avg` and so on."""
    return {f"{name}/{key}": value for name, p in module.named_parameters() for key, value in optimizer.state.get(p, {}).items()}


def restore(module: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Puts back what `state_tensors` gave. Raises KeyError for a parameter that the module does not have."""
    parameters = dict(module.named_parameters())
    optimizer.state.clear()
    for name, value in tensors.items():
        parameter, _, key = name.rpartition("/")
        p = parameters[parameter]
        on = p.device if key != "step" or optimizer.defaults.get("fused") else torch.device("cpu")
        optimizer.state[p][key] = value.to(on)
