"""Commands about the text of a spec: what is wrong with it, its layout, its graph, the layers it may use."""
from __future__ import annotations

import json as js
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from plait.command import (
    File,
    Json,
    Kernels,
    Memory,
    Model,
    Settings,
    command,
    fail,
    opened,
)
from plait.dsl.errors import render


@command
def check(file: File, set: Settings = None, json: Json = False) -> None:
    """Say everything that is wrong with a spec, and what looks wrong."""
    from plait.checking import check as checked
    found = checked(opened(file, set))
    if json:
        warnings = [_diagnostic(d) for d in found.warnings]
        typer.echo(js.dumps({"plait": 1, "file": str(file), "models": found.models, "warnings": warnings}, indent=1))
        return
    for d in found.warnings: typer.echo(render(d, color=sys.stdout.isatty()))
    typer.echo(f"{file}: {len(found.models)} model{'s' if len(found.models) != 1 else ''} ({', '.join(found.models)}), no mistakes"
               + (f", {len(found.warnings)} warning{'s' if len(found.warnings) != 1 else ''}" if found.warnings else ""))


def _diagnostic(d) -> dict:
    place = None if d.span is None else dict(zip(("line", "column"), d.span.source.place(d.span.start)))
    return {"code": d.code, "message": d.message, "at": place, "numbers": d.numbers, "help": d.help}


@command
def fmt(file: File,
        check: Annotated[bool, typer.Option("--check", help="only say whether it would change (exit code 1 if so)")] = False) -> None:
    """Bring a spec into its canonical layout, in place, with every comment kept."""
    from plait import files
    from plait.dsl.printer import format
    before = files.read(file)
    after = format(before, str(file))
    if check:
        if before != after: fail(f"{file} is not in canonical layout: plait fmt {file}")
        return
    if before != after: replace_file(file, after)
    typer.echo(f"{file}: {'laid out anew' if before != after else 'as it should be'}")


def replace_file(path: Path, text: str) -> None:
    """Written beside, then renamed: never half a file."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        os.chmod(beside, path.stat().st_mode)
        os.replace(beside, path)
    finally: beside.unlink(missing_ok=True)


@command
def graph(file: File, model: Model = None, set: Settings = None,
          out: Annotated[Path | None, typer.Option("--out", help="draw the layers into a .svg, .png or .pdf file instead")] = None,
          plan: Annotated[bool, typer.Option("--plan", help="print how it runs: kernels, what is recomputed, and why")] = False,
          kernel: Kernels = None, memory: Memory = None,
          device: Annotated[str, typer.Option("--device", help="plan for cpu or cuda")] = "cpu") -> None:
    """Print the graph of primitives that a model expands into, or how it runs, or draw its layers."""
    from plait.api import Spec, chosen
    from plait.dsl.errors import error
    spec = Spec(file, opened(file, set))
    if out is not None and (plan or kernel or memory): raise error("E0505", "a drawing shows no plan", help="leave --out away")
    if out is not None:
        from plait.drawing import draw
        from plait.plot import checked
        draw(spec.program(chosen(spec.file, model)), checked(out))
        typer.echo(f"{out}: {chosen(spec.file, model)}")
        return
    for name in [model] if model else spec.models:
        if plan or kernel or memory:
            from plait.planning import planned
            typer.echo(planned(spec, name, kernel or (), memory, device))
        else: typer.echo(f"{name}\n{spec.program(name).graph.text('  ')}")


@command
def layers(name: Annotated[str | None, typer.Argument(help="one layer")] = None) -> None:
    """List the layers with their arguments, or explain one."""
    import plait.compiler.layers  # noqa: F401
    from plait.compiler.constructs import CONSTRUCTS
    from plait.compiler.layer import LAYERS
    from plait.dsl.errors import error
    from plait.dsl.suggest import ALIASES, suggest
    if name in {*CONSTRUCTS, "repeat"}:
        raise error("E0402", f"`{name}` is a construct with a body, not a layer", help="docs/language.md has the constructs")
    if name is not None and name not in LAYERS:
        near = suggest(name, LAYERS, ALIASES)
        raise error("E0402", f"there is no layer `{name}`", help=f"`{near[0]}`?" if near else "plait layers")
    for layer in [LAYERS[name]] if name else sorted(LAYERS.values(), key=lambda entry: entry.name):
        doc = layer.doc if name else layer.doc.split("\n")[0]
        typer.echo(f"{layer.signature}\n    " + "\n    ".join(doc.split("\n")))
