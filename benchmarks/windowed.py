"""Windowed attention, r = 256: against full attention, itself at twice the length, and fused attention on blocks."""
from __future__ import annotations

import torch

from benchmarks.harness import Row, agree, at_most, back_and_forth, faster, in_turn, layer, milliseconds
from benchmarks.peers.attention import Blocks, Full

WINDOW, HEADS, WIDTH = 256, 4, 256
BLOCKS = (64, 128, 256)                                      # of the peer


def rows(n: int = 8192, window: int = WINDOW, width: int = WIDTH) -> list[Row]:
    """Queries, keys and values are the stream itself: the attention alone is measured."""
    def ours(n: int): return layer(f"attention(heads = {HEADS}, causal = true, window = {window}, project = false)", n, width)
    short, long = (torch.randn(1, k, width) for k in (n, 2 * n))
    modules = {"plait": (ours(n), short), "plait, twice n": (ours(2 * n), long),
               "full attention": (Full(HEADS), short), "fused on blocks, compiled": (torch.compile(Blocks(HEADS, window)), short),
               **{f"fused on blocks of {k}": (Blocks(HEADS, window, k), short) for k in BLOCKS}}
    peers = tuple(name for name in modules if "blocks" in name)
    with torch.no_grad():
        for name in peers: agree(modules["plait"][0](short), modules[name][0](short))
    times = in_turn({name: back_and_forth(m, x) for name, (m, x) in modules.items()})
    what = f"windowed attention, n = {n:,}, r = {window}, {HEADS} heads of {width // HEADS}, forward + backward"
    return [
        faster(what, "full attention (`scaled_dot_product_attention`, causal)", 5, times, "plait", "full attention"),
        at_most(what, "itself, from n to 2n", 2.2, times["plait, twice n"] / times["plait"],
                milliseconds({k: times[k] for k in ("plait", "plait, twice n")})),
        faster(what, "fused attention on blocks (the fastest of three sizes, eager and compiled)", 1.8, times, "plait", peers),
    ]
