"""The gradient of what every trip of a recurrence reads: one product over all trips, not a sum that grows from trip to trip.

Σ_t xᵀ_t g_t is one matrix product over the trips and the batch, once the g_t are there. So the reversed loop hands out the factors,
and the sum stands behind it."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from plait.compiler.axis import Axis
from plait.compiler.derive.scope import Scope
from plait.compiler.graph import Node, Value
from plait.compiler.prims import Broadcast, Contract, Map, Merge, Pad, Reduce, Rename, Slice, Split

MOVEMENT = (Rename, Split, Merge, Slice)                      # of a value of all trips the same as of one


@dataclass(frozen=True)
class Earlier:
    """The states before the trips, by those after them: the first one, and the stack. reverse: the last trip came first."""
    start: Value
    after: Value
    axis: Axis
    reverse: bool

    def parts(self, b: Scope, x: Value) -> tuple[Value, Value, Value]:
        """Of the trips that have one before them, what x and the states are there; then x of the one that has none."""
        n, size = self.axis.name, self.axis.size
        ahead, behind = (0, 1) if self.reverse else (1, 0)
        return (b.slice(x, n, ahead, size - 1), b.slice(self.after, n, behind, size - 1), b.select(x, n, size - 1 if self.reverse else 0))

    def whole(self, b: Scope) -> Value:
        """A stack of its own."""
        n, size = self.axis.name, self.axis.size
        first = b.broadcast(self.start, self.axis.resized(1), *self.start.axes)
        rest = b.slice(self.after, n, 1 if self.reverse else 0, size - 1)
        return b.concat(n, rest, first) if self.reverse else b.concat(n, first, rest)


# What holds a value of the body for all trips, and (scope behind the loop, a value of the body → what holds it) → the sum over the trips
Held = Value | Earlier
Stack = Callable[[Scope, Mapping[Value, Held]], Held]
Total = Callable[[Scope, Mapping[Value, Held]], Value]


class Gathering:
    """Of a reversed loop over `axis` with the body `back`. stacks: what the body captures that differs from trip to trip.
    handed: values of the body that it has to hand out."""

    def __init__(self, axis: Axis, back: Scope, stacks: set[Value]):
        self.axis, self.stacks = axis, stacks
        self.handed: list[Value] = []
        self.makes: dict[Value, Node] = {v: n for n in back.nodes for v in n.outs}
        self.made: dict[tuple, Value] = {}

    def total(self, v: Value) -> Total | None:
        """How to add v up over all trips behind the loop; None where a sum inside is all there is."""
        n = self.makes.get(v)
        if n is None: return None
        match n.op:
            case Map("add") if all(set(x.names) == set(v.names) for x in n.ins): return self.moved(n, [self.total(x) for x in n.ins])
            case Rename() | Split() | Merge() | Slice() | Pad(): return self.moved(n, [self.total(n.ins[0])])
            case Broadcast(axes) if set(n.ins[0].axes) == set(axes): return self.moved(n, [self.total(n.ins[0])])
            case Contract() | Reduce("sum"): return self.summed(n, [self.stack(v) for v in n.ins])
            case _: return None

    def moved(self, n: Node, parts: list[Total | None]) -> Total | None:
        known = [p for p in parts if p is not None]
        if len(known) < len(parts): return None
        return lambda b, held: self.emit(b, n, n.op, *(p(b, held) for p in known))

    def summed(self, n: Node, parts: list[Stack | None]) -> Total | None:
        known, over = [p for p in parts if p is not None], n.op.over                                    # type: ignore[union-attr]
        if len(known) < len(parts): return None
        along = type(n.op)(*(("sum",) if isinstance(n.op, Reduce) else ()), (self.axis.name, *over))    # type: ignore[call-arg]

        def total(b: Scope, held: Mapping[Value, Held]) -> Value:
            found = [p(b, held) for p in known]
            late = [k for k, x in enumerate(found) if isinstance(x, Earlier)]
            if len(late) != 1 or len(found) != 2:
                return self.emit(b, n, along, *(x.whole(b) if isinstance(x, Earlier) else x for x in found))
            k, = late
            states, x = found[k], found[1 - k]
            assert isinstance(states, Earlier) and isinstance(x, Value)
            rest, before, first = states.parts(b, x)
            def ordered(p: Value, q: Value) -> tuple[Value, Value]: return (q, p) if k == 0 else (p, q)
            return b.add(self.emit(b, n, along, *ordered(rest, before)), self.emit(b, n, n.op, *ordered(first, states.start)))
        return total

    def stack(self, v: Value) -> Stack | None:
        """How to get v of all trips; None where it is the same in each, or has the loop's axis already."""
        if v.has(self.axis.name): return None
        n = self.makes.get(v)
        if n is not None and isinstance(n.op, MOVEMENT):
            inner = self.stack(n.ins[0])
            return None if inner is None else lambda b, held: self.along(b, n, inner(b, held))
        if n is None and v not in self.stacks: return None
        if n is not None and v not in self.handed: self.handed.append(v)
        return lambda b, held: held[v]

    def along(self, b: Scope, n: Node, x: Held) -> Held:
        """A movement, of all trips."""
        if isinstance(x, Value): return self.emit(b, n, n.op, x)
        return Earlier(self.emit(b, n, n.op, x.start), self.emit(b, n, n.op, x.after), x.axis, x.reverse)

    def emit(self, b: Scope, n: Node, op, *ins: Value) -> Value:
        """The same thing of the same values once: both biases of a gate have one gradient."""
        key = (op, *ins)
        if key not in self.made:
            with b.located(n.at, n.span): self.made[key] = b.emit(op, *ins, name=n.name)
        return self.made[key]
