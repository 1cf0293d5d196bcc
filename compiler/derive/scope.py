"""A builder that knows phases, and what is made again where it is used instead of being handed over."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import sympy as sp

from plait.compiler.builder import Builder
from plait.compiler.graph import Graph, Node, Value, live
from plait.compiler.prims import VIEWS, Broadcast, Const, Gather, Loop, Map, Op, Random, Region, Sort, infer
from plait.compiler.sizes import Sizes

KEPT = {Map("cos"), Map("sin")}                # a table of angles is kept, though it depends on no input


class Scope(Builder):
    """One scope of a joint graph. What it reads of its parent is `captured`: between forward and backward that is what is saved.

    Views, and what depends on no input, are made again where they are used. exact: not here, but in the parent: the scope is the body
    of a region, whose operands are just what it reads."""

    def __init__(self, sizes: Sizes | None = None, parent: Scope | None = None, exact: bool = False):
        super().__init__(sizes, parent)
        self.phase: str = parent.phase if parent else "forward"
        self.exact = exact
        self.how: dict[Value, Node] = parent.how if parent else {}               # a view or a constant → the node that makes it
        self.constants: set[Value] = parent.constants if parent else set()
        self.numbers: dict[Value, sp.Expr] = parent.numbers if parent else {}    # of consts
        self.starts: dict[Value, Value] = parent.starts if parent else {}        # a stack of states → the first of them

    def fresh(self, axes, kind: str = "real", name: str | None = None) -> Value:
        self.shared.count += 1
        v = Value(name or f"%{self.shared.count}", tuple(axes), kind)            # no name of a spec starts so
        self.own.add(v)
        return v

    def use(self, v: Value) -> Value:
        if v in self.own: return v
        if v in self.again: return self.again[v]
        if v in self.captured: return self.captured[v]
        if v in self.how and not self.exact:
            node = self.how[v]
            with self.located(node.at, node.span): self.again[v] = self.emit(node.op, *node.ins, name=node.name)
            return self.again[v]
        if not isinstance(self.parent, Scope): raise ValueError(f"{v} is not of this graph")
        self.parent.use(v)
        self.captured[v] = self.fresh(v.axes, v.kind)
        return self.captured[v]

    def emit(self, op: Op, *ins: Value, name: str = ""):
        """Append a node of this phase. Its outputs: a tuple for regions and loops, else the one value."""
        ins = tuple(map(self.use, ins))
        outs = self._append(op, ins, infer(op, ins, self.sizes), name)
        return outs if isinstance(op, Region | Loop) else outs[0]

    def replay(self, node: Node, ins: tuple[Value, ...]) -> tuple[Value, ...]:
        """The node once more, on other operands of the same types, at its own place in the spec."""
        op = node.op
        if isinstance(op, Region | Loop): op = replace(op, body=phased(op.body, self.phase))
        with self.located(node.at, node.span):
            return self._append(op, tuple(map(self.use, ins)), [(v.axes, v.kind) for v in node.outs], node.name)

    def _append(self, op: Op, ins: tuple[Value, ...], types: list, name: str) -> tuple[Value, ...]:
        outs = tuple(self.fresh(axes, kind) for axes, kind in types)
        node = Node(op, ins, outs, self.shared.at, name, self.phase, self.shared.span)
        self.nodes.append(node)
        if isinstance(op, Const): self.numbers[outs[0]] = op.value
        if not isinstance(op, Region | Loop | Random | Sort) and all(v in self.constants for v in ins):
            self.constants.add(outs[0])
            if op not in KEPT: self.how[outs[0]] = node
        elif isinstance(op, VIEWS) or isinstance(op, Gather) and ins[1] in self.numbers: self.how[outs[0]] = node
        return outs

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Nodes emitted inside are of this phase."""
        before, self.phase = self.phase, phase
        try: yield
        finally: self.phase = before

    def copied(self, x: Value) -> Value:
        """The same numbers in a storage of their own: movement."""
        return self.pad(x, x.names[-1], 0, 0)

    def zeros(self, axes) -> Value:
        return self.emit(Broadcast(tuple(axes)), self.const(0))

    def framed(self, op: Region, operands: tuple[Value, ...], fn: Callable) -> tuple[Value, ...]:
        """A region with the name, arguments and kernel of `op`, and the body that fn(scope, *operands) emits. What the body reads
        beside the operands follows them."""
        inner = Scope(parent=self, exact=True)
        outs = tuple(map(inner.use, fn(inner, *(inner.input(v.axes, v.kind) for v in operands))))
        body = Graph((*inner.ins, *inner.captured.values()), live(inner.nodes, outs), outs)
        return self.emit(Region(op.name, body, op.args, op.kernel), *operands, *inner.captured, name=op.name)


def phased(graph: Graph, phase: str) -> Graph:
    """The graph with all its nodes in one phase."""
    if all(n.phase == phase for n in graph.walk()): return graph
    graph = graph.map_bodies(lambda body: phased(body, phase))
    return replace(graph, nodes=tuple(replace(n, phase=phase) for n in graph.nodes))
