"""Loops in torch: a lowered body, run once a trip."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.utils._pytree import tree_flatten, tree_unflatten

from plait.compiler.lowering.derivatives import first_only
from plait.compiler.lowering.units import within
from plait.compiler.prims import Loop


class Ending(nn.Module):
    """How a body is recomputed, but for its last products (see `tail`). before, pull: the lowered graphs; reads, found: of the tail;
    loose: how many of the operands are sizes, which both graphs take last."""

    def __init__(self, before: nn.Module, pull: nn.Module, reads: tuple[int, ...], found: tuple[int, ...], loose: int):
        super().__init__()
        self.before, self.pull, self.reads, self.found, self.loose = before, pull, reads, found, loose


class Trips(nn.Module):
    """Runs a body once a trip: a recurrence, copies, pieces.

    bodies: one for all trips, or one a trip where the body reads the trip's number. Called with the number of trips and the
    operands of the loop: states, what is sliced (a tensor with the loop's axis in front, or a tuple with an entry a trip), then
    what is the same every trip. Gives the states after the last trip, then the values of all trips, stacked in front; `apart`: which of
    these stay tuples."""

    def __init__(self, op: Loop, bodies: list[nn.Module], warm_state: bool, apart: tuple[bool, ...] = (),
                 ends: list[Ending | None] | None = None):
        """ends: for each body, how it is recomputed where not all of it is."""
        super().__init__()
        self.ends = nn.ModuleList(e or nn.Identity() for e in ends or [])
        self.bodies = nn.ModuleList(bodies)
        self.carried, self.sliced, self.reverse = op.carried, op.sliced, op.reverse
        self.recompute, self.op = op.keep == "recompute", op
        self.warm_state, self.apart = warm_state, apart

    def run(self, trip: int, *operands): return within(lambda *given: self.here(trip, *given), *operands)

    def here(self, trip: int, *operands):
        if not (self.recompute and torch.is_grad_enabled()): return self.body(trip)(*operands)
        flat, tree = tree_flatten(operands)
        return Recomputed.apply(self.body(trip), self.end(trip), tree, *flat)

    def body(self, trip: int) -> nn.Module: return self.bodies[trip if len(self.bodies) > 1 else 0]

    def end(self, trip: int) -> Ending | None:
        end = self.ends[trip if len(self.bodies) > 1 else 0] if len(self.ends) else None
        return end if isinstance(end, Ending) else None

    def forward(self, trips: int, *operands):
        c, s = self.carried, self.sliced
        state, fixed, stacks = operands[:c], operands[c + s:], []
        slices = [x if isinstance(x, tuple | list) else x.unbind(0) for x in operands[c:c + s]]
        ahead = _AHEAD.get()
        if ahead is not None and ahead.op is self.op and torch.is_grad_enabled():
            flat, tree = tree_flatten(operands)
            return (Ahead.apply(self, trips, ahead, tree, *flat),)
        if self.recompute and not c and trips > 1 and torch.is_grad_enabled() and not any(self.apart) and not self.reverse \
                and all(isinstance(x, Tensor) for x in operands[:s]):
            flat, tree = tree_flatten(operands)
            return Pieces.apply(self, trips, tree, *flat)
        if self.warm_state and torch.is_grad_enabled(): state = tuple(map(wanting, state))
        for t in reversed(range(trips)) if self.reverse else range(trips):
            outs = self.run(t, *state, *(x[t] for x in slices), *fixed)
            state = outs[:c]
            stacks.append(outs[c:])
        if self.reverse: stacks.reverse()
        columns = list(zip(*stacks))
        if trips == 1 and not any(self.apart): return (*state, *(x.unsqueeze(0) for x, in columns))            # a view, not a copy
        if any(self.apart): return (*state, *(tuple(c) if apart else torch.stack(c) for c, apart in zip(columns, self.apart)))
        return (*state, *(torch.stack(column) for column in columns))


@dataclass(frozen=True)
class Known:
    """The gradient of a part's result, known before the part runs. op: the loop of pieces that it ends with; tail: what makes the
    result of the stacked pieces, movement only; gradient: of the result."""
    op: Loop
    tail: Callable[..., tuple[Tensor, ...]]
    gradient: Tensor

    def pieces(self, first: Tensor, trips: int) -> Tensor:
        """The gradient of the stacked pieces, [trips, …] as the first one."""
        with torch.enable_grad():
            stack = first.new_zeros(1).expand(trips, *first.shape).detach().requires_grad_()
            y, = self.tail(stack)
            return torch.autograd.grad(y, stack, self.gradient.to(y.dtype))[0]


_AHEAD: ContextVar[Known | None] = ContextVar("ahead", default=None)


@contextmanager
def knowing(known: Known | None) -> Iterator[None]:
    """Pieces whose gradient is known are computed once: for their result and for their gradient."""
    token = _AHEAD.set(known)
    try: yield
    finally: _AHEAD.reset(token)


class Ahead(torch.autograd.Function):
    """All pieces of a loop, each once, with its gradients: backward only hands these on. The gradient that comes back is the known one."""

    @staticmethod
    def forward(ctx, loop: Trips, trips: int, known: Known, tree, *flat):
        wanted = ctx.needs_input_grad[4:]
        leaves = [x.detach().requires_grad_(w) if isinstance(x, Tensor) else x for x, w in zip(flat, wanted)]
        cast, made = autocast(flat), []
        found: list[Tensor | None] = [None] * len(flat)
        gradient: Tensor | None = None
        with knowing(None):
            for t in range(trips):
                with torch.enable_grad(), torch.autocast(**cast):
                    operands = tree_unflatten(leaves, tree)
                    cut = [x[t] for x in operands[:loop.sliced]]
                    out, = loop.bodies[t if len(loop.bodies) > 1 else 0](*cut, *operands[loop.sliced:])
                if gradient is None: gradient = known.pieces(out.detach(), trips)
                if out.requires_grad:
                    asked = [x for x, w in zip(leaves, wanted) if w]
                    grads = iter(torch.autograd.grad(out, asked, gradient[t].to(out.dtype), allow_unused=True))
                    for k, w in enumerate(wanted):
                        if not w or (g := next(grads)) is None: continue
                        before = found[k]
                        found[k] = g if before is None else before.add_(g)
                made.append(out.detach())
        ctx.found = found
        return torch.stack(made)

    @staticmethod
    @first_only
    def backward(ctx, grad):
        return None, None, None, None, *ctx.found


def wanting(x: Tensor) -> Tensor:
    """A first state that asks for a gradient like those after it, so that a compiled body is the same graph in every trip."""
    return x if x.requires_grad or not x.is_floating_point() else x.detach().requires_grad_()


class Recomputed(torch.autograd.Function):
    """One run of a body that saves its operands only and runs again in backward.

    A body is a pure function of its operands, randomness included, so there is no random state to keep. (torch.utils.checkpoint
    works by hooks on what is saved, and a body of compiled segments cannot be traced under them.)"""

    @staticmethod
    def forward(ctx, body, end: Ending | None, tree, *operands):
        ctx.body, ctx.end, ctx.tree = body, end, tree
        ctx.autocast = autocast(operands)
        with torch.autocast(**ctx.autocast): outs = body(*tree_unflatten(list(operands), tree))
        outs = tuple(x.view_as(x) if any(x is t for t in operands) else x for x in outs)               # an input is not an output
        ctx.mark_non_differentiable(*(x for x in outs if not x.is_floating_point()))
        ctx.numbers = [None if isinstance(x, Tensor) else x for x in operands]
        ctx.save_for_backward(*(x for x in operands if isinstance(x, Tensor)))
        return outs

    @staticmethod
    @first_only
    def backward(ctx, *grads):
        saved = iter(ctx.saved_tensors)
        wanted = ctx.needs_input_grad[3:]
        operands = [next(saved).detach().requires_grad_(w) if x is None else x for x, w in zip(ctx.numbers, wanted)]
        return None, None, None, *Recomputed.again(ctx.body, ctx.end, ctx.tree, operands, wanted, grads, ctx.autocast)

    @staticmethod
    def again(body, end: Ending | None, tree, operands: list, wanted, grads, cast: dict) -> list[Tensor | None]:
        """The gradients of the (flat) operands, leaves, from those of the body's results."""
        if end is not None and all(g is not None for g in grads):
            return Recomputed.but_for_the_end(end, operands, wanted, grads, cast)
        with torch.enable_grad(), torch.autocast(**cast): outs = body(*tree_unflatten(operands, tree))
        reached = [(get_gradient_edge(x), g.to(x.dtype)) for x, g in zip(outs, grads) if x.requires_grad and g is not None]
        del outs                                                       # the way back does not need what it starts from
        leaves = [x for x, w in zip(operands, wanted) if w]
        found = iter(torch.autograd.grad([x for x, _ in reached], leaves, [g for _, g in reached], allow_unused=True))
        return [next(found) if w else None for w in wanted]

    @staticmethod
    def but_for_the_end(end: Ending, operands, wanted, grads, cast: dict) -> list[Tensor | None]:
        """The gradients of the operands; the last products are not computed again. (Its operands are flat: none is a tuple.)"""
        sizes = operands[len(operands) - end.loose:]
        with torch.autocast(**cast):
            with torch.enable_grad(): made = end.before(*operands)
            given = [made[k] if k >= 0 else operands[-1 - k] for k in end.reads]
            found = end.pull(*(x.detach() for x in given), *grads, *sizes)
        out: list[Tensor | None] = [None] * len(operands)
        inner: list[tuple[GradientEdge, Tensor]] = []
        for k, g in zip(end.found, found):
            place = end.reads[k]
            if place >= 0:
                if made[place].requires_grad: inner.append((get_gradient_edge(made[place]), g.to(made[place].dtype)))
            elif wanted[-1 - place]: out[-1 - place] = g
        del made, given, found                                         # the way back does not need what it starts from
        leaves = [k for k, w in enumerate(wanted) if w]
        if inner and leaves:
            back = torch.autograd.grad([x for x, _ in inner], [operands[k] for k in leaves], [g for _, g in inner], allow_unused=True)
            for k, g in zip(leaves, back):
                if g is not None: out[k] = g if out[k] is None else out[k] + g                           # type: ignore[operator]
        return out


class Pieces(torch.autograd.Function):
    """All pieces of a loop that is recomputed. Results, and gradients of what is cut, are written where they belong, piece by piece;
    the gradients of what all pieces read add up in place."""

    @staticmethod
    def forward(ctx, loop: Trips, trips: int, tree, *flat):
        ctx.loop, ctx.trips, ctx.tree, ctx.autocast = loop, trips, tree, autocast(flat)
        operands = tree_unflatten(list(flat), tree)
        outs: list[Tensor] = []
        with torch.autocast(**ctx.autocast):
            for t in range(trips):
                made = loop.body(t)(*(x[t] for x in operands[:loop.sliced]), *operands[loop.sliced:])
                if not outs: outs = [x.new_empty(trips, *x.shape) for x in made]
                for out, x in zip(outs, made): out[t] = x
        ctx.mark_non_differentiable(*(x for x in outs if not x.is_floating_point()))
        ctx.numbers = [None if isinstance(x, Tensor) else x for x in flat]
        ctx.save_for_backward(*(x for x in flat if isinstance(x, Tensor)))
        return tuple(outs)

    @staticmethod
    @first_only
    def backward(ctx, *grads):
        saved, loop = iter(ctx.saved_tensors), ctx.loop
        wanted = ctx.needs_input_grad[3:]
        operands = [next(saved).detach() if x is None else x for x in ctx.numbers]
        out: list[Tensor | None] = [None] * len(operands)
        for t in range(ctx.trips):
            cut = [x[t] if k < loop.sliced else x for k, x in enumerate(operands)]
            cut = [x.detach().requires_grad_(w) if isinstance(x, Tensor) else x for x, w in zip(cut, wanted)]
            given = [None if g is None else g[t] for g in grads]
            found = Recomputed.again(loop.body(t), loop.end(t), ctx.tree, cut, wanted, given, ctx.autocast)
            shared = [g.data_ptr() for g in (*found, *given) if g is not None]
            for k, g in enumerate(found):
                if g is None: continue
                before = out[k]
                if k < loop.sliced:
                    # bodies that differ may leave a piece without a gradient
                    if before is None: before = out[k] = (torch.zeros_like if len(loop.bodies) > 1 else torch.empty_like)(operands[k])
                    before[t] = g
                elif before is not None: before.add_(g)
                else: out[k] = g if shared.count(g.data_ptr()) == 1 else g.clone()     # nobody else's, before something is added to it
            del found, given, cut
        return None, None, None, *out


def autocast(operands) -> dict:
    """The state of autocast, to be had again in backward. Without the cache of cast weights: it would keep casts made here, without
    gradients, for use outside."""
    device = next(x.device.type for x in operands if isinstance(x, Tensor))
    return {"device_type": device, "enabled": torch.is_autocast_enabled(device), "dtype": torch.get_autocast_dtype(device),
            "cache_enabled": False}
