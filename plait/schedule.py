"""Learning rates over the steps of a training, from the formulas of train blocks. Knows no torch, and reads no data."""
from __future__ import annotations

import math
from dataclasses import dataclass

from plait.checking import batch_of
from plait.compiler.expand import File, expand
from plait.dsl.errors import error
from plait.runtime.formula import Unbound
from plait.runtime.recipe import Recipe, recipe

POINTS = 1000                                    # of a curve, at most


@dataclass(frozen=True)
class Schedule:
    """The learning rate of a model at some steps, from the first to the last of its training."""
    model: str
    steps: tuple[int, ...]
    rates: tuple[float, ...]


def schedules(file: File, models: list[str], last: int | None = None) -> list[Schedule]:
    """Of the models that have a train block. last: the last step, in place of the one that the block says.
    Raises PlaitError where no model has one, where a block does not tell its last step, and for rates that are no numbers."""
    recipes = {m: r for m in models if (r := recipe(file.spec, m, file.values(m))) is not None}
    if not recipes: raise error("E0637", "no train block is for these models: they have no learning rate", help="train MODEL { lr = 1e-3 }")
    return [_schedule(m, r, last or _last(file, m, r)) for m, r in recipes.items()]


def _last(file: File, model: str, r: Recipe) -> int:
    if r.stop.unit == "steps" and isinstance(r.stop.amount, int): return r.stop.amount
    if r.stop.unit == "tokens" and isinstance(r.stop.amount, int):
        if r.batch.unit == "tokens" and isinstance(r.batch.amount, int): return math.ceil(r.stop.amount / r.batch.amount)
        program = expand(file, model)
        length = next((program.sizes.integer(a.size) for a in program.inputs[0].value.axes if a.role == "sequence"), None)
        if length: return math.ceil(r.stop.amount / (batch_of(file, model, whole=True) * length))
    raise error("E0640", f"the last step is known only when `{model}` is trained: its stop is in {r.stop.unit}", r.stop.span,
                help="--to 10000")


def _schedule(model: str, r: Recipe, last: int) -> Schedule:
    steps = tuple(sorted({1 + (last - 1) * k // max(1, min(POINTS, last) - 1) for k in range(min(POINTS, last))}))
    try: rates = tuple(r.lr(s, last) for s in steps)
    except Unbound as missing:
        raise error("E0638", f"`{missing.name}` has no value", r.keys.get("lr"), help=f"--set {missing.name}=…") from None
    for s, lr in zip(steps, rates):
        if not (math.isfinite(lr) and lr >= 0):
            what = "negative" if lr < 0 else "not a number"
            raise error("E0635", f"the learning rate is {what} at step {s:,}", r.keys.get("lr"), numbers=f"lr({s:,}) = {lr:g}")
    return Schedule(model, steps, rates)
