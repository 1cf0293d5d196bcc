"""The costs of a training step: the ordinary folds over the joint graph. No cost has a rule for backward."""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sympy as sp

from plait.compiler.axis import BATCH_SIZE
from plait.compiler.costs.depth import Weigh, chain, tree, unit
from plait.compiler.costs.maxplus import NEVER, NOW, latest, written
from plait.compiler.costs.order import added, over_trips
from plait.compiler.costs.power import at_rates
from plait.compiler.costs.work import LEDGERS, once, visits
from plait.compiler.graph import Graph, Node
from plait.compiler.sizes import Sizes

if TYPE_CHECKING:
    from plait.compiler.derive import Joint

PHASES = ("forward", "recompute", "backward")


@dataclass(frozen=True)
class Training:
    """Of one sequence. work: phase → ledger → count; unit, tree: the depth of forward and backward together, None where it has no
    closed form (loops whose trips differ and whose states wait for each other)."""
    work: dict[str, dict[str, sp.Expr]]
    unit: sp.Expr | None
    tree: sp.Expr | None


def training(joint: Joint, sizes: Sizes | None = None) -> Training:
    """The costs of one sequence's forward, recompute and backward, exact, in the dims. What does not depend on the batch is counted once.

    sizes: with the dims bound, the tree depth is a number for each trip and only the numbers of trips stay symbols. Without them it is
    symbolic throughout, and None where too many sizes meet that nothing orders."""
    return Training(by_phase(joint.graph), _found(joint, unit), _found(joint, known(tree, sizes) if sizes else tree))


def _found(joint: Joint, weigh: Weigh) -> sp.Expr | None:
    try: return depth(joint, weigh)
    except NotImplementedError: return None


def known(weigh: Weigh, sizes: Sizes) -> Weigh:
    """The same weights as numbers, for one sequence, where the sizes are known."""
    one = sizes.bind(b=1)

    def weight(n: Node) -> sp.Expr:
        e = weigh(n)
        value = one.integer(e) if e.free_symbols else None
        return e if value is None else sp.Integer(value)
    return weight


def by_phase(graph: Graph, batch=1, wanted: Callable[[Node], bool] = lambda n: True) -> dict[str, dict[str, sp.Expr]]:
    """phase → ledger → exact count, for a batch of so many sequences, of the nodes that are wanted."""
    terms: dict[tuple[str, str], list[sp.Expr]] = defaultdict(list)
    for n, loops in visits(graph):
        if not wanted(n): continue
        ledger, count = once(n)
        terms[n.phase, ledger].append(over_trips(count, loops).xreplace({BATCH_SIZE: sp.sympify(batch)}))
    return {p: {ledger: added(terms[p, ledger]) for ledger in LEDGERS} for p in PHASES}


def depth(joint: Joint, weigh: Weigh = unit) -> sp.Expr:
    """The longest chain of forward and backward: the gradient of an output starts when the forward is through."""
    graph = joint.graph
    before = {v: NEVER if v.kind == "index" and not v.axes else NOW for v in graph.ins}
    forward = joint.forward
    end = latest([NOW, *chain(forward, [before[v] for v in forward.ins], weigh, at_rates)])
    entry = before | {v: end for v in joint.seeds.values()}
    found = written(latest([end, *chain(graph, [entry[v] for v in graph.ins], weigh, at_rates)]))
    return added([found]) if found.has(sp.Sum) else found
