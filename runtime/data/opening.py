"""From the `data` of a recipe and the inputs of a model to a dataset: the table of sources, and what must fit."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from plait.compiler.program import Input, Program
from plait.compiler.sizes import Sizes
from plait.dsl.errors import Note, PlaitError, error
from plait.runtime.arguments import Waiting
from plait.runtime.codec import Codec
from plait.runtime.data import images, listops, pairs, sequences, tasks, text
from plait.runtime.data.dataset import Dataset
from plait.runtime.data.need import Need, Slot
from plait.runtime.recipe import Described

ONE, TWO, LABELLED = ("tokens",), ("tokens", "tokens"), ("tokens", "class")


@dataclass(frozen=True)
class Reader:
    """How a source is opened. fills: the kinds of inputs that it can fill, in order. free: the length of an input may be free.
    padded: its examples have many lengths, so inputs of tokens must be `padded`."""
    open: Callable[[Described, Need], Dataset]
    fills: tuple[tuple[str, ...], ...] = (ONE,)
    free: bool = False
    padded: bool = False


READERS: dict[str, Reader] = {
    "text": Reader(text.opened),
    "bytes": Reader(text.opened),
    "duplicate": Reader(tasks.duplicate, (ONE, TWO)),
    "copy": Reader(tasks.copy, (ONE, TWO)),
    "reverse": Reader(tasks.reverse, (ONE, TWO)),
    "listops": Reader(listops.opened, (LABELLED,), free=True, padded=True),
    "parallel_text": Reader(pairs.opened, (TWO,), free=True, padded=True),
    "images": Reader(images.opened, (ONE, LABELLED), free=True),
    "sequences": Reader(sequences.opened),
}


def open(description: Described, folder: Path, length: int, seed: int, *, ahead: bool = True, inputs: int = 1,
         classes: int | None = None, codec: Codec | None = None, slots: tuple[Slot, ...] = ()) -> Dataset:
    """Opens what a recipe's `data` describes. Relative paths start at `folder`, that of the spec. slots: the inputs of the model;
    by default `inputs` rows of `length` tokens of `classes`, the first read ahead.

    Raises PlaitError, with the place in the spec, for a file that is missing, unreadable, empty, too short or wrongly encoded, for a
    vocabulary larger than the model's, and for inputs that the source cannot fill."""
    slots = slots or tuple(Slot("tokens", length, classes, ahead=ahead and inputs == 1) for _ in range(inputs))
    _fit(description, slots)
    for v in description.arguments.values():
        if isinstance(v, Waiting): raise error("E0638", f"`{v.dim}` has no value", v.span, help=f"--set {v.dim}=…")
    dataset = READERS[description.kind].open(description, Need(slots, seed, folder, codec))
    for slot, size in zip(slots, dataset.classes):
        if slot.classes is None or size <= slot.classes: continue
        if slot.kind == "class":
            raise error("E0613", f"the data has {size:,} classes, the input `{slot.name}` only {slot.classes:,}", description.span,
                        *_at(slot), help=f"class of {size}")
        raise error("E0613", f"the data has {size:,} symbols, the model's vocabulary only {slot.classes:,}", description.span,
                    help=f"V = {size}, or larger")
    return dataset


def open_for(program: Program, description: Described, folder: Path, seed: int, codec: Codec | None = None, **sizes: int) -> Dataset:
    """Opens the data for an expanded model. `sizes`: values for dims that are still free (`n`); a free vocabulary is left
    to the data. Raises PlaitError where the model's inputs are not what the data gives."""
    known = program.sizes.bind(**sizes) if sizes else program.sizes
    slots = tuple(_slot(i, known) for i in program.inputs)
    _fit(description, slots)
    if not READERS[description.kind].free and slots[0].length is None:
        size = program.inputs[0].value.axes[1].size
        raise error("E0638", f"the length `{size}` of the input `{slots[0].name}` has no value", slots[0].span, help=f"--set {size}=128")
    return open(description, folder, 0, seed, codec=codec, slots=slots)


def _slot(i: Input, sizes: Sizes) -> Slot:
    length = sizes.integer(i.value.axes[1].size) if i.kind == "tokens" else None
    classes = sizes.integer(i.classes) if i.classes is not None else None
    return Slot(i.kind, length, classes, i.mask is not None, i.ahead, i.name, i.span)


def _fit(description: Described, slots: tuple[Slot, ...]) -> None:
    """Raises PlaitError where the source does not fill these inputs."""
    kind, reader = description.kind, READERS[description.kind]
    if tuple(s.kind for s in slots) not in reader.fills: raise _unfilled(description, reader, slots)
    for s in slots:
        if reader.padded and s.kind == "tokens" and not s.padded:
            raise error("E0614", f"the examples of `{kind}` have many lengths, and the input `{s.name}` is not padded", s.span,
                        help=f"input {s.name}: tokens[…] of … padded")
        if s.ahead and (len(slots) > 1 or reader.padded):
            target = slots[-1].name
            raise error("E0614", f"`{kind}` fills the targets of its own, and `{s.name}` is read by next()", s.span,
                        help=f"loss = cross_entropy(…, {target})")


def _unfilled(description: Described, reader: Reader, slots: tuple[Slot, ...]) -> PlaitError:
    kind, counts = description.kind, sorted({len(f) for f in reader.fills})
    fit = f"inputs of `{kind}`: " + " or ".join(" and ".join(f) for f in reader.fills)
    if len(slots) not in counts:
        filled = " or ".join(("no", "one", "two")[c] for c in counts) + (" input" if counts[-1] == 1 else " inputs")
        return error("E0614", f"`{kind}` fills {filled}, the model has {len(slots)}", description.span, *(n for s in slots for n in _at(s)),
                     help=fit)
    fills = next(f for f in reader.fills if len(f) == len(slots))
    wrong, wants = next((s, f) for s, f in zip(slots, fills) if s.kind != f)
    gives = "tokens" if wants == "tokens" else "a class"
    is_ = "tokens" if wrong.kind == "tokens" else f"a {wrong.kind}"
    return error("E0614", f"`{kind}` gives {gives}, but the input `{wrong.name}` is {is_}", wrong.span,
                 help=fit)


def _at(slot: Slot) -> tuple[Note, ...]:
    return (Note(slot.span, slot.name),) if slot.span else ()
