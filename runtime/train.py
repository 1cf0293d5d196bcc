"""Training: a plain loop over steps. Everything random in a step is a function of the seed, of the step's number and of the part of its
batch, so that a run that was stopped and resumed gives the same bits as one that was not (on one machine, with one thread count)."""
from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from rich.console import Console
from torch import nn

from plait.dsl.errors import PlaitError
from plait.runtime import checkpoint, events, optim, record
from plait.runtime.batch import Stop, parts, sequences
from plait.runtime.data import Dataset
from plait.runtime.data.ahead import ahead
from plait.runtime.evaluate import evaluate, mix
from plait.runtime.generate.sample import sample
from plait.runtime.measured import Derived, Meter
from plait.runtime.progress import Shown, progress
from plait.runtime.ranks import ALONE, Ranks
from plait.runtime.recipe import Described, Recipe, trainable
from plait.runtime.sources import GROWING
from plait.runtime.step import NotFinite, diverged, spoiled, update
from plait.runtime.surroundings import repeatable, stop_signal


@dataclass(frozen=True)
class Run:
    """What became of a training: where it lies, the last step, that step's loss (nan where no step was made), the last evaluation,
    whether a person stopped it, and the commands that can do something with it."""
    folder: Path
    step: int
    loss: float = math.nan
    metrics: dict[str, float | int] = field(default_factory=dict)
    interrupted: bool = False
    commands: tuple[str, ...] = ("evaluate", "resume")


def train(module: nn.Module, recipe: Recipe, dataset: Dataset, folder: Path, *, spec_text: str, steps: int | None = None,
          device: torch.device | str = "cpu", table: dict | None = None, plan: dict | None = None,
          console: Console | None = None, derived: Callable[[], Derived] | None = None, ranks: Ranks = ALONE,
          enough: Callable[[], bool] | None = None) -> Run:
    """Trains a fresh module into a new folder, up to the recipe's stop or to `steps`. The schedule's horizon stays the recipe's
    stop, so that `steps` cuts a run short without changing it. A checkpoint is written before the first step (that shows that
    the model can be saved) and at the end, besides those asked for. derived: what a step should take, to be put beside what it takes.
    ranks: the processes that share every batch; the first writes. enough: asked after every evaluation; true ends the run there.

    Raises PlaitError for a recipe this version cannot train, a folder that holds a run, and a loss that is not finite."""
    trainable(recipe)
    state = checkpoint.State(0, 0, 0.0, checkpoint.fingerprint(spec_text), torch.get_num_threads())
    stop = Stop(recipe, dataset)
    optim.rate(recipe, 1, stop.last(state))
    if not ranks.parts: _can_be_sampled(module, recipe, dataset)
    device = torch.device(device)
    with record.held(folder) if ranks.lead else nullcontext():
        if ranks.lead: record.begin(folder, recipe.model, dataset, device, table, plan, ranks.as_json(), stop.planned)
        t = Training(module, recipe, dataset, folder, device, stop, state, derived, ranks)
        t.save()
        if ranks.lead: record.commit(folder, spec_text)
        return t.run(steps, console, enough)


def resume(module: nn.Module, recipe: Recipe, dataset: Dataset, folder: Path, *, steps: int | None = None,
           device: torch.device | str = "cpu", console: Console | None = None, derived: Callable[[], Derived] | None = None,
           ranks: Ranks = ALONE, enough: Callable[[], bool] | None = None) -> Run:
    """Goes on from the newest complete checkpoint of a run, up to `steps` in all (the recipe's stop by default), bit for bit as if
    it had never stopped. `module`, `recipe` and `dataset` are made from the run's own spec. enough: as in `train`.

    Raises PlaitError for a folder without a run, without a sound checkpoint, and for data that has changed."""
    trainable(recipe)
    text = record.spec_text(folder)
    if changed := record.other_data(folder, dataset): raise PlaitError(changed)
    with record.held(folder) if ranks.lead else nullcontext():
        with progress(console, 0, 1) as shown: state = checkpoint.latest(folder, text, shown.line)
        device = torch.device(device)
        t = Training(module, recipe, dataset, folder, device, Stop(recipe, dataset), state, derived, ranks)
        checkpoint.load(folder, state.step, module, t.optimizer, t.average)
        if console and (steps is not None and steps <= state.step or t.stop.reached(state, steps)):
            console.print(f"the run stands at step {state.step:,} already; --steps N goes further")
        ranks.wait()                                       # all have read what is to be gone on from
        if ranks.lead: record.rewind(folder, state.step)
        if console and device.type == "cpu" and state.threads != torch.get_num_threads():
            now = torch.get_num_threads()
            console.print(f"the run used {state.threads} threads, this one uses {now}: sums may differ in their last bits")
        return t.run(steps, console, enough)


def _can_be_sampled(module: nn.Module, recipe: Recipe, dataset: Dataset) -> None:
    """Raises PlaitError for a `sample` action that the model or its vocabulary cannot do: before the training, not when it is due."""
    for a in recipe.actions("sample"):
        try: sample(module, dataset.codec, **dict(a.arguments))                                       # type: ignore[arg-type]
        except PlaitError as why: raise PlaitError(*(replace(d, span=a.span) for d in why.diagnostics)) from None


class Training:
    """A module, what trains it, and where it stands. What is done is written into the run's folder."""

    def __init__(self, module: nn.Module, recipe: Recipe, dataset: Dataset, folder: Path, device: torch.device, stop: Stop,
                 state: checkpoint.State, derived: Callable[[], Derived] | None = None, ranks: Ranks = ALONE):
        self.module, self.recipe, self.folder, self.device, self.ranks = module, recipe, folder, device, ranks
        self.dataset, self.held_out = dataset.by(recipe.batch), dataset.by(recipe.microbatch or recipe.batch)
        self.stop, self.state, self.saved = stop, state, state.step
        self.spread = ranks.spread(module, device)
        self.optimizer = optim.build(module, recipe.optimizer)
        self.average = optim.Average(module, recipe.average) if recipe.average is not None else None
        sequences(recipe, dataset.length)                  # a batch that memory cannot hold
        dtype = torch.bfloat16 if recipe.precision == "bf16" else torch.float32
        self.meter = Meter(derived, device, dtype) if derived is not None else None
        self.halted = False                                # some rank was asked to stop
        self.loss, self.lr, self.metrics = math.nan, math.nan, dict[str, float | int]()

    def run(self, steps: int | None, console: Console | None, enough: Callable[[], bool] | None = None) -> Run:
        """The loop, from the state's step to `steps`, or to the recipe's stop, or until it is `enough`."""
        self.module.train()
        end = self.stop.last(self.state) if steps is None else steps
        known = steps is not None or self.recipe.stop.unit in ("steps", "epochs")
        batches = ahead(self.dataset, self.state.step + 1, end if known else sys.maxsize)
        with (repeatable(self.device), stop_signal() as stopped, progress(console, self.state.step, end, self.meter) as shown,
              closing(batches), self._events() as follow):
            self.halted = self.ranks.any(stopped.is_set())
            while not self.stop.reached(self.state, steps) and not self.halted:
                if not self._step(batches, stopped.is_set, steps, shown): break
                ended = self.stop.reached(self.state, steps)
                measured = self._act(ended, shown)
                follow()
                if measured and enough is not None and enough(): break
            cut = self.halted and not self.stop.reached(self.state, steps)
            if self.saved != self.state.step: self.save()
            if self.meter is not None and self.meter.steps and self.ranks.lead:
                record.measured(self.folder, self.meter.as_json(self.state.step))
            if cut: shown.line(f"stopped at step {self.state.step:,}; `plait resume {self.folder}` goes on from there")
        return Run(self.folder, self.state.step, self.loss, self.metrics, cut)

    def _events(self) -> AbstractContextManager[Callable[[], None]]:
        """TensorBoard's, which one rank writes."""
        return events.following(self.folder, self.state) if self.ranks.lead else nullcontext(lambda: None)

    def _step(self, batches: Iterator[tuple[int, tuple[torch.Tensor, ...]]], stopped: Callable[[], bool], steps: int | None,
              shown: Shown) -> bool:
        """One update and its row; False where it was stopped within its batch, and nothing is changed."""
        started = time.perf_counter()
        step, given = next(batches)
        last = self.stop.last(self.state)
        self.lr = optim.rate(self.recipe, step, last)
        count, inputs = self.dataset.tokens(given), tuple(t.to(self.device) for t in self.ranks.rows(given))
        cut = parts(inputs, self.recipe.microbatch, self.dataset.length)
        within = (lambda: False) if self.ranks.together else stopped          # ranks stop together, between two steps
        try: found = update(self.module, self.optimizer, self.recipe, cut, step, self.lr, within, self.spread)
        except NotFinite as why: raise self._diverged(why.what, why.numbers, why.layer) from None
        if found is None:
            self.halted = True
            return False
        self.loss, norm = found
        if self.average is not None: self.average.update(step)
        spent, asked = self.ranks.total(time.perf_counter() - started, stopped())
        self.halted, spent = asked > 0, spent / self.ranks.count
        self.state = replace(self.state, step=step, tokens=self.state.tokens + count, seconds=self.state.seconds + spent)
        if self.meter is not None: self.meter.steps.append(spent)
        shown.step(step, self.loss, count / spent, spent, last if steps is None else steps)
        if self.ranks.lead:
            record.add(self.folder, step, "train", loss=self.loss, lr=self.lr, gradient_norm=norm, seconds=round(self.state.seconds, 3),
                       tokens=self.state.tokens)
        return True

    def _act(self, ended: bool, shown: Shown) -> bool:
        """What the recipe wants done after this step; was anything evaluated? Rows come before the checkpoint: what is saved is kept."""
        due = [a for e in self.recipe.every if self.state.step % e.period == 0 for a in e.actions]
        asked = tuple(dict.fromkeys(m for a in due for m in a.metrics))
        if ended: asked = tuple(dict.fromkeys((*asked, *(self.recipe.metrics if not asked else ()), *filter(None, [self.recipe.best]))))
        with self.average.taken() if self.average is not None else nullcontext():
            if asked: self._evaluate(asked, shown)
            for a in due:
                if a.kind == "sample": self._sample(a, shown)
            self.spread.settle()
        if ended or any(a.kind == "checkpoint" for a in due): self._judge(asked); self.save()
        return bool(asked)

    def _judge(self, measured: tuple[str, ...]) -> None:
        """Is this the best checkpoint so far?"""
        metric, best = self.recipe.best, self.state.best
        if metric is None or metric not in measured: return
        value = float(self.metrics[metric])
        if best is None or (value > best.value if metric in GROWING else value < best.value):
            self.state = replace(self.state, best=checkpoint.Best(self.state.step, value))

    def save(self) -> None:
        """Raises PlaitError where a parameter is not finite: what is saved can be gone on from."""
        if name := next(filter(None, self.ranks.all_of(spoiled(self.module))), None):
            raise self._diverged(f"the parameter `{name}` is not finite after step {self.state.step:,}", f"lr = {self.lr:g}")
        keep = max([int(a.arguments["keep"]) for a in self.recipe.actions("checkpoint")], default=2)   # type: ignore[call-overload]
        self.state = replace(self.state, threads=torch.get_num_threads())
        checkpoint.save(self.folder, self.module, self.optimizer, self.state, keep, self.average, self.ranks)
        self.saved = self.state.step

    def _diverged(self, what: str, numbers: str, layer=None) -> PlaitError:
        return diverged(self.recipe, what, numbers, checkpoint.steps(self.folder), layer)

    def _evaluate(self, metrics: tuple[str, ...], shown: Shown) -> None:
        with self.spread.gathered() if "bleu" in metrics else nullcontext():
            found = evaluate(self.module, self.held_out, metrics, device=self.device, seed=self.recipe.seed, ranks=self.ranks)
        self.metrics = found
        if not self.ranks.lead: return
        record.add(self.folder, self.state.step, "validation", **found, seconds=round(self.state.seconds, 3), tokens=self.state.tokens)
        by = "  by the average" if self.average is not None else ""
        shown.line(f"step {self.state.step:,}  {describe(found)}{by}")

    def _sample(self, a: Described, shown: Shown) -> None:
        if not (self.ranks.lead or self.ranks.parts): return          # where each has a part only, all must run
        wanted = dict(a.arguments)
        seed = mix(self.recipe.seed, self.state.step)
        with self.spread.gathered(): text = "".join(sample(self.module, self.dataset.codec, **wanted, seed=seed))   # type: ignore[arg-type]
        if not self.ranks.lead: return
        record.add_sample(self.folder, self.state.step, str(wanted["prompt"]), text)
        shown.line(f"step {self.state.step:,}  {wanted['prompt']}{text}")


def describe(found: dict[str, float | int]) -> str:
    """One line for a person: the metrics, and over how many targets."""
    metrics = "  ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in found.items()
                        if name != "count" and not isinstance(value, str))
    return f"{metrics}  over {found['count']:,} targets"
