"""Data for training: real files, built-in text and synthetic tasks. Nothing is downloaded, nothing is larger in memory than it must be.

Every dataset is a pure function of its seed: `batch(step, size)` gives the same symbols for the same step, so that a resumed
run sees what an uninterrupted one sees.

An input that the loss reads by `next()` ("ahead") is given n + 1 symbols: the model reads the first n and is measured on the last n.
Otherwise windows have n symbols. A symbol that is read but is no target is written as its complement: -1 - symbol."""
from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from plait.compiler.program import Program
from plait.dsl.errors import Note, error
from plait.runtime.codec import Alphabet, Codec, Numbers
from plait.runtime.files import raw_bytes, utf8
from plait.runtime.recipe import Described


class Dataset(Protocol):
    """codec: what the symbols stand for. length: n. symbols: how many targets one pass over the training part has, 0 where there is
    no end to it. content: a fingerprint of the data. folder: where relative paths start.

    batch(step, size): one tensor for each input of the model, int64 [size, n + 1] (n where the input is not ahead).
    validation(size): the whole validation part once, at most `size` sequences at a time."""
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
    def batch(self, step: int, size: int) -> tuple[Tensor, ...]: ...
    def validation(self, size: int) -> Iterator[tuple[Tensor, ...]]: ...


@dataclass(frozen=True)
class Stream:
    """One long text, cut into a training and a validation part. Training: windows at random places. Validation: one window
    after the other, so that every symbol (but the first, where windows are ahead) is a target exactly once: the last window is
    moved back to fit, and what it repeats is no target."""
    train: np.ndarray
    held_out: np.ndarray
    codec: Codec
    length: int
    seed: int
    ahead: bool
    folder: Path

    @property
    def symbols(self) -> int:
        return len(self.train) - self.ahead

    @property
    def content(self) -> str:
        return fingerprint(self.train)

    def batch(self, step: int, size: int) -> tuple[Tensor, ...]:
        window = self.length + self.ahead
        starts = np.random.default_rng((self.seed, step)).integers(0, len(self.train) - window + 1, size)
        return (_tensor(np.stack([self.train[s:s + window] for s in starts])),)

    def validation(self, size: int) -> Iterator[tuple[Tensor, ...]]:
        n, window = self.length, self.length + self.ahead
        last = len(self.held_out) - window                                    # where the last window starts
        starts = [*range(0, last, n), last]
        for first in range(0, len(starts), size):
            x = _tensor(np.stack([self.held_out[s:s + window] for s in starts[first:first + size]]))
            if first + size >= len(starts): x[-1, :-(last % n or n)] = ~x[-1, :-(last % n or n)]
            yield (x,)


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

    def batch(self, step: int, size: int) -> tuple[Tensor, ...]:
        return self._given(self.make(np.random.default_rng((self.seed, step)), size))

    def validation(self, size: int) -> Iterator[tuple[Tensor, ...]]:
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


def _tensor(a: np.ndarray) -> Tensor:
    return torch.from_numpy(a.astype(np.int64))


def fingerprint(symbols: np.ndarray, blocks: int = 64, size: int = 2**14) -> str:
    """SHA-256 of evenly spaced blocks: it tells another text without reading all of a large one."""
    found = hashlib.sha256(str(len(symbols)).encode())
    for k in range(blocks):
        start = max(0, len(symbols) - size) * k // (blocks - 1)
        found.update(symbols[start:start + size].astype(np.int64).tobytes())
    return found.hexdigest()


# ---- opening -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Need:
    """What the model asks of its data. length: n. classes: its V, None while it is free. codec: that of a run, by which the data is
    read again; None: the data makes its own."""
    length: int
    seed: int
    folder: Path
    ahead: bool = True
    inputs: int = 1
    classes: int | None = None
    codec: Codec | None = None


def open(description: Described, folder: Path, length: int, seed: int, *, ahead: bool = True, inputs: int = 1,
         classes: int | None = None, codec: Codec | None = None) -> Dataset:
    """Opens what a recipe's `data` describes. Relative paths start at `folder`, that of the spec.

    Raises PlaitError, with the place in the spec, for a file that is missing, unreadable, empty, too short or wrongly encoded,
    and for a vocabulary larger than `classes`."""
    need = Need(length, seed, folder, ahead, inputs, classes, codec)
    dataset = OPENERS[description.kind](description, need)
    if classes is not None and dataset.codec.size > classes:
        raise error("E0613", f"the data has {dataset.codec.size:,} symbols, the model's vocabulary only {classes:,}", description.span,
                    help=f"V = {dataset.codec.size}, or larger")
    return dataset


def open_for(program: Program, description: Described, folder: Path, seed: int, codec: Codec | None = None, **sizes: int) -> Dataset:
    """Opens the data for an expanded model. `sizes`: values for dims that are still free (`n`); a free vocabulary is left
    to the data. Raises PlaitError where the model's inputs are not what the data gives."""
    known = program.sizes.bind(**sizes) if sizes else program.sizes
    first = program.inputs[0]
    if first.kind != "tokens":
        raise error("E0614", f"`{description.kind}` gives tokens, but the input `{first.name}` is a {first.kind}", first.span)
    many = 2 if description.kind in ("duplicate", "copy") else 1
    if len(program.inputs) > many:
        filled = "one input" if many == 1 else "one or two inputs"
        raise error("E0614", f"`{description.kind}` fills {filled}, the model has {len(program.inputs)}", description.span,
                    *(Note(i.span, i.name) for i in program.inputs if i.span))
    size = first.value.axes[1].size
    length = known.integer(size)
    if length is None:
        raise error("E0638", f"the length `{size}` of the input `{first.name}` has no value", first.span, help=f"--set {size}=128")
    classes = known.integer(first.classes) if first.classes is not None else None
    return open(description, folder, length, seed, ahead=first.ahead, inputs=len(program.inputs), classes=classes, codec=codec)


def _text(d: Described, need: Need) -> Dataset:
    raw, place = raw_bytes(str(d.arguments["file"]), need.folder, d.span), d.span
    if d.kind == "bytes" or d.arguments["tokens"] == "bytes": return _stream(raw, Alphabet(None), d, need)
    codes = np.frombuffer(utf8(raw, str(d.arguments["file"]), place).encode("utf-32-le"), np.uint32)
    present = np.zeros(0x110000, bool)
    present[codes] = True
    order = np.flatnonzero(present)
    if isinstance(need.codec, Alphabet) and need.codec.characters is not None:
        strange = sorted(set(map(chr, order)) - set(need.codec.characters))
        if strange: raise need.codec.unknown(strange)
        order = np.fromiter(map(ord, need.codec.characters), np.int64)
    number = np.zeros(0x110000, np.uint8 if len(order) <= 1 << 8 else np.uint16 if len(order) <= 1 << 16 else np.int32)
    number[order] = np.arange(len(order))
    return _stream(number[codes], Alphabet("".join(map(chr, order))), d, need)


def _stream(symbols: np.ndarray, codec: Codec, d: Described, need: Need) -> Dataset:
    shares: tuple = d.arguments["split"]                                                 # type: ignore[assignment]
    cuts = [0, *(int(sum(shares[:i + 1]) * len(symbols)) for i in range(len(shares)))]
    train, held_out = symbols[cuts[0]:cuts[1]], symbols[cuts[1]:cuts[2]]
    window = need.length + need.ahead
    for part, name in ((train, "training"), (held_out, "validation")):
        if len(part) < window:
            raise error("E0611", f"the {name} part has {len(part):,} symbols: too short for a window of {window:,}", d.span,
                        numbers=f"{len(symbols):,} symbols × {float(shares[name == 'validation']):g} = {len(part):,}; "
                                f"n{' + 1' if need.ahead else ''} = {window:,}", help="a smaller n, a longer file, or another split")
    return Stream(train, held_out, codec, need.length, need.seed, need.ahead, need.folder)


def _duplicate(d: Described, need: Need) -> Dataset:
    """0w0w: w is length / 2 - 1 symbols from 1 to `symbols`. The second half can be predicted. Kitaev et al. 2020, section 5."""
    return _task(d, need, lambda w, zero: (zero, w, zero, w))


def _copy(d: Described, need: Need) -> Dataset:
    """w0w0: w is length / 2 - 1 symbols from 1 to `symbols`; 0 separates and ends. What stands behind the separator can be predicted."""
    return _task(d, need, lambda w, zero: (w, zero, w, zero))


def _task(d: Described, need: Need, pieces: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, ...]]) -> Dataset:
    symbols, length = int(d.arguments["symbols"]), int(d.arguments["length"])            # type: ignore[call-overload]
    if length % 2: raise error("E0633", f"`{d.kind}` needs an even length, not {length}", d.span, help=f"length = {length + 1}")
    if length != need.length:
        raise error("E0614", f"the examples have {length:,} symbols, the model reads {need.length:,}", d.span, help="length = n")
    if need.inputs == 1 and not need.ahead:
        raise error("E0614", f"`{d.kind}` is learned by predicting the next symbol", d.span,
                    help="loss = cross_entropy(logits, next(INPUT))")

    def make(random: np.random.Generator, size: int) -> np.ndarray:
        w = random.integers(1, symbols + 1, (size, length // 2 - 1))
        return np.concatenate(pieces(w, np.zeros((size, 1), w.dtype)), 1)

    return Generated(make, length // 2, length, Numbers(symbols + 1), need.seed, need.inputs, need.folder)


OPENERS: dict[str, Callable[[Described, Need], Dataset]] = {"text": _text, "bytes": _text, "duplicate": _duplicate, "copy": _copy}
