"""Nested lists and their value: `listops`."""
from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from torch import Tensor

from plait.dsl.errors import error
from plait.runtime.codec import Words
from plait.runtime.data.dataset import DEFAULT, Dataset, rounded, rows, tensor
from plait.runtime.data.need import Need
from plait.runtime.recipe import Amount, Described

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
CODEC = Words((*map(str, range(10)), *OPERATORS, "]"))
CLOSE = CODEC.size - 1
NESTED = 0.25                                      # how often an argument is a list and not a digit


@dataclass(frozen=True)
class ListOps:
    """Expressions such as `[MAX 2 9 [MIN 4 7 ] 0 ]` and their value, 0 to 9: the least, the greatest, the median (of an even number the
    mean of the middle two, rounded down), the sum modulo 10. Nangia and Bowman 2018; the sizes of Tay et al. 2021 are
    `length = 2000, depth = 10, arguments = 10`.

    A batch is the expressions, int64 [rows, n], -1 behind their ends, and their values, int64 [rows]. n: the model's, or, where that is
    free, the longest of the batch rounded up to a multiple of 8. least, length: how many symbols an expression has. Validation:
    `examples` of them from random numbers of their own. There is no end to the data."""
    least: int
    length: int
    depth: int
    arguments: int
    n: int | None
    seed: int
    folder: Path
    examples: int = 512
    symbols: int = 0
    content: str = ""
    codec: Words = CODEC
    classes: tuple[int, ...] = (CODEC.size, 10)
    amount: Amount = DEFAULT
    notes: tuple[str, ...] = ()
    _kept: dict = field(default_factory=dict, compare=False, repr=False)

    def by(self, amount: Amount) -> Dataset:
        return replace(self, amount=amount)

    def batch(self, step: int, size: int | None = None) -> tuple[Tensor, ...]:
        return self._given(self._made(step, rows(self.amount, self.length, size)))

    def tokens(self, inputs: Sequence[Tensor]) -> int:
        return int((inputs[0] >= 0).sum())

    def steps(self, epochs: Fraction | float) -> int:
        return 0

    def validation(self, size: int | None = None) -> Iterator[tuple[Tensor, ...]]:
        size = rows(self.amount, self.length, size)
        if "examples" not in self._kept: self._kept["examples"] = self._made(0, self.examples)      # steps begin at 1
        for first in range(0, self.examples, size): yield self._given(self._kept["examples"][first:first + size])

    def _made(self, step: int, count: int) -> list[tuple[list[int], int]]:
        draw = random.Random(f"{self.seed}:{step}").random
        return [self._expression(draw) for _ in range(count)]

    def _expression(self, draw) -> tuple[list[int], int]:
        """One of fitting length: others are drawn again."""
        while True:
            symbols: list[int] = []
            value = nested(draw, symbols, self.depth, self.arguments, self.length)
            if value is not None and len(symbols) >= self.least: return symbols, value

    def _given(self, examples: list[tuple[list[int], int]]) -> tuple[Tensor, Tensor]:
        found = np.full((len(examples), self.n or rounded(max(len(e) for e, _ in examples))), -1)
        for row, (symbols, _) in zip(found, examples): row[:len(symbols)] = symbols
        return tensor(found), tensor(np.array([value for _, value in examples]))


def nested(draw, symbols: list[int], depth: int, most: int, room: int) -> int | None:
    """Writes a list and gives its value; None as soon as it has more than `room` symbols. depth: of lists in lists, this one included."""
    operator = int(draw() * len(OPERATORS))
    symbols.append(10 + operator)
    values = []
    for _ in range(2 + int(draw() * (most - 1))):
        if depth > 1 and draw() < NESTED:
            value = nested(draw, symbols, depth - 1, most, room)
            if value is None: return None
        else: symbols.append(value := int(draw() * 10))
        values.append(value)
        if len(symbols) >= room: return None                      # the end is still to come
    symbols.append(CLOSE)
    return value_of(operator, values)


def value_of(operator: int, values: list[int]) -> int:
    match OPERATORS[operator]:
        case "[MIN": return min(values)
        case "[MAX": return max(values)
        case "[MED":
            order, half = sorted(values), len(values) // 2
            return order[half] if len(values) % 2 else (order[half - 1] + order[half]) // 2
        case _: return sum(values) % 10


def opened(d: Described, need: Need) -> Dataset:
    length, depth, most = (int(d.arguments[name]) for name in ("length", "depth", "arguments"))      # type: ignore[call-overload]
    n = need.slots[0].length
    if n is not None and length > n:
        raise error("E0614", f"the examples have up to {length:,} symbols, the model reads {n:,}", d.span, help="length = n")
    longest = (2 + most) if depth == 1 else length
    if longest < length // 4:
        raise error("E0633", f"lists of at most {most} digits are shorter than a quarter of {length:,} symbols", d.span,
                    help=f"length = {longest}, or a larger depth")
    return ListOps(max(4, min(length // 4, longest)), length, depth, most, n, need.seed, need.folder)
