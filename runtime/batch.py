"""How many sequences a step takes, in how many parts, and when a run is at its end."""
from __future__ import annotations

import math
import os

from torch import Tensor

from plait.dsl.errors import error
from plait.runtime.checkpoint import State
from plait.runtime.data import Dataset
from plait.runtime.recipe import Amount, Recipe


def sequences(recipe: Recipe, length: int) -> int:
    """Sequences in a batch: as the recipe says, or as many of n symbols as its tokens fill (at least one).
    Raises PlaitError for more than memory could hold."""
    count = _rows(recipe.batch, length)
    takes, there = count * (length + 1) * 8, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if takes > there // 4:
        alone = f"takes {takes / 2**30:,.1f} GiB for its symbols alone, of {there / 2**30:,.1f} GiB in this machine"
        raise error("E0633", f"a batch of {count:,} sequences {alone}", recipe.batch.span, help="batch = 32 sequences")
    return count


def part(recipe: Recipe, length: int) -> int:
    """Sequences that are computed at once: those of a microbatch, and no more than a batch has."""
    whole = sequences(recipe, length)
    return whole if recipe.microbatch is None else min(whole, _rows(recipe.microbatch, length))


def _rows(amount: Amount, length: int) -> int:
    count = int(amount.amount)                                                             # type: ignore[arg-type]
    return count if amount.unit == "sequences" else max(1, count // length)


def parts(inputs: tuple[Tensor, ...], rows: int) -> list[tuple[Tensor, ...]]:
    """A batch in parts of so many sequences; the last may have fewer."""
    return list(zip(*(t.split(rows) for t in inputs)))


class Stop:
    """When a run ends: at a step, or after so much time in training steps."""

    def __init__(self, recipe: Recipe, dataset: Dataset):
        """Raises PlaitError for epochs of data that has no end. An epoch is as many windows as have the targets of the training part."""
        amount, unit, span = float(recipe.stop.amount), recipe.stop.unit, recipe.stop.span         # type: ignore[arg-type]
        self.seconds = amount * 60 if unit == "minutes" else None
        self.step: int | None = None
        if unit == "steps": self.step = int(recipe.stop.amount)                            # type: ignore[arg-type]
        if unit == "epochs" and not dataset.symbols:
            raise error("E0636", f"`{recipe.data.kind}` has no end, so no epochs", span, help="stop = 1k steps")
        targets = sequences(recipe, dataset.length) * dataset.length
        if unit == "epochs": self.step = math.ceil(recipe.stop.amount * dataset.symbols / targets)   # type: ignore[operator]
        if unit == "tokens": self.step = math.ceil(recipe.stop.amount / targets)           # type: ignore[operator]

    def last(self, state: State) -> int:
        """The last step of the schedule. Of a run that stops by time: where the pace so far would end it, so that what has passed of the
        schedule is what has passed of the time; before the first step, as if that were endless."""
        if self.step is not None: return self.step
        assert self.seconds is not None
        return max(state.step + 1, round(state.step * self.seconds / state.seconds)) if state.step and state.seconds else 10**9

    def reached(self, state: State, steps: int | None) -> bool:
        """steps: the step to end at instead. A run that stops by time ends when it is over, whatever the steps."""
        if self.seconds is not None and state.seconds >= self.seconds: return True
        end = self.step if steps is None else steps
        return end is not None and state.step >= end

    def __str__(self) -> str:
        return f"{self.step:,} steps" if self.step is not None else f"{(self.seconds or 0) / 60:,.4g} minutes"
