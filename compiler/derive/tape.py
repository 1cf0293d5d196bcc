"""The tape: a graph is written into a scope node by node, and walked backwards in any scope below it."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from plait.compiler.derive.adjoint import Gradients, adjoint, differentiable
from plait.compiler.derive.scope import Scope
from plait.compiler.graph import Node, Value
from plait.compiler.prims import Loop, Region

# (scope, gradients of the results, None where there is none) → gradients of the operands
Pull = Callable[[Scope, Sequence[Value | None]], Gradients]


@dataclass(frozen=True)
class Entry:
    """A node as written: its operands and results there, which operands need a gradient, and how to get it."""
    node: Node
    ins: tuple[Value, ...]
    outs: tuple[Value, ...]
    need: tuple[bool, ...]
    pull: Pull


def record(b: Scope, nodes: Iterable[Node], env: dict[Value, Value], active: set[Value], given: Iterable[Value] = ()) -> list[Entry]:
    """Write nodes into b. env: a value of the nodes → the value here, extended. active: values here that need a gradient, extended.
    given: values that are in env already and not made again."""
    known: set[Value] = set(given)
    tape: list[Entry] = []
    for n in nodes:
        if n.outs[0] in known: continue
        ins = tuple(env[v] for v in n.ins)
        if isinstance(n.op, Region) and not n.op.kernel:
            env.update(zip(n.op.body.ins, ins))
            tape += record(b, n.op.body.nodes, env, active, known)
            env.update({v: env[made] for v, made in zip(n.outs, n.op.body.outs)})
            continue
        need = tuple(v in active for v in ins)
        if any(need) and differentiable(n):
            outs, pull = write(b, n, ins, need)
            active.update(v for v in outs if v.kind == "real")
            tape.append(Entry(n, ins, outs, need, pull))
        elif isinstance(n.op, Region): outs = write(b, n, ins, need)[0]
        else: outs = b.replay(n, ins)
        env.update(zip(n.outs, outs))
    return tape


def write(b: Scope, n: Node, ins: tuple[Value, ...], need: tuple[bool, ...]) -> tuple[tuple[Value, ...], Pull]:
    """Emit one node; its results and its pullback."""
    from plait.compiler.derive.kernels import claimed  # these two record bodies themselves
    from plait.compiler.derive.loops import looped
    if isinstance(n.op, Region): return claimed(b, n, ins, need)
    if isinstance(n.op, Loop): return looped(b, n, ins, need)
    out, = b.replay(n, ins)

    def pull(back: Scope, gs: Sequence[Value | None]) -> Gradients:
        assert gs[0] is not None
        return adjoint(back, n, ins, out, gs[0], need)
    return (out,), pull


def pullback(b: Scope, tape: Sequence[Entry], seeds: Mapping[Value, Value]) -> dict[Value, Value]:
    """Walk a tape backwards in b. seeds, and the result: value → gradient."""
    grads = dict(seeds)
    with b.during("backward"):
        for e in reversed(tape):
            if not any(v in grads for v in e.outs): continue
            with b.located(e.node.at, e.node.span): found = e.pull(b, [grads.pop(v, None) for v in e.outs])
            for v, needed, g in zip(e.ins, e.need, found):
                if needed and g is not None: accumulate(b, grads, v, g)
    return grads


def accumulate(b: Scope, grads: dict[Value, Value], v: Value, g: Value) -> None:
    grads[v] = b.add(grads[v], g) if v in grads else g


def reached(nodes: Iterable[Node], seen: set[Value]) -> set[Value]:
    """The values that a gradient passes through on its way to one of `seen`, those included."""
    found = set(seen)
    for n in nodes:
        if differentiable(n) and any(v in found for v in n.ins): found.update(v for v in n.outs if v.kind == "real")
    return found
