"""Tiny models of every family with their data, made as `plait train` makes them, and run eagerly."""
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from plait.dsl.parser import parse
from plait.runtime.prepare import Prepared, prepare
from plait.runtime.train import Run, resume, train

FAMILIES = {
    "rnn": "rnn(d)", "lstm": "lstm(d)", "gru": "gru(d)", "conv": "conv(d, kernel = 3, causal = true); gelu",
    "attention": "residual(dropout = 0.1) { attention(heads = 2, causal = true, dropout = 0.1) }",
    "lsh": "residual { lsh_attention(heads = 2, causal = true, chunk = 4, rounds = 2) }",
    "reversible": "reversible(repeat = 2) { a: { layer_norm; attention(heads = 2, causal = true) }; "
                  "b: { feed_forward(12); dropout(0.2) } }",
    "stack": "repeat 2 { residual { attention(heads = 2, causal = true) }; residual(dropout = 0.2) { feed_forward(12) } }",
}
KEYS = {"data": 'text("corpus.txt", split = (0.8, 0.2))', "loss": "cross_entropy(logits, next(text))", "batch": "5 sequences",
        "lr": "1e-2", "stop": "6 steps", "seed": "3", "clip": "1"}


def spec(layers: str, every: str = "every 2 steps { evaluate(loss, accuracy); checkpoint(keep = 9) }", **keys: str) -> str:
    """A language model of these layers; an empty key is left out."""
    lines = [f"  {k} = {v}" for k, v in {**KEYS, **keys}.items() if v]
    return ("plait 1\n\ndims { V = 5; n = 8; d = 8 }\n\nmodel m {\n  input text: tokens[n] of V\n  logits = text { embed(V, width = d); "
            + layers + "; unembed(V) }\n  output logits: [n, V]\n}\n\ntrain m {\n" + "\n".join([*lines, f"  {every}"]) + "\n}\n")


def made(text: str, folder: Path, compile: bool = False) -> Prepared:
    """The module's first weights are drawn from the recipe's seed."""
    found = prepare(parse(text, "m.plait"), "m", folder, compile=compile)
    return replace(found, spec_text=text)


def trained(text: str, folder: Path, name: str, **more) -> tuple[Run, torch.nn.Module]:
    p = made(text, folder, more.pop("compile", False))
    return train(p.module, p.recipe, p.dataset, folder / name, spec_text=p.spec_text, **more), p.module


def resumed(text: str, folder: Path, name: str, **more) -> tuple[Run, torch.nn.Module]:
    p = made(text, folder, more.pop("compile", False))
    return resume(p.module, p.recipe, p.dataset, folder / name, **more), p.module


def same_bits(module: torch.nn.Module, text: str, folder: Path) -> bool:
    """Is the module what an undisturbed run of the text becomes?"""
    _, other = trained(text, folder, "undisturbed")
    return all(torch.equal(a, b) for a, b in zip(module.state_dict().values(), other.state_dict().values()))
