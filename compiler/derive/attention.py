"""Attention that keeps q, k, v, its output and a number a row, and computes the scores again.

The library's fused attention (Dao et al. 2022, section 3.1, algorithm 2), attention in blocks of rows (Kitaev et al. 2020, section 2)
and in a window alike. How rows are cut into blocks is not said here: work is that of the definition."""
from __future__ import annotations

from collections.abc import Iterable

import sympy as sp

from plait.compiler.axis import volume
from plait.compiler.derive.adjoint import Gradients
from plait.compiler.derive.call import Call, needed_for
from plait.compiler.derive.scope import Scope
from plait.compiler.derive.tape import accumulate, pullback, record
from plait.compiler.graph import Node, Value
from plait.compiler.layers.norm import LOWEST
from plait.compiler.prims import Map, Region


# -- the library's ---------------------------------------------------------------------------------------------------------------
def fused(b: Scope, op: Region, ins: tuple[Value, ...]) -> list[Value]:
    """The output, the log-sum-exp of every row, and, where the mask is more than causal, the mask as numbers [b, n, n'] to be added."""
    env, made = _forward(b, op, ins)
    if _plain(op): return made
    mask = _masking(op).ins[0]
    q, k = op.body.ins[:2]
    return [*made, b.broadcast(b.where(env[mask], 0, -sp.oo), *(a for a in q.axes if a.role == "batch"), q.axis("n"), k.axis("n'"))]


def fused_back(b: Scope, call: Call) -> Gradients:
    if _plain(call.region): return _backward(b, call, call.outs[0], {}, _scores(call.region))
    raw = _masking(call.region).ins[1]
    return _backward(b, call, call.outs[0], {}, raw, bias=call.outs[2])


def _plain(op: Region) -> bool:
    return bool(op.arg("own", True)) and not op.arg("masked")


# -- own -------------------------------------------------------------------------------------------------------------------------
def rowwise(b: Scope, op: Region, ins: tuple[Value, ...]) -> list[Value]:
    """The output, the log-sum-exp of every row. In blocks of rows also the output as the kernel lays it out, where that is not how it is
    read, and keys and values once for every query head, where these share them."""
    made = _forward(b, op, ins)[1]
    if op.kernel != "rowwise_attention": return made
    if _several(b, ins[0]): made.append(b.copied(made[0]))
    more = _repeating(ins)
    return made + [b.copied(b.broadcast(t, *t.axes, *more)) for t in ins[1:3] if more]


def rowwise_back(b: Scope, call: Call) -> Gradients:
    out, kept = call.outs[0], list(call.outs[2:])
    if call.region.kernel == "rowwise_attention" and _several(b, call.ins[0]): out = kept.pop(0)
    _, k, v, *_ = call.region.body.ins
    return _backward(b, call, out, {x: _one(b, t, wide) for x, t, wide in zip((k, v), call.ins[1:3], kept)}, _scores(call.region))


def _several(b: Scope, q: Value) -> bool:
    """Are there several heads, so that [b, h, n, v] and [b, n, h, v] are two layouts?"""
    return not b.sizes.equal(volume([a for a in q.axes if a.role == "head"]), 1)


def _repeating(ins: tuple[Value, ...]) -> list:
    return [a for a in ins[0].axes if a.role == "head" and not ins[1].has(a.name)]


def _one(b: Scope, x: Value, wide: Value) -> Value:
    """A view of the repeated x with the axes of x: all of its copies are the same."""
    for a in wide.axes:
        if not x.has(a.name): wide = b.select(wide, a.name, 0)
    return wide


# -- both ------------------------------------------------------------------------------------------------------------------------
def _forward(b: Scope, op: Region, ins: tuple[Value, ...]) -> tuple[dict[Value, Value], list[Value]]:
    """The values of the body; the output and the log-sum-exp of every row, ∞ for a row that sees nothing."""
    body, row = op.body, _softmax(op)
    assert isinstance(row.op, Region)
    over, env = str(row.op.arg("over")), dict(zip(body.ins, ins))
    record(b, needed_for(body.nodes, row.ins), env, set())
    s = env[row.ins[0]]
    top = b.map("maximum", b.max(s, over, name="max"), LOWEST)
    e = b.map("exp", b.sub(s, top))
    total = b.sum(e, over, name="sum")
    alone = b.map("eq", total, 0)
    env[row.outs[0]] = b.div(e, b.where(alone, 1, total))
    record(b, _rest(op, env), env, set())
    return env, [env[body.outs[0]], b.where(alone, sp.oo, b.add(top, b.map("log", total)))]


def _backward(b: Scope, call: Call, out: Value, env: dict[Value, Value], scores: Value, bias: Value | None = None) -> Gradients:
    """p = e^(s − lse) once more; ds = p ⊙ (dp − Σ g ⊙ out). env: operands of the body that are something else here; scores: the value
    of the body that s is, or, with a bias to be added, is made from."""
    body, p_ = call.region.body, _softmax(call.region).outs[0]
    again = call.again(b, [scores], env)
    s = again.env[scores]
    with b.during("recompute"):
        p = b.map("exp", b.sub(s if bias is None else b.add(s, bias), call.outs[1]))
        here = {**again.env, p_: p}
        tape = record(b, _rest(call.region, here), here, {p, here[body.ins[2]]})
    grads = pullback(b, tape, {here[body.outs[0]]: call.g})
    delta = b.sum(b.mul(call.g, out), *(a.name for a in body.outs[0].axes if a.name not in p_.names))
    ds = b.mul(p, b.sub(grads.pop(p), delta))
    for x, g in pullback(b, again.tape, {s: ds}).items(): accumulate(b, grads, x, g)
    return [grads.get(here[x]) if needed else None for x, needed in zip(body.ins, call.need)]


def _softmax(op: Region) -> Node:
    """The softmax over the scores, a region in the body."""
    return next(n for n in op.body.nodes if isinstance(n.op, Region) and n.op.name == "softmax")


def _scores(op: Region) -> Value:
    return _softmax(op).ins[0]


def _masking(op: Region) -> Node:
    """What sets scores to −∞: where(mask, scores, −∞)."""
    scores = _scores(op)
    return next(n for n in op.body.nodes if n.op == Map("where") and n.outs[0] == scores)


def _rest(op: Region, env: Iterable[Value]) -> tuple[Node, ...]:
    """What follows the softmax: dropout and the weighted sum."""
    return needed_for(op.body.nodes, op.body.outs, env)
