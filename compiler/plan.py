"""The plan: how a graph runs. It is data: it prints, its costs are derived, and every choice of a kernel can be overridden."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from plait.compiler.claim import BODY, claim
from plait.compiler.graph import Graph
from plait.compiler.kernels import KERNELS, Target
from plait.compiler.passes.common import common
from plait.compiler.passes.hoist import hoist
from plait.compiler.passes.joined import joined
from plait.compiler.passes.recompute import ONCE
from plait.compiler.prims import Loop, Region
from plait.compiler.sizes import Sizes
from plait.dsl.errors import error
from plait.dsl.suggest import suggest

KEEPS = {"save": "kept for backward", "recompute": "computed again in backward", "invert": "undone in backward"}


@dataclass(frozen=True)
class Decision:
    """at: the place in the spec; what: a region or a loop; how it runs; and why so, where there was a choice."""
    at: str
    what: str
    how: str
    why: str = ""


@dataclass(frozen=True)
class Plan:
    """claimed: with every claim made, which costs are derived from; graph: as it runs, with what a recurrence computes of its input in
    front of it, and products of one operand as one where the target is compiled."""
    claimed: Graph
    graph: Graph
    decisions: tuple[Decision, ...]

    def text(self, indent: str = "") -> str:
        """A line a decision; the same decision at one place in a row is said once."""
        rows = [("/".join(d.at.split("/")[1:]) or d.at, d.what, d.how, d.why) for d in self.decisions]
        rows = [r for k, r in enumerate(rows) if k == 0 or r != rows[k - 1]]
        wide = [max((len(r[c]) for r in rows), default=0) for c in range(3)]
        return "\n".join((indent + "  ".join([*(t.ljust(w) for t, w in zip(r, wide)), r[3]])).rstrip() for r in rows)


def plan(graph: Graph, sizes: Sizes, target: Target = Target(), forced: Mapping[str, str] | None = None) -> Plan:     # noqa: B008 (frozen)
    """From a graph as expanded (or, for evaluation, as `passes.evaluation` leaves it) to the one that is lowered."""
    graph = common(graph, sizes)
    claimed = claim(graph, target, forced)
    runs = hoist(claimed, sizes)
    if target.compiled: runs = joined(runs, sizes)
    return Plan(claimed, runs, tuple(decisions(claimed, target, forced or {})))


def decisions(graph: Graph, target: Target, forced: Mapping[str, str]) -> Iterator[Decision]:
    """What was decided of a claimed graph, in the order of its schedule, bodies after what they belong to."""
    for n in graph.nodes:
        if isinstance(n.op, Region):
            known = [k for k in KERNELS if k.region == n.op.name]
            if known: yield Decision(n.at, n.op.name, n.op.kernel or BODY, _why(n.op, target, forced))
            if not n.op.kernel: yield from decisions(n.op.body, target, forced)
        elif isinstance(n.op, Loop):
            yield Decision(n.at, _loop(n.op), KEEPS[n.op.keep])
            yield from decisions(n.op.body, target, forced)


def _why(op: Region, target: Target, forced: Mapping[str, str]) -> str:
    """Asked for, or what the kernels that are preferred to it need and this call has not."""
    asked = forced.get(op.name) or str(op.arg("kernel", "auto"))
    wanted = next((k for k in KERNELS if k.region == op.name and k.name == asked), None)
    if wanted is not None and not op.kernel: return f"{wanted.name}, which was asked for, {wanted.needs}"
    if op.name in forced: return "asked for"
    if op.arg("kernel", "auto") in (op.kernel or BODY, *(k.name for k in KERNELS)): return "as the spec says"
    before = []
    for k in (k for k in KERNELS if k.region == op.name):
        if k.name == op.kernel: break
        before.append(f"{k.name} {k.needs if not k.available(op, target) else 'is slower here'}")
    return "; ".join(before)


def _loop(op: Loop) -> str:
    match op.axis.role:
        case "copies": return f"{'reversible' if op.keep == 'invert' else 'repeat'} {op.axis.size}"
        case "sequence": return f"recurrence over {op.axis.size}"
        case _: return "statement" if op.axis == ONCE else f"{op.axis.size} pieces"


def kernels_of(settings: Iterable[str]) -> dict[str, str]:
    """`lstm=body`, `attention=rowwise_attention` → region → kernel. Raises PlaitError for what is not there."""
    found: dict[str, str] = {}
    regions = {k.region for k in KERNELS}
    for s in settings:
        region, _, name = (t.strip() for t in s.partition("="))
        if region not in regions:
            near = suggest(region, regions, {})
            raise error("E0505", f"no kernel is for `{region}`", help=f"`{near[0]}`?" if near else f"one of {', '.join(sorted(regions))}")
        names = [k.name for k in KERNELS if k.region == region]
        if name not in (BODY, *names):
            raise error("E0505", f"`{region}` has no kernel `{name}`", help=f"--kernel {region}={' or '.join((*names, BODY))}")
        found[region] = name
    return found
