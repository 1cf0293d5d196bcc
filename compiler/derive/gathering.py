"""The gradient of what every trip of a recurrence reads: one product over all trips, not a sum that grows from trip to trip.

Σ_t xᵀ_t g_t is one matrix product over the trips and the batch, once the g_t are there. So the reversed loop hands out the factors,
and the sum stands behind it."""
from __future__ import annotations

from collections.abc import Callable, Mapping

from plait.compiler.axis import Axis
from plait.compiler.derive.scope import Scope
from plait.compiler.graph import Node, Value
from plait.compiler.prims import Broadcast, Contract, Map, Merge, Pad, Reduce, Rename, Slice, Split

# (scope behind the loop, what holds a value of the body for all trips) → the sum over the trips
Total = Callable[[Scope, Mapping[Value, Value]], Value]
MOVEMENT = (Rename, Split, Merge, Slice)                      # of a value of all trips the same as of one


class Gathering:
    """Of a reversed loop over `axis` with the body `back`. stacks: what it captures that differs from trip to trip.
    handed: values of the body that it has to hand out."""

    def __init__(self, axis: Axis, back: Scope, stacks: set[Value]):
        self.axis = axis
        self.handed: list[Value] = []
        self.makes: dict[Value, Node] = {v: n for n in back.nodes for v in n.outs}
        self.stacks = {here for v, here in back.captured.items() if v in stacks}
        self.made: dict[tuple, Value] = {}

    def total(self, v: Value) -> Total | None:
        """How to add v up over all trips behind the loop; None where a sum inside is all there is."""
        n = self.makes.get(v)
        if n is None: return None
        match n.op:
            case Map("add") if all(set(x.names) == set(v.names) for x in n.ins): return self._of(n, [self.total(x) for x in n.ins])
            case Rename() | Split() | Merge() | Slice() | Pad(): return self._of(n, [self.total(n.ins[0])])
            case Broadcast(axes) if set(n.ins[0].axes) == set(axes): return self._of(n, [self.total(n.ins[0])])
            case Contract(over): return self._summed(n, Contract((self.axis.name, *over)))
            case Reduce("sum", over): return self._summed(n, Reduce("sum", (self.axis.name, *over)))
            case _: return None

    def _of(self, n: Node, parts: list[Total | None]) -> Total | None:
        if any(p is None for p in parts): return None
        return lambda b, whole: self.emit(b, n, n.op, *(p(b, whole) for p in parts))             # type: ignore[misc]

    def _summed(self, n: Node, op: Contract | Reduce) -> Total | None:
        parts = [self.stack(v) for v in n.ins]
        return self._over(n, op, parts) if all(parts) else None

    def _over(self, n: Node, op, parts: list) -> Total:
        return lambda b, whole: self.emit(b, n, op, *(p(b, whole) for p in parts))

    def stack(self, v: Value) -> Total | None:
        """How to get v of all trips; None where it is the same in each, or has the loop's axis already."""
        if v.has(self.axis.name): return None
        n = self.makes.get(v)
        if n is not None and isinstance(n.op, MOVEMENT):
            inner = self.stack(n.ins[0])
            return None if inner is None else self._over(n, n.op, [inner])
        if n is None and v not in self.stacks: return None
        if n is not None and v not in self.handed: self.handed.append(v)
        return lambda b, whole: whole[v]

    def emit(self, b: Scope, n: Node, op, *ins: Value) -> Value:
        """The same thing of the same values once: both biases of a gate have one gradient."""
        key = (op, *ins)
        if key not in self.made:
            with b.located(n.at, n.span): self.made[key] = b.emit(op, *ins, name=n.name)
        return self.made[key]
