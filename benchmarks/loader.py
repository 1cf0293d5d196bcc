"""What a batch costs, as a share of the training step that it is for, eager on this machine. In training a thread makes it while the
step before runs, so that the share is what a step would wait without one."""
from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch

from benchmarks.harness import ROUNDS, WARM, Row, training
from plait import files
from plait.runtime.prepare import Prepared, prepare

SPECS = Path(__file__).parents[1] / "specs"
STEPS = 10                                                 # a round: lengths differ from step to step
GOAL = 0.05


def text(folder: Path) -> tuple[str, str, dict[str, str]]:
    return "shakespeare", "shakespeare", {"train.data": 'text("builtin:python_docs")', "V": "256"}


def pairs(folder: Path, count: int = 20_000) -> tuple[str, str, dict[str, str]]:
    """Sentences of 4 to 30 words, of 10,000 words whose frequencies fall as 1 / rank, as in a language."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(10_000)]
    weights = list(accumulate(1 / (rank + 1) for rank in range(len(words))))
    lines = [" ".join(draw.choices(words, cum_weights=weights, k=draw.randint(4, 30))) for _ in range(count)]
    for side in ("a", "b"): (folder / side).write_text("\n".join(lines))
    return "translation", "plain", {"train.data": f'parallel_text("{folder}/a", "{folder}/b", tokenizer = bpe(V))'}


def images(folder: Path, count: int = 2_000) -> tuple[str, str, dict[str, str]]:
    levels = np.random.default_rng(0).integers(0, 17, (count, 8, 8)).astype(np.uint8)
    np.savez(folder / "images.npz", images=levels)
    return "images", "painter", {"train.data": f'images("{folder}/images.npz")'}


def made(spec: str, model: str, settings: dict[str, str]) -> Prepared:
    file = files.opened(SPECS / f"{spec}.plait", files.overrides(settings))
    return prepare(file.spec, model, SPECS, compile=False)


SOURCES = {"text": text, "sentence pairs": pairs, "images": images}


def rows(rounds: int = ROUNDS, names: Iterable[str] = SOURCES) -> list[Row]:
    found = []
    for name, source in ((name, SOURCES[name]) for name in names):
        with tempfile.TemporaryDirectory() as folder:
            plait = made(*source(Path(folder)))
            given: list[tuple[torch.Tensor, ...]] = [()]
            step = training(lambda m=plait.module, g=given: m.loss(*g[0]), plait.module.parameters())
            load, work = [], []
            for k in range(1, 1 + STEPS * (rounds + WARM)):
                began = time.perf_counter()
                given[0] = plait.dataset.batch(k)
                ready = time.perf_counter()
                step()
                if k > STEPS * WARM: load.append(ready - began); work.append(time.perf_counter() - ready)
        ratio = statistics.median(load) / statistics.median(work)
        found.append(Row(f"a batch of {name}, for the model `{plait.recipe.model}`", "its training step, eager",
                         f"≤ {GOAL}×", ratio, ratio <= GOAL,
                         f"{1e3 * statistics.median(load):.2f} ms beside {1e3 * statistics.median(work):.1f} ms"))
    return found
