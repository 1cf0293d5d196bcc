"""What `plait solve` found, as a person reads it and as JSON."""
from __future__ import annotations

from typing import Any

import sympy as sp

from plait.api import Spec, chosen
from plait.compiler.explain import derivation
from plait.compiler.quantities import QUANTITIES
from plait.compiler.solve import Solution
from plait.compiler.table import Row
from plait.compiler.table import rows as rows_of
from plait.dsl.errors import error
from plait.dsl.suggest import suggest
from plait.pretty import pretty, whole


def told(s: Solution) -> str:
    """The condition in the dims, where both sides are equal, and where it holds."""
    lines = [s.condition, *(f"  {pretty(x)} {op} {pretty(y)}" for x, op, y in s.sides)]
    for r in s.roots or ():
        value = "" if r.exact.is_Integer or r.value is None else f" = {whole(r.value)}"
        lines.append(f"  equal at {s.unknown} = {pretty(r.exact)}{value}")
    if not any(s.unknown in map(str, e.free_symbols) for x, _, y in s.sides for e in (x, y)):
        lines.append(f"  {s.unknown} is not in it" + (": work, depth and path are of one sequence" if s.unknown == "b" else ""))
    return "\n".join([*lines, f"  {_where(s)} ({_how(s)})"])


def located(spec: Spec, at: str | None) -> Row:
    """The row of a place: a model, `model/stream/2/attend`. Raises PlaitError where nothing stands there."""
    if at is None and len(spec.models) > 1:
        raise error("E0637", f"this file has {len(spec.models)} models", help=f"plait explain {spec.path} {spec.models[0]}")
    if at and len(spec.models) == 1 and at.split("/")[0] not in spec.models: at = f"{spec.models[0]}/{at}"
    name = chosen(spec.file, at.split("/")[0] if at else None)
    if at is None or at == name: return Row(spec.program(name), name, "model", name, spec.step(name))
    rows = {r.at: r for r in rows_of(spec.program(name), "op", spec.step(name))}
    if at in rows: return rows[at]
    near = suggest(at, rows, {}) or [k for k in rows if k.startswith(at)][:3]
    places = " or ".join(near) or f"plait table --by layer --json lists the places of {name}"
    raise error("E0402", f"nothing stands at `{at}`", help=places)


def derived(row: Row, quantity: str) -> str:
    """The derivation of a cell: a line an op, and what they come to."""
    def shown(e: sp.Expr) -> tuple[str, str]:
        return ("", "") if e is sp.nan else (pretty(e), whole(row.sizes.bind(b=1).value(e)))

    cells = [(x.name, x.what, f"× {x.trips}" if x.trips else "", *shown(x.share)) for x in derivation(row, quantity)]
    total = QUANTITIES[quantity](row)
    if total is not None: cells.append(("=", "", "", *shown(total)))
    widths = [max((len(c[k]) for c in cells), default=0) for k in range(5)]
    def line(c: tuple[str, ...]) -> str:
        return "  " + "  ".join(t.ljust(w) if k < 4 else t.rjust(w) for k, (t, w) in enumerate(zip(c, widths))).rstrip()
    return "\n".join([f"{row.at} {quantity}", *map(line, cells)])


def _where(s: Solution) -> str:
    if s.holds is None: return "where it holds depends on dims that have no value"
    if not s.holds: return f"holds for no {s.unknown}"
    said = [_range(s, first, last) for first, last in s.holds[:5]]
    return f"holds for {s.unknown} {', '.join(said)}" + (f" and {len(s.holds) - 5} more ranges" if len(s.holds) > 5 else "")


def _range(s: Solution, first: int, last: int | None) -> str:
    if first == last: return f"= {first:,}"
    if last is None: return f"≥ {first:,}" if first > s.step else f"≥ {first:,}: always"
    return f"≤ {last:,}" if first == s.step else f"from {first:,} to {last:,}"


def _how(s: Solution) -> str:
    steps = f"multiples of {s.step:,}; " if s.step > 1 else ""
    return steps + ("symbolic" if s.tried is None else f"no closed form: every value up to {s.tried:,} was tried")


def as_json(s: Solution, file: str) -> dict[str, Any]:
    return {
        "plait": 1, "file": file, "condition": s.condition, "for": s.unknown,
        "sides": [{"left": str(x), "relation": op, "right": str(y)} for x, op, y in s.sides],
        "method": "symbolic" if s.tried is None else "search", "tried": s.tried, "step": s.step,
        "roots": None if s.roots is None else [{"exact": str(r.exact), "value": r.value} for r in s.roots],
        "holds": None if s.holds is None else [list(r) for r in s.holds], "first": s.first, "last": s.last,
    }
