"""A training step of a model that needs no data: random symbols, and the optimiser and clipping of its train block."""
from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from plait.compiler.file import File
from plait.compiler.program import Program
from plait.compiler.step import Step
from plait.dsl.errors import error
from plait.runtime import optim
from plait.runtime.module import Module, target_of
from plait.runtime.prepare import PRECISIONS
from plait.runtime.recipe import Described, Recipe, recipe
from plait.runtime.sources import OPTIMIZERS
from plait.runtime.step import update

RATE = 1e-4                                                   # of learning: a step takes as long with any
ADAMW = Described("adamw", {name: p.default for name, p in OPTIMIZERS["adamw"].parameters.items()})


@dataclass(frozen=True)
class Subject:
    """A model at its sizes, as it is to run. kernels: region → kernel or `body`; loops: recurrences as plain loops in Python, eager."""
    file: File
    program: Program
    batch: int
    kernels: Mapping[str, str]
    compile: bool = True
    loops: bool = False

    def derived(self, device: str) -> Step:
        """The costs of its training step."""
        return Step(lambda: self.program, target_of(device, compiled=self.compile), self.kernels)


def step_of(subject: Subject, device: torch.device, at_once: int | None = None) -> Callable[[], None]:
    """Forward, backward, clipping and update of a fresh model on a random batch, the same every time. at_once: sequences of a microbatch.
    Raises PlaitError where a dim has no value."""
    program = subject.program
    given = tuple(x.detach().to(device).requires_grad_(x.requires_grad) for x in batch_of(program, subject.batch))
    torch.manual_seed(0)
    module = Module(program, device=device, compile=subject.compile and not subject.loops, kernels=subject.kernels, loops=subject.loops)
    found = recipe(subject.file.spec, program.model, subject.file.values(program.model)) if program.loss is not None else None
    module.train()
    optimizer = optim.build(module, found.optimizer if found is not None else ADAMW)
    if found is None: return lambda: _plain(module, optimizer, given)
    module.autocast = PRECISIONS[found.precision]
    asked: Recipe = found
    parts = list(zip(*(t.split(at_once or subject.batch) for t in given)))

    def run() -> None: update(module, optimizer, asked, parts, 1, RATE)
    return run


def _plain(module: Module, optimizer: torch.optim.Optimizer, given: tuple[Tensor, ...]) -> None:
    """Of a model without a loss: the mean square of its outputs stands for it."""
    optim.set_rate(optimizer, RATE)
    optimizer.zero_grad(set_to_none=True)
    outs = module(*given)
    torch.stack([y.square().mean() for y in (outs if isinstance(outs, tuple) else (outs,))]).sum().backward()
    optimizer.step()


def batch_of(program: Program, batch: int, seed: int = 0) -> tuple[Tensor, ...]:
    """Random inputs of so many sequences, whole, in the order of the program: symbols, with one more where the loss reads ahead, classes,
    streams of normal numbers, which want a gradient, as in the middle of a model: so it is derived, too. Raises PlaitError where a size
    has no value, and for more than memory could hold."""
    draw = torch.Generator().manual_seed(seed)
    numbers = batch * sum(math.prod(program.sizes.integer(a.size) or 1 for a in i.value.axes[1:]) for i in program.inputs)
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if 8 * numbers > there // 4:
        raise error("E0633", f"a batch of {batch:,} sequences of {program.model} takes {8 * numbers / 2**30:,.1f} GiB for its inputs alone",
                    numbers=f"this machine has {there / 2**30:,.1f} GiB", help="--batch 32, or shorter --lengths")

    def whole(size) -> int:
        found = program.sizes.integer(size)
        if found is not None: return found
        name = next(iter(sorted(map(str, program.sizes.resolve(size).free_symbols))), str(size))
        raise error("E0638", f"`{name}` has no value, and a step needs one", help=f"--set {name}=…")

    made = []
    for i in program.inputs:
        shape = [batch, *(whole(a.size) for a in i.value.axes[1:])]
        if i.kind == "tokens" and i.ahead and program.loss is not None: shape[1] += 1
        if i.kind == "stream": made.append(torch.randn(shape, generator=draw).requires_grad_())
        else: made.append(torch.randint(whole(i.classes), shape, generator=draw))
    return tuple(made)
