"""What counting gives on the text of these studies: the validation loss of the one, two and three characters before, in nats a character.

    python examples/depth/counts.py"""
from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import plait
from plait.runtime.device import device_of
from plait.runtime.prepare import prepare

HERE = Path(__file__).parent
ADDED = 0.1                                                   # to each count, so that what was never seen is not impossible


def loss(trained: list[int], held_out: list[int], symbols: int, before: int) -> float:
    """The mean of −log p over the held-out symbols, p being how often one followed the same symbols in training."""
    def windows(text: list[int]) -> list[tuple[int, ...]]: return [tuple(text[i - before:i + 1]) for i in range(before, len(text))]

    seen = Counter(windows(trained))
    starts = Counter(w[:-1] for w in seen.elements())
    losses = [-math.log((seen[w] + ADDED) / (starts[w[:-1]] + ADDED * symbols)) for w in windows(held_out)]
    return sum(losses) / len(losses)


def main() -> None:
    text = prepare(plait.load(HERE / "depth.plait").file.spec, "reformer", HERE, device=device_of("cpu"), compile=False).dataset
    trained, held_out = list(map(int, text.train)), list(map(int, text.held_out))
    for before in (1, 2, 3): print(before, f"{loss(trained, held_out, text.codec.size, before):.3f}")


if __name__ == "__main__": main()
