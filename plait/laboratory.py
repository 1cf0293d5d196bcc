"""The laboratory from Python: `plait.bench`, `plait.compare`, `plait.evaluate`. Torch is imported when they are called."""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from plait import given

if TYPE_CHECKING:
    from plait.runtime.laboratory.bench import Bench
    from plait.runtime.laboratory.compare import Compared


def bench(*specs: str | Path, lengths: Sequence[int] = (), batch: int = 32, tokens: int | None = None, models: Sequence[str] = (),
          set: Mapping[str, object] | None = None, by: str | None = None, rounds: int = 25, against: str | None = None,
          kernels: Mapping[str, str] | None = None, compile: bool = True, python_loop: bool = False, device: str = "cpu",
          results: str | Path | None = None, say=print) -> Bench:
    """Times a training step of models of specs at lengths, in turn: every round runs each once. tokens: of a step, instead of `batch`
    sequences. by: the dim that is the length. against: the model that others are divided by. python_loop: recurrences as loops in Python,
    too. results: a folder to which bench.json and bench.txt are written. say: is told the table. Raises PlaitError."""
    from plait.benching import bench as measured
    from plait.benching import kept, table, written
    from plait.compiler.plan import kernels_of
    from plait.runtime.device import device_of
    paths, settings = [given.path(p, "a spec") for p in specs], given.single(set)
    sizes = tuple(given.count(n, "a length", 1) for n in lengths) or written(paths, settings, models)
    found = measured(paths, sizes, given.count(batch, "batch", 1), tokens=tokens, settings=settings, models=models, by=by,
                     rounds=given.count(rounds, "rounds", 1), against=against,
                     kernels=kernels_of(f"{k}={v}" for k, v in (kernels or {}).items()),
                     compile=compile, python_loop=python_loop, device=device_of(device))
    say(table(found))
    if results is not None: kept(found, paths, device_of(device), given.path(results, "a folder"))
    return found


def compare(spec: str | Path, name: str | None = None, *, models: Iterable[str] | None = None, fit: str | None = None,
            seeds: Iterable[int] | None = None, budget: str | None = None, lr: Iterable[float] | None = None, patience: int | None = None,
            set: Mapping[str, object] | None = None, out: str | Path | None = None, results: str | Path | None = None, rounds: int = 25,
            kernels: Mapping[str, str] | None = None, compile: bool = True, device: str = "cpu", say=print) -> Compared:
    """Trains several models and seeds on one budget into an experiment folder; what is there already is not made again. The keys of the
    spec's compare block (`fit = "params(2M, by = d)"`, `budget = "4k steps"`) may be given here. results: a folder to which results.json,
    results.md and curves.svg are written, too. say: is told what is done, and the table. Raises PlaitError."""
    from plait.comparing import compared, table, written
    from plait.compiler.plan import kernels_of
    from plait.runtime.device import device_of
    lists = {"models": models, "seeds": seeds, "lr": lr}
    asked = [f"{k}={','.join(map(str, v))}" for k, v in lists.items() if v is not None]
    asked += [f"{k}={v}" for k, v in {"fit": fit, "budget": budget, "patience": patience}.items() if v is not None]
    found = compared(given.path(spec, "a spec"), name=name, settings=given.single(set), asked=asked,
                     out=given.path(out, "an experiment") if out is not None else None, device=device_of(device), compile=compile,
                     kernels=kernels_of(f"{k}={v}" for k, v in (kernels or {}).items()), rounds=given.count(rounds, "rounds", 1), say=say)
    say(table(found))
    if results is not None: written(found, device_of(device), given.path(results, "a folder"))
    return found


def evaluate(run: str | Path, metrics: Iterable[str] = (), *, set: Mapping[str, object] | None = None, best: bool = False,
             average: int | None = None, device: str = "cpu", say=print) -> dict:
    """The metrics of a run over all of its validation part. set: what has no weights may differ, as the rounds of hashing. best, average:
    which weights, as `load_run`. say: is told where the data is not what the run began with. Raises PlaitError."""
    from plait.training import evaluate as measured
    return measured(given.path(run, "a run"), tuple(metrics), given.single(set), device, False, say, best, average)
