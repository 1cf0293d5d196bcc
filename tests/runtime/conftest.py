"""A small model with the face of a compiled one, and specs to train it by."""
from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from plait.compiler.axis import BATCH, axis
from plait.compiler.graph import Value
from plait.compiler.program import Input
from plait.compiler.sizes import Sizes, dim
from plait.dsl.parser import parse
from plait.runtime.recipe import Recipe, recipe

torch.set_num_threads(1)


class Small(nn.Module):
    """Embedding, dropout, output layer: predicts symbol t + 1 from symbol t. A symbol below 0 is -1 - symbol and no target."""

    def __init__(self, classes: int, n: int | None, width: int = 8, tied: bool = False):
        super().__init__()
        self.embed = nn.Embedding(classes, width)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(width, classes)
        if tied: self.out.weight = self.embed.weight
        given = Input("text", "tokens", Value("text", (BATCH, axis("n", dim("n"), "sequence")), "index"), classes=dim("V"), ahead=True)
        self.program = SimpleNamespace(inputs=(given,), sizes=Sizes({dim("V"): classes, **({dim("n"): n} if n else {})}))

    def forward(self, text: Tensor) -> Tensor:
        return self.out(self.drop(self.embed(torch.where(text < 0, -1 - text, text))))

    def _each(self, text: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        target = text[:, 1:]
        logits = self.forward(text[:, :-1])
        each = nn.functional.cross_entropy(logits.flatten(0, 1), target.clamp(min=0).flatten(), reduction="none").view_as(target)
        return each, target >= 0, logits.argmax(-1) == target

    def losses(self, text: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        each, counts, _ = self._each(text)
        total, count = (each * counts).sum(), counts.sum()
        return total / count.clamp(min=1), total, count

    def loss(self, text: Tensor) -> Tensor:
        return self.losses(text)[0]

    def score(self, text: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        each, counts, right = self._each(text)
        return (each * counts).sum(), counts.sum(), (right & counts).sum()


HEAD = "plait 1\ndims { V; n = 8 }\n" \
    "model m { input text: tokens[n] of V; logits = text { embed(V, width = 8); unembed(V) }; output logits: [n, V] }\n"
BODY = {"data": 'text("corpus.txt")', "loss": "cross_entropy(logits, next(text))", "batch": "4 sequences", "lr": "1e-2", "stop": "20 steps",
        "seed": "3"}


def source(every: str = "", **keys: str) -> str:
    """The text of a spec whose train block has the keys of BODY, changed; an empty value leaves one out."""
    lines = [f"  {k} = {v}" for k, v in {**BODY, **keys}.items() if v]
    return HEAD + "train m {\n" + "\n".join([*lines, every]) + "\n}\n"


def made(text: str, names: dict | None = None) -> Recipe:
    found = recipe(parse(text, "spec.plait"), "m", {"n": 8} if names is None else names)
    assert found is not None
    return found


@pytest.fixture
def corpus(tmp_path):
    """A folder with a text of 1,000 characters, 5 different ones."""
    (tmp_path / "corpus.txt").write_text("abcd\n" * 200)
    return tmp_path
