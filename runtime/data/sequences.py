"""Sequences of whole numbers, music above all: `sequences`."""
from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from torch import Tensor

from plait.dsl.errors import PlaitError, Span, error
from plait.runtime.codec import Codec, Words
from plait.runtime.data.arrays import arrays, named
from plait.runtime.data.dataset import DEFAULT, Dataset, fingerprint, parts, passes, rows, tensor
from plait.runtime.data.need import Need
from plait.runtime.files import raw_bytes
from plait.runtime.recipe import Amount, Described

REST = -1
FARTHEST = 2**20                                           # the largest range of numbers: there is a symbol for each
Piece = np.ndarray                                         # int64 [steps, voices], REST where a voice is silent


@dataclass(frozen=True)
class Pieces:
    """Pieces one behind the other, int32 [symbols], piece i from starts[i] to starts[i + 1]."""
    symbols: np.ndarray
    starts: np.ndarray


@dataclass(frozen=True)
class Sequences:
    """Pieces of `voices` symbols a step, the voices of a step one after another. A window begins with a step of one piece and ends in the
    same piece: what is behind its end is -1, no target. Training: windows at random places, each place as likely. Validation: windows one
    after the other, so that every symbol (but the first of a piece, where windows are ahead) is a target exactly once."""
    train: Pieces
    held_out: Pieces
    voices: int
    codec: Codec
    length: int
    seed: int
    ahead: bool
    folder: Path
    amount: Amount = DEFAULT
    notes: tuple[str, ...] = ()

    @property
    def symbols(self) -> int:
        return len(self.train.symbols) - self.ahead * (len(self.train.starts) - 1)

    @property
    def content(self) -> str:
        return fingerprint(self.train.symbols)[:32] + fingerprint(self.train.starts)[:32]

    @property
    def classes(self) -> tuple[int, ...]:
        return (self.codec.size,)

    def by(self, amount: Amount) -> Dataset:
        return replace(self, amount=amount)

    def batch(self, step: int, size: int | None = None) -> tuple[Tensor, ...]:
        """Windows are drawn by their number among all of them, piece by piece."""
        places = np.concatenate([[0], np.cumsum(self._places(self.train))])
        drawn = np.random.default_rng((self.seed, step)).integers(0, places[-1], rows(self.amount, self.length, size))
        piece = np.searchsorted(places, drawn, "right") - 1
        return (tensor(np.stack([self._window(self.train, i, (k - places[i]) * self.voices) for i, k in zip(piece, drawn)])),)

    def tokens(self, inputs: Sequence[Tensor]) -> int:
        return int((inputs[0][:, self.ahead:] >= 0).sum())

    def steps(self, epochs: Fraction | float) -> int:
        return passes(epochs, self.symbols, rows(self.amount, self.length) * self.length)

    def validation(self, size: int | None = None) -> Iterator[tuple[Tensor, ...]]:
        found, size = [], rows(self.amount, self.length, size)
        for i, at, new in self._tiles():
            window = self._window(self.held_out, i, at)
            seen = window[:new + self.ahead] if new else window[:0]                # targets of the window before
            seen[seen >= 0] = ~seen[seen >= 0]
            found.append(window)
            if len(found) == size: yield (tensor(np.stack(found)),); found = []
        if found: yield (tensor(np.stack(found)),)

    def _tiles(self) -> Iterator[tuple[int, int, int]]:
        """(piece, where the window starts, how many of its targets were targets before)."""
        lengths = np.diff(self.held_out.starts)
        for i, length in enumerate(lengths.tolist()):
            done = 0                                                              # targets, counted from the first one of the piece
            while done < length - self.ahead:
                at = 0 if done == 0 else done // self.voices * self.voices
                if at and at + self.length > length - self.ahead:                 # the last one goes back, to see as much as it can
                    at = max(0, -(-(length - self.ahead - self.length) // self.voices) * self.voices)
                yield i, at, done - at
                done = at + self.length

    def _places(self, part: Pieces) -> np.ndarray:
        """How many windows each piece has: the last one reaches its end."""
        over = np.diff(part.starts) - self.length - self.ahead
        return np.maximum(0, -(-over // self.voices)) + 1

    def _window(self, part: Pieces, i: int, at: int) -> np.ndarray:
        first, last = int(part.starts[i] + at), int(part.starts[i + 1])
        found = np.full(self.length + self.ahead, -1)
        taken = part.symbols[first:min(last, first + len(found))]
        found[:len(taken)] = taken
        return found


# ---- opening -----------------------------------------------------------------------------------------------------------
def opened(d: Described, need: Need) -> Dataset:
    name, span = str(d.arguments["file"]), d.span
    if Path(name).suffix not in (".npz", ".json"):
        raise error("E0612", f"`sequences` reads .npz and .json files, not `{name}`", span, help='sequences("FILE.npz")')
    found = (_from_json if Path(name).suffix == ".json" else _from_npz)(name, need.folder, span)
    train, held_out = found.get("train", []), found.get("valid", [])
    if "" in found:
        train, held_out = _dealt(found[""], d.arguments["split"])                         # type: ignore[arg-type]
    for part, called in ((train, "training"), (held_out, "validation")):
        if not sum(p.size > need.ahead for p in part):
            raise error("E0611", f"the {called} part of `{name}` has no piece of {1 + need.ahead} symbols", span,
                        numbers=f"{len(train)} pieces for training, {len(held_out)} for validation", help="more pieces, or another split")
    voices = max(p.shape[1] for p in [*train, *held_out])
    low, high, rests = _range(found, voices, name, span)
    if voices > need.length:
        raise error("E0611", f"a step of `{name}` has {voices} voices, and the model reads {need.length}", span, help=f"n = {8 * voices}")
    codec = Words((*(["-"] if rests else []), *map(str, range(low, high + 1))))
    if isinstance(need.codec, Words):                             # the symbols of a run stay what they were
        low, rests = _known(codec, need.codec, name, span)
        codec = need.codec
    made = [_joined([p for p in part if p.size > need.ahead], voices, low - rests) for part in (train, held_out)]
    return Sequences(made[0], made[1], voices, codec, need.length, need.seed, need.ahead, need.folder)


def _dealt(pieces: list[Piece], shares: Sequence[Fraction]) -> tuple[list[Piece], list[Piece]]:
    """Training and validation: whole pieces, by a shuffle that is always the same; of a single piece its beginning and what follows."""
    if len(pieces) != 1:
        chosen, rest = parts(len(pieces), shares)
        return [pieces[i] for i in chosen], [pieces[i] for i in rest]
    (whole,) = pieces
    first, second = int(shares[0] * len(whole)), int((shares[0] + shares[1]) * len(whole))
    return [whole[:first]], [whole[first:second]]


def _range(found: dict[str, list[Piece]], voices: int, name: str, span: Span | None) -> tuple[int, int, bool]:
    """The least and the greatest number in all parts, and whether there are rests."""
    pieces = [p for part in found.values() for p in part if p.size]
    sounding = [p[p != REST] for p in pieces if (p != REST).any()]
    if not sounding: raise error("E0611", f"`{name}` holds nothing but rests", span)
    low, high = min(int(p.min()) for p in sounding), max(int(p.max()) for p in sounding)
    if low < 0: raise error("E0612", f"`{name}` has the number {low}: numbers start at 0, and -1 is a rest", span)
    if high - low >= FARTHEST:
        raise error("E0613", f"`{name}` has numbers from {low} to {high:,}: too many symbols", span, numbers=f"at most {FARTHEST:,}")
    return low, high, any((p == REST).any() or p.shape[1] < voices for p in pieces)


def _known(found: Words, own: Words, name: str, span: Span | None) -> tuple[int, bool]:
    """The least number, and whether there is a symbol for the rest, in the vocabulary of a run. found: that of the data."""
    strange = [n for n in found.names if n not in set(own.names)]
    if strange:
        called = "rests" if strange[0] == "-" else f"the number {strange[0]}"
        raise error("E0613", f"`{name}` has {called}, which the model's vocabulary does not have", span,
                    help=f"its symbols: {' '.join(own.names[:2])} … {own.names[-1]}")
    rests = own.names[0] == "-"
    return int(own.names[rests]), rests


def _joined(pieces: list[Piece], voices: int, zero: int) -> Pieces:
    """zero: the number that is symbol 0; a rest is symbol 0 of its own."""
    rows = []
    for p in pieces:
        whole = np.full((len(p), voices), REST)
        whole[:, :p.shape[1]] = p
        rows.append(np.where(whole == REST, 0, whole - zero).astype(np.int32).ravel())
    return Pieces(np.concatenate(rows), np.cumsum([0, *map(len, rows)]))


def _parts(found: dict[str, object], name: str, span: Span | None) -> dict[str, object]:
    """train and valid (test) by these names, or "": all there is."""
    if "train" not in found:
        if len(found) == 1: return {"": next(iter(found.values()))}
        raise error("E0612", f"`{name}` has {', '.join(map(str, list(found)[:5]))}, and no `train`", span, help="train, valid and test")
    held_out = named(found, "valid", "validation", "val", "test")                          # type: ignore[arg-type]
    if held_out is None: return {"": found["train"]}
    return {"train": found["train"], "valid": held_out, **({"test": found["test"]} if "test" in found else {})}


def _from_npz(name: str, folder: Path, span: Span | None) -> dict[str, list[Piece]]:
    """An array of pieces, each [steps] or [steps, voices]; or numbers [pieces, steps(, voices)], [steps]. NaN is a rest."""
    found = _parts(dict(arrays(name, folder, span, objects=True)), name, span)
    made: dict[str, list[Piece]] = {}
    for part, a in found.items():
        if not isinstance(a, np.ndarray) or not a.ndim: raise error("E0612", f"`{name}` holds no list of pieces", span)
        made[part] = [_piece(p, i, name, span) for i, p in enumerate([a] if a.ndim == 1 and a.dtype != object else a)]
    return made


def _from_json(name: str, folder: Path, span: Span | None) -> dict[str, list[Piece]]:
    """Lists of pieces, each a list of numbers or of lists of numbers (the voices of a step; where there are fewer, the others rest)."""
    raw = raw_bytes(name, folder, span)
    try: content = json.loads(raw.tobytes())
    except (ValueError, RecursionError) as why:
        raise error("E0612", f"`{name}` is not JSON: {str(why).splitlines()[0]}", span) from None
    found = _parts(content if isinstance(content, dict) else {"": content}, name, span)
    for a in found.values():
        if not isinstance(a, list): raise error("E0612", f"`{name}` holds no list of pieces", span, help='{"train": [[60, 62, …], …], …}')
    return {part: [_listed(p, i, name, span) for i, p in enumerate(_pieces(a))] for part, a in found.items()}     # type: ignore[arg-type]


def _pieces(a: list) -> list:
    return [a] if a and all(isinstance(x, int) for x in a) else a


def _listed(p: object, i: int, name: str, span: Span | None) -> Piece:
    def number(x: object) -> bool: return x is None or isinstance(x, int) and not isinstance(x, bool) and abs(x) < 2**31

    if not isinstance(p, list): raise _no_piece(i, name, span)
    steps = [s if isinstance(s, list) else [s] for s in p]
    if not all(number(x) for s in steps for x in s): raise _no_piece(i, name, span)
    found = np.full((len(steps), max(map(len, steps), default=1) or 1), REST)
    for row, s in zip(found, steps): row[:len(s)] = [REST if x is None else x for x in s]
    return found


def _piece(p: object, i: int, name: str, span: Span | None) -> Piece:
    a = np.asarray(p)
    if a.dtype.kind not in "iuf" or a.ndim not in (1, 2): raise _no_piece(i, name, span)
    a = np.where(np.isnan(a), REST, a.astype(np.float64)) if a.dtype.kind == "f" else a
    if not (np.isfinite(a).all() and (a == np.floor(a)).all() and ((a > -2**31) & (a < 2**31)).all()): raise _no_piece(i, name, span)
    a = a.astype(np.int64)
    return a[:, None] if a.ndim == 1 else a


def _no_piece(i: int, name: str, span: Span | None) -> PlaitError:
    return error("E0612", f"piece {i} of `{name}` holds something else than whole numbers, one or several a step", span,
                 help="[60, 62, -1] or [[72, 67, 64, 60], …]")
