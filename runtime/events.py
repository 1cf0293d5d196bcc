"""TensorBoard's events of a run: its rows and samples once more, in the form that `tensorboard --logdir runs` shows.

They follow the files of the run, which are what it stands by: whatever is written there becomes an event."""
from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from plait.runtime import record
from plait.runtime.checkpoint import State

FOLDER = "tensorboard"                                      # in the folder of a run
WRITING = "_AsyncWriterThread"                              # tensorboard's own; what stops it is told to `follow`, not printed
FLUSHED = 10                                                # seconds that an event may wait
PLAIN = {"step", "split", "count", "seconds", "tokens"}     # of a row: what is no measurement


@contextmanager
def following(folder: Path, state: State) -> Iterator[Callable[[], None]]:
    """Gives a function that turns what the run has written since into events; the end does so too. Events behind the state's step, of a
    run that was stopped there, are purged. Where tensorboard is not installed, or cannot write, nothing happens."""
    writer = _writer(folder, state.step)
    if writer is None:
        yield lambda: None
        return
    events, before = Events(writer, folder, state), threading.excepthook
    threading.excepthook = lambda args: None if type(args.thread).__name__ == WRITING else before(args)
    try: yield events.follow
    finally:
        events.follow()
        events.close()
        threading.excepthook = before


def _writer(folder: Path, step: int) -> Any:
    """None where there is none."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError: return None
    try: return SummaryWriter(str(folder / FOLDER), purge_step=step + 1 if step else None, flush_secs=FLUSHED)
    except OSError: return None


class Events:
    """What of a run's files is still to be written as events. tokens, seconds: at the last row of a training step."""

    def __init__(self, writer: Any, folder: Path, state: State):
        self.writer, self.tokens, self.seconds = writer, state.tokens, state.seconds
        self.files = {folder / record.ROWS: self.row, folder / record.SAMPLES: self.sample}
        self.read = {p: p.stat().st_size if p.exists() else 0 for p in self.files}

    def follow(self) -> None:
        """Whole lines only: a line that is being written waits."""
        if self.writer is None: return
        try:
            for path, add in self.files.items():
                with path.open("rb") as file:
                    file.seek(self.read[path])
                    lines = file.read().rpartition(b"\n")[0]
                if not lines: continue
                self.read[path] += len(lines) + 1
                for line in lines.splitlines(): add(json.loads(line))
        except (OSError, ValueError): self.close()          # a training does not stop for that

    def row(self, row: dict[str, Any]) -> None:
        step, part = row["step"], row["split"]
        for name, value in row.items():
            if name not in PLAIN and isinstance(value, int | float): self.writer.add_scalar(f"{part}/{name}", value, step)
        if part != "train": return
        tokens, seconds = row["tokens"] - self.tokens, row["seconds"] - self.seconds
        self.tokens, self.seconds = row["tokens"], row["seconds"]
        if seconds > 0: self.writer.add_scalar("train/tokens_per_second", tokens / seconds, step)

    def sample(self, row: dict[str, Any]) -> None:
        """As it stands: Markdown shows lines that are indented without reading them."""
        text = (row["prompt"] + row["text"]).replace("\n", "\n    ")
        self.writer.add_text(f"sample/{row['prompt'] or 'empty prompt'}", "    " + text, row["step"])

    def close(self) -> None:
        writer, self.writer = self.writer, None
        try:
            if writer is not None: writer.close()
        except OSError: pass
