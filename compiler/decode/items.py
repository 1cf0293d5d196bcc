"""What a value of the graph of a whole sequence is while only its newest positions are computed."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import sympy as sp

from plait.compiler.axis import Axis
from plait.compiler.graph import Graph, Node, Value
from plait.compiler.prims import Op

# No dim of a spec has a dot in its name.
PAST = sp.Symbol("past.", integer=True, nonnegative=True)              # positions that were computed before
NEW = sp.Symbol("new.", integer=True, positive=True)                   # positions that this step computes
ALL = sp.Symbol("all.", integer=True, positive=True)                   # their sum, where one symbol is needed


class NotCausal(Exception):
    """A position reads later ones: nothing can be continued. `node`: where."""
    def __init__(self, node: Node):
        super().__init__()
        self.node = node


class NoRule(Exception):
    """Nothing here says how this is computed a position at a time."""


@dataclass(frozen=True)
class Fresh:
    """Depends on the sequence that is continued. along: an axis of positions → `new`, it holds the PAST…PAST + NEW − 1, or `all`, it
    holds 0…PAST + NEW − 1. delay: it holds what belongs that many positions before; what stands before the first is a zero, or (made) what
    was made of zeros."""
    value: Value
    along: Mapping[str, str]
    delay: int = 0
    made: bool = False


@dataclass(frozen=True)
class Padded:
    """A value with zeros before and after an axis of new positions, waiting for the slice that makes a shift of it."""
    inner: Fresh
    axis: str
    before: sp.Expr


@dataclass(frozen=True)
class Pieced:
    """A value whose positions are cut into pieces. Each stands for itself, so the pieces are not needed: `piece` is the axis left out."""
    inner: Fresh
    piece: str


@dataclass(eq=False)
class Made:
    """One node that does not depend on the sequence, or (op None) a leaf: an input, a parameter, the seed."""
    op: Op | None
    ins: tuple[Static, ...]
    at: str = ""
    outs: tuple[Value, ...] | None = None                              # in the graph of what is computed once


@dataclass(eq=False)
class Static:
    """Does not depend on the sequence that is continued: computed once, or, where it has positions, the part that is asked for.

    copies: which copy of a parameter this is."""
    made: Made
    which: int
    axes: tuple[Axis, ...]
    kind: str
    name: str = ""
    copies: tuple[int, ...] = ()
    given: Value | None = None                                         # in the step
    parts: dict[tuple, Value] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(a.name for a in self.axes)


Item = Fresh | Padded | Pieced | Static


@dataclass(frozen=True)
class State:
    """What one step hands to the next: an input of the step and the output that follows it. The first is `fill` everywhere; PAST is 0."""
    before: Value
    after: Value
    fill: float


@dataclass(frozen=True)
class Decoded:
    """once: the graph of what is computed once (of a source, of the parameters); its outputs are the inputs `given` of `step`.

    step: ins are the new symbols [b, new], then (masked) where they are symbols [b, new], the states, `given`, and what is left:
    parameters, the seed. outs: the logits of the new positions, then the states. PAST and ALL are handed over as sizes.
    copies: an input that is one copy of a parameter → the parameter's name and the copy's numbers. recomputed: the places of what is
    computed over all positions in every step."""
    once: Graph
    step: Graph
    states: tuple[State, ...]
    given: tuple[Value, ...]
    copies: Mapping[str, tuple[str, tuple[int, ...]]]
    masked: bool
    recomputed: tuple[str, ...]
