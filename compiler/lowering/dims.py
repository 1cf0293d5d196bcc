"""Sizes while lowering: a number where all dims are bound, else arithmetic in the traced graph on the sizes of its inputs.

"""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterable

import sympy as sp
import torch
from torch import fx

from plait.compiler.axis import Axis
from plait.compiler.graph import Graph, Value
from plait.compiler.lowering.tensors import size
from plait.compiler.sizes import Free, Sizes, evaluate

Int = int | fx.Node


def free(graph: Graph, sizes: Sizes) -> set[sp.Symbol]:
    """The dims without a value that occur in a graph, bodies included."""
    found: set[sp.Symbol] = set()

    def look(x) -> None:
        if isinstance(x, sp.Expr): found.update(sizes.resolve(x).free_symbols)
        elif isinstance(x, Axis): look(x.size)
        elif isinstance(x, Value): look(x.axes)
        elif isinstance(x, tuple):
            for part in x: look(part)

    look(graph.ins)
    for n in graph.walk():
        look(n.outs)
        look(tuple(v for k, v in vars(n.op).items() if k not in ("body", "index")))
        if n.body is not None: look(n.body.ins)
    bodies = {n.op.index for n in graph.walk() if getattr(n.op, "index", None) is not None}       # type: ignore[union-attr]
    return {s for s in found if s not in sizes.bound} - bodies


def measurable(graph_ins: Iterable[Value], symbol: sp.Symbol, whole: Callable[[Value], bool]) -> tuple[Value, int, int] | None:
    """(value, dimension, surplus) of an input from whose shape a dim can be read: its size there is the dim plus the surplus."""
    best = None
    for v in graph_ins:
        if not whole(v): continue
        for k, a in enumerate(v.axes):
            more = a.size - symbol
            if more == 0: return v, k, 0
            if more.is_Integer and best is None: best = v, k, int(more)
    return best


class Dims:
    """Answers for one traced graph. `known` are the sizes that are numbers; `at` the nodes of those that are not."""

    def __init__(self, sizes: Sizes, call: Callable[..., fx.Node]):
        self.sizes, self.call = sizes, call
        self.at: dict[sp.Symbol, Int] = {}
        self.made: dict[sp.Expr, Int] = {}

    def measure(self, symbol: sp.Symbol, x: fx.Node, dim: int, surplus: int) -> None:
        node = self.call(size, x, dim)
        self.at[symbol] = self.call(operator.sub, node, surplus) if surplus else node
        self.at[symbol].meta["symbol"] = str(symbol)                   # type: ignore[union-attr]

    def __call__(self, e) -> Int:
        """A whole number: an int, or the node of one."""
        known = self.sizes.integer(e)
        if known is not None: return known
        e = self.sizes.resolve(e)
        if e not in self.made:
            try: top, bottom = self.fraction(e)
            except NotImplementedError: top, bottom = self.evaluated(e, int), 1
            self.made[e] = top if bottom == 1 else self.op(operator.floordiv, top, bottom)
        return self.made[e]

    def number(self, e) -> float | Int:
        """A number that need not be whole."""
        known = self.sizes.value(e)
        if known is not None: return int(known) if -2**62 < known < 2**62 and int(known) == known else float(known)
        e = self.sizes.resolve(e)
        if e.is_integer: return self(e)
        try: top, bottom = self.fraction(e)
        except NotImplementedError: return self.evaluated(e, float)
        return self.op(operator.truediv, top, bottom)

    def evaluated(self, e: sp.Expr, kind: type) -> fx.Node:
        """An expression that plain arithmetic cannot write (a logarithm, a choice by cases)."""
        symbols = sorted(e.free_symbols, key=str)
        bound = {s: self.sizes.bound[s] for s in symbols if s in self.sizes.bound}
        loose = [s for s in symbols if s not in bound]
        node = self.call(lambda *at: kind(evaluate(e, {**bound, **dict(zip(loose, at))})), *(self.at[s] for s in loose))
        node.meta["opaque"] = True
        return node

    def op(self, fn: Callable, x: Int, y: Int) -> Int:
        if isinstance(x, int) and isinstance(y, int): return fn(x, y)
        if fn is operator.mul and 1 in (x, y): return y if x == 1 else x
        return self.call(fn, x, y)

    def fraction(self, e: sp.Expr) -> tuple[Int, Int]:
        """Numerator and denominator."""
        if isinstance(e, sp.Rational): return int(e.p), int(e.q)
        if isinstance(e, sp.Symbol):
            if e in self.sizes.bound: return int(self.sizes.bound[e]), 1
            if e not in self.at: raise Free(f"nothing here tells the size {e}")
            return self.at[e], 1
        if isinstance(e, sp.Add): return self.folded(e.args, self.plus)
        if isinstance(e, sp.Mul): return self.folded(e.args, self.times)
        if isinstance(e, sp.Pow) and e.exp.is_Integer:
            top, bottom = self.folded([e.base] * abs(int(e.exp)), self.times)
            return (top, bottom) if e.exp > 0 else (bottom, top)
        if isinstance(e, sp.floor | sp.ceiling):
            top, bottom = self.fraction(e.args[0])
            if bottom == 1: return top, 1
            if isinstance(e, sp.floor): return self.op(operator.floordiv, top, bottom), 1
            down = self.op(operator.floordiv, self.op(operator.mul, top, -1), bottom)
            return self.op(operator.mul, down, -1), 1
        if isinstance(e, sp.Max): return self.folded(e.args, self.extreme(torch.sym_max))
        if isinstance(e, sp.Min): return self.folded(e.args, self.extreme(torch.sym_min))
        if isinstance(e, sp.Mod): return self.op(operator.mod, self(e.args[0]), self(e.args[1])), 1
        raise NotImplementedError(type(e).__name__)

    def folded(self, args, fn) -> tuple[Int, Int]:
        parts = [self.fraction(a) for a in args]
        out = parts[0]
        for p in parts[1:]: out = fn(out, p)
        return out

    def times(self, x, y) -> tuple[Int, Int]:
        return self.op(operator.mul, x[0], y[0]), self.op(operator.mul, x[1], y[1])

    def plus(self, x, y) -> tuple[Int, Int]:
        (a, b), (c, d) = x, y
        if b == 1 and d == 1: return self.op(operator.add, a, c), 1
        return self.op(operator.add, self.op(operator.mul, a, d), self.op(operator.mul, c, b)), self.op(operator.mul, b, d)

    def extreme(self, fn):
        def pick(x, y) -> tuple[Int, Int]:
            (a, b), (c, d) = x, y
            return self.op(fn, self.op(operator.mul, a, d), self.op(operator.mul, c, b)), self.op(operator.mul, b, d)
        return pick
