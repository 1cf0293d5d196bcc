"""What lies between two products of a kernel, as one fused loop: functions of tensors, each compiled by itself."""
from __future__ import annotations

import types
from collections.abc import Callable
from functools import lru_cache

import torch

from plait.compiler.lowering import segments


def compiled(fn: Callable, really: bool, *key) -> Callable:
    return _compiled(fn, key) if really else fn


@lru_cache(None)
def _compiled(fn: Callable, key: tuple) -> Callable:
    """One compiled function a key. A copy of the code gives each a cache of its own: shared by all keys, it would hit the limit of
    recompiles."""
    alone = types.FunctionType(fn.__code__.replace(), fn.__globals__, fn.__name__)
    return torch.compile(alone, dynamic=True, backend=segments.BACKEND)
