"""The adjoint of every primitive. What a rule reads, an operand or the result, is what forward saves: there is no other list.

Reverse mode as in Griewank and Walther, Evaluating Derivatives, 2008, chapter 3."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

import sympy as sp

from plait.compiler.axis import Axis, without
from plait.compiler.derive.scope import Scope
from plait.compiler.graph import Node, Value
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

Gradients = Sequence[Value | None]
HALF = sp.Rational(1, 2)

# fn → for each operand its gradient, (b, g, operands, result) → Value, or None where it never has one. An entry is called only for an
# operand that needs it, so a product keeps the operand whose partner needs a gradient, and no more.
Entry = Callable[[Scope, Value, Sequence[Value], Value], Value]
MAPS: dict[str, tuple[Entry | None, ...]] = {
    "add": (lambda b, g, x, y: g, lambda b, g, x, y: g),
    "sub": (lambda b, g, x, y: g, lambda b, g, x, y: b.map("neg", g)),
    "mul": (lambda b, g, x, y: b.mul(g, x[1]), lambda b, g, x, y: b.mul(g, x[0])),
    "div": (lambda b, g, x, y: b.div(g, x[1]), lambda b, g, x, y: b.map("neg", b.div(b.mul(b.div(g, x[1]), x[0]), x[1]))),
    "neg": (lambda b, g, x, y: b.map("neg", g),),
    "maximum": (lambda b, g, x, y: b.where(b.map("le", x[1], x[0]), g, 0), lambda b, g, x, y: b.where(b.map("le", x[1], x[0]), 0, g)),
    "where": (None, lambda b, g, x, y: b.where(x[0], g, 0), lambda b, g, x, y: b.where(x[0], 0, g)),
    "exp": (lambda b, g, x, y: b.mul(g, y),),
    "log": (lambda b, g, x, y: b.div(g, x[0]),),
    "sin": (lambda b, g, x, y: b.mul(g, b.map("cos", x[0])),),
    "cos": (lambda b, g, x, y: b.map("neg", b.mul(g, b.map("sin", x[0]))),),
    "tanh": (lambda b, g, x, y: b.mul(g, b.map("tanh_slope", y)),),
    "sigmoid": (lambda b, g, x, y: b.mul(g, b.map("sigmoid_slope", y)),),
    "relu": (lambda b, g, x, y: b.mul(g, b.map("step", y)),),
    "gelu": (lambda b, g, x, y: b.mul(g, b.map("gelu_slope", x[0])),),
    "silu": (lambda b, g, x, y: b.mul(g, b.map("silu_slope", x[0])),),
    "rsqrt": (lambda b, g, x, y: b.mul(b.mul(g, -HALF), b.mul(y, b.mul(y, y))),),
}
FLAT = (*TRUTH, "step", "floordiv", "mix")                    # constant between steps, or integers: no gradient
TWICE = ("gelu_slope", "silu_slope", "tanh_slope", "sigmoid_slope", "mod")                   # would have one, and no rule has needed it yet


def differentiable(n: Node) -> bool:
    """Does a gradient pass through this node at all?"""
    match n.op:
        case Const() | Position() | Random() | Sort(): return False
        case Map(fn): return fn not in FLAT and n.outs[0].kind == "real"
        case Reduce(fn): return fn != "argmax" and n.outs[0].kind == "real"
        case (Contract() | Broadcast() | Rename() | Split() | Merge() | Slice() | Pad() | Concat() | Window() | Fold() | Gather()
              | Scatter()):
            return n.outs[0].kind == "real"
        case Region() | Loop(): return True
        case _: assert_never(n.op)


def adjoint(b: Scope, n: Node, ins: Sequence[Value], out: Value, g: Value, need: Sequence[bool]) -> Gradients:
    """Gradients of a node's operands, from the one of its result; None where none is needed or there is none.

    Raises NotImplementedError for a function without a derivative in the alphabet."""
    x = ins[0] if ins else out
    match n.op:
        case Map(fn):
            if fn not in MAPS: raise NotImplementedError(f"{n.at}: no derivative of {fn}")
            return [summed(b, rule(b, g, ins, out), v.axes) if wanted and rule else None for rule, v, wanted in zip(MAPS[fn], ins, need)]
        case Contract():
            def other(v: Value, w: Value) -> Value: return b.contract(g, w, *(a for a in g.names if not v.has(a)), name=n.name)
            return [other(ins[0], ins[1]) if need[0] else None, other(ins[1], ins[0]) if need[1] else None]
        case Reduce("sum"): return [b.emit(Broadcast(x.axes), g)]
        case Reduce("max", over):
            at = b.map("eq", x, out)
            among = b.sum(b.where(at, 1, 0), *over)            # ties share it evenly
            return [b.where(at, b.div(g, among), 0)]
        case Reduce(): raise NotImplementedError(f"{n.at}: no derivative of {n.op}")
        case Broadcast(): return [summed(b, g, x.axes)]
        case Rename(old, new): return [b.rename(g, new.name, x.axis(old))]
        case Split(name, into): return [b.merge(g, into[0].name, into[1].name, x.axis(name))]
        case Merge((p, q), into): return [b.split(g, into.name, x.axis(p), x.axis(q))]
        case Slice(name, start, size): return [b.pad(g, name, start, x.axis(name).size - start - size)]
        case Pad(name, before, _): return [b.slice(g, name, before, x.axis(name).size)]
        case Concat(name):
            sizes = [v.axis(name).size for v in ins]
            return [b.slice(g, name, sp.Add(*sizes[:k]), s) if wanted else None for k, (s, wanted) in enumerate(zip(sizes, need))]
        case Window(name, into, left, dilation): return [b.emit(Fold(name, into.name, left, dilation), g)]
        case Fold(name, window, left, dilation): return [b.window(g, name, x.axis(window), left, dilation)]
        case Gather(name): return [gathered(b, x.axis(name), x, ins[1], g), None]
        case Scatter(a): return [b.gather(g, ins[1], a.name), None]
        case Const() | Position() | Random() | Sort() | Region() | Loop(): raise TypeError(f"{n.op} has no adjoint of its own")
        case _: assert_never(n.op)


def summed(b: Scope, g: Value, axes: Sequence[Axis]) -> Value:
    """The gradient of a broadcast: the sum over what the operand does not have."""
    names = {a.name for a in axes}
    return b.sum(g, *(a for a in g.names if a not in names))


def gathered(b: Scope, along: Axis, x: Value, index: Value, g: Value) -> Value:
    """The gradient of a gather: a scatter; of the element at a fixed place a padding, which sums nothing."""
    if index not in b.numbers: return b.emit(Scatter(along, tuple(a for a in index.names if x.has(a) and a != along.name)), g, index)
    at = b.numbers[index]
    names = {a.name for a in g.axes}
    kept = [a for a in x.axes if a.name in names or a == along]                  # in the order in which x lies
    one = b.broadcast(g, *(along.resized(1) if a == along else a for a in kept), *without(g.axes, [a.name for a in kept]))
    return b.pad(one, along.name, at, along.size - 1 - at)
