"""What expansion makes of one model of a spec: graphs with their sizes, inputs, outputs and parameters."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from plait.compiler.builder import Init
from plait.compiler.graph import Graph, Value
from plait.compiler.sizes import Sizes
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
    # the span of a statement → (argument, value) that an override would otherwise change: written into the resolved spec
    pins: Mapping[tuple[int, int], tuple[str, int]] = field(default_factory=dict)
