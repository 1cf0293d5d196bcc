"""Commands that measure models beside each other."""
from __future__ import annotations

import json as js
from pathlib import Path
from typing import Annotated

import typer

from plait.command import Device, Eager, Json, Kernels, Settings, command, console, warn

Files = Annotated[list[Path], typer.Argument(metavar="FILE…", help=".plait files")]
Models = Annotated[list[str] | None, typer.Option("--model", help="a model of the files; may be repeated; all where none is named")]
ALSO = ("python-loop",)


@command
def bench(file: Files, lengths: Annotated[str, typer.Option("--lengths", metavar="N,N,…", help="values of the length")] = "",
          batch: Annotated[int, typer.Option("--batch", min=1, help="sequences of a step")] = 32, model: Models = None,
          tokens: Annotated[str | None, typer.Option("--tokens", help="symbols of a step, instead of sequences: 32Ki")] = None,
          set: Settings = None,
          by: Annotated[str | None, typer.Option("--by", metavar="DIM", help="the dim that is the length, if inputs do not tell")] = None,
          rounds: Annotated[int, typer.Option("--rounds", min=1, help="every round runs every model once")] = 25,
          against: Annotated[str | None, typer.Option("--against", metavar="MODEL", help="the model that others are divided by")] = None,
          also: Annotated[str | None, typer.Option("--also", help="python-loop: recurrences as loops in Python, too")] = None,
          kernel: Kernels = None, eager: Eager = False, device: Device = "auto", json: Json = False) -> None:
    """Time a training step of every model at every length, in turn, beside what was derived."""
    from plait import files
    from plait.compiler.plan import kernels_of
    from plait.dsl.errors import error
    from plait.given import count_of as count
    from plait.given import counts
    if also is not None and also not in ALSO: raise error("E0505", f"`{also}` is nothing to run besides", help="--also python-loop")
    wanted, settings = kernels_of(kernel or ()), files.single(files.overrides(set))
    sizes = counts(lengths, "--lengths 16,32,64,128") if lengths else None
    symbols = count(tokens, "--tokens 32Ki") if tokens else None
    from plait.benching import as_json, bench, table, written
    from plait.runtime.device import device_of
    from plait.runtime.progress import counted
    where = device_of(device)
    with counted(None if json else console(), rounds, "rounds") as told:
        sizes = sizes or written(file, settings, model or ())
        found = bench(file, sizes, batch, tokens=symbols, settings=settings, models=model or (), by=by, rounds=rounds, against=against,
                      kernels=wanted, compile=not eager, python_loop=also is not None,
                      device=where, told=told)
    typer.echo(js.dumps(as_json(found, file, where), indent=1) if json else table(found, by or "context"))


@command
def compare(file: Annotated[Path, typer.Argument(metavar="FILE", help="a .plait file, or the folder of an experiment to go on with")],
            name: Annotated[str | None, typer.Option("--name", help="one compare block of the file")] = None,
            models: Annotated[str | None, typer.Option("--models", metavar="A,B,…", help="the models, against the compare block")] = None,
            fit: Annotated[str | None, typer.Option("--fit", metavar="PARAMS", help="one size for all: 'params(2M, by = d)'")] = None,
            seeds: Annotated[str | None, typer.Option("--seeds", metavar="K,K,…")] = None,
            budget: Annotated[str | None, typer.Option("--budget", metavar="AMOUNT", help="of every run: '4k steps', '10 minutes'")] = None,
            lr: Annotated[str | None, typer.Option("--lr", metavar="RATE,…", help="learning rates to choose from, for each model")] = None,
            patience: Annotated[int | None, typer.Option("--patience", min=1, help="evaluations without a better loss: a run ends")] = None,
            set: Settings = None, out: Annotated[Path | None, typer.Option("--out", help="the folder of the experiment")] = None,
            rounds: Annotated[int, typer.Option("--rounds", min=1, help="in which step times are measured")] = 25, kernel: Kernels = None,
            eager: Eager = False, device: Device = "auto", json: Json = False) -> None:
    """Train several models and seeds on one budget: validation against steps and against seconds, each run's own minimum."""
    from plait import files
    from plait.compiler.plan import kernels_of
    from plait.runtime.comparison import comparison
    options = {"models": models, "fit": fit, "seeds": seeds, "budget": budget, "lr": lr, "patience": patience}
    asked = {k: str(v) for k, v in options.items() if v is not None}
    wanted, settings = kernels_of(kernel or ()), files.single(files.overrides(set))
    if file.is_file(): comparison(files.opened(file, settings), name, asked)         # mistakes are told before torch is loaded
    from plait.comparing import as_json, compared, table
    from plait.runtime.device import device_of
    where = device_of(device)
    found = compared(file, name=name, settings=settings, asked=asked, out=out, device=where, compile=not eager, kernels=wanted,
                    rounds=rounds, say=warn)
    typer.echo(js.dumps(as_json(found, where), indent=1) if json else f"{table(found)}\n{found.folder}")
