"""A reversible stack: what it saves, and its step against checkpointing and against the plain stack."""
from __future__ import annotations

import torch

from benchmarks.harness import Row, at_most, back_and_forth, faster, in_turn, layer
from benchmarks.peers.checkpointed import Checkpointed
from benchmarks.transformer import products
from plait.runtime.audit.measure import held, inputs

WIDTH, HEADS = 256, 4
ATTEND, FEED = f"attention(heads = {HEADS}, causal = true)", "feed_forward(4 * d, activation = gelu)"


def reversible(layers: int, n: int, width: int = WIDTH, compile: bool = True):
    parts = f"attend: {{ layer_norm; {ATTEND} }}; feed: {{ layer_norm; {FEED} }}"
    return layer(f"reversible(repeat = {layers}) {{ {parts} }}", n, width, compile)


def plain(layers: int, n: int, width: int = WIDTH):
    return layer(f"repeat {layers} {{ residual {{ {ATTEND} }}; residual {{ {FEED} }} }}", n, width)


def rows(n: int = 1024, shallow: int = 4, deep: int = 32, layers: int = 8, width: int = WIDTH) -> list[Row]:
    saved = {}
    for count in (shallow, deep):
        module = reversible(count, n, width, compile=False)
        saved[count] = held(module, inputs(module.program, False), False)
    x = torch.randn(1, n, width)
    stacks = {"plait, reversible": reversible(layers, n, width), "checkpointed": torch.compile(Checkpointed(width, HEADS, layers)),
              "checkpointed, plain PyTorch eager": Checkpointed(width, HEADS, layers), "plait, plain stack": plain(layers, n, width)}
    times = in_turn({name: back_and_forth(m, x) for name, m in stacks.items()})
    what = f"reversible stack, n = {n:,}, d = {width}, attention and feed-forward, forward + backward"
    detail = ", ".join(f"L = {count}: {size / 2**20:.1f} MiB" for count, size in saved.items())
    macs = {name: products(stacks[f"plait, {name}"], 1) for name in ("reversible", "plain stack")}
    return [
        at_most(f"reversible stack, saved activations, L = {shallow} → {deep}", "itself", 1.0, saved[deep] / saved[shallow], detail),
        faster(f"{what}, L = {layers}", "the same blocks by hand, checkpointed (the faster of eager and compiled)", 1.0, times,
               "plait, reversible", ("checkpointed", "checkpointed, plain PyTorch eager")),
        at_most(f"{what}, L = {layers}", "the plain stack", 1.3, times["plait, reversible"] / times["plait, plain stack"],
                f"plain stack {1e3 * times['plait, plain stack']:.1f} ms; derived multiply-adds "
                f"{macs['reversible'] / macs['plain stack']:.2f} times the plain stack's"),
    ]
