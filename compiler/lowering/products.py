"""Contractions as matrix products: which operand lies how, so that nothing is copied that need not be."""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from plait.compiler.axis import Axis, without
from plait.compiler.graph import Node, Value

if TYPE_CHECKING:
    from plait.compiler.lower import Lowering


def product(low: Lowering, n: Node, over: tuple[str, ...], x, y):
    """One mm, or one bmm where axes go together; each operand stays as it lies, transposed by a view where its sum runs first.

    Never einsum: it turns a product without a sum, or over a size of 1, into a multiplication that no counter sees."""
    a, b = n.ins
    x, y = low.whole(x), low.whole(y)
    both = tuple(p for p in a.axes if b.has(p.name) and p.name not in over)
    mine, yours = without(a.axes, b.names), without(b.axes, a.names)
    k = summed(a, b, over)
    left, right = matrix(low, x, a, both, mine, k), matrix(low, y, b, both, yours, k)
    if both: out = low.call(torch.bmm, left, low.call(torch.transpose, right, 1, 2))
    else: out = low.call(torch.mm, left, low.call(torch.transpose, right, 0, 1))
    have = (*both, *mine, *yours)
    if not (len(mine) == len(yours) == 1 and len(both) < 2): out = low.call(torch.reshape, out, [low.dims(p.size) for p in have])
    return low.align(out, have, n.outs[0].axes)


def summed(a: Value, b: Value, over: tuple[str, ...]) -> tuple[Axis, ...]:
    """The axes to sum over in the order of the operand with more axes of its own to lose: weights are the smaller copy."""
    lead = a if len(a.axes) >= len(b.axes) else b
    return tuple(p for p in lead.axes if p.name in over)


def matrix(low: Lowering, x, v: Value, both: tuple[Axis, ...], own: tuple[Axis, ...], k: tuple[Axis, ...]):
    """[both, own, k], as a view wherever the layout allows."""
    first = {p.name: i for i, p in enumerate(v.axes)}
    groups: tuple[tuple[Axis, ...], ...] = ((both,) if both else ()) + (own, k)
    if own and k and max(first[p.name] for p in k) < min(first[p.name] for p in own):       # it lies as [k, own]
        groups = groups[:-2] + (k, own)
        x = low.shaped(low.align(x, v.axes, sum(groups, ())), *groups)
        return low.call(torch.transpose, x, len(groups) - 2, len(groups) - 1)
    return low.shaped(low.align(x, v.axes, sum(groups, ())), *groups)
