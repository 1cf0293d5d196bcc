"""Attention that keeps q, k, v, its output and a number a row, and computes the scores again.

Fused attention (Dao et al. 2022, section 3.1, algorithm 2) and attention in blocks of rows (Kitaev et al. 2020, section 2) alike; in a
window, too. How the rows are cut into blocks is not said here: work is that of the definition."""
from __future__ import annotations

import sympy as sp

from plait.compiler.derive.adjoint import Gradients
from plait.compiler.derive.call import Call, needed_for
from plait.compiler.derive.scope import Scope
from plait.compiler.derive.tape import accumulate, pullback, record
from plait.compiler.graph import Node, Value
from plait.compiler.layers.norm import LOWEST
from plait.compiler.prims import Region


def attention(b: Scope, op: Region, ins: tuple[Value, ...]) -> list[Value]:
    """The output and the log-sum-exp of every row, ∞ for a row that sees nothing."""
    body, row = op.body, softmax_of(op)
    over, env = str(row.op.arg("over")), dict(zip(body.ins, ins))                                 # type: ignore[union-attr]
    record(b, needed_for(body.nodes, row.ins), env, set())
    s = env[row.ins[0]]
    top = b.map("maximum", b.max(s, over, name="max"), LOWEST)
    e = b.map("exp", b.sub(s, top))
    total = b.sum(e, over, name="sum")
    alone = b.map("eq", total, 0)
    env[row.outs[0]] = b.div(e, b.where(alone, 1, total))
    record(b, [n for n in body.nodes if n.outs[0] not in env], env, set())
    outs = [env[body.outs[0]], b.where(alone, sp.oo, b.add(top, b.map("log", total)))]
    return outs + repeated(b, op, ins)


def attention_back(b: Scope, call: Call) -> Gradients:
    """p = e^(s − lse) once more; ds = p ⊙ (dp − Σ g ⊙ out)."""
    body, row = call.region.body, softmax_of(call.region)
    q, k, v = body.ins[:3]
    out, lse = call.outs[:2]
    again = call.again(b, row.ins, dict(zip((k, v), (shared(b, x, w) for x, w in zip(call.ins[1:3], call.outs[2:])))))
    with b.during("recompute"): p = b.map("exp", b.sub(again.env[row.ins[0]], lse))
    env = {**again.env, row.outs[0]: p}
    rest = [n for n in body.nodes if n.outs[0] not in env]
    with b.during("recompute"): tape = record(b, rest, env, {p, env[v]})
    grads = pullback(b, tape, {env[body.outs[0]]: call.g})
    delta = b.sum(b.mul(call.g, out), *(a.name for a in body.outs[0].axes if a.name not in row.outs[0].names))
    ds = b.mul(p, b.sub(grads.pop(p), delta))
    for x, g in pullback(b, again.tape, {again.env[row.ins[0]]: ds}).items(): accumulate(b, grads, x, g)
    return [grads.get(env[x]) if needed else None for x, needed in zip(body.ins, call.need)]


def softmax_of(op: Region) -> Node:
    """The softmax over the scores, a region in the body."""
    return next(n for n in op.body.nodes if isinstance(n.op, Region) and n.op.name == "softmax")


def repeated(b: Scope, op: Region, ins: tuple[Value, ...]) -> list[Value]:
    """Keys and values once for every query head, where the kernel lays them out so."""
    q, k, v = ins[:3]
    more = tuple(a for a in q.axes if a.role == "head" and not k.has(a.name))
    if not more or op.kernel not in REPEATING: return []
    return [b.mul(b.broadcast(t, *t.axes, *more), 1) for t in (k, v)]


REPEATING = ("rowwise_attention", "banded_attention")


def shared(b: Scope, x: Value, wide: Value) -> Value:
    """A view of the repeated x with the axes of x: all of its copies are the same."""
    for a in wide.axes:
        if not x.has(a.name): wide = b.select(wide, a.name, 0)
    return wide
