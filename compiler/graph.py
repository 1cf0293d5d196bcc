"""The graph: values over named axes, nodes of primitives, closed bodies. A pass takes one and returns a new one."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import sympy as sp

from plait.compiler.axis import Axis, volume
from plait.dsl.errors import Span

if TYPE_CHECKING:
    import networkx

    from plait.compiler.prims import Op


@dataclass(frozen=True)
class Value:
    """`kind`: real; param (a real that lives between steps); index (integers); mask (truth values); const (a number)."""
    name: str
    axes: tuple[Axis, ...]
    kind: str = "real"

    def __repr__(self) -> str:
        return f"{self.name}[{', '.join(map(repr, self.axes))}]"

    def axis(self, name: str) -> Axis:
        return next(a for a in self.axes if a.name == name)

    def has(self, name: str) -> bool:
        return any(a.name == name for a in self.axes)

    def role(self, role: str) -> Axis:
        return next(a for a in self.axes if a.role == role)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(a.name for a in self.axes)

    @property
    def size(self) -> sp.Expr:
        return volume(self.axes)


@dataclass(frozen=True)
class Node:
    """One step of the schedule. `at` is the place in the spec it came from (`m/y/0/attend`), `name` what a person calls it."""
    op: Op
    ins: tuple[Value, ...]
    outs: tuple[Value, ...]
    at: str = ""
    name: str = ""
    phase: str = "forward"                            # forward, recompute, backward
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def body(self) -> Graph | None:
        """The body of a Region or a Loop."""
        return getattr(self.op, "body", None)


    @property
    def symbols(self) -> set[sp.Symbol]:
        """The symbols in the attributes of the op and in the sizes of what it makes; not those of its body."""
        out = {s for v in self.outs for a in v.axes for s in a.size.free_symbols}
        for v in vars(self.op).values():
            if isinstance(v, sp.Basic): out |= v.free_symbols
            elif isinstance(v, Axis): out |= v.size.free_symbols
            elif isinstance(v, tuple): out |= {s for a in v if isinstance(a, Axis) for s in a.size.free_symbols}
        return out


@dataclass(frozen=True)
class Graph:
    """Closed: a body sees nothing but its `ins`. `nodes` is the schedule."""
    ins: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outs: tuple[Value, ...]

    def text(self, indent: str = "") -> str:
        """The graph as a person reads it, a line a node, bodies indented."""
        lines = [f"{indent}({', '.join(map(repr, self.ins))})"]
        for n in self.nodes:
            shown = ", ".join(str(v) for k, v in vars(n.op).items() if k != "body" and v not in ((), None, False, ""))
            ins, outs, called = " ".join(v.name for v in n.ins), ", ".join(map(repr, n.outs)), f"   # {n.name}" if n.name else ""
            lines.append(f"{indent}  {outs} = {type(n.op).__name__}({shown}) {ins}{called}")
            if n.body is not None: lines.append(n.body.text(indent + "    "))
        return "\n".join([*lines, f"{indent}  -> {', '.join(v.name for v in self.outs)}"])

    def walk(self) -> Iterator[Node]:
        """Every node, bodies included, in order of the schedule."""
        for n in self.nodes:
            yield n
            if n.body is not None: yield from n.body.walk()

    def map_bodies(self, change) -> Graph:
        """The graph with `change` applied to every body (not to the graph itself)."""
        return replace(self, nodes=tuple(
            n if n.body is None else replace(n, op=replace(n.op, body=change(n.body))) for n in self.nodes))

    def networkx(self) -> networkx.DiGraph:
        """The schedule as a DiGraph: a vertex a node (its number), an edge a value read. Bodies stay inside their vertex."""
        import networkx  # takes 0.14 s to import: only those who ask pay

        g = networkx.DiGraph()
        made: dict[Value, str | int] = {v: f"in {v.name}" for v in self.ins}
        for v in self.ins: g.add_node(made[v], value=v)
        for k, n in enumerate(self.nodes):
            g.add_node(k, node=n)
            for v in n.ins: g.add_edge(made[v], k, value=v)
            made |= {v: k for v in n.outs}
        for v in self.outs:
            g.add_node(f"out {v.name}", value=v)
            g.add_edge(made[v], f"out {v.name}", value=v)
        return g


def live(nodes, outs) -> tuple[Node, ...]:
    """The nodes that something reads."""
    read, kept = set(outs), []
    for n in reversed(nodes):
        if any(v in read for v in n.outs):
            kept.append(n)
            read.update(n.ins)
    return tuple(reversed(kept))
