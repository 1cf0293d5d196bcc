"""What `plait solve` found, as a person reads it and as JSON."""
from __future__ import annotations

from typing import Any

from plait.compiler.solve import Solution
from plait.render import pretty, whole


def told(s: Solution) -> str:
    """The condition in the dims, where both sides are equal, and where it holds."""
    lines = [s.condition, *(f"  {pretty(x)} {op} {pretty(y)}" for x, op, y in s.sides)]
    for r in s.roots or ():
        value = "" if r.exact.is_Integer or r.value is None else f" = {whole(r.value)}"
        lines.append(f"  equal at {s.unknown} = {pretty(r.exact)}{value}")
    return "\n".join([*lines, f"  {_where(s)} ({_how(s)})"])


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
