"""One long text: `text` by characters or bytes, `bytes`.

Bytes are read where they lie, in the mapped file. Characters are numbered in two passes over the mapped file, a piece at a time: the first
finds which there are, the second writes their numbers, of one or two bytes each. For a file of more than `files.IN_MEMORY` bytes they go
into a file without a name in the folder for temporary files (TMPDIR says which), which is mapped and gone with the process."""
from __future__ import annotations

import codecs
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from torch import Tensor

from plait.dsl.errors import Span, error
from plait.runtime import files
from plait.runtime.codec import Alphabet, Codec
from plait.runtime.data.dataset import DEFAULT, Dataset, fingerprint, passes, rows, tensor
from plait.runtime.data.need import Need
from plait.runtime.files import not_utf8, raw_bytes
from plait.runtime.recipe import Amount, Described

PIECE = 2**22                                                                     # bytes decoded at once


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
    amount: Amount = DEFAULT
    notes: tuple[str, ...] = ()

    @property
    def symbols(self) -> int:
        return len(self.train) - self.ahead

    @property
    def content(self) -> str:
        return fingerprint(self.train)

    @property
    def classes(self) -> tuple[int, ...]:
        return (self.codec.size,)

    def by(self, amount: Amount) -> Dataset:
        return replace(self, amount=amount)

    def batch(self, step: int, size: int | None = None) -> tuple[Tensor, ...]:
        window, size = self.length + self.ahead, rows(self.amount, self.length, size)
        starts = np.random.default_rng((self.seed, step)).integers(0, len(self.train) - window + 1, size)
        return (tensor(np.stack([self.train[s:s + window] for s in starts])),)

    def tokens(self, inputs: Sequence[Tensor]) -> int:
        return len(inputs[0]) * self.length

    def steps(self, epochs: Fraction | float) -> int:
        return passes(epochs, self.symbols, rows(self.amount, self.length) * self.length)

    def validation(self, size: int | None = None) -> Iterator[tuple[Tensor, ...]]:
        n, window, size = self.length, self.length + self.ahead, rows(self.amount, self.length, size)
        last = len(self.held_out) - window                                    # where the last window starts
        starts = [*range(0, last, n), last]
        for first in range(0, len(starts), size):
            x = tensor(np.stack([self.held_out[s:s + window] for s in starts[first:first + size]]))
            if first + size >= len(starts): x[-1, :-(last % n or n)] = ~x[-1, :-(last % n or n)]
            yield (x,)


def opened(d: Described, need: Need) -> Dataset:
    name = str(d.arguments["file"])
    raw = raw_bytes(name, need.folder, d.span)
    if d.kind == "bytes" or d.arguments["tokens"] == "bytes": return _stream(raw, Alphabet(None), d, need)
    order = _present(raw, name, d.span)
    if not len(order): raise error("E0611", f"`{name}` is empty but for the mark of a UTF-8 text", d.span)
    if isinstance(need.codec, Alphabet) and need.codec.characters is not None:
        strange = sorted(set(map(chr, order)) - set(need.codec.characters))
        if strange: raise need.codec.unknown(strange)
        order = np.fromiter(map(ord, need.codec.characters), np.int64)
    return _stream(_numbered(raw, name, order, d.span), Alphabet("".join(map(chr, order))), d, need)


def _points(raw: np.ndarray, name: str, span: Span | None) -> Iterator[np.ndarray]:
    """The code points of a UTF-8 text, uint32, a piece at a time. Raises PlaitError at the first byte that is no UTF-8."""
    decoder, native = codecs.getincrementaldecoder("utf-8")(), "utf-32-" + ("le" if sys.byteorder == "little" else "be")
    for first in range(files.begin(raw), len(raw), PIECE):
        held = len(decoder.getstate()[0])
        try: text = decoder.decode(raw[first:first + PIECE].tobytes(), first + PIECE >= len(raw))
        except UnicodeDecodeError as why: raise not_utf8(raw, name, first - held + why.start, span) from None
        yield np.frombuffer(text.encode(native), np.uint32)


def _present(raw: np.ndarray, name: str, span: Span | None) -> np.ndarray:
    """The code points that occur, in order."""
    present = np.zeros(0x110000, bool)
    for points in _points(raw, name, span): present[points] = True
    return np.flatnonzero(present)


def _numbered(raw: np.ndarray, name: str, order: np.ndarray, span: Span | None) -> np.ndarray:
    """Character i of the text as its place in `order`."""
    number = np.zeros(0x110000, np.uint8 if len(order) <= 1 << 8 else np.uint16 if len(order) <= 1 << 16 else np.int32)
    number[order] = np.arange(len(order))
    return files.kept((number[points] for points in _points(raw, name, span)), number.dtype, len(raw) > files.IN_MEMORY, name, span)


def _stream(symbols: np.ndarray, codec: Codec, d: Described, need: Need) -> Dataset:
    shares: tuple = d.arguments["split"]                                                 # type: ignore[assignment]
    cuts = [0, *(int(sum(shares[:i + 1]) * len(symbols)) for i in range(len(shares)))]
    train, held_out = symbols[cuts[0]:cuts[1]], symbols[cuts[1]:cuts[2]]
    for part, name in ((train, "training"), (held_out, "validation")):
        if len(part) < need.window:
            raise error("E0611", f"the {name} part has {len(part):,} symbols: too short for a window of {need.window:,}", d.span,
                        numbers=f"{len(symbols):,} symbols × {float(shares[name == 'validation']):g} = {len(part):,}; "
                                f"n{' + 1' if need.ahead else ''} = {need.window:,}", help="a smaller n, a longer file, or another split")
    return Stream(train, held_out, codec, need.length, need.seed, need.ahead, need.folder)
