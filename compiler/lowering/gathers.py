"""Gathers and scatters: the operands laid out so that what the index runs over is one dimension."""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from plait.compiler.axis import Axis, without
from plait.compiler.graph import Node
from plait.compiler.lowering import tensors

if TYPE_CHECKING:
    from plait.compiler.lower import Lowering


def gathered(low: Lowering, n: Node, name: str, x, index):
    """The elements of an axis that an index names: a selection where it is one number."""
    a, i, y = *n.ins, n.outs[0]
    if isinstance(index, int) or "number" in index.meta:
        return low.align(low.call(torch.select, x, a.names.index(name), index), without(a.axes, (name,)), y.axes)
    shared = tuple(p for p in i.axes if p.name != name and a.has(p.name))
    own, rest = without(i.axes, [p.name for p in shared]), without(a.axes, (name, *(p.name for p in shared)))
    x = low.align(x, a.axes, (*shared, a.axis(name), *rest))
    out = low.call(tensors.gather, x, low.align(low.whole(index), i.axes, (*shared, *own)), len(shared))
    return low.align(out, (*shared, *own, *rest), y.axes)


def scattered(low: Lowering, n: Node, axis: Axis, x, index):
    """Sums of the elements that an index sends to one place."""
    a, i, y = *n.ins, n.outs[0]
    shared = tuple(p for p in i.axes if y.has(p.name) and p.name != axis.name)
    own, rest = without(i.axes, [p.name for p in shared]), without(a.axes, i.names)
    x, index = low.align(x, a.axes, (*shared, *own, *rest)), low.align(index, i.axes, (*shared, *own))
    out = low.call(tensors.scatter, x, index, len(shared), low.dims(axis.size))
    return low.align(out, (*shared, axis, *rest), y.axes)
