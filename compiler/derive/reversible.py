"""Reversible loops backwards: inputs from outputs, gradients on the way. Gomez et al. 2017, section 3."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plait.compiler.derive.adjoint import adjoint
from plait.compiler.derive.inline import chosen
from plait.compiler.derive.scope import Scope
from plait.compiler.derive.tape import accumulate, pullback, record
from plait.compiler.graph import Graph, Node, Value
from plait.compiler.prims import VIEWS, Loop, Map


@dataclass(frozen=True)
class Coupling:
    """`after = before + added`; `nodes` make what is added, out of other streams."""
    before: Value
    after: Value
    added: Value
    nodes: tuple[Node, ...]


def couplings(body: Graph, carried: int) -> list[Coupling]:
    """The additions of a reversible body, last first. NotImplementedError where it does more than add parts to streams."""
    now, found = list(body.outs[:carried]), []                             # each stream as it is at this point
    makes, first = {v: n for n in body.nodes for v in n.outs}, set(body.ins[:carried])
    for n in reversed(body.nodes):
        if n.outs[0] not in now: continue
        if n.op != Map("add"): raise NotImplementedError(f"{n.at}: a reversible loop adds parts to streams")
        before, added = n.ins
        now[now.index(n.outs[0])] = before
        nodes = _between(body.nodes, added, set(now), makes)
        read = {v for p in nodes for v in p.ins} | {added}
        if before in read or (read & first) - set(now): raise NotImplementedError(f"{n.at}: a part reads the streams as they are now")
        found.append(Coupling(before, n.outs[0], added, nodes))
    if set(now) != first: raise NotImplementedError("a reversible loop ends with all of its streams")
    return found


def _between(nodes: tuple[Node, ...], value: Value, streams: set[Value], makes: Mapping[Value, Node]) -> tuple[Node, ...]:
    """The nodes that make a value out of streams and operands."""
    need, todo = set(), [value]
    while todo:
        v = todo.pop()
        if v in streams or v in need: continue
        need.add(v)
        if v in makes: todo.extend(makes[v].ins)
    return tuple(n for n in nodes if any(v in need for v in n.outs))


def undo(b: Scope, body: Graph, carried: int, known: dict[Value, Value], grads: dict[Value, Value], env: Mapping[Value, Value],
         choices: Mapping[Value, Value], hot: set[Value]) -> None:
    """Undo the couplings, last first, in b: each part is computed once more, taken off its stream, and pulled back at once.

    known, grads: value of the body → its value, its gradient here; extended. env: the other operands and the choices; hot: operands
    that need a gradient."""
    for c in couplings(body, carried):
        here = {**env, **known}
        operands = {here[v]: v for v in (*(v for p in c.nodes for v in p.ins), c.added) if v in here}
        active = {v for v, old in operands.items() if old in known or old in hot}
        g = grads.pop(c.after)
        accumulate(b, grads, c.before, g)
        found = part_back(b, c, here, active, choices, g)
        with b.during("recompute"): known[c.before] = b.sub(known[c.after], here[c.added])
        for v, old in operands.items():
            if v in found: accumulate(b, grads, old, found[v])


def part_back(b: Scope, c: Coupling, here: dict[Value, Value], active: set[Value], choices: Mapping[Value, Value], g: Value
              ) -> dict[Value, Value]:
    """Compute a part once more (`here` then has what it adds) and its gradients from g, the one of what it adds."""
    from plait.compiler.derive.loops import at_once
    nodes = list(c.nodes)
    tail: list[Node] = []
    while nodes and isinstance(nodes[-1].op, VIEWS): tail.insert(0, nodes.pop())
    last = nodes[-1] if nodes else None
    pieces = last is not None and isinstance(last.op, Loop) and last.op.keep == "recompute" and len(last.outs) == 1
    chain = pieces and last is not None and all(p.ins[0] == q.outs[0] for q, p in zip([last, *tail], tail))
    if not chain or last is None or any(chosen(p) for p in last.body.walk()):                      # type: ignore[union-attr]
        with b.during("recompute"): tape = record(b, c.nodes, here, active, choices)
        return pullback(b, tape, {here[c.added]: g})
    with b.during("recompute"): tape = record(b, nodes[:-1], here, active, choices)
    with b.during("backward"):
        for n in reversed(tail):
            down, = adjoint(b, n, n.ins, n.outs[0], g, (True,))
            assert down is not None
            g = down
    ins = tuple(here[v] for v in last.ins)
    need = [v in active for v in ins]
    found, made = at_once(b, last, ins, need, [g])
    here.update(zip(last.outs, made))
    with b.during("recompute"): record(b, tail, here, set())
    seeds: dict[Value, Value] = {}
    for v, f in zip(ins, found):
        if f is not None: accumulate(b, seeds, v, f)
    return pullback(b, tape, seeds)
