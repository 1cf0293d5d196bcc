"""From a spec to the end of the first training step, at two depths, each in a fresh process without a cache."""
from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

from benchmarks.harness import ROUNDS, Row

STEP = """
import time
start = time.perf_counter()
import torch
from benchmarks.harness import training
from benchmarks.transformer import ours
module, text = ours({n}, {d}, 4, {layers}), torch.randint(256, (2, {n} + 1))
training(lambda: module.loss(text), module.parameters())()
print(time.perf_counter() - start)
"""


def seconds(layers: int, n: int, d: int) -> float:
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run([sys.executable, "-c", STEP.format(layers=layers, n=n, d=d)], capture_output=True, text=True, check=True,
                              env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache})
    return float(done.stdout.split()[-1])


def rows(shallow: int = 6, deep: int = 48, n: int = 64, d: int = 64, rounds: int = ROUNDS) -> list[Row]:
    times: dict[int, list[float]] = {shallow: [], deep: []}
    for _ in range(rounds):
        for layers in times: times[layers].append(seconds(layers, n, d))
    least, most = (statistics.median(times[k]) for k in (shallow, deep))
    return [Row(f"decoder, time to the end of the first step, L = {shallow} → {deep}", "itself", "0.8 … 1.2×", most / least,
                0.8 <= most / least <= 1.2, f"{least:.1f} s, {most:.1f} s, nothing cached")]
