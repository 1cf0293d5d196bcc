"""Memory and traffic of one process of several that train a model together, from the same graph as every other cost.

ddp: every process has all parameters, gradients and all that the optimiser remembers; only the batch is divided. fsdp: these are cut along
an axis into one part a process, and the parameters of one copy of a repeated body are gathered while it runs, forward and backward
(ZeRO-3: Rajbhandari et al. 2020, section 5.3). What is in no repeat is gathered once and stays whole for the step."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import sympy as sp

from plait.compiler.costs import memory
from plait.compiler.graph import Value
from plait.compiler.sizes import Sizes
from plait.compiler.step import Step

SHARDS = ("ddp", "fsdp")
QUANTITIES = ("parameters", "gradients", "optimizer", "saved", "peak", "traffic")


@dataclass(frozen=True)
class Share:
    """Bytes of one process, in the dims and b, its own sequences at once. saved: kept from forward for backward. peak: the most at once,
    gathered copies and the buffers of their gathering included. traffic: what it sends in a step."""
    parameters: sp.Expr
    gradients: sp.Expr
    optimizer: sp.Expr
    saved: sp.Expr
    peak: sp.Expr
    traffic: sp.Expr


def share(step: Step, ranks: int, shard: str, remembered: Callable[[Value], sp.Expr], parts_of_batch: int = 1) -> Share:
    """remembered: how many numbers the optimiser keeps of a parameter. parts_of_batch: microbatches of one rank."""
    width = memory.WIDTHS[step.target.dtype]
    weights = [v for v in step.joint.graph.ins if v.kind == "param"]
    cut = shard == "fsdp" and ranks > 1
    parts = {v: _part(v, ranks, step.program.sizes) if cut else v.size for v in weights}
    held = _sum(parts.values()) * width
    optimizer = _sum(remembered(v) * parts[v] / v.size for v in weights) * width
    if not cut:
        peak = held + optimizer + memory.peak(step.running, step.target)
        sent = 2 * held * sp.Rational(ranks - 1, ranks)                       # a ring: reduced in parts, then the parts gathered
        return Share(held, held, optimizer, step.saved(), sp.expand(peak), sp.expand(sent))
    units = _units(weights)
    root = units.pop((), sp.Integer(0)) * width
    bodies = [_sum(units.get(place[:k], 0) for k in range(1, len(place) + 1)) * width for place in units]     # with those around it
    running = sp.Max(*bodies) if bodies else sp.Integer(0)
    ahead = sp.Max(*(u * width for u in units.values())) if units else sp.Integer(0)
    # Parameters: one copy runs, the next is being gathered. Gradients: those of the copy, which are then laid out to be reduced.
    whole = root + running + ahead
    peak = held + held + optimizer + 2 * whole + memory.peak(step.running, step.target, gradients=False)
    everything = _sum(v.size for v in weights) * width
    sent = parts_of_batch * sp.Rational(ranks - 1, ranks) * (everything + 2 * (everything - root) + root)      # of each of them
    return Share(held, held, optimizer, step.saved(), peak, sp.expand(sent))


def _part(v: Value, ranks: int, sizes: Sizes) -> sp.Expr:
    """Numbers of the largest part: cut along the first axis that divides, else along the first, rounded up; a free axis divides."""
    own = [a for a in v.axes if a.role != "copies"]
    known = [sizes.integer(a.size) for a in own]
    if not own or any(n is None or n % ranks == 0 for n in known): return v.size / (ranks if own else 1)
    return v.size / own[0].size * sp.ceiling(own[0].size / ranks)


def _units(weights: list[Value]) -> dict[tuple[str, ...], sp.Expr]:
    """The repeats around a parameter, outermost first → numbers of one copy of that body; () is what stands in none."""
    found: dict[tuple[str, ...], sp.Expr] = {}
    for v in weights:
        copies = [a for a in v.axes if a.role == "copies"]
        place = tuple(a.name for a in copies)
        found[place] = found.get(place, sp.Integer(0)) + v.size / sp.Mul(*(a.size for a in copies))
    return found


def _sum(found) -> sp.Expr: return sp.Add(*found)
