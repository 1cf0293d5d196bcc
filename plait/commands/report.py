"""The command that writes a page about a spec and its runs."""
from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plait.command import File, Model, Settings, command, opened


@command
def report(file: File, runs: Annotated[list[Path] | None, typer.Argument(metavar="RUN", help="run folders, or folders of them")] = None,
           out: Annotated[Path, typer.Option("--out", "-o", help="the .html file to write")] = Path("report.html"), model: Model = None,
           set: Settings = None,
           bench: Annotated[list[Path] | None, typer.Option("--bench", metavar="FILE.json",
                                                            help="times of a benchmark; may be repeated")] = None) -> None:
    """Write one HTML page: graphs, costs with sliders, where they cross, training curves, times."""
    from plait.api import Spec
    from plait.reporting import report as written
    spec = Spec(file, opened(file, set))
    to = written(spec, runs or (), out, model, bench=bench or ())
    typer.echo(f"{to}: {len(spec.models) if model is None else 1} model{'s' if model is None and len(spec.models) != 1 else ''}")
