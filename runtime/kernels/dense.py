"""Regions for which torch has one call: softmax, norms, convolution, cross entropy."""
from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from plait.compiler.lowering.emission import KernelCall


def softmax(call: KernelCall) -> Callable:
    """e^x / Σ e^x along one axis; a row without a finite entry gives zeros, and passes no gradient."""
    dim = call.ins[0].names.index(call.region.arg("over"))
    return lambda x: torch.ops.aten._safe_softmax(x, dim)


def _last(call: KernelCall) -> tuple[Callable, Callable]:
    """Into the layout in which torch normalises, the axis last, and back."""
    over = call.region.arg("over")
    names = (*(n for n in call.ins[0].names if n != over), over)
    return call.into(0, *names), call.back(*names)


def layer_norm(call: KernelCall) -> Callable:
    into, back = _last(call)
    eps = call.number("eps")

    def run(x: Tensor, scale: Tensor, shift: Tensor | None = None) -> Tensor:
        return back(F.layer_norm(into(x), scale.shape, scale, shift, eps))
    return run


def rms_norm(call: KernelCall) -> Callable:
    into, back = _last(call)
    eps = call.number("eps")

    def run(x: Tensor, scale: Tensor) -> Tensor:
        x = into(x).to(scale.dtype)                            # under autocast x may be shorter
        own = x.device.type == "cpu" and torch.is_grad_enabled()
        return back(Scaled.apply(x, scale, eps) if own else F.rms_norm(x, scale.shape, scale, eps))
    return run


class Scaled(torch.autograd.Function):
    """x / √(mean of x² + eps) · scale over the last axis. On a CPU torch's own is a composite, whose autograd keeps the normalised rows
    too, and makes their powers again: this keeps x and a number a row."""

    @staticmethod
    def forward(ctx, x: Tensor, scale: Tensor, eps: float) -> Tensor:
        inverse = x.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
        ctx.save_for_backward(x, scale, inverse)
        ctx.eps = eps
        return (x * inverse).mul_(scale)

    @staticmethod
    def backward(ctx, g: Tensor):
        x, scale, inverse = ctx.saved_tensors
        if torch.is_grad_enabled(): return (*_twice(x, scale, ctx.eps, g, ctx.needs_input_grad), None)
        hat = x * inverse
        d_scale = (g * hat).flatten(0, -2).sum(0) if ctx.needs_input_grad[1] else None
        if not ctx.needs_input_grad[0]: return None, d_scale, None
        slope = g * scale
        along = (slope * hat).mean(-1, keepdim=True)
        return slope.sub_(hat.mul_(along)).mul_(inverse), d_scale, None


def _twice(x: Tensor, scale: Tensor, eps: float, g: Tensor, need: tuple[bool, ...]) -> list[Tensor | None]:
    """The gradients where they are to be differentiated again: the number a row that was kept is a function of x, too."""
    wanted = [t for t, needed in zip((x, scale), need) if needed]
    found = iter(torch.autograd.grad(F.rms_norm(x, scale.shape, scale, eps), wanted, g, create_graph=True))
    return [next(found) if needed else None for needed in need[:2]]


def conv1d(call: KernelCall) -> Callable:
    """x [b, n, d] or [b, n, g, i], weight (d', d, w), (g, o, i, w), or (d, w) where every feature stands alone."""
    x, weight = call.ins
    dilation, left, width = (int(call.number(k)) for k in ("dilation", "left", "kernel"))
    before, after = left * dilation, max(0, (width - 1 - left) * dilation)
    n = next(a.name for a in x.axes if a.role == "sequence")
    b = next(a.name for a in x.axes if a.role == "batch")
    inner = tuple(a for a in x.names if a not in (b, n))
    alone = len(weight.axes) == 2
    grouped = len(weight.axes) == 4
    out = inner if alone else tuple(a for a in weight.names if a not in ("w", *inner)) if not grouped else ("g", "o")
    into, back = call.into(0, b, *inner, n), call.back(b, *out, n)
    order = call.into(1, *((inner[0], "w") if alone else ("g", "o", "i", "w") if grouped else (*out, *inner, "w")))

    def run(x: Tensor, weight: Tensor) -> Tensor:
        x, weight = into(x), order(weight)
        groups = weight.shape[0] if alone or grouped else 1
        w = weight.unsqueeze(1) if alone else weight.flatten(0, 1) if grouped else weight
        y = F.conv1d(F.pad(x.flatten(1, -2), (before, after)), w, dilation=dilation, groups=groups)[..., :x.shape[-1]]
        return back(y.unflatten(1, weight.shape[:2]) if grouped else y)
    return run


def cross_entropy(call: KernelCall) -> Callable:
    """logits [b, n?, d], target and counts [b, n?] → the loss of each target, 0 where it does not count."""
    logits, target, counts = call.ins
    smoothing = float(call.number("smoothing", default=0))
    rows = call.outs[0].names
    into, to, there = call.into(0, *rows, call.region.arg("over")), call.into(1, *rows), call.into(2, *rows)

    def run(logits: Tensor, target: Tensor, counts: Tensor) -> Tensor:
        wanted = torch.where(there(counts), to(target).clamp(min=0), -100)
        x = into(logits)
        x = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x     # a sum over all symbols
        flat = x.reshape(-1, x.shape[-1]), wanted.reshape(-1)
        return F.cross_entropy(*flat, ignore_index=-100, reduction="none", label_smoothing=smoothing).view(wanted.shape)
    return run
