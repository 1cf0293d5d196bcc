"""Shifts along the sequence."""
from dataclasses import replace

from plait.compiler.builder import Builder
from plait.compiler.graph import Value
from plait.compiler.layer import Stream, layer, sequence


def shifted(b: Builder, x: Value, along: str) -> Value:
    """Zero first, the last element gone."""
    return b.slice(b.pad(x, along, 1, 0), along, 0, x.axis(along).size)


@layer
def shift_right(b: Builder, x: Stream) -> Stream:
    """Position t holds what position t − 1 held; symbol 0 (or a zero vector) stands first. For decoders that are given their
    target. Movement only; it has no row in the table."""
    n = sequence(x.value).name
    # what stands first exists always
    first = b.map("eq", b.position(sequence(x.value)), 0)
    mask = None if x.mask is None else b.map("or", shifted(b, x.mask, n), first)
    return replace(x, value=shifted(b, x.value, n), mask=mask)
