"""What expansion makes of one model of a spec: graphs with their sizes, inputs, outputs and parameters."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import sympy as sp

from plait.compiler.builder import Init
from plait.compiler.graph import Graph, Value
from plait.compiler.sizes import Sizes, evaluate, holds
from plait.dsl.errors import Span


@dataclass(frozen=True)
class Input:
    """One input of a model. `value`: [b, n] indices (tokens), [b, n, d] reals (stream) or [b] indices (class), as the model
    graph takes it; `mask`: [b, n], true where a symbol is, for padded inputs; `classes`: how many symbols there are.
    `ahead`: the loss reads it by `next()`, so it is given to the loss with one symbol more."""
    name: str
    kind: str                                          # tokens, stream, class
    value: Value
    mask: Value | None = None
    classes: object = None                             # sympy expression, None for streams
    ahead: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Program:
    """A model, expanded.

    graph: ins are the inputs' values and masks in order, then (where something is random) `seed`, then the parameters
    (kind param; the name is the key, e.g. `logits/2/attend/1/weight`); outs are the model's outputs, [b, …] in declared order.
    loss: the same ins (inputs with `ahead` are one longer), outs (mean, total, count): the mean loss, the sum over the targets
    that count, and how many they are. score: outs (total, count, correct). Both None where no train block names the model.
    A parameter inside a `repeat` has the copies axis in front; that axis is named by the repeat's place, so that the key of
    copy i is the name with i put behind that place: `logits/2` + `logits/2/0/weight` → `logits/2/i/0/weight`."""
    model: str
    graph: Graph
    sizes: Sizes
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    inits: Mapping[str, Init]
    loss: Graph | None = None
    score: Graph | None = None
    # the place of every statement → its name, in order: the rows of the table
    places: Mapping[str, str] = field(default_factory=dict)
    # what the layers ask of dims → in words: for whoever gives a free one its value
    demands: Mapping[sp.Basic, str] = field(default_factory=dict)
    # the span of a statement → (argument, value) that an override would otherwise change: written into the resolved spec
    pins: Mapping[tuple[int, int], tuple[str, int]] = field(default_factory=dict)


def broken(program: Program, free: Mapping[sp.Symbol, int]) -> str | None:
    """The first promise that these values of free dims break: a limit, a requirement, a derived size that is none."""
    sizes, at = program.sizes, {**program.sizes.bound, **free}

    def known(e) -> bool: return e.free_symbols <= at.keys()

    for condition, words in (*program.demands.items(), *((c, f"the spec requires {written}") for c, written in sizes.required)):
        c = sizes.resolve(condition)
        if known(c) and not holds(c, at): return words
    for dim, e in sizes.derived.items():
        if not known(e := sizes.resolve(e)): continue
        value = evaluate(e, at)
        if int(value) != value or value < 1: return f"{dim} = {float(value):g} is no size"
    return None
