"""LSH attention: keeps queries, values, the output, one log-sum-exp a position for all rounds, and the sorted order.

Backward computes the scores of every round again; e^(s − total) is what a pair counts in the union of the rounds, and Σ g ⊙ out is the
same for all of them. Kitaev et al. 2020, section 2 and appendix A."""
from __future__ import annotations

import sympy as sp

from plait.compiler.axis import volume
from plait.compiler.derive.adjoint import Gradients
from plait.compiler.derive.call import Call, called
from plait.compiler.derive.scope import Scope
from plait.compiler.derive.tape import accumulate, pullback, record
from plait.compiler.graph import Value
from plait.compiler.prims import Gather, Region, Sort, Split


def lsh(b: Scope, op: Region, ins: tuple[Value, ...]) -> list[Value]:
    """The output, the total log-sum-exp [b, n, h], ∞ where a position sees nothing, the order and its inverse."""
    env = dict(zip(op.body.ins, ins))
    record(b, op.body.nodes, env, set())
    total = env[called(op, "sum over rounds").outs[0]]
    top = env[called(op, "max over rounds").outs[0]]
    lse = b.where(b.map("eq", total, 0), sp.oo, b.add(top, b.map("log", total)))
    y = env[op.body.outs[0]]
    return [y, b.slice(lse, "n", 0, y.axis("n").size), *(env[v] for v in orders(op))]


def lsh_back(b: Scope, call: Call) -> Gradients:
    op = call.region
    out, lse, *kept = call.outs
    q, v_ = call.ins[:2]
    scores, values = called(op, "max").ins[0], called(op, "weighted sum").ins[1]
    order = dict(zip(orders(op), kept))
    again = call.again(b, [scores, values], {**order, op.body.ins[0]: q, op.body.ins[1]: v_}, order)
    s, v, env = again.env[scores], again.env[values], again.env
    with b.during("recompute"): p = b.map("exp", b.sub(s, in_chunks(b, call, lse, env)))
    with b.during("backward"):
        g = in_chunks(b, call, call.g, env)
        dp = b.contract(g, v, "v", name="weighted sum")
        ds = b.mul(p, b.sub(dp, in_chunks(b, call, b.sum(b.mul(call.g, out), "v"), env)))
        grads = pullback(b, again.tape, {s: ds, v: b.contract(p, g, "m", name="weighted sum")})
        # who saw nothing gave its own value
        if call.need[1]: accumulate(b, grads, v_, b.where(b.map("eq", lse, sp.oo), call.g, 0))
    return [grads.get(x) if needed else None for x, needed in zip((q, v_, *call.ins[2:]), call.need)]


def codes(op: Region) -> sp.Expr:
    """Bytes: a code of 4 a round and row, and one more row a round of codes and of places, for what is not there. A code holds the
    bucket, which therefore is not kept besides."""
    q = op.body.ins[0]
    rounds = sp.sympify(op.arg("rounds"))
    rows = volume([a for a in q.axes if a.name != "k"])
    masked = 2 if op.arg("masked") else 1                       # as a query and as a key, where some keys are not there
    return 4 * masked * rounds * (rows + 1) + 8 * rounds


def orders(op: Region) -> list[Value]:
    """The sorted order of every round, and the way back."""
    return [n.outs[0] for n in op.body.nodes if isinstance(n.op, Sort)]


def in_chunks(b: Scope, call: Call, t: Value, env: dict[Value, Value]) -> Value:
    """A value of every position [b, n, h, …] where its position stands in each round [b, r, h, c, m, …], as the queries are laid out."""
    op = call.region
    taken = called(op, "sort queries")
    cut = next(n.op for n in op.body.nodes if isinstance(n.op, Split) and n.ins[0] == taken.outs[0])
    assert isinstance(taken.op, Gather) and isinstance(cut, Split)
    total, n = taken.ins[0].axis("n").size, t.axis("n").size
    if not b.sizes.equal(total, n): t = b.pad(t, "n", 0, total - n)
    return b.split(b.gather(t, env[taken.ins[1]], "n"), cut.axis, *cut.into)
