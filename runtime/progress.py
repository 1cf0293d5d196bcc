"""What a person sees while a model trains: one bar on a terminal, one plain line an event elsewhere."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from plait.runtime.measured import Meter, peak_memory


class Shown(Protocol):
    def step(self, step: int, loss: float, tokens_per_second: float, seconds: float, last: int) -> None:
        """seconds: that the step took; last: the step at which the training is going to end."""
    def line(self, text: str) -> None: ...


class _Bar:
    def __init__(self, bar: Progress, first: int, last: int, meter: Meter | None):
        self.bar, self.meter = bar, meter
        self.task = bar.add_task("", total=last, completed=first, loss="", rate="", share="", memory="")

    def step(self, step: int, loss: float, tokens_per_second: float, seconds: float, last: int) -> None:
        share, memory = None, ""
        if self.meter is not None:
            share, memory = self.meter.share(seconds), f"{peak_memory(self.meter.device) / 2**30:.2f} GiB"
        self.bar.update(self.task, completed=step, total=last, loss=f"loss {loss:.4f}", rate=f"{tokens_per_second:,.0f} tokens/s",
                        share="" if share is None else f"{share:.0%} of peak", memory=memory)

    def line(self, text: str) -> None:
        self.bar.console.print(text, markup=False, highlight=False)


class _Lines:
    def __init__(self, console: Console | None):
        self.console = console

    def step(self, step: int, loss: float, tokens_per_second: float, seconds: float, last: int) -> None:
        pass

    def line(self, text: str) -> None:
        """A reader that has gone (`| head`) does not stop a training."""
        try:
            if self.console: self.console.print(text, markup=False, highlight=False, soft_wrap=True)
        except BrokenPipeError: self.console = None


@contextmanager
def progress(console: Console | None, first: int, last: int, meter: Meter | None = None) -> Iterator[Shown]:
    """A bar from step `first` to `last` where the console is a terminal; nothing at all where there is no console. meter: what the
    share of the machine's rate, and the memory, are read from."""
    if console is None or not console.is_terminal:
        yield _Lines(console)
        return
    columns = (TextColumn("step {task.completed:,.0f} / {task.total:,.0f}"), BarColumn(), TextColumn("{task.fields[loss]}"),
               TextColumn("{task.fields[rate]}"), TextColumn("{task.fields[share]}"), TextColumn("{task.fields[memory]}"),
               TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar: yield _Bar(bar, first, last, meter)


@contextmanager
def counted(console: Console | None, last: int, what: str) -> Iterator[Callable[[int], None]]:
    """A bar of so many things that are done one after another, on a terminal. Gives what is told how many are done."""
    if console is None or not console.is_terminal:
        yield lambda k: None
        return
    with Progress(TextColumn(f"{{task.completed:,.0f}} / {{task.total:,.0f}} {what}"), BarColumn(), TimeRemainingColumn(), console=console,
                  transient=True) as bar:
        task = bar.add_task("", total=last)
        yield lambda k: bar.update(task, completed=k)
