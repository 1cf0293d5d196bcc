"""The output layer and its loss in pieces: forward makes the gradients too, by the sum of the losses; backward scales them."""
from __future__ import annotations

from dataclasses import replace

from plait.compiler.axis import Axis
from plait.compiler.derive.adjoint import Gradients
from plait.compiler.derive.call import Call
from plait.compiler.derive.scope import Scope
from plait.compiler.derive.tape import accumulate, pullback, record
from plait.compiler.graph import Graph, Value
from plait.compiler.prims import Broadcast, Loop, Region


def linear_cross_entropy(b: Scope, op: Region, ins: tuple[Value, ...]) -> list[Value]:
    """The sum; the gradients by it of x and of the weights. Each piece's logits are computed once."""
    from plait.compiler.derive.loops import at_once
    body, env = op.body, dict(zip(op.body.ins, ins))
    at = next(k for k, n in enumerate(body.nodes) if isinstance(n.op, Loop))
    n = body.nodes[at]
    assert isinstance(n.op, Loop)
    n = replace(n, op=replace(n.op, body=_losses_by_kernel(n.op.body)))
    hot = [v for v in ins if v.kind in ("real", "param")]
    active = set(hot)
    tape = record(b, body.nodes[:at], env, active)
    operands = tuple(env[v] for v in n.ins)
    before = len(b.nodes)
    found, made = at_once(b, n, operands, [v in active for v in operands], [_one(b, v.axes) for v in n.outs])
    b.nodes[before:] = [replace(m, op=replace(m.op, body=_first(m.op.body))) if isinstance(m.op, Loop) else m for m in b.nodes[before:]]
    env.update(zip(n.outs, made))
    record(b, body.nodes[at + 1:], env, set())
    seeds: dict[Value, Value] = {}
    for v, g in zip(operands, found):
        if g is not None: accumulate(b, seeds, v, g)
    grads = pullback(b, tape, seeds)
    return [env[body.outs[0]], *(b.broadcast(grads[v], *v.axes) if grads[v].names != v.names else grads[v] for v in hot)]


def _first(body: Graph) -> Graph:
    """What a loop that is recomputed computes again is computed here for the first time."""
    body = body.map_bodies(_first)
    return replace(body, nodes=tuple(replace(n, phase="forward") if n.phase == "recompute" else n for n in body.nodes))


def _one(b: Scope, axes: tuple[Axis, ...]) -> Value: return b.emit(Broadcast(axes), b.const(1))


def _losses_by_kernel(body: Graph) -> Graph:
    """The loss of each target by the library's form: what its gradient reads are the probabilities."""
    def claimed(op): return replace(op, kernel=op.name) if isinstance(op, Region) and op.name == "cross_entropy" else op
    return replace(body, nodes=tuple(replace(n, op=claimed(n.op)) for n in body.nodes))


def linear_cross_entropy_back(b: Scope, call: Call) -> Gradients:
    made = iter(call.outs[1:])
    found = [next(made) if v.kind in ("real", "param") else None for v in call.ins]
    return [b.mul(g, call.g) if g is not None and needed else None for g, needed in zip(found, call.need)]
