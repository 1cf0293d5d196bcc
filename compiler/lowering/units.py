"""Parameters that stand only while their unit runs: how loops run when a model is sharded over processes, copy by copy.

A unit is the module that owns the parameters of one copy of a repeated body. It is called with what to run, so that the hooks which a
wrapper puts on it (FSDP2's `fully_shard`: gather before, free behind, and the same in backward) see the run of that copy and of nothing
else. Without such a wrapper no unit is ever called: parameters are handed over as they are."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


class Unit(nn.Module):
    """A place of the spec. Called, it runs a function of operands, those that are `Later` and its own as they stand then."""

    def forward(self, run: Callable, *operands):
        return within(run, *(x.now() if isinstance(x, Later) and x.unit is self else x for x in operands))


@dataclass(frozen=True, eq=False)
class Later:
    """A parameter that its unit alone can say: `name` of the module `owner`."""
    owner: nn.Module
    name: str
    unit: Unit

    def now(self) -> Tensor: return self.owner._parameters[self.name]                                     # type: ignore[return-value]


def within(run: Callable, *operands):
    """run(*operands), inside the units whose parameters stand among them; those of an inner loop's copies wait, in tuples, for theirs."""
    unit = next((x.unit for x in operands if isinstance(x, Later)), None)
    return run(*operands) if unit is None else unit(run, *operands)


class Handed(torch.autograd.Function):
    """Hands gradients that are known already to parameters, so that all that waits for them (a reduction over processes, and freeing)
    sees them come as from any backward. Gives the anchor again."""

    @staticmethod
    def forward(ctx, find: Callable[..., Sequence[Tensor | None]], anchor: Tensor, *parameters: Tensor):
        ctx.found = find(*parameters)
        return anchor.clone()

    @staticmethod
    def backward(ctx, grad):
        return None, grad, *ctx.found


def hand_over(find: Callable[..., Sequence[Tensor | None]], later: Sequence[Later], device: torch.device) -> None:
    """Within the units of these parameters: find(*parameters) gives their gradients, which are then handed to them in a backward of their
    own, because the parameters exist only then. Called inside a backward."""
    with torch.enable_grad():
        anchor = torch.zeros((), device=device, requires_grad=True)
        result = within(lambda anchor, *parameters: Handed.apply(find, anchor, *parameters), anchor, *later)
    torch.autograd.backward(result)
