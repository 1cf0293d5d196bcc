"""The command line. Thin: every command reads its arguments, calls one function and prints."""
from __future__ import annotations

import json as js
import math
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer

from plait.dsl.errors import PlaitError, render, render_all

MOST_SWEPT = 1000                                             # combinations of a sweep

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False,
                  help="plait: a compiler for sequence models. A text file becomes a derived cost table and a trained model.")

File = Annotated[Path, typer.Argument(metavar="FILE", help="a .plait file")]
Folder = Annotated[Path, typer.Argument(metavar="RUN", help="a run folder")]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE",
                                                    help="override a dim, a let or a train setting; may be repeated")]
Model = Annotated[str | None, typer.Option("--model", help="one model of the file")]
Json = Annotated[bool, typer.Option("--json", help="print JSON")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda")]
Eager = Annotated[bool, typer.Option("--eager", help="run without torch.compile")]
Columns = Annotated[str | None, typer.Option("--columns", help="comma-separated: work, order, sequential, tree, path, params, reuse, …")]
Kernels = Annotated[list[str] | None, typer.Option("--kernel", metavar="REGION=KERNEL",
                                                   help="run a region by this kernel, or by its `body`; may be repeated")]
Memory = Annotated[str | None, typer.Option("--memory", metavar="SIZE", help="fit a training step into this memory: 4GiB")]
Steps = Annotated[int | None, typer.Option("--steps", min=1, help="the step to stop at")]


@app.callback(invoke_without_command=True)
def front(version: Annotated[bool, typer.Option("--version", help="print the version")] = False) -> None:
    """plait: a compiler for sequence models. A text file becomes a derived cost table and a trained model."""
    if version:
        from plait import __version__
        typer.echo(__version__)
        raise typer.Exit


def command(fn: Callable) -> Callable:
    """A command whose user's mistakes end as sentences with exit code 1."""
    @app.command()
    @wraps(fn)
    def run(*args: Any, **kwargs: Any) -> None:
        try: fn(*args, **kwargs)
        except PlaitError as e:
            typer.echo(render_all(e, color=sys.stderr.isatty()), err=True)
            raise typer.Exit(1) from None
        except BrokenPipeError: os._exit(0)                   # the reader of our output has gone: `| head`
        except KeyboardInterrupt:
            typer.echo("stopped", err=True)
            raise typer.Exit(130) from None
        except RecursionError: _fail("this is nested too deep to be handled")
        except OSError as e: _fail(f"{e.strerror or e}{f': {e.filename}' if e.filename else ''}")
    return run


def _fail(sentence: str) -> None:
    typer.echo(f"error: {sentence}", err=True)
    raise typer.Exit(1)


def _opened(path: Path, settings: list[str] | None):
    from plait import files
    return files.opened(path, files.single(files.overrides(settings)))


@command
def check(file: File, set: Settings = None, json: Json = False) -> None:
    """Say everything that is wrong with a spec, and what looks wrong."""
    from plait.checking import check as checked
    found = checked(_opened(file, set))
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
        if before != after: _fail(f"{file} is not in canonical layout: plait fmt {file}")
        return
    if before != after: _replace(file, after)
    typer.echo(f"{file}: {'laid out anew' if before != after else 'as it should be'}")


def _replace(path: Path, text: str) -> None:
    """Written beside, then renamed: never half a file."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        os.chmod(beside, path.stat().st_mode)
        os.replace(beside, path)
    finally: beside.unlink(missing_ok=True)


@command
def table(file: File, by: Annotated[str, typer.Option("--by", help="model, layer or op")] = "model", model: Model = None,
          set: Settings = None, columns: Columns = None,
          markdown: Annotated[bool, typer.Option("--markdown", help="print Markdown")] = False,
          latex: Annotated[bool, typer.Option("--latex", help="print a LaTeX tabular")] = False,
          csv: Annotated[bool, typer.Option("--csv", help="print CSV")] = False, json: Json = False) -> None:
    """Print the derived costs: work, depth, path length, parameters."""
    from plait.compiler.quantities import wanted as columns_of
    from plait.dsl.errors import error
    from plait.render import CELLS
    wanted = columns_of(columns, CELLS) if columns is not None else None
    found = _swept(file, by, model, set)
    if wanted: found = replace(found, columns=wanted)
    written = [f for wanted, f in ((json, found.dumps), (markdown, found.markdown), (latex, found.latex), (csv, found.csv)) if wanted]
    if len(written) > 1: raise error("E0505", "a table is printed in one form", help="one of --json, --markdown, --latex, --csv")
    typer.echo(written[0]() if written else str(found))


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
    found = solved(_opened(file, set).spec, parse_expression(condition, "condition"), unknown, batch)
    typer.echo(js.dumps(as_json(found, str(file)), indent=1) if json else told(found))


@command
def audit(file: File, model: Model = None, set: Settings = None, json: Json = False,
          compiled: Annotated[bool, typer.Option("--compiled", help="show what torch.compile keeps, too")] = False) -> None:
    """Hold every derived number against what runs. Choose small sizes: it executes the model."""
    from plait import files
    from plait.api import chosen
    settings = files.single(files.overrides(set))
    names = [chosen(_opened(file, set), model)] if model else None
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")           # torch's profiler, read when torch is imported: no lines of its own
    from plait.auditing import as_json, audited, told
    found = []
    for a in audited(file, settings, names, compiled):
        found.append(a)
        if not json: typer.echo(told(a))
    if json: typer.echo(js.dumps(as_json(found, str(file)), indent=1))
    if not all(a.holds for a in found): _fail("a derived number is not what was measured")


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
    typer.echo(derived(located(Spec(what, _opened(Path(what), set)), at), quantity))


@command
def plot(file: File, x: Annotated[str, typer.Option("--x", metavar="DIM", help="the dim along the axis")],
         y: Annotated[str, typer.Option("--y", metavar="COSTS", help="comma-separated: work, path, params, …")] = "work",
         low: Annotated[int, typer.Option("--from", min=1, help="the least value of the dim")] = 16,
         high: Annotated[int, typer.Option("--to", min=1, help="the greatest value of the dim")] = 2**16,
         out: Annotated[Path, typer.Option("--out", help="a .svg, .png or .pdf file")] = Path("plot.svg"), model: Model = None,
         set: Settings = None, batch: Annotated[int, typer.Option("--batch", min=1, help="sequences in a batch")] = 1) -> None:
    """Draw derived costs over a dim, with their crossings."""
    from plait.api import chosen
    from plait.compiler.curves import curves
    from plait.compiler.quantities import wanted
    from plait.dsl.errors import error
    from plait.plot import checked, draw, pyplot
    checked(out), pyplot()
    if low > high: raise error("E0640", f"the range from {low:,} to {high:,} is empty", help=f"--from {high} --to {low}")
    opened = _opened(file, set)
    models = [chosen(opened, model)] if model else list(opened.models)
    found, crossings = curves(opened.spec, x, wanted(y), models, low, high, batch)
    draw(found, crossings, x, out, file.name)
    for c in crossings: typer.echo(f"{c.quantity}: {c.models[0]} and {c.models[1]} change places at {x} = {c.x:,}")
    typer.echo(f"{out}: {len(found)} curves")


@command
def graph(file: File, model: Model = None, set: Settings = None,
          out: Annotated[Path | None, typer.Option("--out", help="draw the layers into a .svg, .png or .pdf file instead")] = None,
          plan: Annotated[bool, typer.Option("--plan", help="print how it runs: kernels, what is recomputed, and why")] = False,
          kernel: Kernels = None, memory: Memory = None,
          device: Annotated[str, typer.Option("--device", help="plan for cpu or cuda")] = "cpu") -> None:
    """Print the graph of primitives that a model expands into, or how it runs, or draw its layers."""
    from plait.api import Spec, chosen
    from plait.dsl.errors import error
    spec = Spec(file, _opened(file, set))
    if out is not None and (plan or kernel or memory): raise error("E0505", "a drawing shows no plan", help="leave --out away")
    if out is not None:
        from plait.drawing import draw
        from plait.plot import checked
        draw(spec.program(chosen(spec.file, model)), checked(out))
        typer.echo(f"{out}: {chosen(spec.file, model)}")
        return
    for name in [model] if model else spec.models:
        if plan or kernel or memory:
            from plait.planning import told
            typer.echo(told(spec, name, kernel or (), memory, device))
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


def _console():
    from rich.console import Console

    class Lasting(Console):
        def on_broken_pipe(self) -> None:
            """A reader that has gone (`| head`) does not stop a training: it goes on without a word."""
            self.quiet = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    return Lasting(highlight=False)


@command
def train(file: File, model: Model = None, set: Settings = None, device: Device = "auto", steps: Steps = None,
          out: Annotated[Path | None, typer.Option("--out", help="the run folder to make")] = None, eager: Eager = False,
          kernel: Kernels = None, memory: Memory = None) -> None:
    """Train a model by the train block of its spec."""
    from plait import files
    from plait.compiler.fit import bytes_of
    from plait.compiler.plan import kernels_of
    wanted, most = kernels_of(kernel or ()), bytes_of(memory) if memory is not None else None
    from plait.checking import meant
    settings = files.single(files.overrides(set))
    spec = files.opened(file, settings)                       # mistakes and warnings are told before torch is loaded
    for d in (d for m in spec.models if model in (None, m) for d in meant(spec, m)): _warn(render(d, color=sys.stderr.isatty()))
    from plait.training import start
    _told(start(file, model, settings, device, steps, out, not eager, _console(), wanted, most))


@command
def resume(run: Folder, steps: Steps = None, device: Device = "auto", eager: Eager = False) -> None:
    """Go on with a run from its last checkpoint."""
    from plait.training import resume as go_on
    _told(go_on(run, steps, device, not eager, _console()))


def _told(run) -> None:
    typer.echo(f"{run.folder}: step {run.step:,}; plait sample {run.folder}, plait evaluate {run.folder}, plait resume {run.folder}")
    if run.interrupted: raise typer.Exit(130)


@command
def evaluate(run: Folder, metric: Annotated[list[str] | None, typer.Option("--metric", help="loss, bits_per_token, accuracy")] = None,
             set: Settings = None, device: Device = "auto", json: Json = False) -> None:
    """Measure a run over all of its validation part."""
    from plait import files
    from plait.training import evaluate as measured
    found = measured(run, tuple(m for t in metric or () for m in t.split(",")), files.single(files.overrides(set)), device, False, _warn)
    typer.echo(js.dumps(found) if json else "  ".join(f"{k} {v:,.4f}" if isinstance(v, float) else f"{k} {v:,}" for k, v in found.items()))


@command
def sample(run: Folder, prompt: Annotated[str, typer.Option("--prompt", help="how the text begins")] = "",
           length: Annotated[int, typer.Option("--length", min=1, help="symbols to make")] = 200,
           temperature: Annotated[float, typer.Option("--temperature", min=0.0, help="0 takes the likeliest")] = 1.0,
           top_k: Annotated[int | None, typer.Option("--top-k", min=1, help="only among the k likeliest")] = None,
           seed: Annotated[int, typer.Option("--seed", min=0, max=2**63 - 1)] = 0, device: Device = "auto") -> None:
    """Print text that a trained model makes."""
    from plait.training import sample as sampled
    pieces = sampled(run, prompt, length, temperature, top_k, seed, device, _warn)
    typer.echo(prompt, nl=False)
    for piece in pieces: typer.echo(piece, nl=False)
    typer.echo()


def _warn(text: str) -> None:
    typer.echo(text, err=True)


def main() -> None:
    """The console script. A mistake in the options ends like every other one, with exit code 1."""
    try: app()
    except SystemExit as e: sys.exit(1 if e.code == 2 else e.code)
