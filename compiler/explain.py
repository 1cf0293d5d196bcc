"""How a cell of the table came about: its derivation op by op, until the sum."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import sympy as sp

from plait.compiler.axis import Axis
from plait.compiler.costs.depth import Weigh, chain, tree, unit
from plait.compiler.costs.maxplus import NEVER, NOW, Late, latest, written
from plait.compiler.costs.order import over_trips, per_sequence
from plait.compiler.costs.reuse import products
from plait.compiler.costs.work import LEDGERS, once, visits
from plait.compiler.graph import Graph, Node, Value
from plait.compiler.prims import Contract, Loop, Reduce, Region
from plait.compiler.quantities import QUANTITIES
from plait.compiler.table import PathCell, Row, label


@dataclass(frozen=True)
class Line:
    """One op of a derivation: what it does, the trips of the loops around it, and its share of the cost."""
    name: str
    what: str
    trips: str
    share: sp.Expr


def derivation(row: Row, quantity: str) -> list[Line]:
    """The lines that add up to a cell (for a depth: the chain that is longest; for a path: its readings; for reuse: of which the
    least counts)."""
    if quantity in ("work", *LEDGERS): return list(_work(row, "contraction" if quantity == "work" else quantity))
    if quantity == "params": return list(_params(row))
    if quantity in ("sequential", "tree"): return _depth(row, unit if quantity == "sequential" else tree)
    if quantity == "path": return list(_path(row))
    if quantity == "reuse": return list(_reuse(row))
    if quantity == "saved": return list(_saved(row))
    if quantity in ("training", "recompute", "backward"): return list(_training(row, None if quantity == "training" else quantity))
    total = QUANTITIES[quantity](row)
    return [] if total is None else [Line(quantity, "", "", total)]


def _work(row: Row, ledger: str) -> Iterator[Line]:
    for n, loops in visits(row.program.graph):
        counted, count = once(n)
        if counted != ledger or count == 0 or not row.covers(n): continue
        yield Line(_named(row, n), _op(n), _trips(loops), per_sequence(over_trips(count, loops)))


def _params(row: Row) -> Iterator[Line]:
    for v in row.program.graph.ins:
        if v.kind == "param" and (row.kind == "model" or row.owns(v)): yield Line(v.name, _shape(v.axes), "", v.size)


def _reuse(row: Row) -> Iterator[Line]:
    weights = frozenset(v for v in row.program.graph.ins if v.kind == "param")
    for n, v in products(row.program.graph, weights):
        if not row.covers(n) or not isinstance(n.op, Contract): continue
        macs = once(n)[1]
        yield Line(_named(row, n), f"{_shape(v.axes)} is read once for {_plain(macs)} multiply-adds", "", sp.cancel(macs / v.size))


def _saved(row: Row) -> Iterator[Line]:
    for k in row.planned.kept:
        if k.bytes != 0 and row.covers(k.node): yield Line(_named(row, k.node), _shape(k.node.outs[0].axes), "", sp.expand(k.bytes))


def _training(row: Row, phase: str | None) -> Iterator[Line]:
    for n, loops in visits(row.planned.joint.graph):
        ledger, count = once(n)
        if ledger != "contraction" or not row.covers(n) or phase not in (None, n.phase): continue
        yield Line(f"{n.phase} {_named(row, n)}", _op(n), _trips(loops), per_sequence(over_trips(count, loops)))


def _path(row: Row) -> Iterator[Line]:
    if not isinstance(row.path, PathCell): return
    for name, p in row.path.written.items():
        far = "" if p.witness is None else f"from input {p.witness[0]} to output {p.witness[1]}"
        state = {True: "connected", False: "not connected", None: "not known"}[p.connected]
        yield Line(f"as written, {name}", ", ".join(t for t in (state, far, p.why) if t), "", _number(p.exact, p.value))
    if row.path.stacked is not None:
        p = row.path.stacked
        copies = "" if p.copies_value is None else f"{p.copies_value:,} copies connect every allowed pair"
        yield Line("stacked", ", ".join(t for t in (copies, p.why) if t), "", _number(p.exact, p.value))


def _number(exact: sp.Expr | None, value) -> sp.Expr:
    return exact if exact is not None else sp.nan if value is None else sp.Integer(value)


# ---- depth: the longest chain, found backwards from the latest output ---------------------------------------------------------
def _depth(row: Row, weigh: Weigh) -> list[Line]:
    if row.cut is None: return []
    entry: list[Late] = [NEVER if v.kind == "index" and not v.axes else NOW for v in row.cut.ins]
    return list(_chain(row, row.cut, entry, weigh, latest, ()))


def _chain(row: Row, graph: Graph, entry: Sequence[Late], weigh: Weigh, pick: Callable, loops: tuple[Loop, ...]) -> Iterator[Line]:
    """The nodes of the longest chain to an output of the graph, first to last, by the values that dims have (free ones count 64)."""
    at = dict(zip(graph.ins, entry))
    maker: dict[Value, Node] = {}
    for n in graph.nodes:
        body = Graph(tuple(n.ins), (n,), n.outs)
        at |= dict(zip(n.outs, chain(body, [at[v] for v in n.ins], weigh)))
        maker |= {v: n for v in n.outs}
    def when(v: Value) -> float: return _value(row, written(at[v])) if at[v] else float("-inf")

    found: list[Line] = []
    v = max(graph.outs, key=when)
    while v in maker:
        n = maker[v]
        if isinstance(n.op, Region): found[:0] = list(_chain(row, n.op.body, [at[i] for i in n.ins], weigh, pick, loops))
        elif isinstance(n.op, Loop): found.insert(0, _loop(row, n, weigh, at))
        elif weigh(n) != 0: found.insert(0, Line(_named(row, n), _op(n), _trips(loops), weigh(n)))
        reads = [i for i in n.ins if at[i]]
        if not reads: break
        if isinstance(n.op, Region):                          # the chain inside begins at one operand, and goes on from there
            v = max(reads, key=when)
            continue
        v = max(reads, key=when)
    yield from found


def _loop(row: Row, n: Node, weigh: Weigh, at: dict[Value, Late]) -> Line:
    assert isinstance(n.op, Loop)
    before = [at[i] for i in n.ins]
    whole = written(latest(chain(Graph(tuple(n.ins), (n,), n.outs), before, weigh)))
    start = written(latest(before)) if any(before) else sp.Integer(0)
    return Line(_named(row, n), f"{_plain(n.op.axis.size)} trips", "", sp.expand(whole - start))


def _value(row: Row, e: sp.Expr) -> float:
    known = row.sizes.bind(**{s.name: 64 for s in row.sizes.resolve(e).free_symbols if s not in row.sizes.bound})
    found = known.value(e)
    return float("-inf") if found is None else float(found)


# ---- words ----------------------------------------------------------------------------------------------------------------
def _named(row: Row, n: Node) -> str:
    place = n.at.removeprefix(row.at).strip("/")
    return f"{place} {label(n)}".strip()


def _op(n: Node) -> str:
    """`[h, n, n′] over k`: what a node makes, and what it sums over."""
    over = getattr(n.op, "over", ()) if isinstance(n.op, Contract | Reduce) else ()
    return _shape(n.outs[0].axes) + (f" over {', '.join(o for o in over)}" if over else "")


def _shape(axes: Sequence[Axis]) -> str:
    return f"[{', '.join(_plain(a.size) for a in axes if a.role != 'batch')}]"


def _trips(loops: Sequence[Loop]) -> str:
    return " × ".join(_plain(loop.axis.size) for loop in loops)


def _plain(e: sp.Expr) -> str:
    return str(e).replace("**", "^").replace("*", "·")
