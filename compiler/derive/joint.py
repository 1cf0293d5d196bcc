"""Graph → joint graph: forward, recompute and backward as one schedule in the same alphabet."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import sympy as sp

from plait.compiler.costs.order import over_trips
from plait.compiler.derive.inline import inline
from plait.compiler.derive.kernels import MEASURED, RULES
from plait.compiler.derive.scope import Scope
from plait.compiler.derive.tape import accumulate, pullback, record
from plait.compiler.graph import Graph, Value, live
from plait.compiler.prims import Loop, Region
from plait.compiler.sizes import Sizes
from plait.compiler.verify import verify


@dataclass(frozen=True, eq=False)
class Joint:
    """graph: takes the graph's inputs, then a gradient for some of its outputs; gives its outputs, then the gradients.

    count: how many of its outputs are the graph's own. seeds: number of an output → its incoming gradient, an input. gradients: name of
    a parameter or input → its gradient, an output. saved: values that the forward makes and a later phase reads, each once, neither
    views nor what depends on no input: these are made again. starts: a saved stack of the states before each trip → the first of them,
    which stands outside, too. measured: (place, kernel) of library calls that keep more than that."""
    graph: Graph
    count: int
    seeds: Mapping[int, Value]
    gradients: Mapping[str, Value]
    saved: tuple[Value, ...]
    starts: Mapping[Value, Value]
    measured: tuple[tuple[str, str], ...] = ()

    def elements(self, v: Value) -> sp.Expr:
        """How many numbers a value holds. A stack of what differs from trip to trip has the trip's number in its size: they add up."""
        loops = {n.op.index: n.op for n in self.graph.walk() if isinstance(n.op, Loop) and n.op.index is not None}
        size = v.size
        for i in sorted(size.free_symbols & loops.keys(), key=str): size = over_trips(size / loops[i].axis.size, [loops[i]])
        return size

    @property
    def forward(self) -> Graph:
        """The part before backward, with its own outputs only."""
        outs = self.graph.outs[:self.count]
        return Graph(self.graph.ins[:len(self.graph.ins) - len(self.seeds)], live(self.graph.nodes, outs), outs)


def derive(graph: Graph, sizes: Sizes, inputs: bool | Sequence[bool] = True, of: Sequence[int] | None = None) -> Joint:
    """The joint graph of a claimed graph. inputs: do its real inputs need a gradient, as its parameters do? Or, of all inputs, which. of:
    the numbers of the outputs that bring one (default: all that depend on what needs one).

    Raises NotImplementedError for a function that has no derivative in the alphabet."""
    plain = inline(graph, RULES.__contains__)
    b = Scope(sizes)
    ins = tuple(b.input(v.axes, v.kind, v.name) for v in graph.ins)
    env = dict(zip(graph.ins, ins))
    asked = [v.kind == "param" or v.kind == "real" and inputs for v in ins] if isinstance(inputs, bool) else inputs
    wanted = [v for v, w in zip(ins, asked) if w]
    active = set(wanted)
    tape = record(b, plain.graph.nodes, env, active)
    outs = tuple(env[v] for v in plain.graph.outs)
    back = Scope(parent=b)
    back.phase = "backward"
    chosen = [k for k, v in enumerate(outs) if v in active and (of is None or k in of)]
    seeds = {k: b.input(outs[k].axes, name=f"d/{k}") for k in chosen}
    heads: dict[Value, Value] = {}
    for k, g in seeds.items(): accumulate(back, heads, outs[k], g)
    found = pullback(back, tape, heads)
    gradients = {v.name: _laid_out(back, v, found.get(v)) for v in wanted}
    made, saved = spliced(b, back, (*outs, *gradients.values()))
    ends = dict(zip(gradients, made.outs[len(outs):]))
    measured = [(n.at, n.op.kernel) for n in plain.graph.walk() if isinstance(n.op, Region) and n.op.kernel in MEASURED]
    starts = {stack: b.starts[stack] for stack in saved if stack in b.starts}
    return Joint(verify(made, sizes), len(outs), seeds, ends, saved, starts, (*(p for p in plain.bodies if p[1] in MEASURED), *measured))


def _laid_out(b: Scope, v: Value, g: Value | None) -> Value:
    """The gradient of v with its axes in the order of v's own; zeros where nothing reads it."""
    if g is None: return b.zeros(v.axes)
    return g if g.names == v.names else b.broadcast(g, *v.axes)


def spliced(b: Scope, back: Scope, outs: tuple[Value, ...]) -> tuple[Graph, tuple[Value, ...]]:
    """Both scopes as one graph, without what nothing reads; and what backward reads of forward."""
    outer = {here: v for v, here in back.captured.items()}
    def known(v: Value) -> Value: return outer.get(v, v)
    nodes = (*b.nodes, *(replace(n, ins=tuple(map(known, n.ins))) for n in back.nodes))
    outs = tuple(known(v) for v in outs)
    nodes = live(nodes, outs)
    read = {v for n in nodes if n.phase != "forward" for v in n.ins}
    saved = tuple(v for n in nodes if n.phase == "forward" for v in n.outs if v in read and v in back.captured)
    return Graph(tuple(b.ins), nodes, outs), saved
