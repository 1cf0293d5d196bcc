"""Where a number first stopped being finite."""
from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, fx, nn

from plait.dsl.errors import Span


def first_not_finite(module: nn.Module, parts: Sequence[tuple[Tensor, ...]], what: str, seed: Callable[[int], None]
                     ) -> tuple[str, Span | None]:
    """A clause that names the first parameter, layer or gradient that holds NaN or infinity, and the layer's place in the spec.
    parts: of the batch of the step that failed; `seed` sets torch's random numbers as for a part of it. `what`: loss or gradient."""
    for name, p in module.named_parameters():
        if not torch.isfinite(p).all(): return f"the parameter `{name}` no longer is", None
    if what == "gradient":
        # backward reaches the last layers first: of the gradients that are not finite, the last declared is the earliest made
        bad = [name for name, p in module.named_parameters() if p.grad is not None and not torch.isfinite(p.grad).all()]
        return (f"the gradient of `{bad[-1]}` is the first that is not" if bad else "its norm overflows"), None
    for k, inputs in enumerate(parts):
        seed(k)
        name, span = _first_node(module, inputs) if hasattr(module, "_lowered") else (_first_output(module, inputs), None)
        if name: return f"`{name}` is the first layer whose output is not", span
    return "all parameters and layers are, only the loss is not", None


def _spoiled(out: object) -> bool:
    """Holds NaN or +infinity. -infinity is how a mask is written, and harmless by itself."""
    parts = out if isinstance(out, tuple | list) else (out,)
    return any(isinstance(t, Tensor) and t.is_floating_point() and bool((t.isnan() | (t == torch.inf)).any()) for t in parts)


class _Watch(fx.Interpreter):
    """Runs a lowered graph node by node, and notes the first whose output is spoiled."""

    def __init__(self, graph: fx.GraphModule, found: list[fx.Node]):
        super().__init__(graph)
        self.found = found

    def run_node(self, n: fx.Node) -> object:
        out = super().run_node(n)
        if not self.found and n.op.startswith("call") and _spoiled(out): self.found.append(n)
        return out


def _first_node(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[str, Span | None]:
    """For a compiled model: its loss once more, lowered anew and watched, bodies of loops included."""
    kept = module._lowered, module._compiles
    before = torch.get_rng_state()
    found: list[fx.Node] = []
    try:
        module._lowered, module._compiles = {}, False                                       # type: ignore[assignment]
        with torch.no_grad():
            module.loss(*inputs)                                                           # type: ignore[operator]
            for lowered in list(module._lowered.values()):                                 # type: ignore[operator]
                for graph in lowered.modules():
                    if isinstance(graph, fx.GraphModule): graph.forward = _Watch(graph, found).run
            torch.set_rng_state(before)
            module.loss(*inputs)                                                           # type: ignore[operator]
    finally: module._lowered, module._compiles = kept
    return (found[0].meta.get("at", found[0].name), found[0].meta.get("span")) if found else ("", None)


def _first_output(module: nn.Module, inputs: tuple[Tensor, ...]) -> str:
    """For any other module: the name of the first sub-module, innermost first, with a spoiled output."""
    found: list[str] = []

    def watch(name: str):
        def hook(_module: nn.Module, _given: object, out: object) -> None:
            if _spoiled(out): found.append(name)
        return hook

    handles = [m.register_forward_hook(watch(name)) for name, m in module.named_modules() if name]
    try:
        with torch.no_grad(): module.loss(*inputs)                                         # type: ignore[operator]
    finally:
        for h in handles: h.remove()
    return found[0] if found else ""
