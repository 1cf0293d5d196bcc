"""Commands that carry models to other libraries and back."""
from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plait.command import Average, Best, Settings, command, warn


@command
def export(run: Annotated[Path, typer.Argument(metavar="RUN", help="a run folder, or a file that plait export or import has written")],
           to: Annotated[str, typer.Option("--to", metavar="FORM", help="safetensors, torch.export or onnx")] = "safetensors",
           out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="the file to write")] = None,
           step: Annotated[int | None, typer.Option("--step", min=0, help="the checkpoint of this step, not the last")] = None,
           best: Best = False, average: Average = None,
           set: Settings = None) -> None:
    """Write the trained model of a run as a file for other programs."""
    from plait import files
    from plait.exchange import exported
    typer.echo(exported(run, to, out, step, best, average, files.single(files.overrides(set)), warn))


@command
def import_(folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="a folder with config.json and the weights")],
            out: Annotated[Path | None, typer.Option("--out", metavar="FOLDER", help="where the spec and the weights go")] = None,
            name: Annotated[str | None, typer.Option("--name", help="the name of the model")] = None) -> None:
    """Turn a checkpoint of Hugging Face's Reformer into a spec and its weights."""
    from plait.exchange import imported
    typer.echo(imported(folder, out, name))
