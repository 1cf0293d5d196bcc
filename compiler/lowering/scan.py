"""The own scan of a recurrence: a step without autograd, run once a position, and its derived step the other way.

Forward and backward are the two halves of the loop's joint graph (`plait.compiler.derive`), so what is kept is what is derived, and
weights get their gradients by one product at the end. Results go straight into their place in stacks made before."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, repeat

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from plait.compiler.derive import derive
from plait.compiler.derive.inline import chosen
from plait.compiler.graph import Graph, Node, Value, live
from plait.compiler.lowering import segments
from plait.compiler.lowering.derivatives import first_only
from plait.compiler.lowering.loops import autocast
from plait.compiler.lowering.step import OWN, Run, compiled, fresh
from plait.compiler.passes.tiles import tiles
from plait.compiler.prims import Loop
from plait.compiler.sizes import Sizes


class Steps(nn.Module):
    """Runs a body once a trip without recording it; called as `Trips` is, with the stacks as tensors.

    body: the lowered body. A state goes from trip to trip through a stack where the loop hands out the states before its trips or after
    them, else through two buffers in turn."""

    def __init__(self, op: Loop, body: fx.GraphModule, compile: bool):
        super().__init__()
        self.op, self.body, self.compiles = (op,), body, compile
        states, outs, c = op.body.ins[:op.carried], op.body.outs, op.carried
        self.before = {states.index(v): j for j, v in enumerate(outs) if j >= c and v in states}           # state → stack
        self.after = {k: j for k, v in enumerate(outs[:c]) if k not in self.before for j, w in enumerate(outs)
                      if j >= c and v == w and v.names == states[k].names}
        self.stacked = [j for j in range(c, len(outs)) if j not in self.before.values()]
        self.handed_on = [k for k in range(c) if k not in self.after]
        self.step = _writing(body, [*self.stacked, *self.handed_on])
        self.runs: dict[tuple, Run] = {}
        self.kinds: dict[tuple, list[tuple[torch.Size, torch.dtype]]] = {}

    def forward(self, trips: int, *operands: Tensor) -> tuple[Tensor, ...]:
        op, = self.op
        c, s = op.carried, op.carried + op.sliced
        states, fixed = [x.detach().contiguous() for x in operands[:c]], [x.detach() for x in operands[s:]]
        slices = [x.detach().contiguous().unbind(0) for x in operands[c:s]]
        each = [*(x[-1 if op.reverse else 0] for x in slices), *fixed]
        key, kinds = self.known(states, each)
        for k, j in self.after.items(): states[k] = states[k].to(kinds[j][1])                # under autocast a first state may be wider
        key, kinds = self.known(states, each)
        new = states[0].new_empty if states else operands[c].new_empty
        stacks = {j: new((trips, *kinds[j][0]), dtype=kinds[j][1]) for j in self.stacked}
        stacks |= {j: new((trips, *states[k].shape), dtype=states[k].dtype) for k, j in self.before.items()}
        ends = {k: torch.empty_like(states[k]) for k in self.handed_on}
        def in_turn(x) -> list[Tensor]: return list(reversed(x)) if op.reverse else list(x)
        rows = {j: in_turn(x.unbind(0)) for j, x in stacks.items()}
        into = {k: [*rows[self.before[k]][1:], ends[k]] if k in self.before else _two_in_turn(states[k], ends[k], trips)
                for k in self.handed_on}
        for k, j in self.before.items(): rows[j][0].copy_(states[k])
        coming = [rows[self.before[k]] if k in self.before else [x, *(rows[self.after[k]] if k in self.after else into[k])[:-1]]
                  for k, x in enumerate(states)]
        places = [*(rows[j] for j in self.stacked), *(into[k] for k in self.handed_on)]
        self.run(key, zip(*coming, *map(in_turn, slices), *map(repeat, fixed), *places))
        last = [ends[k] if k in ends else rows[self.after[k]][-1].clone() for k in range(c)]
        return (*last, *(stacks[j] for j in range(c, len(op.body.outs))))

    def known(self, states: list[Tensor], each: list[Tensor]) -> tuple[tuple, list[tuple[torch.Size, torch.dtype]]]:
        """What a step of these operands is known by, and the shapes and dtypes of its results."""
        key = _key([*states, *each])
        if key not in self.kinds: self.kinds[key] = _kinds(self.body, [*states, *each])
        return key, self.kinds[key]

    def run(self, key: tuple, trips: Iterator[tuple]) -> None:
        if not self.compiles:
            for operands in trips: self.step(*operands)
            return
        first = next(trips)
        if key not in self.runs: self.runs[key] = self.compiled(first)
        run = self.runs[key]
        packed, step = run.pack(first), run.step
        for operands in chain((first,), trips): step(*operands, *packed)

    def compiled(self, operands: tuple[Tensor, ...]) -> Run:
        """The step for operands of these shapes, of which a few have code of their own."""
        own = [run for run in dict.fromkeys(self.runs.values()) if not run.shared]
        if len(own) < OWN: return compiled(self.step, self.op[0], operands)
        shared = next((run for run in self.runs.values() if run.shared), None)
        return shared or Run(torch.compile(fresh(self.step), fullgraph=True, backend=segments.BACKEND, dynamic=True), shared=True)


def _two_in_turn(start: Tensor, end: Tensor, trips: int) -> list[Tensor]:
    """Where each trip writes a state: two buffers in turn, so that the last write is to `end`."""
    other = torch.empty_like(start)
    return [end if (trips - t) % 2 else other for t in range(trips)]


def _key(operands: list[Tensor]) -> tuple:
    device = operands[0].device.type
    cast = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device)
    return (device, cast, *((x.shape, x.stride(), x.dtype) for x in operands))


def _kinds(body: fx.GraphModule, operands: list[Tensor]) -> list[tuple[torch.Size, torch.dtype]]:
    """The shapes and dtypes of the results; nothing is computed, and nothing counted by who listens."""
    with _disable_current_modes(), FakeTensorMode() as fake:
        return [(x.shape, x.dtype) for x in body(*(fake.from_tensor(x, static_shapes=True) for x in operands))]


def _writing(body: fx.GraphModule, which: list[int]) -> fx.GraphModule:
    """The body with its results `which` copied into further operands, and no others."""
    made = fx.Graph()
    at: dict[fx.Node, fx.Node] = {}
    output = next(n for n in body.graph.nodes if n.op == "output")
    for n in body.graph.nodes:
        if n.op != "output": at[n] = made.node_copy(n, lambda m: at[m])
    last = [n for n in made.nodes if n.op == "placeholder"][-1]
    results = output.args[0]
    with made.inserting_after(last):
        places = [made.placeholder(f"place_{k}") for k in reversed(range(len(which)))][::-1]
    for place, k in zip(places, which): made.call_method("copy_", (place, at[results[k]]))
    made.output(())
    return fx.GraphModule(body, made)


@dataclass(frozen=True)
class Halves:
    """The two halves of a joint graph, and what goes from one to the other. count: results of the loop; seeds: which of them bring a
    gradient; kept: of what backward reads, the number of an operand (from −1 down) or of a result of `ahead`; found: operands that get
    one."""
    ahead: Graph
    back: Graph
    count: int
    seeds: tuple[int, ...]
    kept: tuple[int, ...]
    found: tuple[int, ...]


def halves(n: Node, wanted: tuple[bool, ...], constants: Mapping[int, tuple[Node, ...]], sizes: Sizes) -> Halves:
    """wanted: which operands of the loop need a gradient; constants: those that depend on nothing, and how they are made: again, not kept.
    Raises NotImplementedError where something has no derivative."""
    op = n.op
    assert isinstance(op, Loop)
    ins = operands(n)
    given = tuple(constants[k][-1].outs[0] if k in constants else v for k, v in enumerate(ins))
    makes = dict.fromkeys(m for nodes in constants.values() for m in nodes)
    joint = derive(Graph(ins, (*makes, replace(n, ins=given)), n.outs), sizes, wanted)
    graph = joint.graph
    own, outs, grads = graph.ins[:len(ins)], graph.outs[:joint.count], graph.outs[joint.count:]
    backward = live([m for m in graph.nodes if m.phase != "forward"], grads)
    made = {v for m in backward for v in m.outs} | set(joint.seeds.values())
    read = list(dict.fromkeys(v for v in (*(v for m in backward for v in m.ins), *grads) if v not in made))
    results = (*outs, *(v for v in read if v not in own and v not in outs))
    forward = live([m for m in graph.nodes if m.phase == "forward"], results)
    kept = tuple(-1 - own.index(v) if v in own else results.index(v) for v in read)
    back = Graph((*read, *joint.seeds.values()), backward, grads)
    return Halves(Graph(own, forward, results), tiles(back, sizes), joint.count, tuple(joint.seeds), kept,
                  tuple(k for k, w in enumerate(wanted) if w))


def operands(n: Node) -> tuple[Value, ...]:
    """The operands of a loop as they are handed to its module."""
    op = n.op
    assert isinstance(op, Loop)
    def axes(k: int, v: Value): return (op.axis, *v.axes) if op.carried <= k < op.carried + op.sliced else v.axes
    return tuple(Value(f"operand{k}", axes(k, v), v.kind) for k, v in enumerate(op.body.ins))


def scannable(op: Loop, opaque: frozenset[str]) -> bool:
    """Is it a recurrence of plain tensors, whose body can be traced and decides nothing that would have to be kept?"""
    kernels = {getattr(m.op, "kernel", "") for m in op.body.walk()}
    return (op.axis.role == "sequence" and op.keep == "save" and op.sliced > 0 and op.index is None and not kernels & opaque
            and not any(isinstance(m.op, Loop) or chosen(m) for m in op.body.walk()))


class Scan(nn.Module):
    """The module of a recurrence; operands as for `Trips`. plain: the loop by itself, where nothing needs a gradient. prepare: which
    operands need one → the halves, and their modules."""

    def __init__(self, plain: nn.Module, prepare: Callable[[tuple[bool, ...]], tuple[Halves, nn.Module, nn.Module]]):
        super().__init__()
        self.plain, self.prepare = plain, prepare
        self.ways: dict[tuple[bool, ...], tuple[Halves, nn.Module, nn.Module]] = {}

    def forward(self, trips: int, *operands: Tensor) -> tuple[Tensor, ...]:
        wanted = tuple(x.requires_grad for x in operands)
        if not (torch.is_grad_enabled() and any(wanted)):
            with torch.no_grad(): return self.plain(trips, *operands)
        if wanted not in self.ways: self.ways[wanted] = self.prepare(wanted)
        return Scanned.apply(*self.ways[wanted], *operands)


class Scanned(torch.autograd.Function):
    """A recurrence and its gradient by the two halves. Works under retain_graph and autocast, with several forwards before a backward."""

    @staticmethod
    def forward(ctx, form: Halves, ahead: nn.Module, back: nn.Module, *operands: Tensor):
        ctx.form, ctx.back, ctx.autocast = form, back, autocast(operands)
        ctx.types = [x.dtype for x in operands]
        made = ahead(*operands)
        outs = tuple(x.view_as(x) if any(x is t for t in operands) else x for x in made[:form.count])      # an input is not an output
        ctx.mark_non_differentiable(*(x for x in outs if not x.is_floating_point()))
        held = (*outs, *made[form.count:])
        ctx.save_for_backward(*(operands[-1 - k] if k < 0 else held[k] for k in form.kept))
        return outs

    @staticmethod
    @first_only
    def backward(ctx, *grads: Tensor):
        form = ctx.form
        with torch.autocast(**ctx.autocast): found = ctx.back(*ctx.saved_tensors, *(grads[k] for k in form.seeds))
        out: list[Tensor | None] = [None] * len(ctx.types)
        for k, g in zip(form.found, found): out[k] = g.to(ctx.types[k])
        return None, None, None, *out
