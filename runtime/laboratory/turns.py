"""Measuring in turn: every round runs each thing once, so that what disturbs the machine disturbs all alike.

Times of one thing after another cannot be compared: the machine is another one a minute later."""
from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

ROUNDS, WARM = 25, 2
FEWEST = 4                                                    # rounds that have two halves
STEADY = 0.1                                                  # how far the ratios of two runs may lie apart


@dataclass(frozen=True)
class Times:
    """Seconds of one call, a number a round."""
    each: tuple[float, ...]

    @property
    def median(self) -> float: return statistics.median(self.each)

    @property
    def low(self) -> float: return self._quarter(0)

    @property
    def high(self) -> float: return self._quarter(2)

    def _quarter(self, k: int) -> float:
        """The first or the third quartile."""
        return statistics.quantiles(self.each, n=4, method="inclusive")[k] if len(self.each) > 1 else self.each[0]


def ratio(a: Times, b: Times, rounds: slice = slice(None)) -> float:
    """How many times as long a takes as b: the median of the quotients within a round, in which both had the same machine."""
    return statistics.median(x / y for x, y in zip(a.each[rounds], b.each[rounds]))


def in_turn(runs: Mapping[str, Callable[[], object]], rounds: int = ROUNDS, warm: int = WARM,
            told: Callable[[int], None] = lambda k: None, wait: Callable[[], None] = lambda: None) -> dict[str, Times]:
    """Name → seconds of a call. Each is called `warm` times first, which compiles it. told: is called with the number of rounds that are
    done; wait: until the device has done what it was given."""
    for fn in runs.values():
        for _ in range(warm): fn()
    wait()
    found: dict[str, list[float]] = {name: [] for name in runs}
    for k in range(rounds):
        for name, fn in runs.items():
            gc.collect()
            began = time.perf_counter()
            fn()
            wait()
            found[name].append(time.perf_counter() - began)
        told(k + 1)
    return {name: Times(tuple(t)) for name, t in found.items()}


def waiting(device: torch.device) -> Callable[[], None]:
    """How to wait for a device."""
    return torch.cuda.synchronize if device.type == "cuda" else (lambda: None)


def unsteady(pairs: Sequence[tuple[Times, Times]]) -> float | None:
    """How far the ratios of two runs such as this one lie apart, as a part of them, where it is most; None where there were too few rounds
    to tell. An estimate and no bound: what the two halves of the rounds differ by, over √2, since a half is a run of half the rounds.
    More than STEADY says that the machine is too noisy for these ratios."""
    worst = 0.0
    for a, b in pairs:
        half = min(len(a.each), len(b.each)) // 2
        if half < FEWEST // 2: return None
        first, second = ratio(a, b, slice(half)), ratio(a, b, slice(-half, None))
        worst = max(worst, first / second - 1, second / first - 1)
    return worst / math.sqrt(2)
