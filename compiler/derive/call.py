"""A call of a kernel, as its backward sees it."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from plait.compiler.derive.scope import Scope
from plait.compiler.derive.tape import Entry, record
from plait.compiler.graph import Node, Value, live
from plait.compiler.prims import Region


@dataclass(frozen=True)
class Call:
    """The region with its body; operands, results (what the kernel keeps last) and the gradient of the first result, as values of
    the scope outside; which operands need a gradient."""
    region: Region
    ins: tuple[Value, ...]
    outs: tuple[Value, ...]
    g: Value
    need: tuple[bool, ...]

    def again(self, b: Scope, wanted: Iterable[Value], env: dict[Value, Value] | None = None, given: Iterable[Value] = ()) -> Again:
        """Compute some values of the body once more, from the operands (env: from these instead)."""
        body = self.region.body
        here = dict(zip(body.ins, self.ins)) | (env or {})
        active = {here[v] for v, needed in zip(body.ins, self.need) if needed}
        with b.during("recompute"): tape = record(b, needed_for(body.nodes, wanted, given), here, active, given)
        return Again(here, tape)


@dataclass(frozen=True)
class Again:
    """value of the body → value here; the tape."""
    env: dict[Value, Value]
    tape: list[Entry]


def needed_for(nodes: Iterable[Node], wanted: Iterable[Value], given: Iterable[Value] = ()) -> tuple[Node, ...]:
    """The nodes that lead to some values, those given left out and not looked behind."""
    known = set(given)
    return live([n for n in nodes if n.outs[0] not in known], wanted)


def called(region: Region, name: str) -> Node:
    """The node of a body that a person calls so."""
    return next(n for n in region.body.nodes if n.name == name)
