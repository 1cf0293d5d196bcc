"""One training step of a model, as the costs see it: its graph, claimed by kernels, and the joint schedule of forward and backward."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import sympy as sp

from plait.compiler.costs import memory
from plait.compiler.costs.depth import unit
from plait.compiler.costs.training import by_phase, depth
from plait.compiler.derive import Joint, derive
from plait.compiler.graph import Graph, Node
from plait.compiler.kernels import Target
from plait.compiler.plan import Plan, plan
from plait.compiler.program import Program


@dataclass(frozen=True, eq=False)
class Step:
    """Of the loss, where a train block names the model, else of its outputs. Everything is derived when it is asked for."""
    make: Callable[[], Program]
    target: Target = Target()
    forced: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def program(self) -> Program:
        return self.make()

    @cached_property
    def plan(self) -> Plan:
        return plan(self.program.loss or self.program.graph, self.program.sizes, self.target, self.forced)

    @property
    def claimed(self) -> Graph:
        return self.plan.claimed

    @cached_property
    def joint(self) -> Joint:
        return self._derived(self.claimed)

    @cached_property
    def running(self) -> Joint:
        """The same with the products of a recurrence's input in front of it, as they run: what they make lies there meanwhile."""
        return self.joint if self.plan.graph == self.claimed else self._derived(self.plan.graph)

    def _derived(self, graph: Graph) -> Joint:
        of = (0,) if self.program.loss is not None else None         # the mean loss; not the sums beside it
        return derive(graph, self.program.sizes, of=of)

    @cached_property
    def work(self) -> dict[str, dict[str, sp.Expr]]:
        """Phase → ledger → work of one sequence."""
        return by_phase(self.joint.graph)

    @cached_property
    def unit(self) -> sp.Expr | None:
        """The depth of forward and backward; None where it has no closed form."""
        try: return depth(self.joint, unit)
        except NotImplementedError: return None

    @cached_property
    def peak(self) -> sp.Expr:
        """Bytes: activations and gradients at their most, with the parameters and what Adam remembers of them."""
        return self._held + memory.peak(self.running, self.target)

    @cached_property
    def most(self) -> sp.Expr:
        """Bytes: the peak with what kernels may take while they run that have buffers of their own."""
        return self._held + memory.peak(self.running, self.target, kernels=True)

    @property
    def _held(self) -> sp.Expr:
        """The parameters and two moments of each."""
        weights = sp.Add(*(v.size for v in self.joint.graph.ins if v.kind == "param")) * memory.WIDTHS[self.target.dtype]
        return sp.expand(3 * weights)

    def saved(self, wanted: Callable[[Node], bool] = lambda n: True) -> sp.Expr:
        """Bytes kept from forward for backward, of what wanted nodes make."""
        return sp.expand(sp.Add(*(k.bytes for k in self.kept if wanted(k.node))))

    @cached_property
    def kept(self) -> tuple[memory.Kept, ...]:
        return tuple(memory.kept(self.joint, self.target))
