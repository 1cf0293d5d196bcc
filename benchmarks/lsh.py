"""An LSH attention layer with its projections: against Hugging Face's and reformer-pytorch's, and against full attention."""
from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.harness import Row, at_most, back_and_forth, faster, in_turn, layer, milliseconds
from benchmarks.peers.attention import Full
from benchmarks.peers.reformer import hugging_face, lucid
from plait.runtime.audit.measure import peak

WIDTH, HEADS, CHUNK = 256, 4, 64
GOALS = {(4096, 1): 2.5, (16384, 1): 2.5, (4096, 4): 4.0, (16384, 4): 7.0}
BATCHES = {4096: 4, 16384: 1}                                 # a fixed number of symbols


def ours(n: int, rounds: int):
    return layer(f"lsh_attention(heads = {HEADS}, chunk = {CHUNK}, rounds = {rounds}, causal = true)", n, WIDTH)


def rows(goals=GOALS, batches=BATCHES) -> list[Row]:
    found: list[Row] = []
    for (n, rounds), goal in goals.items():
        x = torch.randn(1, n, WIDTH)
        layers = {"plait": ours(n, rounds), "Hugging Face": hugging_face(n, WIDTH, HEADS, CHUNK, rounds),
                  "reformer-pytorch": lucid(WIDTH, HEADS, CHUNK, rounds), "full attention": Full(HEADS, WIDTH)}
        runs: dict[str, Callable[[], None]] = {name: back_and_forth(m, x) for name, m in layers.items()}
        times = in_turn(runs)
        peers = ("Hugging Face", "reformer-pytorch")
        what = f"LSH layer, n = {n:,}, rounds {rounds}, width {WIDTH}, {HEADS} heads, chunk {CHUNK}, forward + backward"
        found.append(faster(what, "the faster of Hugging Face's and reformer-pytorch's", goal, times, "plait", peers))
        found.append(faster(what, "full attention (`scaled_dot_product_attention`, causal)", 1.0, times, "plait", "full attention"))
        most = {name: peak(runs[name]) for name in ("plait", *peers)}
        bound = 2 / 3 if rounds == 1 else 1 / 4
        found.append(at_most(what + ", peak memory", "the leaner of the two", bound, most["plait"] / min(most[p] for p in peers),
                             ", ".join(f"{name} {size / 2**20:,.0f} MiB" for name, size in most.items())))
    for rounds in sorted({r for _, r in goals}):
        runs = {f"{b} × {n:,}": back_and_forth(ours(n, rounds), torch.randn(b, n, WIDTH)) for n, b in batches.items()}
        per_symbol = in_turn(runs)
        short, long = per_symbol.values()
        found.append(at_most(f"LSH layer, time a symbol at a fixed number of symbols, rounds {rounds}", "itself, at four times the length",
                             1.1, long / short, milliseconds(per_symbol)))
    return found
