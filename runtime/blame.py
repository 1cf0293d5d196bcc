"""Where a number first stopped being finite."""
from __future__ import annotations

import torch
from torch import Tensor, nn


def first_not_finite(module: nn.Module, inputs: tuple[Tensor, ...], what: str) -> str:
    """A clause that names the first parameter, sub-module or gradient that holds NaN or infinity. `what`: loss or gradient."""
    for name, p in module.named_parameters():
        if not torch.isfinite(p).all(): return f"the parameter `{name}` no longer is"
    if what == "gradient":
        # backward reaches the last layers first: of the gradients that are not finite, the last declared is the earliest made
        bad = [name for name, p in module.named_parameters() if p.grad is not None and not torch.isfinite(p.grad).all()]
        return f"the gradient of `{bad[-1]}` is the first that is not" if bad else "its norm overflows"
    found = _first_output(module, inputs)
    return f"`{found}` is the first whose output is not" if found else "all parameters and layers still are, only the loss is not"


def _first_output(module: nn.Module, inputs: tuple[Tensor, ...]) -> str:
    """The name of the first sub-module, innermost first, with an output that is not finite."""
    found: list[str] = []

    def watch(name: str):
        def hook(_module: nn.Module, _given: object, out: object) -> None:
            parts = out if isinstance(out, tuple | list) else (out,)
            if any(isinstance(t, Tensor) and t.is_floating_point() and not torch.isfinite(t).all() for t in parts): found.append(name)
        return hook

    handles = [m.register_forward_hook(watch(name)) for name, m in module.named_modules() if name]
    try:
        with torch.no_grad(): module.loss(*inputs)                                         # type: ignore[operator]
    finally:
        for h in handles: h.remove()
    return found[0] if found else ""
