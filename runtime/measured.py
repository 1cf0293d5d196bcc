"""What a training takes, beside what was derived: arithmetic, time, memory."""
from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch

SIDE = 1024                                      # of the square matrices whose product is the measure of a machine


@dataclass(frozen=True)
class Derived:
    """Of one training step. work: multiply-adds of products of the whole batch, forward, recomputed and backward. peak: bytes of
    parameters, gradients, what Adam remembers, activations of what is computed at once. None where lengths are free."""
    work: int | None
    peak: int | None


def rate(device: torch.device, dtype: torch.dtype, seconds: float = 0.2) -> float:
    """Multiply-adds a second of a product of square matrices on this machine: the best of as many as `seconds` has room for."""
    x = torch.rand(SIDE, SIDE, device=device, dtype=dtype)
    best, until = float("inf"), time.perf_counter() + seconds
    wait = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    x @ x
    wait()
    while True:
        began = time.perf_counter()
        x @ x
        wait()
        best = min(best, time.perf_counter() - began)
        if time.perf_counter() > until: return SIDE**3 / best


def peak_memory(device: torch.device) -> int:
    """Bytes: of the GPU that torch gave out at most, or of the whole process at most."""
    if device.type == "cuda": return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@dataclass
class Meter:
    """Watches the steps of one process. derived: computed when it is asked for first."""
    derive: Callable[[], Derived]
    device: torch.device
    dtype: torch.dtype = torch.float32
    steps: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.device.type == "cuda": torch.cuda.reset_peak_memory_stats(self.device)
        self.before = peak_memory(self.device)

    @cached_property
    def derived(self) -> Derived: return self.derive()

    @cached_property
    def rate(self) -> float: return rate(self.device, self.dtype)

    def share(self, seconds: float) -> float | None:
        """Of the machine's rate of products, in a step that took so long."""
        return None if self.derived.work is None else self.derived.work / seconds / self.rate

    def as_json(self, step: int) -> dict:
        """The first step of a process compiles, so it is not counted where there are others."""
        seconds = statistics.median(self.steps[1:] or self.steps)
        return {"step": step, "steps_measured": len(self.steps[1:] or self.steps), "precision": str(self.dtype).removeprefix("torch."),
                "derived": {"work_a_step": self.derived.work, "peak_bytes": self.derived.peak},
                "measured": {"seconds_a_step": seconds, "work_a_second": self.derived.work and self.derived.work / seconds,
                             "machine_work_a_second": self.rate,
                             "share_of_machine": self.share(seconds), "peak_bytes": peak_memory(self.device), "bytes_before": self.before}}
