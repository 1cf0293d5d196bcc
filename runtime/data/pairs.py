"""Sentence pairs: `parallel_text`."""
from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain, islice
from pathlib import Path

import numpy as np
from torch import Tensor

from plait.dsl.errors import Span, error
from plait.runtime.arguments import Waiting
from plait.runtime.codec import END, OWN, Codec, Pair, byte_pairs, split
from plait.runtime.data.dataset import DEFAULT, Dataset, fingerprint, parts, passes, rounded, tensor
from plait.runtime.data.need import Need
from plait.runtime.files import lines, raw_bytes
from plait.runtime.recipe import Amount, Described

TOGETHER = 10_000                                          # sentences that are encoded at once
BYTES = 256                                                # letters of the alphabet that byte pairs begin with


@dataclass(frozen=True)
class Sentences:
    """Sentence i is symbols[starts[i]:starts[i + 1]]."""
    symbols: np.ndarray
    starts: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.starts)

    def padded(self, chosen: np.ndarray, length: int) -> Tensor:
        """Those sentences as rows, int64 [rows, length], -1 behind their ends. What is longer is cut."""
        found = np.full((len(chosen), length), -1)
        for row, i in zip(found, chosen):
            sentence = self.symbols[self.starts[i]:self.starts[i + 1]][:length]
            row[:len(sentence)] = sentence
        return tensor(found)

    def only(self, chosen: np.ndarray) -> Sentences:
        lengths = self.lengths[chosen]
        taken = [self.symbols[self.starts[i]:self.starts[i + 1]] for i in chosen]
        return Sentences(np.concatenate([self.symbols[:0], *taken]), np.concatenate([[0], np.cumsum(lengths)]))


@dataclass(frozen=True)
class Part:
    """Sentence pairs. A source is its symbols, a target its symbols and the one that ends it."""
    source: Sentences
    target: Sentences

    def __len__(self) -> int:
        return len(self.source.starts) - 1

    def only(self, chosen: np.ndarray) -> Part:
        return Part(self.source.only(chosen), self.target.only(chosen))


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs in batches of like lengths: source [rows, m] and target [rows, n], int64, -1 behind their ends.

    m, n: lengths that the model has bound; where one is None, a batch is as long as its longest sentence, rounded up to a multiple of 8.
    An epoch is a shuffle of all training pairs by (seed, epoch), put in order of length (in steps of 8) and cut into batches, which
    come in an order that is shuffled too. `25k tokens` are rows × m and rows × n, with padding, each at most 25,000; what is left over
    of one length goes with the next longer ones. written: the targets of the validation part as the file has them; asked: all its
    pairs, those too that the model is too short for."""
    train: Part
    held_out: Part
    asked: Part
    written: tuple[str, ...] = field(repr=False)
    codec: Codec
    m: int | None
    n: int | None
    seed: int
    folder: Path
    notes: tuple[str, ...] = ()
    amount: Amount = DEFAULT
    _kept: dict = field(default_factory=dict, compare=False, repr=False)       # what is the same for many batches

    @property
    def symbols(self) -> int:
        return len(self.train.target.symbols)

    @property
    def content(self) -> str:
        return fingerprint(self.train.source.symbols)[:32] + fingerprint(self.train.target.symbols)[:32]

    @property
    def length(self) -> int:
        return self.n or rounded(int(self.train.target.lengths.max()))

    @property
    def classes(self) -> tuple[int, ...]:
        return self.codec.size, self.codec.size

    def by(self, amount: Amount) -> Dataset:
        return replace(self, amount=amount, _kept={})

    def batch(self, step: int, size: int | None = None) -> tuple[Tensor, ...]:
        amount = self.amount if size is None else Amount(size, "sequences")
        cuts, order, batches = self._epoch(amount, (step - 1) // (len(self._cuts(amount)) - 1))
        k = batches[(step - 1) % len(batches)]
        return self._given(self.train, order[cuts[k]:cuts[k + 1]])

    def tokens(self, inputs: Sequence[Tensor]) -> int:
        return int((inputs[1] >= 0).sum())

    def steps(self, epochs: Fraction | float) -> int:
        return passes(epochs, len(self._cuts(self.amount)) - 1, 1)

    def validation(self, size: int | None = None) -> Iterator[tuple[Tensor, ...]]:
        amount = self.amount if size is None else Amount(size, "sequences")
        keys = self._keys(self.held_out)
        order, cuts = np.argsort(keys, kind="stable"), self._cut(np.sort(keys), amount)
        for first, last in zip(cuts, cuts[1:]): yield self._given(self.held_out, order[first:last])

    def references(self, size: int) -> Iterator[tuple[Tensor, list[str]]]:
        """The validation part in the order of its file: sources [rows, m], -1 behind their ends, and the targets as they are written."""
        for first in range(0, len(self.asked), size):
            chosen = np.arange(first, min(first + size, len(self.asked)))
            longest = int(self.asked.source.lengths[chosen].max())
            yield self.asked.source.padded(chosen, self.m or rounded(longest)), list(self.written[first:first + size])

    def _given(self, part: Part, chosen: np.ndarray) -> tuple[Tensor, Tensor]:
        m = self.m or rounded(int(part.source.lengths[chosen].max()))
        n = self.n or rounded(int(part.target.lengths[chosen].max()))
        return part.source.padded(chosen, m), part.target.padded(chosen, n)

    def _keys(self, part: Part) -> np.ndarray:
        """The length by which a pair is put in order: what it would fill of a batch of its like."""
        m = np.full(len(part), self.m) if self.m else -(-part.source.lengths // 8) * 8
        n = np.full(len(part), self.n) if self.n else -(-part.target.lengths // 8) * 8
        return np.maximum(m, n)

    def _cut(self, keys: np.ndarray, amount: Amount) -> list[int]:
        """Where one batch ends and the next begins, of pairs in the order of these keys: no batch holds more than the amount by the
        longest of its pairs."""
        cuts, most = [0], int(amount.amount)                                               # type: ignore[arg-type]
        changes = np.flatnonzero(np.diff(keys)) + 1
        for end in [*changes.tolist(), len(keys)]:
            count = most if amount.unit == "sequences" else max(1, most // int(keys[end - 1]))
            while end - cuts[-1] >= count: cuts.append(cuts[-1] + count)
        return cuts if cuts[-1] == len(keys) else [*cuts, len(keys)]

    def _cuts(self, amount: Amount) -> list[int]:
        """Of training: the same in every epoch."""
        at = amount.amount, amount.unit
        if at not in self._kept: self._kept[at] = self._cut(np.sort(self._keys(self.train)), amount)
        return self._kept[at]

    def _epoch(self, amount: Amount, epoch: int) -> tuple[list[int], np.ndarray, np.ndarray]:
        """(cuts, the order of pairs, the order of batches) of an epoch; the last one is kept."""
        cuts, at = self._cuts(amount), (amount.amount, amount.unit, epoch)
        found = self._kept.get("epoch")
        if found is None or found[0] != at:
            random = np.random.default_rng((self.seed, epoch))
            order = random.permutation(len(self.train))
            order = order[np.argsort(self._keys(self.train)[order], kind="stable")]
            found = self._kept["epoch"] = at, order, random.permutation(len(cuts) - 1)
        return cuts, found[1], found[2]


# ---- opening -----------------------------------------------------------------------------------------------------------
def opened(d: Described, need: Need) -> Dataset:
    source, target = str(d.arguments["source"]), str(d.arguments["target"])
    both = _both(source, target, need.folder, d.span)
    codec = need.codec if isinstance(need.codec, Pair) else _codec(d, need, both)
    train, _ = _encoded(both, codec)
    shares: tuple = d.arguments["split"]                                                   # type: ignore[assignment]
    if names := d.arguments["validation"]: held_out, written = _encoded(_both(*names, need.folder, d.span), codec)   # type: ignore[misc]
    else:
        chosen, rest = parts(len(train), shares)
        kept = set(rest.tolist())
        written = tuple(t for i, (_, t) in enumerate(both()) if i in kept)
        train, held_out = train.only(chosen), train.only(rest)
    m, n = (slot.length for slot in need.slots)
    fits, found = _fitting(train, m, n, "training", d.span)
    held, also = _fitting(held_out, m, n, "validation", d.span)
    return Pairs(fits, held, held_out, written, codec, m, n, need.seed, need.folder, (*found, *also))


Both = Callable[[], Iterator[tuple[str, str]]]


def _both(source: str, target: str, folder: Path, span: Span | None) -> Both:
    """The sentence pairs of two files, to be read several times. Raises PlaitError where they do not have equally many lines."""
    raws = [(raw_bytes(name, folder, span), name, span) for name in (source, target)]
    counts = [sum(1 for _ in lines(*raw)) for raw in raws]
    if counts[0] != counts[1]:
        raise error("E0612", f"`{source}` and `{target}` are no pair: a line of one is the translation of the same line of the other", span,
                    numbers=f"{counts[0]:,} lines and {counts[1]:,}")
    return lambda: zip(lines(*raws[0]), lines(*raws[1]))


def _encoded(both: Both, codec: Pair) -> tuple[Part, tuple[str, ...]]:
    """The pairs as symbols, and the targets as they are written."""
    narrow, written = np.uint16 if codec.size <= 1 << 16 else np.int32, []
    symbols: tuple[list, list] = [np.empty(0, narrow)], [np.empty(0, narrow)]
    lengths: tuple[list, list] = [np.zeros(1, np.int64)], [np.zeros(1, np.int64)]
    pairs = both()
    while some := list(islice(pairs, TOGETHER)):
        written += [target for _, target in some]
        for side, texts in enumerate(zip(*some)):
            found = [s if side == 0 and s else [*s, END] for s in codec.encoded(texts)]       # a source without a symbol: only the end
            symbols[side].append(np.fromiter(chain.from_iterable(found), narrow))
            lengths[side].append(np.fromiter(map(len, found), np.int64))
    sides = [Sentences(np.concatenate(s), np.cumsum(np.concatenate(k))) for s, k in zip(symbols, lengths)]
    return Part(*sides), tuple(written)


def _fitting(part: Part, m: int | None, n: int | None, name: str, span: Span | None) -> tuple[Part, tuple[str, ...]]:
    """The pairs that the model is long enough for, and what a person should know of the others."""
    if not m and not n: fits = np.arange(len(part))
    else: fits = np.flatnonzero((part.source.lengths <= (m or np.inf)) & (part.target.lengths <= (n or np.inf)))
    if not len(fits):
        if not len(part): raise error("E0611", f"the {name} part has no sentence pair", span, help="longer files, or another split")
        raise error("E0611", f"the {name} part has no sentence pair of at most {m or 'any'} and {n or 'any'} symbols", span,
                    numbers=f"the shortest have {int(part.source.lengths.min())} and {int(part.target.lengths.min())}",
                    help="larger m and n")
    if len(fits) == len(part): return part, ()
    left = len(part) - len(fits)
    return part.only(fits), (f"{left:,} of {len(part):,} sentence pairs of the {name} part are longer than the model reads "
                             f"({m or 'any'} and {n or 'any'} symbols) and are left out",)


# ---- vocabularies ------------------------------------------------------------------------------------------------------
def _codec(d: Described, need: Need, both: Both) -> Pair:
    """The joint vocabulary of the training files."""
    kind, most = d.arguments["tokenizer"], need.slots[0].classes
    if isinstance(kind, tuple): return _byte_pairs(both, kind[1], d.span)
    found = Counter(piece for pair in both() for text in pair for piece in split(str(kind), text))
    order = sorted(found, key=lambda piece: (-found[piece], piece))
    return Pair(str(kind), tuple(order[:max(0, most - OWN)] if most else order))


def _byte_pairs(both: Both, size: object, span: Span | None) -> Pair:
    if isinstance(size, Waiting): raise error("E0638", f"`{size.dim}` has no value", size.span, help=f"--set {size.dim}=4k")
    letters = size - OWN                                                                   # type: ignore[operator]
    if letters < BYTES:
        raise error("E0613", f"byte pairs begin with {BYTES} bytes and {OWN} symbols of their own, so {size:,} are too few", span,
                    help="bpe(4k)")
    made = byte_pairs({}, (), span)
    from tokenizers import pre_tokenizers, trainers
    trainer = trainers.BpeTrainer(vocab_size=letters, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    made.train_from_iterator(chain.from_iterable(both()), trainer)
    number = made.get_vocab()
    merges = json.loads(made.to_str())["model"]["merges"]
    return Pair("bpe", tuple(sorted(number, key=lambda piece: number[piece])), tuple((left, right) for left, right in merges))
