"""Commands about time: this machine's rates, and how long a step will take."""
from __future__ import annotations

import json as js
from pathlib import Path
from typing import Annotated

import typer

from plait.command import File, Json, Kernels, Model, Settings, command, warn


@command
def calibrate(device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda")] = "cpu",
              dtype: Annotated[str, typer.Option("--dtype", help="float32, bfloat16, …")] = "float32", json: Json = False) -> None:
    """Measure the rates of this machine, for `plait predict`. Takes about a minute; nothing else should run meanwhile."""
    from plait.api import calibrate as measured
    from plait.predicting import calibrated
    found = measured(device, dtype, told=warn)
    typer.echo(js.dumps(found.as_json(), indent=1) if json else calibrated(found))


@command
def predict(file: File, model: Model = None, set: Settings = None,
            batch: Annotated[int | None, typer.Option("--batch", min=1, help="sequences a step; else those of the train block")] = None,
            steps: Annotated[str | None, typer.Option("--steps", metavar="N", help="the time of so many steps: 100k")] = None,
            measure: Annotated[bool, typer.Option("--measure", help="measure every row, too")] = False,
            machine: Annotated[Path | None, typer.Option("--machine", metavar="FILE", help="the numbers of another machine")] = None,
            columns: Annotated[str | None, typer.Option("--columns", help="comma-separated: step, arithmetic, latency, …")] = None,
            kernel: Kernels = None, json: Json = False) -> None:
    """Predict the time of a training step from derived costs and this machine's rates."""
    from plait import files
    from plait.compiler.plan import kernels_of
    from plait.predicting import columns_of, predicted, steps_of, told
    wanted, count = columns_of(columns), steps_of(steps)
    found = predicted(file, model, files.overrides(set), batch, count, machine, measure, kernels_of(kernel or ()), warn)
    typer.echo(found.dumps() if json else told(found, wanted))
