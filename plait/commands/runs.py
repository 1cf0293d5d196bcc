"""Commands that train, and that read what was trained."""
from __future__ import annotations

import json as js
import sys
from pathlib import Path
from typing import Annotated

import typer

from plait.command import (
    Average,
    Best,
    Device,
    Eager,
    File,
    Folder,
    Json,
    Kernels,
    Memory,
    Model,
    Settings,
    Shard,
    Steps,
    command,
    console,
    leads,
    warn,
)
from plait.dsl.errors import render

Width = Annotated[int, typer.Option("--beam", min=1, help="hypotheses that a translation keeps; 1 takes the likeliest symbol")]
Penalty = Annotated[float, typer.Option("--length-penalty", min=0.0, help="the α of Wu et al. 2016")]


@command
def train(file: File, model: Model = None, set: Settings = None, device: Device = "auto", steps: Steps = None,
          out: Annotated[Path | None, typer.Option("--out", help="the run folder to make")] = None, eager: Eager = False,
          kernel: Kernels = None, memory: Memory = None, shard: Shard = None,
          offload: Annotated[bool, typer.Option("--offload", help="with fsdp: keep each rank's part in the memory of the host")] = False
          ) -> None:
    """Train a model by the train block of its spec; under a launcher such as torchrun, on several processes."""
    from plait import files
    from plait.compiler.fit import bytes_of
    from plait.compiler.plan import kernels_of
    wanted, most = kernels_of(kernel or ()), bytes_of(memory) if memory is not None else None
    from plait.checking import meant
    settings = files.single(files.overrides(set))
    spec = files.opened(file, settings)                       # mistakes and warnings are told before torch is loaded
    for d in (d for m in spec.models if leads() and model in (None, m) for d in meant(spec, m)): warn(render(d, color=sys.stderr.isatty()))
    from plait.training import start
    _told(start(file, model, settings, device, steps, out, not eager, console(), wanted, most, shard or "ddp", offload))


@command
def resume(run: Folder, steps: Steps = None, device: Device = "auto",
           eager: Annotated[bool | None, typer.Option("--eager/--compile", help="as the run began, where neither is said")] = None) -> None:
    """Go on with a run from its last checkpoint."""
    from plait.training import resume as go_on
    _told(go_on(run, steps, device, None if eager is None else not eager, console()))


def _told(run) -> None:
    if leads():
        typer.echo(f"{run.folder}: step {run.step:,}; {', '.join(f'plait {c} {run.folder}' for c in run.commands)}")
    if run.interrupted: raise typer.Exit(130)


@command
def evaluate(run: Folder, metric: Annotated[list[str] | None, typer.Option("--metric", help="loss, bits_per_token, accuracy, bleu")] = None,
             beam: Width = 4, penalty: Penalty = 0.6, set: Settings = None, best: Best = False, average: Average = None,
             device: Device = "auto", json: Json = False) -> None:
    """Measure a run over all of its validation part."""
    from plait import files
    from plait.runtime.generate.beam import Beam
    from plait.training import evaluate as measured
    found = measured(run, tuple(m for t in metric or () for m in t.split(",")), files.single(files.overrides(set)), device, False, warn,
                     best, average, beam=Beam(beam, penalty))
    def shown(v) -> str: return f"{v:,.4f}" if isinstance(v, float) else v if isinstance(v, str) else f"{v:,}"
    typer.echo(js.dumps(found) if json else "  ".join(f"{k} {shown(v)}" for k, v in found.items()))


@command
def sample(run: Folder, prompt: Annotated[str, typer.Option("--prompt", help="how the text begins")] = "",
           length: Annotated[int, typer.Option("--length", min=1, help="symbols to make")] = 200,
           temperature: Annotated[float, typer.Option("--temperature", min=0.0, help="0 takes the likeliest")] = 1.0,
           top_k: Annotated[int | None, typer.Option("--top-k", min=1, help="only among the k likeliest")] = None,
           top_p: Annotated[float | None, typer.Option("--top-p", help="only among the likeliest that together are so probable")] = None,
           beam: Annotated[int | None, typer.Option("--beam", min=1, help="the likeliest text that a search this wide finds")] = None,
           penalty: Penalty = 0.6, seed: Annotated[int, typer.Option("--seed", min=0, max=2**63 - 1)] = 0, set: Settings = None,
           best: Best = False, average: Average = None,
           device: Device = "auto") -> None:
    """Print text that a trained model makes."""
    from plait import files
    from plait.runtime.generate.beam import Beam
    from plait.training import sample as sampled
    wide = Beam(beam, penalty) if beam is not None else None
    settings = files.single(files.overrides(set))
    said: list[str] = []                                      # notes that come while the text is printed stand behind it
    pieces = sampled(run, prompt, length, temperature, top_k, seed, device, said.append, best, average, settings, top_p, wide)
    while said: warn(said.pop(0))
    typer.echo(prompt, nl=False)
    for piece in pieces: typer.echo(piece, nl=False)
    typer.echo()
    for note in said: warn(note)


@command
def translate(run: Folder,
              file: Annotated[Path | None, typer.Option("--file", metavar="FILE", help="a sentence a line; else standard input")] = None,
              beam: Width = 4, penalty: Penalty = 0.6,
              batch: Annotated[int, typer.Option("--batch", min=1, help="sentences at once")] = 32,
              set: Settings = None, best: Best = False, average: Average = None, device: Device = "auto") -> None:
    """Print a translation for each line of a file, by a model with an encoder and a decoder."""
    from plait import files
    from plait.runtime.generate.beam import Beam
    from plait.training import translate as translated
    settings = files.single(files.overrides(set))
    for line in translated(run, file, Beam(beam, penalty), batch, settings, device, warn, best, average): typer.echo(line)
