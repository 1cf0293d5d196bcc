"""Synthetic tasks of copying: `duplicate`, `copy`, `reverse`."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from plait.dsl.errors import error
from plait.runtime.codec import Codec, Numbers
from plait.runtime.data.dataset import DEFAULT, Dataset, rows
from plait.runtime.data.need import Need
from plait.runtime.recipe import Amount, Described


@dataclass(frozen=True)
class Generated:
    """A synthetic task. `make(random, size)` gives examples [size, n]; targets before position `first` are not predictable.

    A model with one input that is read ahead is given [size, n + 1]; the position after the last symbol is -1, no target.
    A model with two inputs is given the symbols and the targets, [size, n] each, the target of position t being symbol t + 1,
    or -1 where there is none. Validation: `examples` of them, from
    random numbers of their own. There is no end to the data: `symbols` is 0."""
    make: Callable[[np.random.Generator, int], np.ndarray]
    first: int
    length: int
    codec: Codec
    seed: int
    inputs: int
    folder: Path
    examples: int = 256
    symbols: int = 0
    content: str = ""
    amount: Amount = DEFAULT
    notes: tuple[str, ...] = ()

    @property
    def classes(self) -> tuple[int, ...]:
        return (self.codec.size,) * self.inputs

    def by(self, amount: Amount) -> Dataset:
        return replace(self, amount=amount)

    def batch(self, step: int, size: int | None = None) -> tuple[Tensor, ...]:
        return self._given(self.make(np.random.default_rng((self.seed, step)), rows(self.amount, self.length, size)))

    def tokens(self, inputs: Sequence[Tensor]) -> int:
        return len(inputs[0]) * self.length

    def steps(self, epochs: Fraction | float) -> int:
        return 0

    def validation(self, size: int | None = None) -> Iterator[tuple[Tensor, ...]]:
        size = rows(self.amount, self.length, size)
        examples = self.make(np.random.default_rng((self.seed, 0)), self.examples)       # steps begin at 1
        for first in range(0, self.examples, size): yield self._given(examples[first:first + size])

    def _given(self, examples: np.ndarray) -> tuple[Tensor, ...]:
        x = examples.astype(np.int64)
        end = np.full((len(x), 1), -1)
        if self.inputs == 2:
            target = np.concatenate([x[:, 1:], end], 1)
            target[:, :self.first - 1] = -1
            return torch.from_numpy(x), torch.from_numpy(target)
        marked = np.concatenate([x, end], 1)
        marked[:, 1:self.first] = ~marked[:, 1:self.first]
        return (torch.from_numpy(marked),)


def duplicate(d: Described, need: Need) -> Dataset:
    """0w0w: w is length / 2 - 1 symbols from 1 to `symbols`. The second half can be predicted. Kitaev et al. 2020, section 5."""
    return _task(d, need, lambda w, zero: (zero, w, zero, w))


def copy(d: Described, need: Need) -> Dataset:
    """w0w0: w is length / 2 - 1 symbols from 1 to `symbols`; 0 separates and ends. What stands behind the separator can be predicted."""
    return _task(d, need, lambda w, zero: (w, zero, w, zero))


def reverse(d: Described, need: Need) -> Dataset:
    """w0v0: as `copy`, v being w from its end to its beginning."""
    return _task(d, need, lambda w, zero: (w, zero, w[:, ::-1], zero))


def _task(d: Described, need: Need, pieces: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, ...]]) -> Dataset:
    symbols, length, inputs = int(d.arguments["symbols"]), int(d.arguments["length"]), len(need.slots)    # type: ignore[call-overload]
    if length % 2: raise error("E0633", f"`{d.kind}` needs an even length, not {length}", d.span, help=f"length = {length + 1}")
    if length != need.length:
        raise error("E0614", f"the examples have {length:,} symbols, the model reads {need.length:,}", d.span, help="length = n")
    if inputs == 1 and not need.ahead:
        raise error("E0614", f"`{d.kind}` is learned by predicting the next symbol", d.span,
                    help="loss = cross_entropy(logits, next(INPUT))")

    def make(random: np.random.Generator, size: int) -> np.ndarray:
        w = random.integers(1, symbols + 1, (size, length // 2 - 1))
        return np.concatenate(pieces(w, np.zeros((size, 1), w.dtype)), 1)

    return Generated(make, length // 2, length, Numbers(symbols + 1), need.seed, inputs, need.folder)
