"""The costs of a training step: the ordinary folds over the joint graph. No cost has a rule for backward."""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import sympy as sp

from plait.compiler.axis import BATCH_SIZE
from plait.compiler.costs.depth import Weigh, chain, tree, unit
from plait.compiler.costs.maxplus import NEVER, NOW, latest, written
from plait.compiler.costs.order import added, over_trips
from plait.compiler.costs.power import at_rates
from plait.compiler.costs.work import LEDGERS, once, visits
from plait.compiler.graph import Graph, Node, live
from plait.compiler.prims import Loop, Region
from plait.compiler.sizes import Latest, Sizes

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


FEW = 3                                                       # trips that a closed form may be too large for: they are walked


def depth(joint: Joint, weigh: Weigh = unit) -> sp.Expr:
    """The longest chain of forward and backward: the gradient of an output starts when the forward is through. Where a closed form over
    the copies of a stack is too large for the first few, these stand beside it.

    Raises NotImplementedError where there is no closed form."""
    found = _depth(joint, joint.graph, weigh)
    copies = {n.op.axis.size for n in joint.graph.walk() if isinstance(n.op, Loop) and n.op.axis.role == "copies"}
    if weigh is not unit or len(copies) != 1 or not found.has(Latest): return found
    (size,) = copies
    if not size.is_Symbol: return found
    walked = [_depth(joint, _of_trips(joint.graph, size, k), weigh) for k in range(1, FEW + 1)]
    if all(sp.expand(found.subs(size, k) - w).doit() == 0 for k, w in enumerate(walked, 1)): return found
    cases = [(w, sp.Eq(size, k)) for k, w in reversed(list(enumerate(walked, 1)))]
    return sp.Piecewise((found, sp.Gt(size, FEW)), *cases[:-1], (cases[-1][0], True), evaluate=False)


def _depth(joint: Joint, graph: Graph, weigh: Weigh) -> sp.Expr:
    before = {v: NEVER if v.kind == "index" and not v.axes else NOW for v in graph.ins}
    outs = graph.outs[:joint.count]
    forward = Graph(graph.ins[:len(graph.ins) - len(joint.seeds)], live(graph.nodes, outs), outs)
    end = latest([NOW, *chain(forward, [before[v] for v in forward.ins], weigh, at_rates)])
    entry = before | {v: end for v in joint.seeds.values()}
    found = written(latest([end, *chain(graph, [entry[v] for v in graph.ins], weigh, at_rates)]))
    return added([found]) if found.has(sp.Sum) else found


def _of_trips(graph: Graph, size: sp.Symbol, trips: int) -> Graph:
    """The graph with a known number of copies, as far as depth looks at it."""
    def changed(n: Node) -> Node:
        if not isinstance(n.op, Loop | Region): return n
        op: Loop | Region = replace(n.op, body=_of_trips(n.op.body, size, trips))
        if isinstance(op, Loop) and op.axis.size == size: op = replace(op, axis=op.axis.resized(sp.Integer(trips)))
        return replace(n, op=op)
    return replace(graph, nodes=tuple(map(changed, graph.nodes)))
