"""Loops in torch: a lowered body, run once a trip. (Part of the lowering: imports torch.)"""
from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from plait.compiler.prims import Loop


class Trips(nn.Module):
    """Runs a body once a trip: a recurrence, copies, pieces.

    bodies: one for all trips, or one a trip where the body reads the trip's number. Called with the number of trips and the
    operands of the loop: states, what is sliced (a tensor with the loop's axis in front, or a tuple with an entry a trip), then
    what is the same every trip. Gives the states after the last trip, then the values of all trips, stacked in front."""

    def __init__(self, op: Loop, bodies: list[nn.Module], warm_state: bool):
        super().__init__()
        self.bodies = nn.ModuleList(bodies)
        self.carried, self.sliced, self.reverse = op.carried, op.sliced, op.reverse
        self.recompute = op.keep == "recompute"
        self.warm_state = warm_state

    def run(self, trip: int, *operands):
        body = self.bodies[trip if len(self.bodies) > 1 else 0]
        # A body is a pure function of its operands, randomness included: there is no random state to keep.
        if self.recompute and torch.is_grad_enabled():
            return checkpoint(body, *operands, use_reentrant=False, preserve_rng_state=False)
        return body(*operands)

    def forward(self, trips: int, *operands):
        c, s = self.carried, self.sliced
        state, fixed, stacks = operands[:c], operands[c + s:], []
        slices = [x if isinstance(x, tuple | list) else x.unbind(0) for x in operands[c:c + s]]
        if self.warm_state and torch.is_grad_enabled(): state = tuple(map(_wanting, state))
        for t in reversed(range(trips)) if self.reverse else range(trips):
            outs = self.run(t, *state, *(x[t] for x in slices), *fixed)
            state = outs[:c]
            stacks.append(outs[c:])
        if self.reverse: stacks.reverse()
        return (*state, *(torch.stack(column) for column in zip(*stacks)))


def _wanting(x: Tensor) -> Tensor:
    """A first state that asks for a gradient like those after it, so that a compiled body is the same graph in every trip."""
    return x if x.requires_grad or not x.is_floating_point() else x.detach().requires_grad_()
