"""`plait calibrate`: the rates of this machine, by kernels of their own, in turn. About a minute, once for a device, a dtype and a number
of threads."""
from __future__ import annotations

import platform
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import torch

from plait.compiler.costs.calls import Call
from plait.compiler.costs.time import Kernel, Machine, seconds
from plait.dsl.errors import error
from plait.runtime.laboratory.machines import About, Measured
from plait.runtime.laboratory.probes import GROUPS, Place, Probe
from plait.runtime.laboratory.turns import waiting
from plait.runtime.surroundings import repeatable

ROUNDS = 7
NOISE = 0.2                                                   # how far, on the median, a probe's times may lie from themselves
# what is found of a kind of call, beside its rate
FREE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("packed", "lstm", "gru", "rnn", "lstm_backward", "gru_backward", "rnn_backward"), ("half", "call")),
    **dict.fromkeys(("columns", "scatter", "packing"), ("bandwidth", "call")), "update": ("bandwidth", "operand", "call"),
    **dict.fromkeys(("segment", "segment_backward", "piece"), ("operand", "call"))}


def calibrate(device: torch.device, dtype: torch.dtype = torch.float32, part: float = 1.0, rounds: int = ROUNDS,
              told: Callable[[str], None] = lambda what: None) -> Measured:
    """Measures all probes. part: of the sizes, for tests. Raises PlaitError where the machine is too noisy to be measured."""
    place, began = Place(device, dtype, part), time.perf_counter()
    with repeatable(device):
        probes: list[Probe] = []
        for name, make in GROUPS.items():
            told(name)
            probes += make(place)
        told("in turn")
        times = in_turn(probes, rounds, waiting(device))
    noise = statistics.median(spread(t) for t in times)
    if noise > NOISE:
        said = f"the times of a kernel differ by {noise:.0%} on the median, and {NOISE:.0%} is the most"
        raise error("E0672", "this machine is too noisy to be measured", numbers=said,
                    help="end what else runs on it, and try again; or plait predict --machine FILE, with numbers of your own")
    found = machine([(p.call, statistics.median(t)) for p, t in zip(probes, times)])
    here = platform.node(), processor(device), torch.__version__, date.today().isoformat()
    took = round(time.perf_counter() - began, 1)
    return Measured(About(device.type, str(dtype).removeprefix("torch."), torch.get_num_threads(), *here, round(noise, 4), took), found)


def in_turn(probes: Sequence[Probe], rounds: int, wait: Callable[[], None]) -> list[list[float]]:
    """Seconds of a call, a list a probe, an entry a round. Every round makes each once, so that each comes to caches that another left."""
    found: list[list[float]] = [[] for _ in probes]
    for p in probes:
        for _ in range(2): p.run()
    for _ in range(rounds):
        for p, times in zip(probes, found):
            wait()
            began = time.perf_counter()
            p.run()
            wait()
            times.append((time.perf_counter() - began) / p.count)
    return found


def spread(times: Sequence[float]) -> float:
    """The distance of the quartiles, as a part of the median."""
    if len(times) < 2: return 0.0
    low, _, high = statistics.quantiles(times, n=4, method="inclusive")
    return (high - low) / statistics.median(times)


def processor(device: torch.device) -> str:
    if device.type == "cuda": return torch.cuda.get_device_name(device)
    try: lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError: lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


# -- from times to numbers -------------------------------------------------------------------------------------------------
def machine(measured: Iterable[tuple[Call, float]]) -> Machine:
    """The numbers by which `costs.time` gives these times."""
    of: dict[str, list[tuple[Call, float]]] = defaultdict(list)
    for call, t in measured: of[call.kind].append((call, t / call.times))
    (_, latency), (_, product) = of.pop("latency")[0], of.pop("product")[0]
    bandwidth = tuple((c.bytes, c.bytes / max(t - latency, t / 10)) for c, t in of.pop("traffic"))
    (_, compiled), = of.pop("compiled")
    functions: dict[str, float] = {}
    for c, t in (*of.pop("function"), *of.pop("sort")):
        before = compiled if c.operands else latency
        functions |= {name: count / max(t - before, t / 10) for name, count in c.elements.items()}
    rate = max(c.work / t for kind, points in of.items() if kind.startswith("product") for c, t in points)
    plain = Machine(rate, bandwidth, latency, {}, functions)
    kernels = {}
    for kind, points in of.items():
        start = Kernel(rate, call=product if kind.startswith("product") or kind == "batched" else latency)
        before = compiled if kind == "columns" else 0.0       # that much is entering compiled code, which a segment has once
        kernels[kind] = fitted(plain, kind, [(replace(c, times=1), max(t - before, t / 10)) for c, t in points], start)
    return replace(plain, kernels=kernels)


def fitted(plain: Machine, kind: str, points: Sequence[tuple[Call, float]], start: Kernel) -> Kernel:
    """The numbers of one kind of call that are nearest to its times, as ratios."""
    shape = points[0][0].shape
    free = FREE.get(kind, ("half",) if shape else ())
    most = max(c.bytes for c, _ in points)
    begin = [start.rate, *([16.0] * len(shape)), start.call, plain.brings(most), start.call / 4]
    wanted = [any(c.work for c, _ in points), *(["half" in free] * len(shape)), "call" in free, "bandwidth" in free, "operand" in free]

    def kernel(x: Sequence[float]) -> Kernel:
        r, *h, call, band, each = x
        return Kernel(r, tuple(h), band if "bandwidth" in free else None, call, each if "operand" in free else 0.0)

    def ratios(x: Sequence[float]) -> np.ndarray:
        on = replace(plain, kernels={kind: kernel(x)})
        return np.array([log(max(seconds(c, on).total, 1e-12) / t) for c, t in points])
    return kernel(nearest(begin, [k for k, w in enumerate(wanted) if w], ratios))


def nearest(start: Sequence[float], which: Sequence[int], ratios: Callable[[Any], np.ndarray]) -> list[float]:
    """The positive numbers whose ratios are nearest to 0, by least squares in their logarithms (Levenberg 1944, Marquardt 1963)."""
    x, damp = np.array(start), 1e-2
    r = ratios(x)
    for _ in range(200):
        slopes = np.stack([(ratios(_stepped(x, [k], [1e-4])) - r) / 1e-4 for k in which], 1)
        square = slopes.T @ slopes
        move = np.linalg.solve(square + damp * np.diag(np.diag(square)) + 1e-9 * np.eye(len(which)), -slopes.T @ r)
        y = _stepped(x, which, np.clip(move, -1.0, 1.0))
        after = ratios(y)
        if after @ after < r @ r:
            done = r @ r - after @ after < 1e-9
            x, r, damp = y, after, damp / 3
            if done: break
        elif damp > 1e6: break
        else: damp *= 4
    return [float(v) for v in x]


def _stepped(x: np.ndarray, which: Sequence[int], by) -> np.ndarray:
    y = x.copy()
    y[list(which)] *= np.exp(by)
    return y


def errors(found: Machine, probes: Sequence[tuple[Call, float]]) -> Mapping[str, float]:
    """kind → the median of how far its own numbers are from its times."""
    of: dict[str, list[float]] = defaultdict(list)
    for call, t in probes:
        if call.kind in found.kernels: of[call.kind].append(abs(seconds(replace(call, times=1), found).total * call.times / t - 1))
    return {kind: statistics.median(e) for kind, e in of.items()}
