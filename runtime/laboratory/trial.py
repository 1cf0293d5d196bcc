"""One step of a training as `plait train` makes it, on symbols and numbers that are drawn, so that it can be timed without data."""
from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from plait.compiler.program import Program
from plait.dsl.errors import error
from plait.runtime import optim
from plait.runtime.batch import parts
from plait.runtime.module import Module
from plait.runtime.recipe import Recipe
from plait.runtime.step import update


def drawn(program: Program, batch: int, device: torch.device) -> tuple[Tensor, ...]:
    """Inputs of the loss, in the program's order: symbols below their number of classes, streams of normal numbers; nothing is padded."""
    assert program.loss is not None
    sizes, values = program.sizes.bind(b=batch), {v.name: v for v in program.loss.ins}
    found = []
    for i in program.inputs:
        v = values[i.value.name]
        shape = [sizes.integer(a.size) or 1 for a in v.axes]
        classes = sizes.integer(i.classes) if i.classes is not None else None
        found.append(torch.randn(shape, device=device) if v.kind == "real" else torch.randint(classes or 2, shape, device=device))
    return tuple(found)


def trial(program: Program, recipe: Recipe | None, batch: int, device: torch.device, **how) -> Callable[[], object]:
    """The model with first weights, and a step of its own optimiser: what is called is one update. how: as for Module. Raises PlaitError
    where no train block names the model."""
    if program.loss is None or recipe is None:
        raise error("E0601", f"no train block names the model {program.model}, so it has no step that could be measured",
                    help=f"train {program.model} {{ loss = … }}")
    torch.manual_seed(0)
    module = Module(program, device=device, **how).train()
    if recipe.precision == "bf16": module.autocast = torch.bfloat16
    optimizer = optim.build(module, recipe.optimizer)
    length = max((program.sizes.integer(a.size) or 1 for i in program.inputs for a in i.value.axes if a.role == "sequence"), default=1)
    cut = parts(drawn(program, batch, device), recipe.microbatch, length)
    return lambda: update(module, optimizer, recipe, cut, 1, 1e-4)
