"""The closed alphabet. Every layer is an expansion into these; every cost and the lowering is an exhaustive match over them."""
from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

import sympy as sp

from plait.compiler.axis import Axis, swap, without
from plait.compiler.graph import Graph, Value
from plait.compiler.sizes import Sizes


@dataclass(frozen=True)
class Const:
    """A number, no axes."""
    value: sp.Expr


@dataclass(frozen=True)
class Position:
    """0, 1, 2, … along an axis."""
    axis: Axis


@dataclass(frozen=True)
class Random:
    """Numbers as a pure function of a key (the operand, an index without axes) and the element's number.
    `fn`: uniform on [0, 1), normal."""
    fn: str
    axes: tuple[Axis, ...]


@dataclass(frozen=True)
class Map:
    """Element by element, broadcasting by axis name. `fn` is one of FUNCTIONS."""
    fn: str


@dataclass(frozen=True)
class Contract:
    """Multiply and sum over axes that both operands have: every matrix product."""
    over: tuple[str, ...]


@dataclass(frozen=True)
class Reduce:
    """sum, max, argmax over axes."""
    fn: str
    over: tuple[str, ...]


@dataclass(frozen=True)
class Broadcast:
    """Repeat along further axes; the adjoint of a sum."""
    axes: tuple[Axis, ...]


@dataclass(frozen=True)
class Rename:
    old: str
    new: Axis


@dataclass(frozen=True)
class Split:
    """One axis into two; the first is the slower one."""
    axis: str
    into: tuple[Axis, Axis]


@dataclass(frozen=True)
class Merge:
    """Two axes into one at the place of the first; adjoint of Split."""
    axes: tuple[str, str]
    into: Axis


@dataclass(frozen=True)
class Slice:
    axis: str
    start: sp.Expr
    size: sp.Expr


@dataclass(frozen=True)
class Pad:
    """Zeros before and after; adjoint of Slice. A shift is a slice of a pad."""
    axis: str
    before: sp.Expr
    after: sp.Expr


@dataclass(frozen=True)
class Concat:
    axis: str


@dataclass(frozen=True)
class Window:
    """out[t, j] = x[t + (j − left)·dilation], zero outside."""
    axis: str
    into: Axis
    left: sp.Expr
    dilation: sp.Expr = sp.Integer(1)


@dataclass(frozen=True)
class Fold:
    """Adjoint of Window."""
    axis: str
    window: str
    left: sp.Expr
    dilation: sp.Expr = sp.Integer(1)


@dataclass(frozen=True)
class Sort:
    """The stable ascending order of the keys along an axis, as an index: sorted place → position."""
    axis: str


@dataclass(frozen=True)
class Gather:
    """ins (x, index): x at the index along `axis`; axes that both have go together, the index's other axes are new."""
    axis: str


@dataclass(frozen=True)
class Scatter:
    """ins (x, index): adjoint of Gather. Adds up over the index's axes but those in `together`."""
    axis: Axis
    together: tuple[str, ...]


@dataclass(frozen=True)
class Region:
    """A named part that a kernel may claim. It captures nothing: operand order is the kernel's signature.
    `args` is what a kernel must be told, as (name, value) pairs; `kernel` is who claimed it ("": the body runs)."""
    name: str
    body: Graph
    args: tuple[tuple[str, object], ...] = ()
    kernel: str = ""

    def arg(self, name: str, default=None):
        return dict(self.args).get(name, default)


@dataclass(frozen=True)
class Loop:
    """The one binder: a recurrence (axis role sequence), L copies (copies), pieces (chunk). Nothing is unrolled to be counted.

    Operands and body.ins: `carried` states, then `sliced` along `axis`, then fixed. body.outs: the states, then per-trip
    values, which come out stacked along `axis` (in front). `keep`, for backward: save, recompute (checkpoint, chunked),
    invert (reversible). `index` is the symbol of the trip, which may occur in attributes of the body."""
    body: Graph
    axis: Axis
    carried: int
    sliced: int
    keep: str = "save"
    index: sp.Symbol | None = None
    reverse: bool = False


Op = (Const | Position | Random | Map | Contract | Reduce | Broadcast | Rename | Split | Merge | Slice | Pad | Concat
      | Window | Fold | Sort | Gather | Scatter | Region | Loop)
VIEWS = Rename | Split | Merge | Slice | Broadcast

# Every function of Map, with the ledger that its work goes to.
FUNCTIONS: dict[str, str] = {
    **dict.fromkeys(("add", "sub", "mul", "div", "neg", "relu", "step", "where", "floordiv", "mod", "maximum", "and", "or", "not", "mix",
                     "tanh_slope", "sigmoid_slope"), "pointwise"),
    **dict.fromkeys(("exp", "log", "sin", "cos", "tanh", "sigmoid", "gelu", "gelu_slope", "silu", "silu_slope", "rsqrt"), "transcendental"),
    **dict.fromkeys(("le", "lt", "eq"), "comparisons"),
}
TRUTH = ("le", "lt", "eq", "and", "or", "not")          # functions that answer with a mask


class Wrong(Exception):
    """A type rule broken: by a layer's expansion, not by a user."""


def union(values, sizes: Sizes) -> tuple[Axis, ...]:
    """The axes of a broadcast by name, in order of first sight."""
    seen: dict[str, Axis] = {}
    for v in values:
        for a in v.axes:
            if not sizes.same(seen.setdefault(a.name, a).size, a.size):
                raise Wrong(f"axis {a.name} is {seen[a.name].size} and {a.size} in {list(values)}")
    return tuple(seen.values())


def _plain(v: Value) -> str:
    return "real" if v.kind in ("param", "const") else v.kind


def _map_kind(fn: str, ins) -> str:
    if fn in TRUTH: return "mask"
    if fn == "mix": return "index"
    if fn == "div" or FUNCTIONS[fn] == "transcendental": return "real"
    read = ins[1:] if fn == "where" else ins
    if fn == "where" and all(v.kind == "const" for v in read): return "real"
    return "index" if all(v.kind in ("index", "const") for v in read) else "real"


def infer(op: Op, ins: tuple[Value, ...], sizes: Sizes) -> list[tuple[tuple[Axis, ...], str]]:
    """The type rule of every primitive: (axes, kind) of its outputs. Raises Wrong."""
    x = ins[0] if ins else None
    match op:
        case Const(): return [((), "const")]
        case Position(a): return [((a,), "index")]
        case Random(_, axes): return [(axes, "real")]
        case Map("where"): return [(union((*ins[1:], ins[0]), sizes), _map_kind("where", ins))]       # laid out as the values, not the mask
        case Map(fn): return [(union(ins, sizes), _map_kind(fn, ins))]
        case Contract(over):
            x, y = ins
            if not all(v.has(o) for v in ins for o in over): raise Wrong(f"{over} is not in both of {ins}")
            union(ins, sizes)
            both = tuple(a for a in x.axes if y.has(a.name) and a.name not in over)     # the order in which a product makes them
            return [(both + without(x.axes, y.names) + without(y.axes, x.names), "real")]
        case Reduce(fn, over):
            assert x is not None
            if not all(x.has(o) for o in over): raise Wrong(f"{over} is not in {x}")
            return [(without(x.axes, over), "index" if fn == "argmax" else _plain(x) if fn == "max" else "real")]
        case Broadcast(axes):
            assert x is not None
            if not set(x.names) <= {a.name for a in axes}: raise Wrong(f"broadcast {x} to {axes}")
            return [(axes, _plain(x))]
        case Rename(old, new):
            assert x is not None
            if not sizes.same(x.axis(old).size, new.size) or (x.has(new.name) and old != new.name):
                raise Wrong(f"rename {old} to {new} in {x}")
            return [(swap(x.axes, old, new), _plain(x))]
        case Split(name, into):
            assert x is not None
            if not sizes.same(x.axis(name).size, into[0].size * into[1].size): raise Wrong(f"split {x.axis(name)} into {into}")
            return [(swap(x.axes, name, *into), _plain(x))]
        case Merge((p, q), to):
            assert x is not None
            if not sizes.same(x.axis(p).size * x.axis(q).size, to.size): raise Wrong(f"merge {x.axis(p)}, {x.axis(q)} into {to}")
            return [(swap(without(x.axes, (q,)), p, to), _plain(x))]
        case Slice(name, _, size):
            assert x is not None
            return [(swap(x.axes, name, x.axis(name).resized(size)), _plain(x))]
        case Pad(name, before, after):
            assert x is not None
            return [(swap(x.axes, name, x.axis(name).resized(x.axis(name).size + before + after)), _plain(x))]
        case Concat(name):
            assert x is not None
            if any(set(v.names) != set(x.names) for v in ins): raise Wrong(f"concat of {ins}")
            return [(swap(x.axes, name, x.axis(name).resized(sum(v.axis(name).size for v in ins))), _plain(x))]
        case Window(name, into):
            assert x is not None
            return [(swap(x.axes, name, x.axis(name), into), _plain(x))]
        case Fold(_, window):
            assert x is not None
            return [(without(x.axes, (window,)), _plain(x))]
        case Sort():
            assert x is not None
            return [(x.axes, "index")]
        case Gather(name):
            x, index = ins
            return [(union((index, Value("", without(x.axes, (name,)))), sizes), _plain(x))]
        case Scatter(a, together):
            x, index = ins
            return [((a, *(p for p in x.axes if p.name in together or not index.has(p.name))), "real")]
        case Region(_, body): return [(v.axes, _plain(v)) for v in body.outs]
        case Loop(body, a, c, _):
            for i, o in zip(body.ins[:c], body.outs):
                if set(i.names) != set(o.names): raise Wrong(f"the state is {i} before a trip and {o} after it")
            return [(body.ins[k].axes, "real") if k < c else ((a, *v.axes), _plain(v)) for k, v in enumerate(body.outs)]
        case _: assert_never(op)
