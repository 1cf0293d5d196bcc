"""Rows of costs: derived expressions, their leading orders and their values, by model, layer and op. The JSON of the table."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import sympy as sp

from plait.compiler.costs import depth as depths
from plait.compiler.costs import path as paths
from plait.compiler.costs.ideal import ideal
from plait.compiler.costs.order import order, over_trips, per_sequence
from plait.compiler.costs.params import params
from plait.compiler.costs.reuse import reuse
from plait.compiler.costs.work import LEDGERS, once, visits, work
from plait.compiler.graph import Graph, Node, Value
from plait.compiler.layer import LAYERS
from plait.compiler.part import main_output, part, stream_inputs
from plait.compiler.prims import Contract, Loop, Reduce, Sort
from plait.compiler.program import Program
from plait.compiler.sizes import Sizes

SILENT = ("shift_right",)                                     # movement that stands for no layer of its own
LEVELS = ("model", "layer", "op")


@dataclass(frozen=True)
class Row:
    """One line. Costs are expressions for one sequence in the dims (reuse: and the batch b); None is not derived, or depends on
    the data. `values` are the dims by which the numbers are made."""
    model: str
    at: str
    kind: str
    name: str
    sizes: Sizes
    work: dict[str, sp.Expr]
    ideal: sp.Expr | None = None
    unit: sp.Expr | None = None
    tree: sp.Expr | None = None
    path: object = None                                       # PathCell
    params: sp.Expr | None = None
    reuse: sp.Expr | None = None
    copies: sp.Expr | None = None                             # how often a layer stands in a repeat


@dataclass(frozen=True)
class PathCell:
    """The readings of a row, by input stream; the headline is the longest."""
    written: dict[str, paths.Path]
    stacked: paths.Path | None


def rows(program: Program, by: str = "model") -> list[Row]:
    """The rows of a model at one level. by = layer: the model, then its layers in order; op: each layer's sums below it."""
    out = [model_row(program)]
    if by in ("layer", "op"):
        for at, name in program.places.items():
            if name in SILENT: continue
            row = layer_row(program, at, name)
            if row is None: continue
            out.append(row)
            if by == "op": out += op_rows(program, at)
    return out


def model_row(program: Program) -> Row:
    g = program.graph
    sources = {i.name: i.value for i in program.inputs if any(a.role == "sequence" for a in i.value.axes)}
    single = [at for at, name in program.places.items() if name in LAYERS and name not in SILENT]
    lone = len(program.places) == 1 and len(single) == 1
    return Row(program.model, program.model, "model", program.model, program.sizes, work(g), _ideal(program), depths.depth(g), depths.depth(g, depths.tree),
               path_cell(g, sources, program.sizes, lone), params(g), reuse(g))


def _ideal(program: Program, wanted=lambda n: True) -> sp.Expr | None:
    """By the first input; without a sequence there is nothing to mask."""
    source = next((i.value for i in program.inputs if any(a.role == "sequence" for a in i.value.axes)), None)
    return None if source is None else ideal(program.graph, source, program.sizes, wanted)


def layer_row(program: Program, at: str, name: str) -> Row | None:
    """The work of all its copies; depth and path of one."""
    g = program.graph
    here = [(n, loops) for n, loops in visits(g) if n.at == at]
    prefix = at.split("/", 1)[1] + "/"
    owned = params(g, lambda v: v.name.startswith(prefix) and "/" not in _below(v.name, prefix, program))
    if not here and owned == 0: return None
    inside = lambda n: n.at == at                                                                                   # noqa: E731
    cut = part(g, at)
    copies = over_trips(sp.Integer(1), [loop for loop in here[0][1] if loop.axis.role == "copies"]) if here else None
    layer = name in LAYERS
    cell = None
    if layer and cut is not None:
        sources = {v.name if k else "x": v for k, v in enumerate(stream_inputs(cut))}
        cell = path_cell(cut, sources, program.sizes, True) if sources else None
    return Row(program.model, at, "layer", name, program.sizes, work(g, inside), _ideal(program, inside), None if cut is None else depths.depth(cut),
               None if cut is None else depths.depth(cut, depths.tree), cell, owned, reuse(g, inside), copies)


def _below(name: str, prefix: str, program: Program) -> str:
    """What is left of a parameter's name when its place is taken off, empty of sub-names of the same layer."""
    rest = name[len(prefix):]
    step = rest.split("/")[0]
    at = f"{program.model}/{prefix}{step}"
    deeper = any(p == at or p.startswith(at + "/") for p in program.places)
    return "/" if deeper else ""


def op_rows(program: Program, at: str) -> Iterator[Row]:
    """A row for every sum, product and sort of a place; equal ones (the same name) together."""
    found: dict[str, list[tuple[Node, tuple[Loop, ...]]]] = {}
    for n, loops in visits(program.graph):
        if n.at == at and isinstance(n.op, Contract | Reduce | Sort): found.setdefault(n.name or type(n.op).__name__.lower(), []).append((n, loops))
    for name, nodes in found.items():
        counts = dict.fromkeys(LEDGERS, sp.Integer(0))
        for n, loops in nodes:
            ledger, count = once(n)
            counts[ledger] = sp.expand(counts[ledger] + per_sequence(over_trips(count, loops)))
        yield Row(program.model, f"{at}/{name}", "op", name, program.sizes, counts)


def path_cell(g: Graph, sources: dict[str, Value], sizes: Sizes, stack: bool) -> PathCell:
    """Every input stream that the output reads, and, for a row that can be repeated, the first of them stacked."""
    out = main_output(g)
    read = {name: paths.as_written(g, v, sizes, out) for name, v in sources.items()}
    read = {k: p for k, p in read.items() if p.why != paths.UNREAD} or read
    first = next(iter(read), None)
    alone = Graph(g.ins, g.nodes, (out,))
    return PathCell(read, paths.stacked(alone, sources[first], sizes) if stack and first is not None else None)


# ---- JSON ------------------------------------------------------------------------------------------------------------------
def number(v):
    """A JSON number: whole where it is whole."""
    return None if v is None else int(v) if int(v) == v else float(v)


def cell(e: sp.Expr | None, sizes: Sizes, batch: int | None = None) -> dict | None:
    """{"exact", "order", "value"} of an expression."""
    if e is None: return None
    known = sizes.bind(b=batch) if batch is not None else sizes
    return {"exact": str(e), "order": str(order(e)), "value": number(known.value(e))}


def as_json(row: Row, batch: int = 1) -> dict:
    """A row of the stable JSON (keys are documented in docs/costs.md)."""
    s = row.sizes
    symbols = sorted({x.name for e in (*row.work.values(), row.unit, row.tree, row.params, row.reuse) if e is not None for x in e.free_symbols}
                     | ({"b"} if row.reuse is not None else set()))
    headline = cell(row.work["contraction"], s) or {}
    return {
        "model": row.model, "at": row.at, "kind": row.kind, "name": row.name, "symbols": symbols,
        "copies": cell(row.copies, s),
        "work": {**headline, "ledgers": {k: cell(row.work[k], s) for k in LEDGERS if k != "contraction"}, "ideal": cell(row.ideal, s), "executed": None},
        "depth": {"unit": cell(row.unit, s), "tree": cell(row.tree, s)},
        "path": _path_json(row.path, s) if isinstance(row.path, PathCell) else None,
        "params": cell(row.params, s), "saved": None, "peak": None, "reuse": cell(row.reuse, s, batch), "training": None,
    }


def _path_json(p: PathCell, sizes: Sizes) -> dict:
    verdicts = {v.connected for v in p.written.values()}
    longest = max(p.written.values(), key=lambda v: (v.connected is False, v.value or 0), default=None)
    return {
        "stacked": None if p.stacked is None else {**_reading(p.stacked, sizes), "copies": cell(p.stacked.copies, sizes)},
        "as_written": None if longest is None else _reading(longest, sizes),
        "connected": False if False in verdicts else None if None in verdicts else True,
        "reach": None if longest is None else _reach_json(longest),
        "assumed": any(v.assumed for v in p.written.values()),
        "streams": {k: _reading(v, sizes) for k, v in p.written.items()} if len(p.written) > 1 else {},
    }


def _reach_json(p: paths.Path) -> dict | None:
    return p.reach and {k: {"exact": None if v["exact"] is None else str(v["exact"]), "value": v["value"]} for k, v in p.reach.items()}


def _reading(p: paths.Path, sizes: Sizes) -> dict:
    return {"exact": None if p.exact is None else str(p.exact), "order": None if p.exact is None else str(order(p.exact)), "value": number(p.value),
            "connected": p.connected, "witness": p.witness and list(p.witness), "why": p.why or None}
