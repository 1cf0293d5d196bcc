"""What the commands share: the application, the options, and how a mistake ends."""
from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from plait.dsl.errors import PlaitError, render_all

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
Best = Annotated[bool, typer.Option("--best", help="the checkpoint that checkpoint(best = METRIC) keeps")]
Average = Annotated[int | None, typer.Option("--average", min=1, metavar="K", help="the mean of the weights of the last K checkpoints")]
Steps = Annotated[int | None, typer.Option("--steps", min=1, help="the step to stop at")]

Shard = Annotated[str | None, typer.Option("--shard", metavar="HOW", help="on several ranks: ddp (the default), or fsdp: each rank has a "
                                                                             "part of every parameter")]


@app.callback(invoke_without_command=True)
def front(version: Annotated[bool, typer.Option("--version", help="print the version")] = False) -> None:
    """plait: a compiler for sequence models. A text file becomes a derived cost table and a trained model."""
    if version:
        from plait import __version__
        typer.echo(__version__)
        raise typer.Exit


def command(fn: Callable) -> Callable:
    """A command whose user's mistakes end as sentences with exit code 1."""
    @app.command(fn.__name__.rstrip("_"))
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
        except RecursionError: fail("this is nested too deep to be handled")
        except OSError as e: fail(f"{e.strerror or e}{f': {e.filename}' if e.filename else ''}")
    return run


def fail(sentence: str) -> None:
    typer.echo(f"error: {sentence}", err=True)
    raise typer.Exit(1)


def opened(path: Path, settings: list[str] | None):
    from plait import files
    return files.opened(path, files.single(files.overrides(settings)))


def warn(text: str) -> None:
    typer.echo(text, err=True)


def leads() -> bool:
    """Is this the process that speaks, of those that a launcher started?"""
    return os.environ.get("RANK", "0") == "0"


def console():
    from rich.console import Console

    class Lasting(Console):
        def on_broken_pipe(self) -> None:
            """A reader that has gone (`| head`) does not stop a training: it goes on without a word."""
            self.quiet = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    return Lasting(highlight=False)
