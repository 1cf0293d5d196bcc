"""What training asks of its data."""
from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from plait.runtime.codec import Codec
from plait.runtime.recipe import Amount

STEP = 8                                       # free lengths are rounded up to a multiple of it, so that compiled code sees few sizes


class Dataset(Protocol):
    """codec: what the symbols stand for. length: n, or the longest target where n is free. symbols: how many targets one pass over the
    training part has, 0 where there is no end to it. content: a fingerprint of the data. folder: where relative paths start.
    classes: for each input of the model, how many symbols the data has for it. notes: sentences that a person is to be told once.

    by(amount): the same data with its batches filled as a recipe says, `8 sequences` or `25k tokens`. Opened data has the amount 32
    sequences. For a token count the rows of a batch are its dataset's own affair: sentences of many lengths give batches of many rows.

    batch(step): one tensor for each input of the model, int64 [rows, n + 1] (n where the input is not ahead, none for a class). A pure
    function of the seed, the amount and the step, which counts from 1. batch(step, size): with `size` sequences, whatever the amount.
    tokens(inputs): how many symbols a batch has, padding left out: what tokens are counted by.
    steps(epochs): how many steps are that many passes over the training part; 0 where there is no end to it.
    validation(size): the whole validation part once, at most `size` sequences at a time (None: as the amount says).

    Parallel text alone has `references(size)`: source batches of the validation part in the order of its file, and for each the target
    sentences as the file has them."""
    @property
    def codec(self) -> Codec: ...
    @property
    def symbols(self) -> int: ...
    @property
    def content(self) -> str: ...
    @property
    def length(self) -> int: ...
    @property
    def folder(self) -> Path: ...
    @property
    def classes(self) -> tuple[int, ...]: ...
    @property
    def notes(self) -> tuple[str, ...]: ...
    def by(self, amount: Amount) -> Dataset: ...
    def batch(self, step: int, size: int | None = None) -> tuple[Tensor, ...]: ...
    def tokens(self, inputs: Sequence[Tensor]) -> int: ...
    def steps(self, epochs: Fraction | float) -> int: ...
    def validation(self, size: int | None = None) -> Iterator[tuple[Tensor, ...]]: ...


DEFAULT = Amount(32, "sequences")


def rows(amount: Amount, length: int, size: int | None = None) -> int:
    """Sequences of a batch: `size` if given, else as the amount says; of tokens as many sequences as they fill, at least one."""
    if size is not None: return size
    count = int(amount.amount)                                                             # type: ignore[arg-type]
    return count if amount.unit == "sequences" else max(1, count // length)


def passes(epochs: Fraction | float, symbols: int, per_step: int) -> int:
    """The steps of that many passes over `symbols` targets, `per_step` of them in a step."""
    return math.ceil(epochs * Fraction(symbols, per_step))


def tensor(a: np.ndarray) -> Tensor:
    return torch.from_numpy(a.astype(np.int64))


def rounded(length: int) -> int:
    return max(STEP, -(-length // STEP) * STEP)


def in_epochs(seed: int, step: int, size: int, count: int) -> np.ndarray:
    """Which of `count` examples stand in batch `step` of `size`: every epoch is a shuffle of all, one epoch follows another."""
    first = (step - 1) * size
    found = []
    while len(found) < size:
        epoch, at = divmod(first + len(found), count)
        order = np.random.default_rng((seed, epoch)).permutation(count)
        found += order[at:at + size - len(found)].tolist()
    return np.array(found)


def parts(count: int, shares: Sequence[Fraction]) -> tuple[np.ndarray, np.ndarray]:
    """Which of `count` examples are for training and which for validation. The shuffle is always the same, whatever a run's seed."""
    order = np.random.default_rng(0).permutation(count)
    cuts = [0, int(shares[0] * count), int((shares[0] + shares[1]) * count)]
    return np.sort(order[:cuts[1]]), np.sort(order[cuts[1]:cuts[2]])


def fingerprint(symbols: np.ndarray, blocks: int = 64, size: int = 2**14) -> str:
    """SHA-256 of evenly spaced blocks: it tells another text without reading all of a large one."""
    found = hashlib.sha256(str(len(symbols)).encode())
    for k in range(blocks):
        start = max(0, len(symbols) - size) * k // (blocks - 1)
        found.update(symbols[start:start + size].astype(np.int64).tobytes())
    return found.hexdigest()
