"""Own functions have a first derivative. A second one would not fail by itself: where another way leads round the function, it would leave
the function out and give a number."""
from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import torch
from torch.autograd.function import once_differentiable

from plait.dsl.errors import error


def first_only(backward: Callable) -> Callable:
    """Of a backward: refuses to be differentiated (`create_graph = True`) with a PlaitError."""
    once = once_differentiable(backward)

    @wraps(backward)
    def run(ctx, *grads):
        if torch.is_grad_enabled():
            raise error("E0608", "a second derivative (create_graph = True) passes through a function that has only a first one",
                        help="a derivative of a gradient needs a model without own kernels, recurrences, recomputed or reversible parts")
        return once(ctx, *grads)
    return run
