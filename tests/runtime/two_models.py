"""A spec of two small models, and how the laboratory's commands are called."""
from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from plait.cli import app

SPEC = """plait 1

dims { V <= 128; n = 8; d = 8 }
model first {
  input text: tokens[n] of V
  logits = text { embed(V, width = d); gru(d); unembed(V) }
  output logits: [n, V]
}
model second {
  input text: tokens[n] of V
  logits = text { embed(V, width = d); linear(4 * d); relu; linear(d); unembed(V) }
  output logits: [n, V]
}
train {
  data = text("corpus.txt", tokens = characters, split = (0.8, 0.2))
  loss = cross_entropy(logits, next(text))
  batch = 4 sequences
  lr = 1e-2
  stop = 6 steps
  every 2 steps { evaluate(loss) }
}
"""


def written(folder: Path) -> Path:
    """The spec and its corpus in a folder."""
    (folder / "corpus.txt").write_text("the quick brown fox jumps over the lazy dog; " * 20)
    (folder / "m.plait").write_text(SPEC)
    return folder / "m.plait"


def run(*args) -> str:
    found = CliRunner().invoke(app, [str(a) for a in args])
    assert found.exit_code == 0, found.output
    return found.stdout
