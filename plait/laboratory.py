"""The laboratory from Python: `plait.bench`, `plait.compare`, `plait.evaluate`. Torch is imported when they are called."""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from plait import given
from plait.api import kernels_asked

if TYPE_CHECKING:
    from plait.runtime.laboratory.bench import Bench
    from plait.runtime.laboratory.compare import Compared


def bench(*specs: str | Path, lengths: Sequence[int] = (), batch: int = 32, tokens: int | None = None, models: Sequence[str] = (),
          set: Mapping[str, object] | None = None, by: str | None = None, rounds: int = 25, against: str | None = None,
          kernels: Mapping[str, str] | None = None, compile: bool = True, python_loop: bool = False, device: str = "cpu",
          results: str | Path | None = None, say=print) -> Bench:
    """Times a training step of models of specs at lengths, in turn: every round runs each once. tokens: of a step, instead of `batch`
    sequences. by: the dim that is the length. against: the model that others are divided by. python_loop: recurrences as loops in Python,
    too. results: a folder to which bench.json and bench.txt are written, and bench.svg where matplotlib is installed. say: is told the
    table. Raises PlaitError."""
    from plait.benching import bench as measured
    from plait.benching import kept, table, written
    from plait.runtime.device import device_of
    paths, settings, names = [given.path(p, "a spec") for p in specs], given.single(set), given.texts(models, "a model")
    sizes = tuple(given.count(n, "lengths", 1) for n in given.numbers(lengths, "a length")) or written(paths, settings, names)
    by, against = (next(iter(given.texts(v, what)), None) for v, what in ((by, "a dim"), (against, "a model")))
    tell = given.told(say)
    found = measured(paths, sizes, given.count(batch, "batch", 1), tokens=None if tokens is None else given.count(tokens, "tokens", 1),
                     settings=settings, models=names, by=by, rounds=given.count(rounds, "rounds", 1), against=against,
                     kernels=kernels_asked(kernels), compile=compile, python_loop=python_loop, device=device_of(device))
    tell(table(found))
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
    from plait.runtime.device import device_of
    tell = given.told(say)
    lists = {"models": models and given.texts(models, "a model"), "seeds": None if seeds is None else given.numbers(seeds, "a seed"),
             "lr": None if lr is None else given.numbers(lr, "a rate")}
    asked = {k: ",".join(map(str, v)) for k, v in lists.items() if v is not None}
    asked |= {k: str(v) for k, v in {"fit": fit, "budget": budget, "patience": patience}.items() if v is not None}
    name = next(iter(given.texts(name, "a compare block")), None)
    found = compared(given.path(spec, "a spec"), name=name, settings=given.single(set), asked=asked,
                     out=given.path(out, "an experiment") if out is not None else None, device=device_of(device), compile=compile,
                     kernels=kernels_asked(kernels), rounds=given.count(rounds, "rounds", 1), say=tell)                # type: ignore[arg-type]
    tell(table(found))
    if results is not None: written(found, device_of(device), given.path(results, "a folder"))
    return found


def evaluate(run: str | Path, metrics: Iterable[str] = (), *, set: Mapping[str, object] | None = None, best: bool = False,
             average: int | None = None, device: str = "cpu", say=print) -> dict:
    """The metrics of a run over all of its validation part. set: what has no weights may differ, as the rounds of hashing. best, average:
    which weights, as `load_run`. say: is told where the data is not what the run began with. Raises PlaitError."""
    from plait.training import evaluate as measured
    last = None if average is None else given.count(average, "average", 1)
    return measured(given.path(run, "a run"), given.texts(metrics, "a metric"), given.single(set), device, False, given.told(say), best,
                    last)
