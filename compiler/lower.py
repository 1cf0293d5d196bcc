"""Graph → torch.fx.GraphModule. A claimed region is one call of its kernel; any other region is its body, in place.

The only module of the compiler that imports torch, with those it is made of: tensors, dims, products, gathers, emission, loops,
inverse, segments."""
from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import assert_never

import sympy as sp
import torch
from torch import fx, nn

from plait.compiler.axis import Axis, volume
from plait.compiler.claim import unclaimed
from plait.compiler.graph import Graph, Node, Value
from plait.compiler.kernels import KERNELS
from plait.compiler.lowering import tensors
from plait.compiler.lowering.dims import Dims, free, measurable
from plait.compiler.lowering.emission import Emission, KernelCall
from plait.compiler.lowering.gathers import gathered, scattered
from plait.compiler.lowering.inverse import Inverse, Part, kept_argmax, kept_order, last_pieces, parts
from plait.compiler.lowering.loops import Ending, Trips
from plait.compiler.lowering.products import product
from plait.compiler.lowering.scan import Halves, Scan, Steps, halves, operands, scannable
from plait.compiler.lowering.segments import segmented
from plait.compiler.lowering.tail import tail
from plait.compiler.prims import (
    TRUTH,
    Broadcast,
    Concat,
    Const,
    Contract,
    Fold,
    Gather,
    Loop,
    Map,
    Merge,
    Pad,
    Position,
    Random,
    Reduce,
    Region,
    Rename,
    Scatter,
    Slice,
    Sort,
    Split,
    Window,
)
from plait.compiler.sizes import Sizes

OPAQUE = frozenset(k.name for k in KERNELS if k.opaque)
LOOKS = frozenset({torch.permute, torch.reshape, torch.transpose, torch.unsqueeze, torch.Tensor.expand})


def lower(graph: Graph, sizes: Sizes, kernels: Mapping[str, Emission], *, compile: bool = False, recorded: bool = False) -> nn.Module:
    """A module that takes the graph's inputs in order and gives a tuple of its outputs.

    A parameter with an axis of copies in front is handed over as a tuple of tensors, one a copy, nested where copies are.
    Dims that `sizes` does not bind, the batch among them, are read from the shapes of the inputs at each call. `kernels` gives
    the emission of every claimed region; KeyError if one is missing. compile: runs of primitives and traceable kernels are compiled,
    each once; loops and opaque kernels run between them. recorded: recurrences are plain loops, of which autograd records every step."""
    return (Recorded if recorded else Lowering)(sizes, kernels, compile).module(graph)


def nested(v: Value) -> bool:
    """Is it handed over as a tuple, an entry a copy?"""
    return v.kind == "param" and any(a.role == "copies" for a in v.axes)


class Lowering:
    """One graph being written. Values become nodes, in the order of their axes; consts stay Python numbers. scans: a recurrence is a scan
    where it can be one."""
    scans = True

    def __init__(self, sizes: Sizes, kernels: Mapping[str, Emission], compile: bool, inverted: bool = False):
        self.sizes, self.kernels, self.compile, self.inverted = sizes, kernels, compile, inverted

    # -- graphs --------------------------------------------------------------------------------------------------------------
    def module(self, graph: Graph, wanted: tuple[tuple[Axis, ...], ...] = (), extra: tuple[sp.Symbol, ...] = ()) -> nn.Module:
        """A module of a closed graph. wanted: layouts for the first outputs; extra: dims handed over as further operands."""
        low = type(self)(self.sizes, self.kernels, self.compile, self.inverted)
        low.start(graph, extra)
        low.nodes(graph.nodes)
        outs = [low.align(low.env[v], v.axes, w) for v, w in zip(graph.outs, wanted)] + [low.env[v] for v in graph.outs[len(wanted):]]
        low.fx.output(tuple(map(low.whole, outs)))
        made = fx.GraphModule(low.root, low.fx)
        made.graph.eliminate_dead_code()
        return self.finished(made, graph)

    def finished(self, module: fx.GraphModule, graph: Graph) -> nn.Module:
        return segmented(module, frozenset(s.name for s in free(graph, self.sizes))) if self.compile else module

    def start(self, graph: Graph, extra: tuple[sp.Symbol, ...]) -> None:
        self.fx, self.root = fx.Graph(), nn.Module()
        self.looks: dict[tuple, fx.Node] = {}
        self.node: Node | None = None
        self.floats: set[Value] = set()                    # integers by kind that torch makes reals: a position over a number
        self.filled: dict[Value, Node] = {}                # numbers, and what repeats something
        self.dims = Dims(self.sizes, self.call)
        self.env: dict[Value, object] = {v: self.placeholder(v.name, v.axes) for v in graph.ins}
        for s in extra:
            self.dims.at[s] = node = self.placeholder(f"size_{s}", ())
            node.meta["symbol"] = str(s)
        self.indices = {n.op.index for n in graph.walk() if isinstance(n.op, Loop) and n.op.index is not None}
        whole = [v for v in graph.ins if not self.apart(v)]
        real = [v for v in whole if v.kind in ("real", "param")]
        self.like = self.env[(real or whole)[0]] if whole else None
        for s in sorted(free(graph, self.sizes) - set(extra), key=str):
            found = measurable(graph.ins, s, lambda v: not self.apart(v))
            if found is not None: self.dims.measure(s, self.env[found[0]], *found[1:])               # type: ignore[arg-type]

    def apart(self, v: Value) -> bool:
        """Is it a tuple with an entry a trip: a parameter of copies, or a stack of what differs in shape from trip to trip?"""
        return nested(v) or any(a.size.free_symbols & self.indices for a in v.axes)

    def placeholder(self, name: str, axes: tuple[Axis, ...]) -> fx.Node:
        node = self.fx.placeholder("in_" + re.sub(r"\W", "_", name))      # a name may be a word of Python
        node.meta["axes"] = [str(a.size) for a in axes]
        return node

    def call(self, fn: Callable, *args, **named) -> fx.Node:
        """One call; the same look at the same tensor is taken once: where it is a copy (a transposed one reshaped), it is made once."""
        if fn not in LOOKS or named: return self.described(self.fx.call_function(fn, args, named))
        key = (fn, *(tuple(a) if isinstance(a, list) else a for a in args))
        if key not in self.looks: self.looks[key] = self.described(self.fx.call_function(fn, args))
        return self.looks[key]

    def described(self, node: fx.Node) -> fx.Node:
        """The node, with the place in the spec that it comes from."""
        if self.node is not None: node.meta |= {"at": self.node.at, "span": self.node.span}
        return node

    def opaque(self, fn: Callable, *args) -> fx.Node:
        node = self.call(fn, *args)
        node.meta["opaque"] = True
        return node

    def nodes(self, nodes: tuple[Node, ...]) -> None:
        self.filled.update({n.outs[0]: n for n in nodes if isinstance(n.op, Const | Broadcast)})
        for n in nodes:
            self.node = n
            made = self.lowered(n, [self.env[v] for v in n.ins])
            moved = not isinstance(n.op, Map | Sort | Region | Loop) and n.ins and n.ins[0] in self.floats
            for v, x in zip(n.outs, made):
                self.env[v] = x
                if moved and v.kind != "mask": self.floats.add(v)
                if not isinstance(x, fx.Node): continue
                x.meta.setdefault("axes", [str(a.size) for a in v.axes])
                if not v.axes and v.kind in ("index", "const"): x.meta["scalar"] = True

    # -- layouts -------------------------------------------------------------------------------------------------------------
    def align(self, x, have: tuple[Axis, ...], want: tuple[Axis, ...]):
        """Permuted to the order of `want`, with a 1 for every axis that is not there."""
        if not isinstance(x, fx.Node) or not have: return x
        names, wanted = [a.name for a in have], [a.name for a in want]
        order = [names.index(w) for w in wanted if w in names]
        if order != sorted(order): x = self.call(torch.permute, x, order)
        for k, w in enumerate(wanted):
            if w not in names: x = self.call(torch.unsqueeze, x, k)
        return x

    def broadcastable(self, x, have: tuple[Axis, ...], want: tuple[Axis, ...]):
        """Aligned to `want` from its first axis on: torch adds those in front."""
        names = {a.name for a in have}
        first = next((k for k, a in enumerate(want) if a.name in names), 0)
        return self.align(x, have, want[first:])

    def whole(self, x) -> fx.Node:
        """A tensor where a Python number may stand."""
        return x if isinstance(x, fx.Node) and "number" not in x.meta else self.call(tensors.number, x, self.like)

    def flat(self, axes: tuple[Axis, ...]): return self.dims(volume(axes))

    def shaped(self, x, *groups: tuple[Axis, ...]):
        """x, its axes those of the groups in order, reshaped so that each group is one dimension."""
        if all(len(g) == 1 for g in groups): return x
        return self.call(torch.reshape, x, [self.flat(g) for g in groups])

    # -- primitives ----------------------------------------------------------------------------------------------------------
    def lowered(self, n: Node, args: list) -> list:
        x, y = args[0] if args else None, n.outs[0]
        a = n.ins[0] if n.ins else y

        def dim(name: str, v: Value = a) -> int: return v.names.index(name)

        match n.op:
            case Const(value): return [self.const(value)]
            case Position(axis): return [self.call(tensors.positions, self.dims(axis.size), self.like)]
            case Random(fn, axes):
                batch = next((k for k, p in enumerate(axes) if p.role == "batch"), None)
                return [self.call(tensors.random, fn, [self.dims(p.size) for p in axes], self.whole(x), self.like, batch)]
            case Map(fn): return [self.mapped(fn, n, args)]
            case Contract(over): return [product(self, n, over, *args)]
            case Reduce(fn, over): return [self.reduced(fn, [dim(o) for o in over], x, a)]
            case Broadcast(axes):
                shape = [self.dims(p.size) for p in axes]
                if not isinstance(x, fx.Node) or "number" in x.meta: return [self.call(tensors.filled, shape, x, self.like)]
                return [self.call(torch.Tensor.expand, self.align(x, a.axes, axes), shape)]
            case Rename(): return [x]
            case Split(name, into):
                return [self.call(torch.unflatten, x, dim(name), [self.dims(p.size) for p in into])]
            case Merge((p, q), into):
                order = [k for k in range(len(a.axes)) if k != dim(q)]
                order.insert(order.index(dim(p)) + 1, dim(q))
                if order != sorted(order): x = self.call(torch.permute, x, order)
                k = y.names.index(into.name)
                return [self.call(torch.flatten, x, k, k + 1)]
            case Slice(name, start, size):
                if start == 0 and self.sizes.same(a.axis(name).size, size): return [x]
                return [self.call(torch.narrow, x, dim(name), self.dims(start), self.dims(size))]
            case Pad(name, before, after):
                if self.sizes.same(before, 0) and self.sizes.same(after, 0): return [x]
                return [self.call(tensors.pad, x, dim(name), self.dims(before), self.dims(after))]
            case Concat(name):
                return [self.call(torch.cat, [self.align(p, v.axes, y.axes) for p, v in zip(args, n.ins)], y.names.index(name))]
            case Window(name, into, left, dilation):
                return [self.call(tensors.window, x, dim(name), *map(self.dims, (into.size, left, dilation)))]
            case Fold(name, w, left, dilation):
                return [self.call(tensors.fold, x, dim(name), dim(w), self.dims(left), self.dims(dilation))]
            case Sort(name):
                return [self.choice(tensors.stable_order, kept_order, x, dim(name), a)]
            case Gather(name): return [gathered(self, n, name, *args)]
            case Scatter(axis): return [scattered(self, n, axis, *args)]
            case Region(): return self.region(n, args)
            case Loop(): return self.loop(n, args)
            case _: assert_never(n.op)

    def const(self, value: sp.Expr):
        made = self.dims.number(value)
        if isinstance(made, fx.Node): made.meta["number"] = True
        return made

    def mapped(self, fn: str, n: Node, args: list):
        y = n.outs[0]
        parts = [self.broadcastable(x, v.axes, y.axes) for x, v in zip(args, n.ins)]
        numbers = [not isinstance(p, fx.Node) or "number" in p.meta for p in parts]
        made_real = [v in self.floats for v in n.ins]
        if all(numbers): parts[0] = self.whole(parts[0])
        if fn == "where" and all(numbers[1:]):
            if all(v.kind == "const" for v in n.ins[1:]): return self.call(tensors.either, *parts, self.like)
            parts[1] = self.whole(parts[1])
        of_positions = all(m or v.kind in ("index", "const") for m, v in zip(made_real, n.ins)) and fn not in TRUTH
        if of_positions and (fn in tensors.REAL or any(made_real) or any(v.kind == "const" and isinstance(p, float)
                                                                          for v, p in zip(n.ins, args))):
            self.floats.add(y)
        elif y.kind == "real" and not all(made_real):          # positions meet reals: in the reals' dtype
            parts = [self.call(tensors.real, p, self.like) if m else p for p, m in zip(parts, made_real)]
        if fn == "add" and sorted(v.kind for v in n.ins) == ["param", "real"]:
            return self.call(tensors.shifted, *(parts if n.ins[1].kind == "param" else reversed(parts)))
        return self.call(tensors.MAPS[fn], *parts)

    def reduced(self, fn: str, dims: list[int], x, a: Value):
        match fn:
            case "sum":
                made = self.call(torch.sum, x, dims)
                return made if a.kind in ("real", "param") else self.call(tensors.real, made, self.like)
            case "max": return self.call(tensors.largest, x, dims)
            case "argmax": return self.choice(torch.argmax, kept_argmax, x, dims[0], a)
            case _: raise NotImplementedError(f"no reduction {fn}")

    def choice(self, fn: Callable, kept: Callable, x, dim: int, a: Value):
        """An order or an argmax. Of reals inside an inverted part it is kept by forward, not made again from rounded activations."""
        if not self.inverted or a.kind in ("index", "mask"): return self.call(fn, x, dim)
        return self.opaque(kept, self.dims(a.axes[dim].size), x, dim)

    # -- bodies --------------------------------------------------------------------------------------------------------------
    def region(self, n: Node, args: list) -> list:
        assert isinstance(n.op, Region)
        body = n.op.body
        args = [x if nested(v) else self.align(x, v.axes, f.axes) for x, v, f in zip(args, n.ins, body.ins)]
        if n.op.kernel: return self.claimed(n, args)
        outer = self.env
        self.env = dict(zip(body.ins, args))
        self.floats.update(inner for v, inner in zip(n.ins, body.ins) if v in self.floats)
        self.nodes(body.nodes)
        self.floats.update(v for v, inner in zip(n.outs, body.outs) if inner in self.floats)
        outs = [self.env[v] for v in body.outs]
        self.env, self.node = outer, n
        return outs

    def claimed(self, n: Node, args: list) -> list:
        op = n.op
        assert isinstance(op, Region)
        run = self.kernels[op.kernel](KernelCall(op, self.sizes, self.compile))
        node = self.call(run, *map(self.whole, args))
        if op.kernel in OPAQUE: node.meta["opaque"] = True
        return [node] if len(n.outs) == 1 else [self.call(operator.getitem, node, k) for k in range(len(n.outs))]

    def loop(self, n: Node, args: list) -> list:
        op = n.op
        assert isinstance(op, Loop)
        ins, c, s = op.body.ins, op.carried, op.sliced
        operands = []
        for k, (x, v, inner) in enumerate(zip(args, n.ins, ins)):
            layout = ((op.axis,) if c <= k < c + s else ()) + inner.axes
            if not self.apart(v): x = self.align(self.whole(x), v.axes, layout)
            elif [p.name for p in v.axes] != [p.name for p in layout]: raise NotImplementedError(f"{v} is handed over as {layout}")
            operands.append(x)
        loose = self.loose(op)
        trips = self.dims(op.axis.size)
        name = f"loop{sum(1 for _ in self.root.children())}"
        self.root.add_module(name, self.trips(n, loose))
        node = self.described(self.fx.call_module(name, (trips, *operands, *(self.dims.at[x] for x in loose))))
        node.meta["opaque"] = True
        return [self.call(operator.getitem, node, k) for k in range(len(n.outs))]

    def loose(self, op: Loop) -> tuple[sp.Symbol, ...]:
        """Dims without a value that the body cannot read from its operands' shapes: they are handed over."""
        found = free(op.body, self.sizes) - ({op.index} if op.index is not None else set())
        return tuple(sorted((x for x in found if measurable(op.body.ins, x, lambda v: not self.apart(v)) is None), key=str))

    def end(self, part: Part, sizes: Sizes) -> tuple[Loop, nn.Module] | None:
        """How a part ends, if with a loop of pieces: that loop, and the module of the movement behind it."""
        found = last_pieces(part.graph)
        if found is None: return None
        loop, tail = found
        if any(measurable(tail.ins, x, lambda v: True) is None for x in free(tail, sizes)): return None     # sizes that only the call knows
        return loop, Lowering(sizes, self.kernels, False).module(tail, (part.layout,), ())

    def trips(self, n: Node, loose: tuple[sp.Symbol, ...]) -> nn.Module:
        """The module of a loop: one lowered body, or one a trip where the body reads the trip's number."""
        op = n.op
        assert isinstance(op, Loop)
        each = op.index is not None and op.index in free(op.body, replace(self.sizes, bound={}))
        count = self.sizes.integer(op.axis.size)
        if each and count is None: raise NotImplementedError(f"{op.axis} copies that differ, and no number of them")
        if self.scans and not loose and scannable(op, OPAQUE) and not any(map(self.apart, n.ins)):
            return self.scan(n, self.constants(n.ins))
        states = tuple(v.axes for v in op.body.ins[:op.carried])

        def at(t: int) -> Sizes:
            return replace(self.sizes, bound={**self.sizes.bound, op.index: t}) if each else self.sizes

        numbers = range(count) if each and count is not None else range(1)
        if op.keep == "invert":
            steps = parts(op)
            made = [[Lowering(at(t), self.kernels, self.compile, True).module(p.graph, (p.layout,), loose) for p in steps.parts]
                    for t in numbers]
            return Inverse(op, steps, made, [[self.end(p, at(t)) for p in steps.parts] for t in numbers])
        bodies = [type(self)(at(t), self.kernels, self.compile, self.inverted).module(op.body, states, loose) for t in numbers]
        ends = [self.tail(op, at(t), loose) for t in numbers]
        return Trips(op, bodies, op.axis.role == "sequence", tuple(self.apart(v) for v in n.outs[op.carried:]), ends)

    def constants(self, values: tuple[Value, ...]) -> dict[int, tuple[Node, ...]]:
        """Of these values those that are one number throughout, by their places, with the nodes that make them."""
        found: dict[int, tuple[Node, ...]] = {}
        for k, v in enumerate(values):
            n = self.filled.get(v)
            if n is not None and isinstance(n.op, Broadcast) and (c := self.filled.get(n.ins[0])) is not None: found[k] = (c, n)
        return found

    def scan(self, n: Node, constants: Mapping[int, tuple[Node, ...]]) -> Scan:
        """The module of a recurrence that needs no recording."""
        ins = operands(n)
        low = Unrecorded(self.sizes, self.kernels, self.compile)

        def prepare(wanted: tuple[bool, ...]) -> tuple[Halves, nn.Module, nn.Module]:
            form = halves(n, wanted, constants, self.sizes)
            return form, low.module(form.ahead), low.module(form.back)
        return Scan(low.trips(replace(n, ins=ins), ()), prepare)

    def tail(self, op: Loop, sizes: Sizes, loose: tuple[sp.Symbol, ...]) -> Ending | None:
        """How a recomputed body is recomputed, where not all of it is."""
        if op.keep != "recompute" or any(map(nested, op.body.ins)): return None
        states = zip(op.body.ins[:op.carried], op.body.outs)
        if any(v.names != o.names for v, o in states): return None             # gradients come laid out as the states
        found = tail(op.body, sizes)
        if found is None: return None
        low = Lowering(sizes, self.kernels, self.compile, self.inverted)
        return Ending(low.module(found.before, (), loose), low.module(found.pull, (), loose), found.reads, found.found, len(loose))


class Recorded(Lowering):
    """Recurrences as a person would write them: a loop over the steps, all of whose operations autograd records."""
    scans = False


class Unrecorded(Lowering):
    """A half of a scan: autograd sees the whole, not what is inside. Only its steps are compiled: what stands around them are a few large
    products."""

    def module(self, graph: Graph, wanted: tuple[tuple[Axis, ...], ...] = (), extra: tuple[sp.Symbol, ...] = ()) -> nn.Module:
        return super().module(unclaimed(graph), wanted, extra)

    def finished(self, module: fx.GraphModule, graph: Graph) -> nn.Module:
        return module

    def trips(self, n: Node, loose: tuple[sp.Symbol, ...]) -> nn.Module:
        op = n.op
        assert isinstance(op, Loop)
        states = tuple(v.axes for v in op.body.ins[:op.carried])
        body = self.module(op.body, states)
        assert isinstance(body, fx.GraphModule)
        return Steps(op, body, self.compile)
