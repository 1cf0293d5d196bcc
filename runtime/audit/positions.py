"""The position graph, node by node, straight from the definitions of the primitives: constants are propagated element by
element (a known zero or −∞ tells of nothing), loops are unrolled. Slow, for few positions; nothing is shared with the reading."""
import itertools
import math
from collections.abc import Callable

import networkx as nx
import numpy as np
import sympy as sp

from plait.compiler.axis import swap, without
from plait.compiler.graph import Graph, Value
from plait.compiler.prims import (
    Broadcast,
    Concat,
    Const,
    Contract,
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
    Slice,
    Sort,
    Split,
    Window,
)
from plait.compiler.sizes import Free, evaluate

FAR = 1 << 28
NOBODY = -1                                       # an element that no input tells of
UNKNOWN = math.nan

FUNCTIONS: dict[str, Callable[..., float]] = {
    "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: 0 if 0 in (x, y) else x * y, "neg": lambda x: -x,
    "div": lambda x, y: 0 if x == 0 and y != 0 else x if abs(x) == math.inf else x / y,
    "le": lambda x, y: x <= y, "lt": lambda x, y: x < y, "eq": lambda x, y: x == y,
    "and": lambda x, y: x and y, "or": lambda x, y: x or y, "not": lambda x: not x, "exp": lambda x: 0 if x == -math.inf else UNKNOWN,
    "relu": lambda x: max(x, 0), "maximum": max,
}


class DataDependent(Exception):
    """Positions that the data choose."""


class Elements:
    """A value: for each of its positions a vertex (or NOBODY) and a constant (or UNKNOWN)."""

    def __init__(self, who: np.ndarray, what: np.ndarray):
        self.who, self.what = np.where(np.isnan(what), who, NOBODY), what

    def move(self, fn):
        return Elements(fn(self.who, NOBODY), fn(self.what, 0.0))


class Explicit:
    def __init__(self, bound):
        self.at, self.g, self.count = dict(bound), nx.DiGraph(), itertools.count()

    def n(self, e) -> int: return int(evaluate(sp.sympify(e), self.at))
    def spots(self, axes): return [a for a in axes if a.role in ("sequence", "window", "chunk")]
    def shape(self, axes): return tuple(self.n(a.size) for a in self.spots(axes))

    def vertex(self, reads, weight) -> int:
        """A vertex that reads others; none if there is nothing to read."""
        reads = [r for r in reads if r != NOBODY]
        if not reads: return NOBODY
        if weight == 0 and len(set(reads)) == 1: return reads[0]
        v = next(self.count)
        for r in reads: self.g.add_edge(int(r), v, weight=weight)
        return v

    def unknown(self, axes): return Elements(np.full(self.shape(axes), NOBODY), np.full(self.shape(axes), UNKNOWN))

    def source(self, v: Value):
        x = self.unknown(v.axes)
        for i in range(len(x.who)):
            x.who[i] = next(self.count)
            self.g.add_node(int(x.who[i]))
        return x

    def align(self, x: Elements, have, want) -> Elements:
        have, want = [a.name for a in self.spots(have)], self.spots(want)
        order = [have.index(a.name) for a in want if a.name in have]
        shape = [self.n(a.size) if a.name in have else 1 for a in want]
        return x.move(lambda a, _: np.broadcast_to(a.transpose(order).reshape(shape), self.shape(want)))

    def graph(self, g: Graph, entry, late=frozenset()):
        env = dict(zip(g.ins, entry))
        state = set(late)                         # values of a scan step that hang on its state
        for n in g.nodes:
            xs = [env[v] for v in n.ins]
            if any(v in state for v in n.ins):
                xs = [x if v in state else self.stepped(x) for v, x in zip(n.ins, xs)]
                state.update(n.outs)
            env.update(zip(n.outs, self.node(n, xs)))
        return [env[v] for v in g.outs]

    def stepped(self, x: Elements) -> Elements:
        return Elements(np.vectorize(lambda w: self.vertex([w], 1), otypes=[int])(x.who) if x.who.size else x.who, x.what)

    def node(self, n, xs):
        op, axes = n.op, n.outs[0].axes if n.outs else ()
        have = n.ins[0].axes if n.ins else ()
        names = [a.name for a in self.spots(have)]
        match op:
            case Const(value):
                try: v = float(evaluate(sp.sympify(value), self.at))
                except Free: v = UNKNOWN
                return [Elements(np.array(NOBODY), np.array(v))]
            case Position(a) if a.role == "sequence" or a.role in ("window", "chunk"):
                return [Elements(np.full(self.n(a.size), NOBODY), np.arange(self.n(a.size), dtype=float))]
            case Position() | Random(): return [self.unknown(axes)]
            case Map(fn): return [self.pointwise(fn, [self.align(x, v.axes, axes) for x, v in zip(xs, n.ins)])]
            case Contract(over):
                every = (*n.ins[0].axes, *without(n.ins[1].axes, n.ins[0].names))
                terms = self.pointwise("mul", [self.align(x, v.axes, every) for x, v in zip(xs, n.ins)])
                return [self.summed("sum", terms, every, over, axes)]
            case Reduce(fn, over): return [self.summed(fn, xs[0], have, over, axes)]
            case Broadcast(): return [self.align(xs[0], have, axes)]
            case Rename(): return xs
            case Split(): return [xs[0].move(lambda a, _: a.reshape(self.shape(axes)))]
            case Merge((p, q), _):
                if p not in names: return xs
                beside = swap(without(have, (q,)), p, *(a for name in (p, q) for a in have if a.name == name))
                return [self.align(xs[0], have, beside).move(lambda a, _: a.reshape(self.shape(axes)))]
            case Slice(name, start, size) if name in names:
                return [xs[0].move(lambda a, _: a.take(range(self.n(start), self.n(start + size)), names.index(name)))]
            case Pad(name, before, after) if name in names:
                wide = [(self.n(before), self.n(after)) if m == name else (0, 0) for m in names]
                return [xs[0].move(lambda a, fill: np.pad(a, wide, constant_values=fill))]
            case Slice() | Pad(): return xs
            case Concat(name) if name in names:
                sides = [self.align(x, v.axes, have) for x, v in zip(xs, n.ins)]
                return [Elements(*(np.concatenate([getattr(x, f) for x in sides], names.index(name)) for f in ("who", "what")))]
            case Concat(): return [self.pointwise("beside", [self.align(x, v.axes, axes) for x, v in zip(xs, n.ins)])]
            case Window(name, into, left, dilation):
                return [self.window(xs[0], names.index(name), self.n(into.size), self.n(left), self.n(dilation))]
            case Gather(name): return [self.gather(name, names, xs, n)]
            case Sort(): raise DataDependent
            case Region(_, body): return self.graph(body, [self.align(x, v.axes, f.axes) for x, v, f in zip(xs, n.ins, body.ins)])
            case Loop(): return self.loop(op, n, xs)
            case _: raise NotImplementedError(op)

    def pointwise(self, fn, xs):
        shape = xs[0].who.shape
        who, what = np.full(shape, NOBODY), np.full(shape, UNKNOWN)
        for at in np.ndindex(shape):
            ins, values = [int(x.who[at]) for x in xs], [float(x.what[at]) for x in xs]
            if fn == "where" and not math.isnan(values[0]):
                chosen = 1 if values[0] else 2
                who[at], what[at] = ins[chosen], values[chosen]
                continue
            if fn == "mul" and 0 in values: what[at] = 0
            elif fn in ("sub", "div", "add") and -math.inf in values[:1]: what[at] = -math.inf
            elif fn == "div" and values[0] == 0: what[at] = 0
            elif fn in FUNCTIONS and not any(map(math.isnan, values)): what[at] = float(FUNCTIONS[fn](*values))
            if math.isnan(what[at]): who[at] = self.vertex(ins, 0)
        return Elements(who, what)

    def summed(self, fn, x, have, over, axes):
        spots = self.spots(have)
        lost = [k for k, a in enumerate(spots) if a.name in over]
        left = [a for a in spots if a.name not in over]
        shape = self.shape(left)
        who, what = np.full(shape, NOBODY), np.full(shape, UNKNOWN)
        for at in np.ndindex(shape):
            place = iter(at)
            index = tuple(slice(None) if k in lost else next(place) for k in range(len(spots)))
            values, reads = x.what[index].ravel(), x.who[index].ravel()
            # features, too, are summed by a contraction: a constant of one is only a constant of the sum where it absorbs
            if not np.isnan(values).any() and (lost or (values == 0).all() or fn == "max"):
                plain = all(a.role in ("sequence", "window", "chunk") for a in have if a.name in over)
                v = values.sum() if fn == "sum" else values.max()
                if fn != "argmax" and (plain or v in (0, -math.inf)): what[at] = v
            if math.isnan(what[at]): who[at] = self.vertex(reads, 1 if lost else 0)
        return self.align(Elements(who, what), left, axes)

    def window(self, x, k, size, left, dilation):
        m = x.who.shape[k]
        index = np.arange(m)[:, None] + (np.arange(size) - left) * dilation
        hole = (index < 0) | (index >= m)
        hole = hole.reshape((1,) * k + hole.shape + (1,) * (x.who.ndim - k - 1))
        def fn(a, fill):
            shape = a.shape[:k] + (m, size) + a.shape[k + 1:]
            return np.where(hole, fill, a.take(index.clip(0, m - 1).ravel(), k).reshape(shape))
        return x.move(fn)

    def gather(self, name, names, xs, n):
        x, index = xs
        out = n.outs[0].axes
        if name not in names:
            return self.pointwise("gather", [self.align(x, n.ins[0].axes, out), self.align(index, n.ins[1].axes, out)])
        if np.isnan(index.what).any(): raise DataDependent
        assert index.what.ndim == 0
        return x.move(lambda a, _: a.take(int(index.what), names.index(name)))

    def loop(self, op, n, xs):
        c, s, far = op.carried, op.sliced, bool(self.spots((op.axis,)))
        body = op.body
        xs = [self.align(x, v.axes, ((op.axis,) if c <= k < c + s else ()) + f.axes)
              for k, (x, v, f) in enumerate(zip(xs, n.ins, body.ins))]
        scan = op.axis.role == "sequence"
        state, stacks = xs[:c], []
        trips = range(self.n(op.axis.size))
        for t in reversed(trips) if op.reverse else trips:
            if op.index is not None: self.at[op.index] = t
            cut = [Elements(x.who[t], x.what[t]) if far else x for x in xs[c:c + s]]
            state = [Elements(x.who, np.full(x.what.shape, UNKNOWN)) for x in state]      # a state is what any trip makes of it
            if scan: state = [self.stepped(x) for x in state]
            outs = self.graph(body, [*state, *cut, *xs[c + s:]], frozenset(body.ins[:c]) if scan else frozenset())
            state = [self.align(o, v.axes, f.axes) for o, v, f in zip(outs, body.outs, body.ins)][:c]
            stacks.append(outs[c:])
        if op.reverse: stacks.reverse()
        columns = [Elements(np.stack([o.who for o in col]), np.stack([o.what for o in col])) if far else col[0] for col in zip(*stacks)]
        return state + columns


def distances(graph: Graph, bound, source: Value) -> np.ndarray:
    """[source position, output position], FAR where not connected; an output without a sequence has one position."""
    e = Explicit(bound)
    entry = []
    for v in graph.ins:
        x = e.source(v) if v == source else e.unknown(v.axes)
        if v.kind == "mask" and v != source: x = Elements(x.who, np.ones(x.what.shape))
        entry.append(x)
    out = e.graph(graph, entry)[0]
    start = [int(w) for w in entry[graph.ins.index(source)].who]
    rows = []
    for s in start:
        d = nx.single_source_dijkstra_path_length(e.g, s)
        rows.append([d.get(int(w), FAR) for w in np.atleast_1d(out.who)])
    return np.array(rows)
