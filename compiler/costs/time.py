"""How long a training step takes on a machine, from what it runs and the machine's numbers:

    Σ over the calls of max(work / rate, bytes / bandwidth) + latency

Rates, bandwidth and latency are measured by kernels of their own (`runtime.laboratory.calibrate`), or given by hand: never by timing a
model. A call that runs n times, a step of a recurrence, has its latency n times."""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import exp, log, prod

from plait.compiler.costs.calls import Call

HOST = ("segment", "segment_backward", "piece", "update")     # what these cost beyond their kernels is the host's: nothing, if not said


@dataclass(frozen=True)
class Kernel:
    """One kind of call. rate: multiply-adds a second of large ones; half: for each size of its shape, the size at which it has half of
    that rate, so that of a size s there is s/(s + half); bandwidth: bytes a second; call, operand: seconds a call, and for each tensor
    that it is handed."""
    rate: float
    half: tuple[float, ...] = ()
    bandwidth: float | None = None
    call: float = 0.0
    operand: float = 0.0


@dataclass(frozen=True)
class Machine:
    """rate: multiply-adds a second of a large product; bandwidth: (bytes of a working set, bytes a second), ascending; latency: seconds
    that a dispatched call costs besides; kernels: what is known of a kind of call; functions: elements a second of what goes element by
    element (not known: as fast as it is brought)."""
    rate: float
    bandwidth: tuple[tuple[float, float], ...]
    latency: float
    kernels: Mapping[str, Kernel] = field(default_factory=dict)
    functions: Mapping[str, float] = field(default_factory=dict)

    def kernel(self, kind: str) -> Kernel:
        found = self.kernels.get(kind)
        return found or Kernel(self.rate, call=0.0 if kind in HOST else self.latency)

    def brings(self, size: float) -> float:
        """Bytes a second where so many are at hand: between two measured sizes on a straight line of logarithms."""
        sizes = [s for s, _ in self.bandwidth]
        k = bisect_left(sizes, size)
        if k == 0: return self.bandwidth[0][1]
        if k == len(sizes): return self.bandwidth[-1][1]
        (s, low), (t, high) = self.bandwidth[k - 1:k + 1]
        part = log(size / s) / log(t / s)
        return exp((1 - part) * log(low) + part * log(high))

    def computes(self, elements: Mapping[str, float]) -> float:
        """Seconds of what goes element by element. A function that is not known goes as the arithmetic does."""
        if not self.functions: return 0.0
        plain = self.functions.get("arithmetic", max(self.functions.values()))
        return sum(count / self.functions.get(name, plain) for name, count in elements.items())


@dataclass(frozen=True)
class Seconds:
    """The parts of a time: what computes, what waits for bytes, what a call costs."""
    arithmetic: float = 0.0
    traffic: float = 0.0
    latency: float = 0.0

    @property
    def total(self) -> float: return self.arithmetic + self.traffic + self.latency

    def __add__(self, o: Seconds) -> Seconds:
        return Seconds(self.arithmetic + o.arithmetic, self.traffic + o.traffic, self.latency + o.latency)

    def __mul__(self, by: float) -> Seconds:
        return Seconds(self.arithmetic * by, self.traffic * by, self.latency * by)


def seconds(call: Call, machine: Machine) -> Seconds:
    """Of a call, all the times it runs."""
    k = machine.kernel(call.kind)
    slow = prod(1 + h / s for s, h in zip(call.shape, k.half))
    computed = call.work / k.rate * slow + machine.computes(call.elements)
    moved = call.bytes / (k.bandwidth or machine.brings(call.bytes))
    latency = k.call + k.operand * call.operands
    one = Seconds(computed, 0.0, latency) if computed >= moved else Seconds(0.0, moved, latency)
    return one * call.times


def total(calls: Iterable[Call], machine: Machine) -> Seconds:
    return sum((seconds(c, machine) for c in calls), Seconds())


def hours(seconds_a_step: float, steps: float) -> float:
    """A whole training: 100,000 steps of 0.4 s are 11.1 h."""
    return seconds_a_step * steps / 3600
