"""How many sequences a step takes, in how many parts, and when a run is at its end."""
from __future__ import annotations

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


def parts(inputs: tuple[Tensor, ...], micro: Amount | None, length: int) -> list[tuple[Tensor, ...]]:
    """A batch in parts of so many sequences, or of as many tokens, by the longest row of an input, which is at most n; the last may
    have fewer. length: n."""
    if micro is None: return [inputs]
    longest = max((t.shape[1] for t in inputs if t.dim() > 1), default=1)
    return list(zip(*(t.split(_rows(micro, min(length, longest))) for t in inputs)))


class Stop:
    """When a run ends: at a step, or after so many tokens, or after so much time in training steps."""

    def __init__(self, recipe: Recipe, dataset: Dataset):
        """Raises PlaitError for epochs of data that has no end."""
        self.unit, amount = recipe.stop.unit, recipe.stop.amount
        if self.unit == "epochs" and not dataset.symbols:
            raise error("E0636", f"`{recipe.data.kind}` has no end, so no epochs", recipe.stop.span, help="stop = 1k steps")
        if self.unit == "epochs": self.unit, amount = "steps", dataset.by(recipe.batch).steps(amount)    # type: ignore[arg-type]
        self.amount = float(amount) * 60 if self.unit == "minutes" else int(amount)        # type: ignore[arg-type]
        self.first = dataset.tokens(dataset.by(recipe.batch).batch(1)) if self.unit == "tokens" else 0

    def _done(self, state: State) -> float:
        return {"steps": state.step, "tokens": state.tokens, "minutes": state.seconds}[self.unit]

    def last(self, state: State) -> int:
        """The last step of the schedule. Of a run that stops by tokens or by time: where the pace so far would end it, so that what has
        passed of the schedule is what has passed of these."""
        if self.unit == "steps": return int(self.amount)
        done, step = (self._done(state), state.step) if state.step else (self.first, 1)
        if self.unit == "tokens": return max(state.step + 1, -(-int(self.amount) * step // int(done)))
        return max(state.step + 1, round(step * self.amount / done)) if done else 10**9        # by time, before the first step

    @property
    def planned(self) -> int | None:
        """The last step, where it is known before the first one."""
        return int(self.amount) if self.unit == "steps" else None

    def reached(self, state: State, steps: int | None) -> bool:
        """steps: the step to end at instead. A run that stops by tokens or time has ended there, whatever the steps."""
        if steps is not None and state.step >= steps: return True
        return self._done(state) >= self.amount and (steps is None or self.unit != "steps")

    def __str__(self) -> str:
        return f"{self.amount / 60:,.4g} minutes" if self.unit == "minutes" else f"{self.amount:,} {self.unit}"
