"""Rows of costs: derived expressions, their leading orders and their values, by model, layer and op. The JSON of the table."""
from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import sympy as sp

from plait.compiler.claim import claim
from plait.compiler.costs import depth as depths
from plait.compiler.costs import path as paths
from plait.compiler.costs.ideal import ideal
from plait.compiler.costs.order import order, over_trips
from plait.compiler.costs.params import params
from plait.compiler.costs.reuse import reuse
from plait.compiler.costs.work import LEDGERS, visits, work
from plait.compiler.graph import Graph, Node, Value
from plait.compiler.kernels import Target
from plait.compiler.layer import LAYERS
from plait.compiler.part import home, main_output, part, stream_inputs
from plait.compiler.prims import Contract, Loop, Reduce, Sort
from plait.compiler.program import Program
from plait.compiler.sizes import Sizes

if TYPE_CHECKING:
    from plait.compiler.step import Step

SILENT = ("shift_right",)                                     # movement that stands for no layer of its own
LEVELS = ("model", "layer", "op")


@dataclass(frozen=True)
class PathCell:
    """The readings of a row, by input stream, and the streams' lengths; `stacked` is of the first, where a row can be repeated."""

    written: dict[str, paths.Path]
    lengths: dict[str, int | None]
    stacked: paths.Path | None


@dataclass(frozen=True, eq=False)
class Row:
    """One line. Costs are expressions for one sequence in the dims (reuse: and the batch b), derived when they are asked for;
    None is not derived, or depends on the data."""

    program: Program
    at: str
    kind: str                                                 # model, layer, op
    name: str
    step: Step | None = None                                  # of training; None: of the program's outputs

    @property
    def model(self) -> str:
        return self.program.model

    @property
    def sizes(self) -> Sizes:
        return self.program.sizes

    def covers(self, n: Node) -> bool:
        """Does a node belong to this row?"""
        return self.kind == "model" or n.at == self.at or self.kind == "op" and n.at == self.at.rsplit("/", 1)[0] and label(n) == self.name

    @cached_property
    def cut(self) -> Graph | None:
        """The graph of this row alone."""
        return self.program.graph if self.kind == "model" else part(self.program.graph, self.at) if self.kind == "layer" else None

    @cached_property
    def _indexed(self) -> bool:
        """Stands in a repeat whose index it reads: its depth and path differ from copy to copy."""
        if self.kind != "layer" or self.cut is None: return False
        indices = {loop.index for loop in home(self.program.graph, self.at)[2] if loop.index is not None}
        return any(indices & n.symbols for n in self.cut.walk())

    @cached_property
    def work(self) -> dict[str, sp.Expr]:
        return work(self.program.graph, self.covers)

    @cached_property
    def ideal(self) -> sp.Expr | None:
        """By the first input; without a sequence there is nothing to mask."""
        source = next((i.value for i in self.program.inputs if any(a.role == "sequence" for a in i.value.axes)), None)
        if self.kind == "op": return None
        return self.work["contraction"] if source is None else ideal(self.program.graph, source, self.sizes, self.covers)

    @cached_property
    def executed(self) -> sp.Expr | None:
        """Of a model: what the kernels of the plan do."""
        from plait.compiler.costs.executed import executed
        return executed(claim(self.program.graph, Target())) if self.kind == "model" else None

    @cached_property
    def unit(self) -> sp.Expr | None:
        return None if self.cut is None or self._indexed else depths.depth(self.cut)

    @cached_property
    def tree(self) -> sp.Expr | None:
        return None if self.cut is None or self._indexed else depths.depth(self.cut, depths.tree)

    @cached_property
    def params(self) -> sp.Expr | None:
        if self.kind == "op": return None
        return params(self.program.graph, (lambda v: True) if self.kind == "model" else self.owns)

    def owns(self, v: Value) -> bool:
        """A parameter of this very statement: its name starts with the place, and no deeper statement claims it."""
        prefix = self.at.split("/", 1)[1] + "/"
        if not v.name.startswith(prefix): return False
        deeper = f"{self.at}/{v.name[len(prefix):].split('/')[0]}"
        return not any(p == deeper or p.startswith(deeper + "/") for p in self.program.places)

    @cached_property
    def reuse(self) -> sp.Expr | None:
        return None if self.kind == "op" else reuse(self.program.graph, self.covers)

    # -- training: a step of the loss where there is one, in b and the dims -----------------------------------------------------
    @cached_property
    def planned(self) -> Step:
        from plait.compiler.step import Step
        return self.step or Step(lambda: self.program)

    @cached_property
    def saved(self) -> sp.Expr | None:
        """Bytes kept from forward for backward."""
        return None if self.kind == "op" else self.planned.saved(self.covers)

    @cached_property
    def peak(self) -> sp.Expr | None:
        """Bytes alive at once in a step, at most."""
        return self.planned.peak if self.kind == "model" else None

    @cached_property
    def trained(self) -> dict[str, dict[str, sp.Expr]]:
        """Phase → ledger → work of one sequence."""
        from plait.compiler.costs.training import by_phase
        return self.planned.work if self.kind == "model" else by_phase(self.planned.joint.graph, wanted=self.covers)

    @property
    def effort(self) -> sp.Expr:
        """Multiply-adds of a step: forward, recompute and backward."""
        return sp.expand(sp.Add(*(ledgers["contraction"] for ledgers in self.trained.values())))

    @property
    def training_depth(self) -> sp.Expr | None:
        return self.planned.unit if self.kind == "model" else None

    @cached_property
    def copies(self) -> sp.Expr | None:
        """How often a layer stands in its repeats: its work and parameters are of all, its depth and path of one."""
        if self.kind != "layer": return None
        return over_trips(sp.Integer(1), [loop for loop in home(self.program.graph, self.at)[2] if loop.axis.role == "copies"])

    def _lone(self) -> bool:
        """Is the model one layer, or one that an index makes another one in each copy?"""
        found = [name for name in self.program.places.values() if name not in SILENT]
        indexed = any(isinstance(n.op, Loop) and n.op.index is not None for n in self.program.graph.nodes)
        if len(found) == 2 and found[0] == "repeat" and indexed: found = found[1:]
        return len(found) == 1 and found[0] in LAYERS

    @cached_property
    def path(self) -> PathCell | None:
        """Of a model, or of one copy of a layer."""
        if self.kind == "model":
            sources = {i.name: i.value for i in self.program.inputs if any(a.role == "sequence" for a in i.value.axes)}
            outs = self.program.graph.outs
            return _path_cell(self.program.graph, sources, outs, self.sizes, self._lone())
        if self.kind != "layer" or self.name not in LAYERS or self.cut is None: return None
        sources = {v.name if k else "x": v for k, v in enumerate(stream_inputs(self.cut))}
        return _path_cell(self.cut, sources, (main_output(self.cut),), self.sizes, True) if sources and not self._indexed else None


def _path_cell(g: Graph, sources: dict[str, Value], outs: tuple[Value, ...], sizes: Sizes, stack: bool) -> PathCell:
    """Every input stream that an output reads, by the output that is farthest from it; for a row that can be repeated, the first
    of them stacked."""
    read = {name: _farthest([paths.as_written(g, v, sizes, out) for out in outs]) for name, v in sources.items()}
    read = {k: p for k, p in read.items() if p.why != paths.UNREAD} or read
    first = next(iter(read), None)
    stacked = paths.stacked(Graph(g.ins, g.nodes, outs[-1:]), sources[first], sizes) if stack and first is not None else None
    return PathCell(read, {k: sizes.integer(sources[k].role("sequence").size) for k in read}, stacked)


def _farthest(found: list[paths.Path]) -> paths.Path:
    """Not connected before not known before the longest; an output that does not read the input says nothing."""
    said = [p for p in found if p.why != paths.UNREAD] or found
    return max(said, key=lambda p: (p.connected is False, p.connected is None, p.value or 0))


def label(n: Node) -> str:
    """What a person calls an op."""
    return n.name or type(n.op).__name__.lower()


def rows(program: Program, by: str = "model", step: Step | None = None) -> list[Row]:
    """The rows of a model at one level. by = layer: the model, then its layers in order; op: each layer's sums below it."""
    out = [Row(program, program.model, "model", program.model, step)]
    if by == "model": return out
    ops: dict[str, dict[str, None]] = {}
    for n, _ in visits(program.graph):
        found = ops.setdefault(n.at, {})
        if isinstance(n.op, Contract | Reduce | Sort): found.setdefault(label(n))
    for at, name in program.places.items():
        row = Row(program, at, "layer", name, step)
        if name in SILENT or at not in ops and row.params == 0: continue
        out.append(row)
        if by == "op": out += [Row(program, f"{at}/{op}", "op", op, step) for op in ops.get(at, ())]
    return out


# ---- JSON ------------------------------------------------------------------------------------------------------------------
def number(v):
    """A JSON number: whole where it is whole."""
    return None if v is None else int(v) if int(v) == v else float(v)


def cell(e: sp.Expr | None, sizes: Sizes, batch: int | None = None) -> dict | None:
    """{"exact", "order", "value"} of an expression."""
    if e is None: return None
    known = sizes.bind(b=batch) if batch is not None else sizes
    return {"exact": str(e), "order": str(order(e)), "value": number(known.value(e))}


def as_json(row: Row, batch: int = 1, memory: bool = True) -> dict:
    """A row of the stable JSON (keys are documented in docs/costs.md). memory: with what a training step costs."""
    s = row.sizes
    trained = row.trained if memory else {}
    saved, peak = (row.saved, row.peak) if memory else (None, None)
    costs = [e for e in (*row.work.values(), row.unit, row.tree, row.params, row.reuse, saved, peak) if e is not None]
    symbols = sorted({x.name for e in costs for x in e.free_symbols} | ({"b"} if row.reuse is not None else set()))
    headline = cell(row.work["contraction"], s) or {}
    ledgers = {k: cell(row.work[k], s) for k in LEDGERS if k != "contraction"}
    return {
        "model": row.model, "at": row.at, "kind": row.kind, "name": row.name, "symbols": symbols,
        "copies": cell(row.copies, s),
        "work": {**headline, "ledgers": ledgers, "ideal": cell(row.ideal, s), "executed": cell(row.executed, s)},
        "depth": {"unit": cell(row.unit, s), "tree": cell(row.tree, s)},
        "path": None if row.path is None else _path_json(row.path, s),
        "params": cell(row.params, s), "saved": _bytes(saved, s, batch), "peak": _bytes(peak, s, batch), "reuse": cell(row.reuse, s, batch),
        "training": _training_json(row, trained) if memory else None,
    }


def _bytes(e: sp.Expr | None, sizes: Sizes, batch: int) -> dict | None:
    found = cell(e, sizes, batch)
    return found and {**found, "bytes": found["value"]}


def _training_json(row: Row, trained: dict[str, dict[str, sp.Expr]]) -> dict:
    s, depth = row.sizes, row.training_depth
    return {
        "work": cell(row.effort, s), **{phase: cell(ledgers["contraction"], s) for phase, ledgers in trained.items()},
        "ledgers": {k: cell(sp.expand(sp.Add(*(ledgers[k] for ledgers in trained.values()))), s) for k in LEDGERS if k != "contraction"},
        "depth": {"unit": cell(depth, s)} if depth is not None else None,
        "measured": sorted({kernel for _, kernel in row.planned.joint.measured}) if row.kind == "model" else [],
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
    exact, growth = (None, None) if p.exact is None else (str(p.exact), str(order(p.exact)))
    return {"exact": exact, "order": growth, "value": number(p.value),
            "connected": p.connected, "witness": p.witness and list(p.witness), "why": p.why or None}
