"""Emits nodes with inferred types. A scope may use its parent's values: they become operands of the closed body."""
from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import sympy as sp

from plait.compiler.axis import Axis, without
from plait.compiler.graph import Graph, Node, Value, live
from plait.compiler.prims import (
    VIEWS,
    Broadcast,
    Concat,
    Const,
    Contract,
    Gather,
    Loop,
    Map,
    Merge,
    Op,
    Pad,
    Position,
    Random,
    Reduce,
    Region,
    Rename,
    Slice,
    Sort,
    Split,
    Window,
    Wrong,
    infer,
)
from plait.compiler.sizes import Sizes
from plait.dsl.errors import Span


@dataclass(frozen=True)
class Init:
    """How a parameter starts: `uniform` on ±scale, `normal` with deviation scale, `constant` scale."""
    kind: str
    scale: sp.Expr


@dataclass
class Shared:
    """What all scopes of one graph have in common."""
    sizes: Sizes
    inits: dict[str, Init] = field(default_factory=dict)       # parameter name → how it starts
    tables: dict[str, Value] = field(default_factory=dict)     # root parameters by name
    at: str = ""                                               # place in the spec: model/stream/index/…
    span: Span | None = None
    prefix: tuple[str, ...] = ()                               # sub-names of the layer being expanded
    count: int = 0
    keys: int = 0
    demands: dict[sp.Basic, str] = field(default_factory=dict)   # what layers ask of dims, in words: checked where one is free
    pins: dict[str, int] = field(default_factory=dict)         # arguments of this layer that follow the file, not an override


class Builder:
    """One scope. The root owns the inputs and all parameters."""

    def __init__(self, sizes: Sizes | None = None, parent: Builder | None = None, loop: Axis | None = None,
                 own_params: bool = False, closed: bool = False):
        self.shared: Shared = parent.shared if parent else Shared(sizes or Sizes())
        self.parent, self.loop_axis, self.own_params, self.closed = parent, loop, own_params, closed
        self.ins: list[Value] = []
        self.nodes: list[Node] = []
        self.own: set[Value] = set()
        # what reads no input, and views: made again where used, never handed over
        self.free: dict[Value, tuple] = parent.free if parent else {}
        self.again: dict[Value, Value] = {}
        self.captured: dict[Value, Value] = {}                 # the parent's value → the value here
        self.cut: dict[Value, Value] = {}                      # the parent's value → its slice of this trip
        self._seed: Value | None = None

    @classmethod
    def continuing(cls, graph: Graph, sizes: Sizes) -> Builder:
        """A root that goes on where a graph ends."""
        b = cls(sizes)
        b.ins, b.nodes = list(graph.ins), list(graph.nodes)
        b.own = {*graph.ins, *(v for n in graph.nodes for v in n.outs)}
        inside = (v for n in graph.walk() if n.body is not None for v in (*n.body.ins, *(u for m in n.body.nodes for u in m.outs)))
        names = {v.name for v in (*b.own, *inside)}
        b.shared.count = max((int(name[1:]) for name in names if name[:1] == "v" and name[1:].isdigit()), default=0)
        return b

    @property
    def sizes(self) -> Sizes:
        return self.shared.sizes

    # -- where we are --------------------------------------------------------------------------------------------------
    @contextmanager
    def located(self, at: str, span: Span | None) -> Iterator[None]:
        """Nodes emitted inside come from this place of the spec."""
        s = self.shared
        before = s.at, s.span, s.prefix
        s.at, s.span, s.prefix = at, span, ()
        try: yield
        finally: s.at, s.span, s.prefix = before

    @contextmanager
    def named(self, name: str) -> Iterator[None]:
        """Parameters made inside carry a further sub-name: two linears of one layer."""
        s = self.shared
        before = s.prefix
        s.prefix = (*before, name)
        try: yield
        finally: s.prefix = before

    def pin(self, argument: str, value: int) -> None:
        """Note that an argument left out stands for this value of the file, which an override has hidden."""
        self.shared.pins[argument] = value

    def demand(self, condition: sp.Basic, why: str) -> None:
        """Note what must hold of dims: whoever gives a free one its value is held to it."""
        if condition not in (sp.true, sp.false): self.shared.demands[condition] = why

    def take_pins(self) -> dict[str, int]:
        taken, self.shared.pins = self.shared.pins, {}
        return taken

    # -- values --------------------------------------------------------------------------------------------------------
    def fresh(self, axes, kind: str = "real", name: str | None = None) -> Value:
        self.shared.count += 1
        v = Value(name or f"v{self.shared.count}", tuple(axes), kind)
        self.own.add(v)
        return v

    def input(self, axes, kind: str = "real", name: str | None = None) -> Value:
        v = self.fresh(axes, kind, name)
        self.ins.append(v)
        return v

    def use(self, v: Value) -> Value:
        """The value as this scope sees it."""
        if v in self.own: return v
        if v in self.cut: return self.cut[v]
        if v in self.free:
            if v not in self.again:
                op, ins, name = self.free[v]
                self.again[v] = self.emit(op, *ins, name=name)
            return self.again[v]
        if v not in self.captured:
            if self.parent is None: raise Wrong(f"{v} is not of this graph")
            if self.closed: raise Wrong(f"a region takes {v} as an operand: a kernel must know its place")
            self.parent.use(v)
            self.captured[v] = self.fresh(v.axes, v.kind)
        return self.captured[v]

    def param(self, name: str, *axes: Axis, init: Init) -> Value:
        """A parameter of the layer at this place. It belongs to the root; each scope on the way sees its own view of it."""
        path = self.shared.at.split("/")[1:]
        return self._param("/".join([*path, *self.shared.prefix, name]), axes, init)

    def table(self, name: str, *axes: Axis, init: Init) -> Value:
        """A parameter with a name of its own, made once and shared by all that ask for it, from any scope."""
        root: Builder = self
        while root.parent: root = root.parent
        if name not in self.shared.tables: root._param(name, axes, init)
        return self.use(self.shared.tables[name])

    def _param(self, name: str, axes, init: Init) -> Value:
        if self.parent is None:
            if name in self.shared.tables: raise Wrong(f"a parameter called {name} is there already")
            self.shared.inits[name] = init
            self.shared.tables[name] = self.input(axes, "param", name)
            return self.shared.tables[name]
        if self.closed: raise Wrong(f"a region takes parameter {name} as an operand: a kernel must know its place")
        if not self.own_params: return self.use(self.parent._param(name, axes, init))
        assert self.loop_axis is not None
        outer = self.parent._param(name, (self.loop_axis, *axes), init)
        self.cut[outer] = self.fresh(axes, "param")
        return self.cut[outer]

    def seed(self) -> Value:
        """The key of this scope: the graph's seed, mixed with the trip of every loop around."""
        if self._seed is None:
            if self.parent is None: self._seed = self.input((), "index", "seed")
            elif self.closed: raise Wrong("a region takes its key as an operand")
            elif self.loop_axis is None: self._seed = self.use(self.parent.seed())
            else:
                trips = self.parent.position(self.loop_axis)
                self.cut[trips] = self.fresh((), "index")
                self._seed = self.emit(Map("mix"), self.parent.seed(), trips)
        return self._seed

    def key(self) -> Value:
        """A key of its own for every place that asks: the same in every build of the same spec."""
        self.shared.keys += 1
        site = zlib.crc32(f"{self.shared.at}#{self.shared.keys}".encode())
        return self.emit(Map("mix"), self.seed(), self.const(site))

    def emit(self, op: Op, *ins: Value, name: str = ""):
        """Append a node. Its outputs: a tuple for regions and loops, else the one value."""
        s = self.shared
        ins = tuple(self.use(v) for v in ins)
        outs = tuple(self.fresh(axes, kind) for axes, kind in infer(op, ins, s.sizes))
        self.nodes.append(Node(op, ins, outs, s.at, name, span=s.span))
        if isinstance(op, VIEWS) or isinstance(op, Const | Position | Map) and all(v in self.free for v in ins):
            self.free[outs[0]] = (op, ins, name)
        return outs if isinstance(op, Region | Loop) else outs[0]

    # -- primitives by name --------------------------------------------------------------------------------------------
    def const(self, x) -> Value: return self.emit(Const(sp.sympify(x)))
    def map(self, fn: str, *xs) -> Value: return self.emit(Map(fn), *(x if isinstance(x, Value) else self.const(x) for x in xs))
    def add(self, x, y) -> Value: return self.map("add", x, y)
    def sub(self, x, y) -> Value: return self.map("sub", x, y)
    def mul(self, x, y) -> Value: return self.map("mul", x, y)
    def div(self, x, y) -> Value: return self.map("div", x, y)
    def where(self, mask, x, y) -> Value: return self.map("where", mask, x, y)
    def contract(self, x, y, *over: str, name: str = "") -> Value: return self.emit(Contract(over), x, y, name=name)
    def sum(self, x, *over: str, name: str = "") -> Value: return self.emit(Reduce("sum", over), x, name=name) if over else x
    def max(self, x, *over: str, name: str = "") -> Value: return self.emit(Reduce("max", over), x, name=name)
    def argmax(self, x, over: str, name: str = "") -> Value: return self.emit(Reduce("argmax", (over,)), x, name=name)
    def rename(self, x, old: str, new: Axis) -> Value: return x if x.axis(old) == new else self.emit(Rename(old, new), x)
    def split(self, x, name: str, *into: Axis) -> Value: return self.emit(Split(name, (into[0], into[1])), x)
    def merge(self, x, p: str, q: str, into: Axis) -> Value: return self.emit(Merge((p, q), into), x)
    def slice(self, x, name: str, start, size) -> Value: return self.emit(Slice(name, sp.sympify(start), sp.sympify(size)), x)
    def pad(self, x, name: str, before, after) -> Value: return self.emit(Pad(name, sp.sympify(before), sp.sympify(after)), x)
    def concat(self, name: str, *xs) -> Value: return self.emit(Concat(name), *xs)
    def broadcast(self, x, *axes: Axis) -> Value: return self.emit(Broadcast(axes), x if isinstance(x, Value) else self.const(x))
    def position(self, a: Axis) -> Value: return self.emit(Position(a))
    def gather(self, x, index, along: str, name: str = "") -> Value: return self.emit(Gather(along), x, index, name=name)
    def select(self, x, along: str, at) -> Value: return self.emit(Gather(along), x, self.const(at))
    def sort(self, x, along: str, name: str = "") -> Value: return self.emit(Sort(along), x, name=name)
    def random(self, fn: str, key: Value, *axes: Axis) -> Value: return self.emit(Random(fn, axes), key)
    def window(self, x, along: str, into: Axis, left, dilation=1) -> Value:
        return self.emit(Window(along, into, sp.sympify(left), sp.sympify(dilation)), x)

    # -- bodies --------------------------------------------------------------------------------------------------------
    def region(self, name: str, fn: Callable, *operands: Value, closed: bool = True, **args):
        """A named body; `fn(builder, *values)` gives its output or a tuple of them. Closed: a kernel may claim it, so its
        operands are just these; open: what it captures follows them."""
        inner = Builder(parent=self, closed=closed)
        outs = fn(inner, *(inner.input(v.axes, v.kind) for v in operands))
        outs = tuple(map(inner.use, outs if isinstance(outs, tuple) else (outs,)))
        body = Graph((*inner.ins, *inner.cut.values(), *inner.captured.values()), live(inner.nodes, outs), outs)
        made = self.emit(Region(name, body, tuple(args.items())), *operands, *inner.cut, *inner.captured, name=name)
        return made if len(made) > 1 else made[0]

    def scope(self, over: Axis, carried, sliced, own_params: bool = False):
        """Open a loop's body: its builder, its states and its slices. End it with `close`."""
        inner = Builder(parent=self, loop=over, own_params=own_params)
        states = [inner.input(v.axes, v.kind) for v in carried]
        return inner, states, [inner.input(without(v.axes, (over.name,)), v.kind) for v in sliced]

    def close(self, inner: Builder, over: Axis, carried, sliced, outs, keep: str = "save", index=None, reverse: bool = False):
        """Operands: carried, sliced, then the parameters and positions sliced by trip, then what the body captured."""
        outs = tuple(map(inner.use, outs))
        ins = (*inner.ins, *inner.cut.values(), *inner.captured.values())
        body = Graph(ins, live(inner.nodes, outs), outs)
        operands = (*carried, *sliced, *inner.cut, *inner.captured)
        return self.emit(Loop(body, over, len(carried), len(sliced) + len(inner.cut), keep, index, reverse), *operands)

    def loop(self, over: Axis, carried, sliced, fn: Callable, own_params: bool = False, **how):
        """fn(builder, states, slices) → states, then per-trip values. Gives the states after the last trip, then the stacks."""
        inner, states, slices = self.scope(over, carried, sliced, own_params)
        return self.close(inner, over, carried, sliced, fn(inner, states, slices), **how)

    def graph(self, *outs: Value) -> Graph:
        """The finished root graph, without what nothing reads. Inputs stay, read or not."""
        outs = tuple(map(self.use, outs))
        return Graph(tuple(self.ins), live(self.nodes, outs), outs)
