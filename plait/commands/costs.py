"""Commands about what a model costs: the table, questions, drawings, derivations, and the audit."""
from __future__ import annotations

import json as js
import math
import os
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated

import typer

from plait.command import (
    Columns,
    File,
    Json,
    Model,
    Settings,
    Shard,
    command,
    fail,
    opened,
)

MOST_SWEPT = 1000                                             # combinations of a sweep


@command
def table(file: File, by: Annotated[str, typer.Option("--by", help="model, layer or op")] = "model", model: Model = None,
          set: Settings = None, columns: Columns = None,
          markdown: Annotated[bool, typer.Option("--markdown", help="print Markdown")] = False,
          latex: Annotated[bool, typer.Option("--latex", help="print a LaTeX tabular")] = False,
          csv: Annotated[bool, typer.Option("--csv", help="print CSV")] = False, json: Json = False,
          ranks: Annotated[int | None, typer.Option("--ranks", min=1, help="memory of each of so many processes instead")] = None,
          shard: Shard = None) -> None:
    """Print the derived costs: work, depth, path length, parameters; with --ranks, the memory of each process."""
    from plait.compiler.quantities import wanted as columns_of
    from plait.dsl.errors import error
    from plait.render import CELLS
    if ranks is not None or shard is not None:
        return _shared(file, by, model, set, ranks, shard or "ddp", (columns, latex, csv), markdown, json)
    wanted = columns_of(columns, CELLS) if columns is not None else None
    found = _swept(file, by, model, set)
    if wanted: found = replace(found, columns=wanted)
    written = [f for wanted, f in ((json, found.dumps), (markdown, found.markdown), (latex, found.latex), (csv, found.csv)) if wanted]
    if len(written) > 1: raise error("E0505", "a table is printed in one form", help="one of --json, --markdown, --latex, --csv")
    typer.echo(written[0]() if written else str(found))


def _shared(file: Path, by: str, model: str | None, settings: list[str] | None, ranks: int | None, shard: str, other: tuple,
            markdown: bool, json: bool) -> None:
    """The table of memory for several processes."""
    from plait.api import Spec, chosen
    from plait.dsl.errors import error
    from plait.scaling import dumps, scaled, told
    if ranks is None: raise error("E0505", "a way to share needs a number of ranks", help=f"--ranks 8 --shard {shard}")
    if any(other) or markdown and json:
        raise error("E0505", "the memory of ranks is printed as text, Markdown or JSON, with all its columns", help="--json or --markdown")
    spec = Spec(file, opened(file, settings))
    found = [scaled(spec, m, ranks, shard) for m in ([chosen(spec.file, model)] if model else spec.models)]
    typer.echo(dumps(spec.table(by, model), found, ranks, shard) if json else told(found, ranks, shard, markdown))


def _swept(file: Path, by: str, model: str | None, settings: list[str] | None):
    """One table, of every combination of the values that `--set` lists."""
    from plait import files
    from plait.api import Spec
    from plait.dsl.errors import error
    from plait.dsl.parser import parse
    sets = files.overrides(settings)
    varied = tuple(o.path[-1] for o in sets if len(o.values) > 1)
    count = math.prod(len(o.values) for o in sets)
    if count > MOST_SWEPT:
        raise error("E0505", f"these lists have {count:,} combinations: a table has at most {MOST_SWEPT:,}", help="--set n=1Ki,4Ki,16Ki")
    original = parse(files.read(file), str(file))
    settled = [tuple(replace(o, values=(v,)) for o, v in zip(sets, values)) for values in product(*(o.values for o in sets))]
    tables = [Spec(file, files.resolved(original, given, file.parent)).table(by, model) for given in settled]
    same = {k: v for k, v in tables[0].dims.items() if k in varied or all(t.dims[k] == v for t in tables)}
    return replace(tables[0], rows=tuple(r for t in tables for r in t.rows), varied=varied, dims=same)


@command
def solve(file: File, condition: Annotated[str, typer.Argument(metavar="CONDITION", help="work(a) < work(b), peak(m) <= 16GiB, …")],
          unknown: Annotated[str, typer.Option("--for", metavar="DIM", help="the dim to solve for, or b: the batch")],
          set: Settings = None, batch: Annotated[int, typer.Option("--batch", min=1, help="sequences in a batch")] = 1,
          json: Json = False) -> None:
    """Find where two costs cross, or how far a limit reaches."""
    from plait.answers import as_json, told
    from plait.compiler.solve import solve as solved
    from plait.dsl.parser import parse_expression
    found = solved(opened(file, set).spec, parse_expression(condition, "condition"), unknown, batch)
    typer.echo(js.dumps(as_json(found, str(file)), indent=1) if json else told(found))


@command
def audit(file: File, model: Model = None, set: Settings = None, json: Json = False,
          compiled: Annotated[bool, typer.Option("--compiled", help="show what torch.compile keeps, too")] = False) -> None:
    """Hold every derived number against what runs. Choose small sizes: it executes the model."""
    from plait import files
    from plait.api import chosen
    settings = files.single(files.overrides(set))
    names = [chosen(opened(file, set), model)] if model else None
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")           # torch's profiler, read when torch is imported: no lines of its own
    from plait.auditing import as_json, audited, told
    found = []
    for a in audited(file, settings, names, compiled):
        found.append(a)
        if not json: typer.echo(told(a))
    if json: typer.echo(js.dumps(as_json(found, str(file)), indent=1))
    if not all(a.holds for a in found): fail("a derived number is not what was measured")


@command
def explain(what: Annotated[str, typer.Argument(metavar="CODE|FILE", help="a code, E0301, or a .plait file")],
            at: Annotated[str | None, typer.Argument(help="a place, as in the JSON of the table: model, model/stream/2/attend")] = None,
            cost: Annotated[str | None, typer.Argument(help="work, params, sequential, …")] = None, set: Settings = None) -> None:
    """Explain a code of a message, or how a cell of the table came about."""
    if at is None and cost is None and not Path(what).exists():
        from plait.dsl.explanations import explained
        typer.echo(explained(what))
        return
    from plait.answers import derived, located
    from plait.api import Spec
    from plait.compiler.quantities import wanted
    (quantity,) = wanted(cost or "work")
    typer.echo(derived(located(Spec(what, opened(Path(what), set)), at), quantity))


@command
def plot(file: File, x: Annotated[str | None, typer.Option("--x", metavar="DIM", help="the dim along the axis")] = None,
         y: Annotated[str, typer.Option("--y", metavar="COSTS", help="comma-separated: work, path, params, …")] = "work",
         low: Annotated[int, typer.Option("--from", min=1, help="the least value of the dim")] = 16,
         high: Annotated[int | None, typer.Option("--to", min=1, help="the greatest value of the dim, 65536; the last step")] = None,
         schedule: Annotated[bool, typer.Option("--schedule", help="the learning rate over the steps, in place of costs")] = False,
         out: Annotated[Path, typer.Option("--out", help="a .svg, .png or .pdf file")] = Path("plot.svg"), model: Model = None,
         set: Settings = None, batch: Annotated[int, typer.Option("--batch", min=1, help="sequences in a batch")] = 1) -> None:
    """Draw derived costs over a dim, with their crossings; or learning rates over steps."""
    from plait.api import chosen
    from plait.compiler.curves import curves
    from plait.compiler.quantities import wanted
    from plait.dsl.errors import error
    from plait.plot import checked, draw, pyplot
    checked(out), pyplot()
    if schedule == (x is not None):
        raise error("E0505", "a plot is of costs over a dim, or of learning rates over steps", help="--x n, or --schedule")
    if x is None: return _schedules(file, model, set, high, out)
    high = high or 2**16
    if low > high: raise error("E0640", f"the range from {low:,} to {high:,} is empty", help=f"--from {high} --to {low}")
    spec = opened(file, set)
    models = [chosen(spec, model)] if model else list(spec.models)
    found, crossings = curves(spec.spec, x, wanted(y), models, low, high, batch)
    draw(found, crossings, x, out, file.name)
    for c in crossings: typer.echo(f"{c.quantity}: {c.models[0]} and {c.models[1]} change places at {x} = {c.x:,}")
    typer.echo(f"{out}: {len(found)} curve{'s' if len(found) != 1 else ''}")


def _schedules(file: Path, model: str | None, settings: list[str] | None, last: int | None, out: Path) -> None:
    from plait.api import chosen
    from plait.plot import draw_schedules
    from plait.schedule import schedules
    spec = opened(file, settings)
    found = schedules(spec, [chosen(spec, model)] if model else list(spec.models), last)
    draw_schedules(found, out, file.name)
    for s in found:
        typer.echo(f"{s.model}: {s.rates[0]:.3g} at step 1, {max(s.rates):.3g} at most, {s.rates[-1]:.3g} at step {s.steps[-1]:,}")
    typer.echo(f"{out}: {len(found)} curve{'s' if len(found) != 1 else ''}")
