"""Training: a plain loop over steps. Everything random in a step is a function of the seed and of the step's number, so that a
run that was stopped and resumed gives the same bits as one that was not (on one machine, with one thread count)."""
from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from rich.console import Console
from torch import nn

from plait.dsl.errors import PlaitError, Span, error
from plait.runtime import checkpoint, optim, record
from plait.runtime.blame import first_not_finite
from plait.runtime.data import Dataset
from plait.runtime.evaluate import evaluate, mix
from plait.runtime.generate.sample import sample
from plait.runtime.progress import Shown, progress
from plait.runtime.recipe import Described, Recipe, trainable


@dataclass(frozen=True)
class Run:
    """What became of a training: where it lies, the last step, that step's loss (nan where no step was made), the last evaluation,
    and whether a person stopped it."""
    folder: Path
    step: int
    loss: float = math.nan
    metrics: dict[str, float | int] = field(default_factory=dict)
    interrupted: bool = False


def sequences(recipe: Recipe, length: int) -> int:
    """Sequences in a batch: as the recipe says, or as many of n symbols as its tokens fill (at least one).
    Raises PlaitError for more than memory could hold."""
    amount = int(recipe.batch.amount)                                                      # type: ignore[arg-type]
    count = amount if recipe.batch.unit == "sequences" else max(1, amount // length)
    takes, there = count * (length + 1) * 8, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if takes > there // 4:
        alone = f"takes {takes / 2**30:,.1f} GiB for its symbols alone, of {there / 2**30:,.1f} GiB in this machine"
        raise error("E0633", f"a batch of {count:,} sequences {alone}", recipe.batch.span, help="batch = 32 sequences")
    return count


def last_step(recipe: Recipe, dataset: Dataset) -> int:
    """The step at which the recipe stops. An epoch is as many batches as have the targets of the training part.
    Raises PlaitError for epochs of data that has no end."""
    if recipe.stop.unit == "steps": return int(recipe.stop.amount)                         # type: ignore[arg-type]
    if not dataset.symbols: raise error("E0636", f"`{recipe.data.kind}` has no end, so no epochs", recipe.stop.span, help="stop = 1k steps")
    return dataset.by(recipe.batch).steps(recipe.stop.amount)                              # type: ignore[arg-type]


def train(module: nn.Module, recipe: Recipe, dataset: Dataset, folder: Path, *, spec_text: str, steps: int | None = None,
          device: torch.device | str = "cpu", table: dict | None = None, plan: dict | None = None,
          console: Console | None = None) -> Run:
    """Trains a fresh module into a new folder, up to the recipe's stop or to `steps`. The schedule's horizon stays the recipe's
    stop, so that `steps` cuts a run short without changing it. A checkpoint is written before the first step (that shows that
    the model can be saved) and at the end, besides those asked for.

    Raises PlaitError for a recipe this version cannot train, a folder that holds a run, and a loss that is not finite."""
    trainable(recipe)
    last = last_step(recipe, dataset)
    optim.rate(recipe, 1, last)
    device = torch.device(device)
    with record.held(folder):
        record.begin(folder, recipe.model, dataset, device, table, plan)
        optimizer = optim.build(module.to(device), recipe.optimizer)
        start = checkpoint.State(0, 0, 0.0, checkpoint.fingerprint(spec_text), torch.get_num_threads())
        checkpoint.save(folder, module, optimizer, start)
        record.commit(folder, spec_text)
        return _advance(module, optimizer, recipe, dataset, folder, start, last, steps, device, console)


def resume(module: nn.Module, recipe: Recipe, dataset: Dataset, folder: Path, *, steps: int | None = None,
           device: torch.device | str = "cpu", console: Console | None = None) -> Run:
    """Goes on from the newest complete checkpoint of a run, up to `steps` in all (the recipe's stop by default), bit for bit as if
    it had never stopped. `module`, `recipe` and `dataset` are made from the run's own spec.

    Raises PlaitError for a folder without a run, without a sound checkpoint, and for data that has changed."""
    trainable(recipe)
    text = record.spec_text(folder)
    if changed := record.other_data(folder, dataset): raise PlaitError(changed)
    with record.held(folder):
        with progress(console, 0, 1) as shown: state = checkpoint.latest(folder, text, shown.line)
        device = torch.device(device)
        optimizer = optim.build(module.to(device), recipe.optimizer)
        checkpoint.load(folder, state.step, module, optimizer)
        if console and steps is not None and steps <= state.step: console.print(f"the run stands at step {state.step:,} already")
        record.rewind(folder, state.step)
        if console and device.type == "cpu" and state.threads != torch.get_num_threads():
            now = torch.get_num_threads()
            console.print(f"the run used {state.threads} threads, this one uses {now}: sums may differ in their last bits")
        return _advance(module, optimizer, recipe, dataset, folder, state, last_step(recipe, dataset), steps, device, console)


def _advance(module: nn.Module, optimizer: torch.optim.Optimizer, recipe: Recipe, dataset: Dataset, folder: Path, state: checkpoint.State,
             last: int, steps: int | None, device: torch.device, console: Console | None) -> Run:
    """The loop, from the state's step to `steps`."""
    end = last if steps is None else steps
    size, dataset = sequences(recipe, dataset.length), dataset.by(recipe.batch)
    keep = max([int(a.arguments["keep"]) for a in recipe.actions("checkpoint")], default=2)   # type: ignore[call-overload]
    step, tokens, seconds, saved = state.step, state.tokens, state.seconds, state.step
    loss, lr, metrics = math.nan, math.nan, {}
    module.train()

    def save() -> None:
        spoiled = next((name for name, p in module.named_parameters() if not torch.isfinite(p).all()), None)
        if spoiled: raise _diverged(recipe, folder, f"the parameter `{spoiled}` is not finite after step {step:,}", f"lr = {lr:g}")
        checkpoint.save(folder, module, optimizer, checkpoint.State(step, tokens, seconds, state.spec, torch.get_num_threads()), keep)

    with _repeatable(device), _stop_signal() as stopped, progress(console, step, end) as shown:
        while step < end and not stopped.is_set():
            started = time.perf_counter()
            step += 1
            lr = optim.rate(recipe, step, last)
            given = dataset.batch(step)
            count, inputs = dataset.tokens(given), tuple(t.to(device) for t in given)
            loss, norm = _update(module, optimizer, recipe, inputs, step, lr, folder)
            spent = time.perf_counter() - started
            seconds, tokens = seconds + spent, tokens + count
            shown.step(step, loss, count / spent)
            record.add(folder, step, "train", loss=loss, lr=lr, gradient_norm=norm, seconds=round(seconds, 3), tokens=tokens)
            due = [a for e in recipe.every if step % e.period == 0 for a in e.actions]
            asked = tuple(dict.fromkeys(m for a in due if a.kind == "evaluate" for m in a.arguments["metrics"]))   # type: ignore[attr-defined]
            if step == end: asked = asked or recipe.metrics
            if asked: metrics = _evaluation(module, dataset, recipe, asked, size, device, folder, step, seconds, tokens, shown)
            for a in due:
                if a.kind == "sample": _sample(module, dataset, a, recipe.seed, folder, step, shown)
            if any(a.kind == "checkpoint" for a in due): saved = step; save()             # after the rows: what is saved is not lost
        if saved != step: save()
        if stopped.is_set() and step < end: shown.line(f"stopped at step {step:,}; `plait resume {folder}` goes on from there")
    return Run(folder, step, loss, metrics, stopped.is_set() and step < end)


def _update(module: nn.Module, optimizer: torch.optim.Optimizer, recipe: Recipe, inputs: tuple[torch.Tensor, ...], step: int, lr: float,
            folder: Path) -> tuple[float, float]:
    """One step: the loss before it, and the norm of its gradient before clipping. Nothing is updated where either is not finite."""
    torch.manual_seed(mix(recipe.seed, step))
    optimizer.zero_grad(set_to_none=True)
    loss = module.loss(*inputs)                                                            # type: ignore[operator]
    loss.backward()                                        # before the number is asked for: on a GPU to read it is to wait
    value, norm = loss.item(), math.nan
    if math.isfinite(value): norm = optim.clip(module.parameters(), recipe.clip)
    if not (math.isfinite(value) and math.isfinite(norm)):
        what = "gradient" if math.isfinite(value) else "loss"
        torch.manual_seed(mix(recipe.seed, step))
        where, layer = first_not_finite(module, inputs, what)
        raise _diverged(recipe, folder, f"the {what} is not finite at step {step:,}: {where}",
                        f"loss = {value:g}, gradient norm = {norm:g}, lr = {lr:g}", layer)
    optim.set_rate(optimizer, lr)
    optimizer.step()
    return value, norm


def _diverged(recipe: Recipe, folder: Path, what: str, numbers: str, layer: Span | None = None) -> PlaitError:
    return error("E0622", what, layer or recipe.keys.get("lr"),
                 numbers=f"{numbers}; the last checkpoint is step {checkpoint.steps(folder)[-1]:,}",
                 help="a smaller lr, a longer warm-up, or clip = 1.0")


def _evaluation(module: nn.Module, dataset: Dataset, recipe: Recipe, metrics: tuple[str, ...], size: int, device: torch.device,
                folder: Path, step: int, seconds: float, tokens: int, shown: Shown) -> dict[str, float | int]:
    found = evaluate(module, dataset, metrics, batch=size, device=device, seed=recipe.seed)
    record.add(folder, step, "validation", **found, seconds=round(seconds, 3), tokens=tokens)
    shown.line(f"step {step:,}  {describe(found)}")
    return found


def describe(found: dict[str, float | int]) -> str:
    """One line for a person: the metrics, and over how many targets."""
    metrics = "  ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in found.items()
                        if name != "count" and not isinstance(value, str))
    return f"{metrics}  over {found['count']:,} targets"


def _sample(module: nn.Module, dataset: Dataset, a: Described, seed: int, folder: Path, step: int, shown: Shown) -> None:
    wanted = dict(a.arguments)
    text = "".join(sample(module, dataset.codec, **wanted, seed=mix(seed, step)))                # type: ignore[arg-type]
    record.add_sample(folder, step, str(wanted["prompt"]), text)
    shown.line(f"step {step:,}  {wanted['prompt']}{text}")


# ---- the surroundings of the loop --------------------------------------------------------------------------------------
@contextmanager
def _repeatable(device: torch.device) -> Iterator[None]:
    """Deterministic algorithms on a CPU (some gradients of indexing else add in any order), TF32 on a GPU for products that stay float32,
    and the caller's random state kept."""
    before = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory     # type: ignore[attr-defined]
    precision = torch.get_float32_matmul_precision()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        try:
            if device.type == "cpu":
                torch.use_deterministic_algorithms(True)
                torch.utils.deterministic.fill_uninitialized_memory = False                # type: ignore[attr-defined]
            else: torch.set_float32_matmul_precision("high")
            yield
        finally:
            torch.use_deterministic_algorithms(before[0])
            if device.type != "cpu": torch.set_float32_matmul_precision(precision)
            torch.utils.deterministic.fill_uninitialized_memory = before[1]                # type: ignore[attr-defined]


@contextmanager
def _stop_signal() -> Iterator[threading.Event]:
    """Set by Ctrl-C (and by a request to end), so that the loop stops between two steps; a second Ctrl-C stops at once."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return

    def stop(number: int, frame: object) -> None:
        if stopped.is_set(): raise KeyboardInterrupt
        stopped.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try: yield stopped
    finally:
        for number, handler in before.items(): signal.signal(number, handler)
