"""Images as sequences of their values, row by row, the channels of a pixel one after another: `images`."""
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from plait.dsl.errors import PlaitError, Span, error
from plait.runtime import files
from plait.runtime.codec import Numbers
from plait.runtime.data.arrays import arrays, named, whole_numbers
from plait.runtime.data.dataset import DEFAULT, Dataset, fingerprint, in_epochs, parts, passes, rows, tensor
from plait.runtime.data.need import Need
from plait.runtime.recipe import Amount, Described

LEVELS = 2**16                                             # the most values that a channel can have
PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".pgm", ".ppm", ".tif", ".tiff", ".webp")
FORMS = (".npz", ".npy", ".csv", ".csv.gz", ".csv.bz2")


class Values(Protocol):
    """What images are taken from: an array [N, n], or files that are read when they are asked for."""
    def __len__(self) -> int: ...
    def __getitem__(self, chosen: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True)
class Images:
    """Images, int64 [rows, n]; where the model reads them by next(), [rows, n + 1], and behind the last value stands -1, no target. The
    label of each, int64 [rows], where the model asks for it. Every epoch is a shuffle of all training images.
    train, held_out: which of the values are for training and which for validation."""
    values: Values
    labels: np.ndarray | None
    train: np.ndarray
    held_out: np.ndarray
    length: int
    codec: Numbers
    classes: tuple[int, ...]
    content: str
    seed: int
    ahead: bool
    folder: Path
    amount: Amount = DEFAULT
    notes: tuple[str, ...] = ()

    @property
    def symbols(self) -> int:
        return len(self.train) * (self.length - self.ahead)

    def by(self, amount: Amount) -> Dataset:
        return replace(self, amount=amount)

    def batch(self, step: int, size: int | None = None) -> tuple[Tensor, ...]:
        return self._given(self.train[in_epochs(self.seed, step, rows(self.amount, self.length, size), len(self.train))])

    def tokens(self, inputs: Sequence[Tensor]) -> int:
        return len(inputs[0]) * self.length

    def steps(self, epochs: Fraction | float) -> int:
        return passes(epochs, len(self.train), rows(self.amount, self.length))

    def validation(self, size: int | None = None) -> Iterator[tuple[Tensor, ...]]:
        size = rows(self.amount, self.length, size)
        for first in range(0, len(self.held_out), size): yield self._given(self.held_out[first:first + size])

    def _given(self, chosen: np.ndarray) -> tuple[Tensor, ...]:
        x = np.asarray(self.values[chosen]).astype(np.int64)
        if self.ahead: x = np.concatenate([x, np.full((len(x), 1), -1)], 1)
        return (tensor(x),) if self.labels is None else (tensor(x), tensor(self.labels[chosen]))


@dataclass(frozen=True)
class Found:
    """values: [N, n]. shape: of one image, in words. held_out: the number of the first image of the validation part, where the file has
    its own parts."""
    values: Any
    labels: np.ndarray | None
    levels: int
    shape: str
    content: str
    held_out: int | None = None
    end: int | None = None


# ---- opening -----------------------------------------------------------------------------------------------------------
def opened(d: Described, need: Need) -> Dataset:
    name, span, slot = str(d.arguments["file"]), d.span, need.slots[0]
    found = _found(name, need, span)
    count, n = found.values.shape
    if not n: raise error("E0611", f"the images of `{name}` have no values", span)
    if slot.length is not None and slot.length != n:
        raise error("E0614", f"the images have {n:,} values ({found.shape}), the model reads {slot.length:,}", span, help=f"n = {n}")
    labelled = len(need.slots) == 2
    if labelled and found.labels is None:
        raise error("E0614", f"the images of `{name}` have no labels, and the input `{need.slots[1].name}` is a class", span,
                    help="a last column, an array `labels`, or a folder for each class")
    train, held_out = parts(count, d.arguments["split"])                                   # type: ignore[arg-type]
    if found.held_out is not None: train, held_out = np.arange(found.held_out), np.arange(found.held_out, found.end or count)
    for part, called in ((train, "training"), (held_out, "validation")):
        if not len(part): raise error("E0611", f"the {called} part of `{name}` has no image", span, numbers=f"{count:,} images in all")
    labels = found.labels if labelled else None
    classes = (found.levels, *([int(labels.max()) + 1] if labels is not None else []))
    return Images(found.values, labels, train, held_out, n, Numbers(found.levels), classes, found.content, need.seed, need.ahead,
                  need.folder)


def _found(name: str, need: Need, span: Span | None) -> Found:
    if name == "digits": return _digits(span)
    if (need.folder / name).is_dir(): return _folder(name, need.folder / name, span)
    if name.endswith((".npz", ".npy")): return _arrays(name, need.folder, span)
    if name.endswith(FORMS): return _table(name, need, span)
    files.raw_bytes(name, need.folder, span)               # where it is not there, that is the mistake
    raise error("E0612", f"`images` reads a folder of pictures and {', '.join(FORMS)}, not `{name}`", span, help='images("FILE.npz")')


def _digits(span: Span | None) -> Found:
    """The 1,797 digits of 8 × 8 points in 17 levels that scikit-learn brings along (Alpaydin and Kaynak 1998)."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise error("E0610", "the digits come with scikit-learn, which is not installed", span,
                    help='pip install scikit-learn; or a file of them: images("digits.csv.gz")') from None
    values, labels = load_digits(return_X_y=True)
    return _whole(values.astype(np.uint8), labels, "8 × 8", "digits", span)


def _whole(values: np.ndarray, labels: np.ndarray | None, shape: str, name: str, span: Span | None, **cut: int | None) -> Found:
    """Images that are an array [N, n] of whole numbers, whose labels are whole numbers too."""
    if not len(values): raise error("E0611", f"`{name}` has no image", span)
    values = whole_numbers(values, "the values", name, span)
    low, high = _range(values)
    if low < 0 or high >= LEVELS:
        raise error("E0613", f"the values of `{name}` are from {low:,} to {high:,}: levels are 0 to {LEVELS - 1:,}", span)
    if labels is not None:
        labels = whole_numbers(np.asarray(labels).ravel(), "the labels", name, span)
        if len(labels) != len(values):
            raise error("E0612", f"`{name}` has {len(values):,} images and {len(labels):,} labels", span)
        least, most = _range(labels)
        if least < 0 or most >= LEVELS:
            raise error("E0613", f"the labels of `{name}` are from {least:,} to {most:,}: they are 0 to {LEVELS - 1:,}", span)
        labels = labels.astype(np.int64)                      # now that none of them is too large for it
    content = fingerprint(values.ravel()) if labels is None else fingerprint(values.ravel())[:32] + fingerprint(labels)[:32]
    return Found(values, labels, high + 1, shape, content, **cut)


def _range(a: np.ndarray) -> tuple[int, int]:
    return (int(a.min()), int(a.max())) if a.size else (0, 0)


# ---- tables ------------------------------------------------------------------------------------------------------------
def _table(name: str, need: Need, span: Span | None) -> Found:
    """A line an image, numbers with commas between. The last is a label where the model reads one number less, or where the others fill a
    square and all do not."""
    table = _rows(name, need.folder, span)
    columns, n = table.shape[1], need.slots[0].length
    if n is not None: labelled = columns == n + 1
    else: labelled = not _square(columns) and _square(columns - 1)
    values = table[:, :-1] if labelled else table
    side = round(values.shape[1] ** 0.5)
    shape = f"{side} × {side}" if _square(values.shape[1]) else f"{values.shape[1]} in a line"
    return _whole(values, table[:, -1] if labelled else None, shape, name, span)


def _rows(name: str, folder: Path, span: Span | None) -> np.ndarray:
    found: list[np.ndarray] = []
    for k, line in enumerate(files.lines(files.raw_bytes(name, folder, span), name, span), 1):
        if not line.strip(): continue
        try: row = np.array(line.split(","), np.float64)
        except ValueError:
            if not found and k == 1: continue                     # names of the columns
            raise error("E0612", f"line {k:,} of `{name}` is not numbers with commas between", span, numbers=line[:60]) from None
        if found and len(row) != len(found[0]):
            raise error("E0612", f"the images of `{name}` are not of one size", span,
                        numbers=f"line {k:,} has {len(row):,} numbers, the lines before have {len(found[0]):,}")
        found.append(_narrow(whole_numbers(row, f"the numbers in line {k:,}", name, span)))
    if not found: raise error("E0611", f"`{name}` has no line of numbers", span)
    return np.stack(found)


def _narrow(row: np.ndarray) -> np.ndarray:
    """In half the memory, where its numbers allow it; what is too large for that is told of with the others."""
    return row.astype(np.int32) if (abs(row) < 2**31).all() else row


def _square(n: int) -> bool:
    return round(n**0.5) ** 2 == n


# ---- arrays ------------------------------------------------------------------------------------------------------------
def _arrays(name: str, folder: Path, span: Span | None) -> Found:
    """`images` (or `data`, `x`, the only array) and `labels` (or `y`); or parts: `train`, `valid`, `train_labels`, `valid_labels`."""
    found = arrays(name, folder, span)
    if "train" in found and (held_out := named(found, "valid", "validation", "test")) is not None:
        labels = [found.get("train_labels"), named(found, "valid_labels", "validation_labels", "test_labels")]
        flat, shape = zip(*(_flat(a, name, span) for a in (found["train"], held_out)))
        if shape[0] != shape[1]: raise error("E0612", f"the images of `{name}` are not of one size: {shape[0]} and {shape[1]}", span)
        both = np.concatenate([a for a in labels if a is not None]) if all(a is not None for a in labels) else None
        return _whole(np.concatenate(flat), both, shape[0], name, span, held_out=len(flat[0]))
    images = named(found, "", "images", "data", "x", "X", "train")
    if images is None and len(found) == 1: images = next(iter(found.values()))
    if images is None: raise error("E0612", f"`{name}` has {', '.join(list(found)[:5])}, and no `images`", span, help="images and labels")
    values, shape = _flat(images, name, span)
    return _whole(values, named(found, "labels", "label", "y", "target", "train_labels"), shape, name, span)


def _flat(a: np.ndarray, name: str, span: Span | None) -> tuple[np.ndarray, str]:
    if a.ndim not in (2, 3, 4):
        raise error("E0612", f"the images of `{name}` are [{', '.join(map(str, a.shape))}]", span,
                    help="[N, height, width], [N, height, width, channels] or [N, values]")
    return a.reshape(len(a), math.prod(a.shape[1:])), " × ".join(map(str, a.shape[1:]))


# ---- folders -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Pictures:
    """Picture files, opened when they are asked for. grey: one channel, not three."""
    paths: tuple[Path, ...]
    size: tuple[int, int]
    grey: bool
    span: Span | None = field(default=None, repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.paths), self.size[0] * self.size[1] * (1 if self.grey else 3)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, chosen: np.ndarray) -> np.ndarray:
        return np.stack([self._read(self.paths[i]) for i in chosen])

    def _read(self, path: Path) -> np.ndarray:
        from PIL import Image
        try:
            with Image.open(path) as picture: return np.asarray(picture.convert("L" if self.grey else "RGB"), np.uint8).ravel()
        except (OSError, ValueError, SyntaxError) as why: raise _spoiled(path, why, self.span) from None


def _folder(name: str, folder: Path, span: Span | None) -> Found:
    """Pictures of one size, in the folder or in a folder for each class, whose names in order are classes 0, 1, …"""
    try:
        from PIL import Image
    except ImportError:
        raise error("E0610", "pictures are opened by the package `pillow`, which is not installed", span,
                    help="pip install 'plait[images]', or a .npz file") from None
    paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in PICTURES and p.is_file())
    if not paths: raise error("E0611", f"the folder `{name}` has no picture", span, help=" ".join(PICTURES))
    sizes: dict[tuple[int, int], Path] = {}
    grey = True
    for path in paths:
        try:
            with Image.open(path) as picture: sizes.setdefault(picture.size, path); grey = grey and picture.mode in ("1", "L")
        except (OSError, ValueError, SyntaxError) as why: raise _spoiled(path, why, span) from None
        if len(sizes) > 1:
            raise error("E0612", f"the pictures of `{name}` are not of one size", span,
                        numbers=", ".join(f"{p.name} {w} × {h}" for (w, h), p in sizes.items()))
    (width, height), = sizes
    kinds = sorted({p.parent for p in paths})
    labels = np.array([kinds.index(p.parent) for p in paths]) if len(kinds) > 1 else None
    content = fingerprint(np.frombuffer("\n".join(f"{p.relative_to(folder)} {p.stat().st_size}" for p in paths).encode(), np.uint8))
    shape = f"{height} × {width}" + ("" if grey else " × 3")
    return Found(Pictures(tuple(paths), (height, width), grey, span), labels, 256, shape, content)


def _spoiled(path: Path, why: Exception, span: Span | None) -> PlaitError:
    return error("E0612", f"the picture `{path.name}` cannot be opened: {getattr(why, 'strerror', None) or why}", span)
