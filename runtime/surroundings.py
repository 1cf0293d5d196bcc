"""What stands around the loop of a training: torch's switches, and the signals that end it."""
from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def repeatable(device: torch.device) -> Iterator[None]:
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
def stop_signal() -> Iterator[threading.Event]:
    """Set by Ctrl-C (and by a request to end), so that the loop stops between two parts of a batch; a second Ctrl-C stops at once."""
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
