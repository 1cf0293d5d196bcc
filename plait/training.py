"""From a spec or a run folder to a training run, an evaluation, a sample. Imports torch."""
from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import sympy as sp
import torch

from plait import files
from plait.api import chosen
from plait.compiler.expand import File, expand
from plait.compiler.fit import peak, size, told
from plait.compiler.step import Step
from plait.compiler.table import rows
from plait.dsl.errors import PlaitError, error, render
from plait.dsl.pins import pinned
from plait.dsl.spec import Override
from plait.planning import unknown
from plait.render import Table, shown_dims
from plait.runtime import record
from plait.runtime.batch import Stop, part, sequences
from plait.runtime.device import device_of
from plait.runtime.evaluate import evaluate as measure
from plait.runtime.files import MARK, raw_bytes
from plait.runtime.files import lines as text_lines
from plait.runtime.generate.beam import Beam
from plait.runtime.generate.sample import sample as sampled
from plait.runtime.generate.translate import translate as translated
from plait.runtime.measured import Derived
from plait.runtime.module import Module, target_of
from plait.runtime.prepare import How, Prepared, bare, prepare, reopen
from plait.runtime.ranks import ALONE, Ranks, fits, join, together
from plait.runtime.train import Run
from plait.runtime.train import resume as go_on
from plait.runtime.train import train as run
from plait.runtime.trained import trained


def start(path, model: str | None, settings: tuple[Override, ...], device: str, steps: int | None, out, compile: bool, console,
          kernels: Mapping[str, str] | None = None, memory: int | None = None, shard: str = "ddp", offload: bool = False) -> Run:
    """Train a model of a spec into a run folder. kernels: region → kernel or `body`; memory: bytes that a step is fitted into. shard,
    offload: how the processes that a launcher started share the training (see `runtime.ranks`)."""
    path = Path(path)
    file = files.opened(path, settings)
    name = chosen(file, model) if model or len(file.models) == 1 else _trained(file)
    spec = pinned(file.spec, expand(file, name).pins)
    ranks, where = join(device_of(device), shard, offload)
    made = prepare(spec, name, path.parent, device=where, compile=compile, how=How(kernels or {}), memory=memory, whole=not ranks.parts)
    fits(ranks, made.recipe.optimizer)
    sequences(made.recipe, made.dataset.length)               # a batch that memory cannot hold is told before anything is written
    with together(ranks): folder = ranks.led(Path(out) if out is not None else record.default_folder(name))
    if not ranks.lead: console = None
    for note in made.dataset.notes if console is not None else (): console.print(note)
    if console is not None:
        count = sum(p.numel() for p in made.module.parameters())
        how = f"{torch.get_num_threads()} threads" if where.type == "cpu" else torch.cuda.get_device_name(where)
        console.print(f"{name}: {count:,} parameters on {where.type} ({how}{ranks}), {Stop(made.recipe, made.dataset)}"
                      + ("; the first step compiles" if compile else ""))
        if memory is not None:
            console.print(f"to fit {size(memory)}: {told(made.how.kernels, made.how.choice)}")
            for line in unknown(Step(lambda: made.module.program, target_of(where.type), made.how.kernels)): console.print(line)
    table = Table(str(path), "layer", tuple(rows(made.module.program, "layer")), shown_dims(file.names)).json()
    with together(ranks):
        done = run(made.module, made.recipe, made.dataset, folder, spec_text=made.spec_text, steps=steps, device=where, table=table,
                   plan={**made.how.as_json(), "compiled": compile}, console=console, derived=lambda: derived(made, where.type, ranks),
                   ranks=ranks)
    return replace(done, commands=commands(made.module))


def commands(module: Module) -> tuple[str, ...]:
    """What can be done with a run of this model."""
    kinds = [i.kind for i in module.program.inputs]
    makes = {("tokens",): ("sample",), ("tokens", "tokens"): ("translate",)}.get(tuple(kinds), ())
    out = module.program.graph.outs[0]
    return (*(makes if len(out.axes) == 3 else ()), "evaluate", "resume")


def derived(made: Prepared, device: str, ranks: Ranks = ALONE) -> Derived:
    """What a training step of a run should take on this rank, by the graph that runs. The peak of a rank that has parts of the parameters
    is for `plait table --ranks`."""
    program, length = made.module.program, made.dataset.length
    step = Step(lambda: program, target_of(device), made.how.kernels)
    one = program.sizes.bind(b=1).integer(sp.Add(*(ledgers["contraction"] for ledgers in step.work.values())))
    mine = -(-sequences(made.recipe, length) // ranks.count)
    try: most = None if ranks.parts else peak(step, min(mine, part(made.recipe, length)))
    except PlaitError: most = None                             # a length is free
    return Derived(None if one is None else one * mine, most)


def _trained(file: File) -> str:
    """The one model that a train block names, if it is one."""
    named = {m.name for t in file.trains for m in t.models}
    return named.pop() if len(named) == 1 else chosen(file, None)


def resume(folder, steps: int | None, device: str, compile: bool | None, console) -> Run:
    """Go on with a run, bit for bit where it runs on the CPU, and on as many processes as before; another number of them changes sums in
    their last bits. compile: None as it began."""
    where = device_of(device)
    began = record.compiled(Path(folder))
    if console is not None and compile not in (None, began):
        ways = ("eagerly", "compiled")
        console.print(f"the run began {ways[began]} and goes on {ways[not began]}: sums may differ in their last bits")
    compile = began if compile is None else compile
    shard, offload = record.ranks(Path(folder))
    ranks, where = join(where, shard, offload and where.type == "cuda")
    made = reopen(Path(folder), device=where, compile=compile, whole=not ranks.parts)
    with together(ranks):
        done = go_on(made.module, made.recipe, made.dataset, Path(folder), steps=steps, device=where,
                     console=console if ranks.lead else None, derived=lambda: derived(made, where.type, ranks), ranks=ranks)
    return replace(done, commands=commands(made.module))


def evaluate(folder, metrics: tuple[str, ...], settings: tuple[Override, ...], device: str, compile: bool, say, best: bool = False,
             average: int | None = None, beam: Beam | None = None) -> dict:
    """The metrics of a run over all of its validation part; settings may change what has no weights (the rounds of hashing, the data).
    The data is read by the run's vocabulary; `say` is told where it is not what the run began with. best, average: which weights."""
    folder = Path(folder)
    made = reopen(folder, settings=settings, device=device_of(device), compile=compile)
    changed = record.other_data(folder, made.dataset, "W0614")
    if changed and not any(o.path == ("train", "data") for o in settings):
        say(render(replace(changed, help="these are the figures of the new file")))
    step = trained(folder, made.module, say, best=best, average=average)
    found = measure(made.module, made.dataset.by(made.recipe.microbatch or made.recipe.batch), metrics or made.recipe.metrics or ("loss",),
                    device=device_of(device), seed=made.recipe.seed, beam=beam)
    return {"step": step, **found}


def sample(folder, prompt: str, length: int, temperature: float, top_k: int | None, seed: int, device: str, say,
           best: bool = False, average: int | None = None, settings: tuple[Override, ...] = (), top_p: float | None = None,
           beam: Beam | None = None) -> Iterator[str]:
    """Text from a run, a symbol at a time; settings may change what has no weights (rounds of hashing). best, average: which weights."""
    module, codec = bare(Path(folder), settings=settings, device=device_of(device), compile=False)
    trained(Path(folder), module, say, best=best, average=average)
    return sampled(module, codec, prompt, length, temperature, top_k, seed, top_p, say, beam)


def translate(folder, file: Path | None, beam: Beam, batch: int, settings: tuple[Override, ...], device: str, say,
              best: bool = False, average: int | None = None) -> Iterator[str]:
    """A translation for each line of a file, or of standard input, by a run of an encoder and a decoder. best, average: which weights."""
    lines = _typed() if file is None else text_lines(raw_bytes(str(file), Path(), None, "the current folder"), str(file), None)
    module, codec = bare(Path(folder), settings=settings, device=device_of(device), compile=False)
    trained(Path(folder), module, say, best=best, average=average)
    return translated(module, codec, lines, beam, batch, say)


def _typed() -> Iterator[str]:
    """The lines of standard input, as they come."""
    for number, line in enumerate(sys.stdin.buffer, 1):
        try: yield line.removeprefix(MARK if number == 1 else b"").decode().rstrip("\r\n")
        except UnicodeDecodeError: raise error("E0612", f"line {number} of the input is not UTF-8") from None
