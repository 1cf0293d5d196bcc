"""The batch of the next step, made while one runs."""
from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from torch import Tensor

from plait.runtime.data.dataset import Dataset


def ahead(dataset: Dataset, first: int, last: int, size: int | None = None) -> Iterator[tuple[int, tuple[Tensor, ...]]]:
    """(step, inputs) of the steps `first` to `last`, in order, exactly as `dataset.batch` gives them: while a step runs, a thread makes
    the next one's. What goes wrong there is raised here, at its step. However the loop ends, by its end, `break`, an exception or Ctrl-C,
    the thread ends with it, after the batch it is at."""
    if first > last: return
    with ThreadPoolExecutor(1, thread_name_prefix="plait-data") as worker:
        coming = worker.submit(dataset.batch, first, size)
        for step in range(first, last + 1):
            inputs = coming.result()
            if step < last: coming = worker.submit(dataset.batch, step + 1, size)
            yield step, inputs
