"""The costs that a row has, by the names under which columns, plots and questions ask for them."""
from __future__ import annotations

from collections.abc import Callable

import sympy as sp

from plait.compiler.costs.work import LEDGERS
from plait.compiler.table import PathCell, Row

Quantity = Callable[[Row], sp.Expr | None]


def _ledger(name: str) -> Quantity:
    return lambda row: row.work[name]


def _path(row: Row) -> sp.Expr | None:
    """Stacked where the row can be, else as written; the closed form, else the number."""
    if not isinstance(row.path, PathCell): return None
    p = row.path.stacked or max(row.path.written.values(), key=lambda v: v.value or 0, default=None)
    return None if p is None else p.exact if p.exact is not None else None if p.value is None else sp.Integer(p.value)


QUANTITIES: dict[str, Quantity] = {
    "work": _ledger("contraction"), **{name: _ledger(name) for name in LEDGERS if name != "contraction"},
    "ideal": lambda row: row.ideal, "sequential": lambda row: row.unit, "tree": lambda row: row.tree, "path": _path,
    "params": lambda row: row.params, "reuse": lambda row: row.reuse,
}
