"""Everything that can be said of a spec without running it: mistakes in all its models and train blocks, and warnings."""
from __future__ import annotations

import os
from dataclasses import dataclass

from plait.compiler.causality import leaks
from plait.compiler.doubts import doubts
from plait.compiler.expand import File, expand
from plait.compiler.unused import unused
from plait.dsl.errors import LIMIT, Diagnostic, PlaitError


@dataclass(frozen=True)
class Checked:
    """What holds of a spec: its models with their parameters, and the warnings."""
    models: tuple[str, ...]
    warnings: tuple[Diagnostic, ...]


def meant(file: File, model: str) -> list[Diagnostic]:
    """What a model says that its author can hardly mean."""
    return [*leaks(file, model), *unused(file, model), *doubts(file, expand(file, model), memory(), batch_of(file, model))]


def memory() -> int:
    """Bytes of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def batch_of(file: File, model: str, whole: bool = False) -> int:
    """Sequences that a step takes at once, as the train block says, or as many as its tokens fill; 1 where it does not say.
    whole: of the batch, not of the part of it that a microbatch is."""
    from plait.runtime.recipe import recipe
    found = recipe(file.spec, model, file.values(model))
    if not found or not isinstance(found.batch.amount, int): return 1
    at_once = found.batch if whole else found.microbatch or found.batch
    if not isinstance(at_once.amount, int): return 1
    if at_once.unit == "sequences": return at_once.amount
    program = expand(file, model)
    lengths = [program.sizes.integer(a.size) for i in program.inputs for a in i.value.axes if a.role == "sequence"]
    return max(1, at_once.amount // lengths[0]) if lengths and lengths[0] else 1


def check(file: File) -> Checked:
    """Expand every model with its loss, read every train block. Raises PlaitError with what is wrong in all of them."""
    from plait.runtime.comparison import comparison  # reads a compare block; knows no torch
    from plait.runtime.recipe import recipe  # likewise, a train block
    wrong: list[Diagnostic] = []
    warnings: list[Diagnostic] = []
    for name in file.models:
        try:
            expand(file, name, loss=True)
            recipe(file.spec, name, file.values(name))
            warnings += meant(file, name)
        except PlaitError as e: wrong += [d for d in e.diagnostics if d not in wrong]
    for name in dict.fromkeys(c.name for c in file.compares):
        try: comparison(file, name)
        except PlaitError as e: wrong += e.diagnostics
    if wrong: raise PlaitError(*wrong[:LIMIT])
    return Checked(tuple(file.models), tuple(warnings))
