"""Recurrent regions by torch's own library calls (cuDNN, oneDNN)."""
from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from plait.compiler.lowering.emission import KernelCall


def _recurrent(call: KernelCall, library: Callable, states: int) -> Callable:
    """x [b, n, d], weights (gate, u, ·), biases (gate, u) → states [n, b, u], gates in torch's order."""
    b = next(a.name for a in call.ins[0].axes if a.role == "batch")
    n = next(a.name for a in call.ins[0].axes if a.role == "sequence")
    into, back = call.into(0, n, b, "d"), call.back(n, b, "u")
    reverse, bias = bool(call.region.arg("reverse")), bool(call.region.arg("bias"))

    def run(x: Tensor, *weights: Tensor) -> Tensor:
        x = into(x)
        if reverse: x = x.flip(0)
        # gates in front of units: as torch lays them out, a view
        flat = [w.flatten(0, 1) if w.dim() == (3 if k < 2 else 2) else w for k, w in enumerate(weights)]
        if torch.is_autocast_enabled(x.device.type):
            dtype = torch.get_autocast_dtype(x.device.type)
            x, flat = x.to(dtype), [w.to(dtype) for w in flat]
        zero = x.new_zeros(1, x.shape[1], weights[1].shape[-1])
        start = zero if states == 1 else (zero, zero)
        y = library(x.contiguous(), start, flat, bias, 1, 0.0, torch.is_grad_enabled(), False, False)[0]
        return back(y.flip(0) if reverse else y)
    return run


def rnn(call: KernelCall) -> Callable:
    library = {"tanh": torch._VF.rnn_tanh, "relu": torch._VF.rnn_relu}[call.region.arg("nonlinearity", "tanh")]
    return _recurrent(call, library, 1)


def lstm(call: KernelCall) -> Callable:
    return _recurrent(call, torch._VF.lstm, 2)


def gru(call: KernelCall) -> Callable:
    return _recurrent(call, torch._VF.gru, 1)
