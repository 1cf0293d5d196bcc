"""The costs that a row has, by the names under which columns, plots and questions ask for them."""
from __future__ import annotations

from collections.abc import Callable, Collection

import sympy as sp

from plait.compiler.costs.work import LEDGERS
from plait.compiler.table import PathCell, Row
from plait.dsl.errors import error
from plait.dsl.suggest import suggest

ALSO = {"depth": "sequential", "macs": "work", "flops": "work", "parameters": "params", "memory": "peak"}
Quantity = Callable[[Row], sp.Expr | None]


def _ledger(name: str) -> Quantity:
    return lambda row: row.work[name]


def _phase(name: str) -> Quantity:
    return lambda row: row.trained[name]["contraction"]


def _path(row: Row) -> sp.Expr | None:
    """Stacked where the row can be, else as written; the closed form, else the number."""
    if not isinstance(row.path, PathCell): return None
    p = row.path.stacked or max(row.path.written.values(), key=lambda v: v.value or 0, default=None)
    return None if p is None else p.exact if p.exact is not None else None if p.value is None else sp.Integer(p.value)


QUANTITIES: dict[str, Quantity] = {
    "work": _ledger("contraction"), **{name: _ledger(name) for name in LEDGERS if name != "contraction"},
    "ideal": lambda row: row.ideal, "executed": lambda row: row.executed,
    "sequential": lambda row: row.unit, "tree": lambda row: row.tree, "path": _path,
    "params": lambda row: row.params, "reuse": lambda row: row.reuse,
    "saved": lambda row: row.saved, "peak": lambda row: row.peak, "training": lambda row: row.effort,
    **{phase: _phase(phase) for phase in ("recompute", "backward")}, "training_depth": lambda row: row.training_depth,
}


def wanted(names: str, known: Collection[str] = QUANTITIES) -> tuple[str, ...]:
    """`work, path` as a list of names. Raises PlaitError for one that is not there."""
    found = tuple(dict.fromkeys(n.strip() for n in names.split(",")))
    for n in found:
        if n in known: continue
        near = suggest(n, known, ALSO)
        raise error("E0505", f"there is no cost `{n}`", help=f"`{near[0]}`?" if near else f"costs: {', '.join(known)}")
    return found
