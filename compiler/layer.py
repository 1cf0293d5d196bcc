"""What a layer is: a function that expands into the alphabet. Its signature gives the language its arguments, defaults and
types; its docstring is the documentation. Adding one is one file in `layers/`."""
from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Annotated, Literal

import sympy as sp

from plait.compiler.axis import Axis
from plait.compiler.builder import Builder
from plait.compiler.graph import Value


@dataclass(frozen=True)
class Stream:
    """What flows down a chain: the value [b, n, d] (or [b, n] of indices, or [b, d] once pooled), the mask [b, n] of the
    positions that exist (None: all), the base of rotary positions, if a layer above asked for them, and how many symbols there are."""
    value: Value
    mask: Value | None = None
    rotary: sp.Expr | None = None
    symbols: sp.Expr | None = None

    def to(self, value: Value) -> Stream:
        return replace(self, value=value)


@dataclass(frozen=True)
class Table:
    """A parameter table [rows, width] that several places use by one name."""
    name: str
    rows: sp.Expr
    width: sp.Expr


# What an argument may be; the language reads these from the signatures.
Size = Annotated[sp.Expr, "a size"]                            # a positive integer expression in the dims
Count = Annotated[int, "a count"]                              # a size whose value must be known: it shapes the graph
Number = Annotated[sp.Expr, "a number"]
Probability = Annotated[sp.Expr, "a probability"]               # at least 0 and below 1, and known: all dropped out would be nothing
Share = Annotated[Table, "a shared table"]
Source = Annotated[Stream, "a stream"]
Pair = Annotated[tuple, "a pair of sizes"]

NEEDED = inspect.Parameter.empty                               # the default of an argument that has none
SIZE_1, NUMBER_0, NUMBER_1 = sp.Integer(1), sp.Integer(0), sp.Integer(1)


class Mistake(Exception):
    """What a layer finds wrong with how it is used. `argument` names the argument to point at (None: the layer), `symbols`
    are expressions whose dims are shown where they were bound."""

    def __init__(self, code: str, message: str, argument: str | None = None, symbols=(), numbers: str = "", help: str = ""):
        super().__init__(message)
        self.code, self.message, self.argument = code, message, argument
        self.symbols, self.numbers, self.help = tuple(symbols), numbers, help


@dataclass(frozen=True)
class Argument:
    """One argument of a layer. `kinds` are the accepted kinds in words of this module, `choices` the words it takes."""
    name: str
    kinds: tuple[str, ...]
    choices: tuple[str, ...]
    default: object
    positional: bool

    @property
    def required(self) -> bool:
        return self.default is NEEDED


@dataclass(frozen=True)
class Layer:
    name: str
    expand: Callable
    arguments: tuple[Argument, ...]
    takes_stream: bool                                         # the function wants the Stream, not only its value
    doc: str

    @property
    def signature(self) -> str:
        """As written in a spec: `attention(heads, causal = false, …)`."""
        def word(v):
            return {True: "true", False: "false", None: "none"}.get(v, v) if isinstance(v, bool | None) else v
        return f"{self.name}({', '.join(a.name if a.required else f'{a.name} = {word(a.default)}' for a in self.arguments)})"


LAYERS: dict[str, Layer] = {}


def layer(fn: Callable) -> Callable:
    """Register a layer: `fn(b, x, …)`. `x` is annotated Value or Stream; the others by the kinds above. Those before the `*`
    may be given by place: at most one."""
    hints = typing.get_type_hints(fn, include_extras=True)
    parameters = list(inspect.signature(fn).parameters.values())[1:]
    arguments = tuple(_argument(p, hints[p.name]) for p in parameters[1:])
    name = fn.__name__.rstrip("_")
    LAYERS[name] = Layer(name, fn, arguments, hints[parameters[0].name] is Stream, inspect.getdoc(fn) or "")
    return fn


_KINDS = {
    "a size": "size", "a count": "count", "a number": "number", "a probability": "probability",
    "a shared table": "table", "a stream": "stream",
    "a pair of sizes": "pair",
}


def _argument(p: inspect.Parameter, hint) -> Argument:
    kinds: list[str] = []
    choices: list[str] = []
    for part in (typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)):
        if typing.get_origin(part) is Annotated: kinds.append(_KINDS[part.__metadata__[0]])
        elif typing.get_origin(part) is Literal: choices += typing.get_args(part)
        elif part is bool: kinds.append("flag")
        elif part is not type(None): raise TypeError(f"{p.name}: a layer's argument cannot be {part}")
    return Argument(p.name, tuple(kinds), tuple(choices), p.default, p.kind is p.POSITIONAL_OR_KEYWORD)


# ---- what most layers ask of their stream --------------------------------------------------------------------------------
def feature(x: Value) -> Axis:
    """The feature axis of a stream, always called d."""
    if not x.has("d"):
        raise Mistake("E0311", "this layer works on vectors, and the stream still holds symbols",
                      help="embed(V) turns symbols into vectors")
    return x.axis("d")


def sequence(x: Value) -> Axis:
    """The sequence axis of a stream."""
    found = [a for a in x.axes if a.role == "sequence"]
    if not found: raise Mistake("E0312", "this layer works along a sequence, and the stream has none left after pool")
    return found[0]


FARTHEST = 10**5                                               # from what was written to a size that would do


def divided(b: Builder, whole, parts, argument: str, message: str) -> sp.Expr:
    """whole / parts, which must be an integer where both are known; else a Mistake with sizes that would do."""
    whole, parts = sp.sympify(whole), sp.sympify(parts)
    w, p = b.sizes.integer(whole), b.sizes.integer(parts)
    if w is not None and p is not None and (p < 1 or w % p):
        tried = (k for far in range(FARTHEST) for k in dict.fromkeys((p - far, p + far)) if 1 <= k <= w and w % k == 0)
        near = list(islice(tried, 2)) or [1]
        around = [m for m in (w - w % p, w - w % p + p) if m > 0]
        fits = f"{argument if parts.is_number else parts} = {' or '.join(map(str, sorted(near)))}"
        other = f"; or {whole} = {' or '.join(map(str, around))}" if whole.is_Symbol else ""
        raise Mistake("E0301", message, argument, (whole, parts), f"{whole} / {parts} = {w} / {p} leaves {w % p}", fits + other)
    b.demand(sp.Eq(sp.Mod(whole, parts), 0, evaluate=False), message)
    return whole / parts
