"""From a sequence to one vector."""
from typing import Literal

from plait.compiler.builder import Builder
from plait.compiler.layer import Stream, feature, layer, sequence


@layer
def pool(b: Builder, x: Stream, kind: Literal["mean", "last"]) -> Stream:
    """The mean over the positions, or the last one: [n, d] → [d]. Positions that are padding do not count."""
    value, mask = x.value, x.mask
    feature(value)
    n = sequence(value)
    if kind == "mean":
        if mask is None: return Stream(b.div(b.sum(value, n.name, name="mean"), n.size))
        there = b.where(mask, 1, 0)
        count = b.map("maximum", b.sum(there, n.name, name="count"), 1)
        return Stream(b.div(b.sum(b.mul(value, there), n.name, name="mean"), count))
    if mask is None: return Stream(b.select(value, n.name, n.size - 1))
    last = b.max(b.where(mask, b.position(n), 0), n.name, name="last position")
    return Stream(b.gather(value, last, n.name, name="last"))
