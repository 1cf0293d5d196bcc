"""A reversible loop in torch: forward keeps the last streams only, backward makes the others again.

A body is a row of parts: each adds what it computes from some streams to another one. Backward undoes part after part: it runs
the part once with gradients, subtracts its value, and backpropagates through that same run. Gomez et al. 2017, section 3."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from plait.compiler.axis import Axis
from plait.compiler.graph import Graph, Node, Value, live
from plait.compiler.lowering.derivatives import first_only
from plait.compiler.lowering.loops import Known, autocast, knowing, wanting
from plait.compiler.lowering.tensors import stable_order
from plait.compiler.lowering.units import Later, hand_over, within
from plait.compiler.prims import VIEWS, Loop, Map, Region


# -- choices: what forward decided, for backward to decide alike ----------------------------------------------------------
class Choices:
    """Orders and argmaxes of reals in one run of a part. Recomputed activations are rounded differently: a choice made again
    from them could differ, and with it everything after. So forward keeps them, in as few bytes as they need."""

    def __init__(self, made: list[Tensor] | None = None):
        self.replay = made is not None
        self.made: list[Tensor] = list(made or ())
        self.next = 0

    def choose(self, fn: Callable[[], Tensor], below: int) -> Tensor:
        if self.replay:
            self.next += 1
            return self.made[self.next - 1].to(torch.int64)
        chosen = fn()
        self.made.append(chosen.to(torch.int16 if below <= 2**15 else torch.int32 if below <= 2**31 else torch.int64))
        return chosen


_CHOICES: ContextVar[Choices | None] = ContextVar("choices", default=None)


def choose(fn: Callable[[], Tensor], below: int) -> Tensor:
    """fn()'s int64 tensor of numbers in [0, below), kept or replayed where a reversible loop is at work. For kernels that choose."""
    now = _CHOICES.get()
    return fn() if now is None else now.choose(fn, below)


def kept_argmax(below: int, x: Tensor, dim: int) -> Tensor:
    return choose(lambda: torch.argmax(x, dim), below)


def kept_order(below: int, x: Tensor, dim: int) -> Tensor:
    return choose(lambda: stable_order(x, dim), below)


@contextmanager
def choosing(choices: Choices | None) -> Iterator[None]:
    token = _CHOICES.set(choices)
    try: yield
    finally: _CHOICES.reset(token)


# -- the form of a body ---------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Part:
    """One addition to a stream. graph: its ins are the streams it reads, then further operands of the loop's body; its out is
    what is added, wanted in `layout`. reads: numbers of streams; target: the stream added to; operands: positions in body.ins."""
    graph: Graph
    layout: tuple[Axis, ...]
    reads: tuple[int, ...]
    target: int
    operands: tuple[int, ...]


@dataclass(frozen=True)
class Parts:
    """after: which stream stands where at the end of a trip."""
    parts: tuple[Part, ...]
    after: tuple[int, ...]


def parts(op: Loop) -> Parts:
    """Reads a reversible body. Raises ValueError where it does more than add parts to streams."""
    body, c = op.body, op.carried
    if len(body.outs) != c: raise ValueError("a reversible loop gives nothing but its streams")
    stream: dict[Value, int] = {v: k for k, v in enumerate(body.ins[:c])}
    values: dict[int, Value] = dict(enumerate(body.ins[:c]))
    place = {v: k for k, v in enumerate(body.ins)}
    makes = {v: n for n in body.nodes for v in n.outs}
    found = []
    for n in body.nodes:
        mine = [v for v in n.ins if v in stream]
        if not (isinstance(n.op, Map) and n.op.fn == "add" and mine): continue
        target = next((v for v in mine if values[stream[v]] == v), None)
        added = next((v for v in n.ins if v is not target), None)
        if target is None or added is None: raise ValueError(f"{n.at}: a part adds to the streams as they are now")
        nodes = live(body.nodes[:body.nodes.index(n)], (added,))
        nodes = _own(nodes, added, stream, makes)
        inside = {v for p in nodes for v in p.outs}
        outside = list(dict.fromkeys(v for p in nodes for v in p.ins if v not in inside))
        reads = [v for v in outside if v in stream]
        if any(values[stream[v]] != v or stream[v] == stream[target] or v.names != body.ins[stream[v]].names for v in reads):
            raise ValueError(f"{n.at}: a part reads the streams as they are now, and not the one it adds to")
        rest = [v for v in outside if v not in stream]
        layout = body.ins[stream[target]].axes
        found.append(Part(Graph((*reads, *rest), nodes, (added,)), layout, tuple(stream[v] for v in reads), stream[target],
                          tuple(place[v] for v in rest)))
        stream[n.outs[0]] = stream[target]
        values[stream[target]] = n.outs[0]
    after = tuple(stream[v] if v in stream and values[stream[v]] == v else -1 for v in body.outs)
    if sorted(after) != list(range(c)): raise ValueError("a reversible loop ends with all of its streams")
    return Parts(tuple(found), after)


def _own(nodes, added: Value, stream: dict[Value, int], makes) -> tuple:
    """The nodes that make `added` out of streams: those before a stream's last addition belong to earlier parts."""
    need, todo = set(), [added]
    while todo:
        v = todo.pop()
        if v in stream or v in need: continue
        need.add(v)
        if v in makes: todo.extend(makes[v].ins)
    return tuple(n for n in nodes if any(v in need for v in n.outs))


def last_pieces(graph: Graph) -> tuple[Loop, Graph] | None:
    """The loop of pieces that a part ends with, and the graph of what follows it: movement in a row. None where it ends otherwise."""
    value = graph.outs[0]
    tail: list[Node] = []
    makes = {v: n for n in graph.nodes for v in n.outs}
    while value in makes and isinstance(makes[value].op, VIEWS):
        tail.insert(0, makes[value])
        value = makes[value].ins[0]
    n = makes.get(value)
    if n is not None and isinstance(n.op, Region) and not n.op.kernel and len(n.outs) == 1:
        inside = last_pieces(n.op.body)
        if inside is None: return None
        loop, first = inside
        rest = tuple(replace(m, ins=tuple(first.outs[0] if v == value else v for v in m.ins)) for m in tail)
        return loop, Graph(first.ins, (*first.nodes, *rest), graph.outs if tail else first.outs)
    if n is None or not isinstance(n.op, Loop) or n.op.keep != "recompute" or n.op.carried or len(n.outs) != 1: return None
    if sum(value in m.ins for m in graph.nodes) != 1 and tail: return None
    return n.op, Graph((value,), tuple(tail), graph.outs)


# -- running it -----------------------------------------------------------------------------------------------------------
class Inverse(nn.Module):
    """The module of a reversible loop; operands as for `Trips`, then the sizes that its parts are told. runs: for each trip (or
    once for all of them) the lowered parts. Works with several forwards before a backward, under retain_graph, under autocast,
    in eval mode, and touches no random state."""

    def __init__(self, op: Loop, form: Parts, runs: list[list[nn.Module]], ends: list[list[tuple[Loop, nn.Module] | None]]):
        """ends: for each part that ends with a loop of pieces, that loop and the module of what follows it."""
        super().__init__()
        self.ends = ends
        self.form, self.carried, self.sliced, self.operands, self.reverse = form, op.carried, op.sliced, len(op.body.ins), op.reverse
        for t, row in enumerate(runs): self.add_module(str(t), nn.ModuleList(row))
        self.runs = runs                                   # registered above, kept as a list of lists

    def forward(self, trips: int, *operands):
        c, s = self.carried, self.sliced
        slices = [list(x) if isinstance(x, tuple | list) else list(x.unbind(0)) for x in operands[c:c + s]]
        flat, tree = tree_flatten((slices, list(operands[c + s:])))
        if torch.is_grad_enabled() and any(isinstance(x, Later) for x in flat): operands = (wanting(operands[0]), *operands[1:])
        return Reversible.apply(Schedule(self, trips, tree), *operands[:c], *flat)


class Schedule:
    """The order of the parts over all trips, and which of the flat operands each takes."""

    def __init__(self, loop: Inverse, trips: int, tree):
        self.loop, self.carried, self.after = loop, loop.carried, loop.form.after
        self.order = range(trips - 1, -1, -1) if loop.reverse else range(trips)
        slices, fixed = tree_unflatten(list(range(tree.num_leaves)), tree)
        told = loop.operands - loop.carried - loop.sliced

        def operand(p: int, t: int):
            k = p - loop.carried
            return slices[k][t] if k < loop.sliced else fixed[k - loop.sliced]

        # one entry a part and trip: (part, the module, the numbers of its flat operands as it takes them, how it ends)
        def row(t: int) -> int: return t if len(loop.runs) > 1 else 0
        self.trips = [[(part, run, [*(operand(p, t) for p in part.operands), *fixed[told:]], end)
                       for part, run, end in zip(loop.form.parts, loop.runs[row(t)], loop.ends[row(t)])] for t in self.order]

    @staticmethod
    def later(trip, rest: Sequence) -> list[int]:
        """Of the flat operands those that wait for the unit of this trip; an inner loop's copies wait for their own."""
        direct = dict.fromkeys(k for _, _, numbers, _ in trip for k in numbers if isinstance(k, int))
        return [k for k in direct if isinstance(rest[k], Later)]


class Reversible(torch.autograd.Function):
    """The streams after the last trip. Saved: these, the operands and the choices; nothing that grows with the trips but the last."""

    @staticmethod
    def forward(ctx, schedule: Schedule, *operands):
        c = schedule.carried
        streams, rest = list(operands[:c]), operands[c:]
        ctx.autocast = autocast(operands)
        made: list[Tensor] = []
        ctx.counts = []
        saving = any(ctx.needs_input_grad)

        def ahead(trip, streams: list[Tensor], later: list[int], *found: Tensor) -> list[Tensor]:
            given = _filled(rest, later, found)
            for part, run, numbers, _ in trip:
                choices = Choices() if saving else None
                with choosing(choices): y, = run(*(streams[r] for r in part.reads), *_pick(given, numbers))
                streams[part.target] = streams[part.target] + y
                ctx.counts.append(len(choices.made) if choices else 0)
                if choices: made.extend(choices.made)
            return streams

        with torch.autocast(**ctx.autocast):
            for trip in schedule.trips:
                later = Schedule.later(trip, rest)
                streams = within(partial(ahead, trip, streams, later), *(rest[k] for k in later))
                streams = [streams[k] for k in schedule.after]
        streams = [x.view_as(x) if any(x is t for t in operands) else x for x in streams]      # an input is not an output
        tensors = [x for x in rest if isinstance(x, Tensor)]
        ctx.schedule, ctx.split = schedule, (c, len(tensors))
        ctx.numbers = [None if isinstance(x, Tensor) else x for x in rest]
        ctx.save_for_backward(*streams, *tensors, *made)
        return tuple(streams)

    @staticmethod
    @first_only
    def backward(ctx, *given):
        c, count = ctx.split
        saved = ctx.saved_tensors
        streams: list[Tensor]
        streams, tensors, made = list(saved[:c]), iter(saved[c:c + count]), list(saved[c + count:])
        rest = [next(tensors) if x is None else x for x in ctx.numbers]
        wanted = [ctx.needs_input_grad[1 + c + k] for k in range(len(rest))]
        out: list[Tensor | None] = [None] * len(rest)
        grads = [torch.zeros_like(x) if g is None else g for g, x in zip(given, streams)]
        counts = list(ctx.counts)
        after = ctx.schedule.after

        def back(trip, streams: list[Tensor], grads: list[Tensor], later: list[int], *found: Tensor) -> list[Tensor | None]:
            """Undoes a trip, in its two lists. found: what waited for its unit, later; gives the gradients of these."""
            given, asked = _filled(rest, later, found), _filled(wanted, later, [x.requires_grad for x in found])
            for part, run, numbers, end in reversed(trip):
                n = counts.pop()
                choices = Choices(made[len(made) - n:])
                del made[len(made) - n:]
                known = None if end is None else Known(end[0], end[1], grads[part.target])
                with knowing(known): Reversible.undo(ctx.autocast, part, run, numbers, choices, streams, grads, given, asked, out)
            mine = [out[k] for k in later]
            for k in later: out[k] = None
            return mine

        for trip in reversed(ctx.schedule.trips):
            streams, grads = ([xs[after.index(k)] for k in range(c)] for xs in (streams, grads))
            later = Schedule.later(trip, rest)
            find = partial(back, trip, streams, grads, later)
            if later: hand_over(find, [rest[k] for k in later], streams[0].device)
            else: find()
        return None, *grads, *out

    @staticmethod
    def undo(cast: dict, part: Part, run, numbers, choices: Choices, streams, grads, rest, wanted, out) -> None:
        """One part, once more and with gradients: its value off its stream, its gradients onto those of what it reads."""
        leaves = {k: rest[k].detach().requires_grad_() for k in _flat(numbers) if wanted[k]}
        given = [leaves.get(k, x) for k, x in enumerate(rest)]
        with torch.enable_grad():
            reads = [streams[r].detach().requires_grad_() for r in part.reads]
            with torch.autocast(**cast), choosing(choices): y, = run(*reads, *_pick(given, numbers))
        with torch.no_grad(): streams[part.target] = streams[part.target] - y.detach()
        if not y.requires_grad: return
        found = torch.autograd.grad(y, [*reads, *leaves.values()], grads[part.target].to(y.dtype), allow_unused=True)
        for r, g in zip(part.reads, found):
            if g is not None: grads[r] = grads[r] + g
        for k, g in zip(leaves, found[len(reads):]):
            if g is not None: out[k] = g if out[k] is None else out[k] + g


def _flat(numbers) -> list[int]:
    return list(dict.fromkeys(tree_flatten(numbers)[0]))


def _filled(values, places: list[int], with_: Sequence):
    """The same list with others at some places."""
    if not places: return values
    at = dict(zip(places, with_))
    return [at.get(k, x) for k, x in enumerate(values)]


def _pick(values, numbers):
    """The operands by their flat numbers, in the nesting in which a part takes them."""
    if isinstance(numbers, int): return values[numbers]
    return [_pick(values, k) for k in numbers]
