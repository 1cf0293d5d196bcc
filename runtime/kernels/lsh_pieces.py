"""What lies between two products of LSH attention: functions of tensors, each one fused loop once compiled.

A slab of C chunks of m places; keys of a chunk are the 2·m places of the chunk before and its own."""
from __future__ import annotations

import types
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from plait.compiler.lowering import segments

FAR = -(2**28)                                 # the code of a key that nobody may see


def compiled(fn: Callable, really: bool, *key) -> Callable:
    return _compiled(fn, key) if really else fn


@lru_cache(None)
def _compiled(fn: Callable, key: tuple) -> Callable:
    """One compiled function a key. A copy of the code gives each a cache of its own: shared by all keys, it would hit the limit of
    recompiles."""
    alone = types.FunctionType(fn.__code__.replace(), fn.__globals__, fn.__name__)
    return torch.compile(alone, dynamic=True, backend=segments.BACKEND)


def argmax(y: Tensor) -> Tensor:
    """argmax of (y, −y) along the last dimension."""
    at = y.abs().argmax(-1, keepdim=True)
    return (at + y.shape[-1] * (y.gather(-1, at) < 0)).squeeze(-1)


def inverse_norm(q: Tensor) -> Tensor: return (q.square().sum(-1) + 1e-12).rsqrt()


def near(query: Tensor, key: Tensor, m: int) -> Tensor:
    """[C, m, 2·m]: code difference 0 or 1."""
    gap = query[m:].view(-1, m, 1) - key.unfold(0, 2 * m, m).unsqueeze(1)
    return (gap == 0) | (gap == 1)


def allowed(codes: list[Tensor], seen: list[Tensor], at: Tensor, m: int, within: bool, causal: bool) -> Tensor:
    ok = near(codes[-1], seen[-1], m)
    for query, key in zip(codes[:-1], seen[:-1]): ok = ok & ~near(query, key, m)
    if within or not causal:                   # inside a bucket the sorted order is the order of positions
        i = torch.arange(m, device=at.device).view(1, m, 1) + m
        j = torch.arange(2 * m, device=at.device).view(1, 1, 2 * m)
        return ok & ((j < i) if causal else (j != i))
    return ok & (at.unfold(0, 2 * m, m).unsqueeze(1) < at[m:].view(-1, m, 1))


def softmax(s: Tensor, inverse: Tensor, codes: list[Tensor], seen: list[Tensor], at: Tensor, m: int, within: bool, causal: bool):
    """Scores [C, m, 2·m] → weights not yet divided, the maximum and the sum of each row. A row that sees nothing: sum 0."""
    s = torch.where(allowed(codes, seen, at, m, within, causal), s * inverse.unfold(0, 2 * m, m).unsqueeze(1), float("-inf"))
    top = s.amax(-1, keepdim=True).clamp(min=-1e30)
    p = (s - top).exp()
    return p, top.view(-1), p.sum(-1).view(-1)


def slopes(s: Tensor, dp: Tensor, inverse: Tensor, codes: list[Tensor], seen: list[Tensor], at: Tensor, total: Tensor, delta: Tensor,
           m: int, within: bool, causal: bool) -> None:
    """In place: s becomes the weights, dp the gradient of the raw products."""
    c = s.shape[0]
    k = inverse.unfold(0, 2 * m, m).unsqueeze(1)
    p = torch.where(allowed(codes, seen, at, m, within, causal), (s * k - total.view(c, m, 1)).exp(), 0.0)
    dp.copy_(p * (dp - delta.view(c, m, 1)) * k)
    s.copy_(p)


def merge(o: Tensor, top: Tensor, row: Tensor, o_before: Tensor, top_before: Tensor, row_before: Tensor):
    """Two rounds' parts of one softmax."""
    most = torch.maximum(top, top_before)
    a, b = (top - most).exp(), (top_before - most).exp()
    return o * a[:, None] + o_before * b[:, None], most, row * a + row_before * b


def finish(o: Tensor, top: Tensor, row: Tensor, v: Tensor):
    """Divided by the total; where nothing was seen in any round the row's own value, and a total of infinity."""
    some = row > 0
    return torch.where(some[:, None], o / torch.where(some, row, 1.0)[:, None], v), torch.where(some, top + row.log(), float("inf"))


def inner(x: Tensor, y: Tensor) -> Tensor: return (x * y).sum(-1)


def through_key(t: Tensor, rows: Tensor, inverse: Tensor) -> Tensor:
    """The gradient through a key of unit length."""
    k = (rows * inverse[:, None]).view(t.shape)
    return t - k * (k * t).sum(-1, keepdim=True)


def own(to: Tensor, dq: Tensor, dk: Tensor, rows: Tensor, inverse: Tensor) -> None: to.copy_(dq + through_key(dk, rows, inverse))


def before(to: Tensor, dk: Tensor, rows: Tensor, inverse: Tensor) -> None: to.add_(through_key(dk, rows, inverse))


def add(to: Tensor, by_place: Tensor, at: Tensor) -> None: to += by_place[at]
