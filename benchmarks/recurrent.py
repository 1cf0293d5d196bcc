"""Training steps of the recurrent models of the five-way comparison: by the kernel that the plan takes, against PyTorch's own layers; by
the own scan, against a loop over the cell."""
from __future__ import annotations

import torch

from benchmarks.harness import LOSS, Row, faster, in_turn, model, training
from benchmarks.peers.recurrent import Recurrent

WIDTHS = {"rnn": 683, "lstm": 325, "gru": 381}
GOALS = {"rnn": 1.3, "lstm": 1.0, "gru": 1.0}
SYMBOLS, WIDTH = 100, 128


def rows(n: int = 128, batch: int = 32) -> list[Row]:
    text = torch.randint(SYMBOLS, (batch, n + 1))
    found = []
    for kind, width in WIDTHS.items():
        spec = f"""dims {{ n = {n}; V = {SYMBOLS} }}

model m {{
  input text: tokens[n] of V
  logits = text {{ embed(V, width = {WIDTH}); {kind}({width}); layer_norm; unembed(V, bias = true) }}
  output logits: [n, V]
}}
""" + LOSS
        ours, scan = model(spec), model(spec, kernels={kind: "body"})
        library, loop = "nn." + kind.upper(), "loop over the cell"
        peers = {library: Recurrent(kind, SYMBOLS, WIDTH, width), loop: Recurrent(kind, SYMBOLS, WIDTH, width, loop=True)}
        times = in_turn({"plait": training(lambda m=ours: m.loss(text), ours.parameters()),
                         "own scan": training(lambda m=scan: m.loss(text), scan.parameters()),
                         **{name: training(lambda p=p: p.loss(text), p.parameters()) for name, p in peers.items()}})
        what = f"{kind}({width}) model, training step, n = {n}, batch {batch}"
        found += [faster(what, f"{library} in plain PyTorch", GOALS[kind], times, "plait", library),
                  faster(f"{what}, own scan", "a Python loop over the cell", 1.7, times, "own scan", loop)]
    return found
