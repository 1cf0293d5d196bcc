"""One HTML page about a spec: its graph, its costs with sliders, where they cross, and what was measured. docs/report.md."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from plait import given

if TYPE_CHECKING:
    from plait.api import Spec


def report(spec: Spec | str | Path, runs: Iterable[str | Path] = (), out: str | Path = "report.html", model: str | None = None,
           set: Mapping[str, object] | None = None, bench: Iterable[str | Path] = ()) -> Path:
    """Write a report into one HTML file, which is given back. runs: run folders, or folders that hold some; bench: JSON files of
    benchmarks; model: one model of the spec alone. Nothing is written where something is wrong: raises PlaitError."""
    from plait.api import Spec, chosen, load
    from plait.reporting import measured
    from plait.reporting.content import Code, content
    from plait.reporting.page import checked, page, write
    from plait.reporting.picture import svg
    more = given.settings(set)
    found = spec if isinstance(spec, Spec) else load(spec, more)
    if isinstance(spec, Spec) and more: found = load(spec.path, {**spec.settings, **more})
    if not found.models: chosen(found.file, None)                        # says how a model is written
    to = checked(given.path(out, "a report"))
    curves = measured.runs(_paths(runs, "a run"))
    times = [measured.bench(p) for p in _paths(bench, "a benchmark")]
    table, code = found.table("op", model), Code()
    facts = {"file": Path(found.path).name, **content(table, found.file, code), "runs": curves, "columns_of_runs": list(measured.KEPT),
             "bench": times}
    names = list(dict.fromkeys(r.model for r in table.rows))
    write(to, page(Path(found.path).name, facts, code, {m: svg(found.program(m)) for m in names}))
    return to


def _paths(found: Iterable[str | Path], what: str) -> list[Path]:
    """A path alone stands for a list of one."""
    return [given.path(p, what) for p in ([found] if isinstance(found, str | Path) else found)]
