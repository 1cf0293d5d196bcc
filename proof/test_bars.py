"""The training bars: what the shipped specs must reach on real text. Minutes each, so `make proof` runs them and CI does not.

PLAIT_DATA names a folder with the corpora, as tinyshakespeare/input.txt, part13/part13-corpus.txt and enwik8/enwik8_small; a
bar whose corpus is not there is skipped and says so. Every bar prints what it reached."""
import json
import math
import os
import re
import time
from collections import Counter
from pathlib import Path

import pytest

from plait import files
from plait.training import sample, start

SPECS = Path(__file__).parents[1] / "specs"


def corpus(name: str) -> Path:
    folder = os.environ.get("PLAIT_DATA")
    if not folder or not (path := Path(folder).resolve() / name).exists(): pytest.skip(f"PLAIT_DATA has no {name}")
    return path


def trained(spec: str | Path, out: Path, model: str | None = None, **settings: str):
    """The metrics of a run on its whole validation part, and its folder. spec: the name of a ready-made one, or a file."""
    began = time.time()
    given = files.overrides({k.replace("__", "."): v for k, v in settings.items()})
    run = start(spec if isinstance(spec, Path) else SPECS / f"{spec}.plait", model, given, "cpu", None, out, True, None)
    print(f"\n{spec} {model or ''}: step {run.step:,}, {json.dumps(run.metrics)}, {time.time() - began:,.0f} s")
    return run


def test_shakespeare(tmp_path):
    """nanoGPT's small recipe reached 1.90 over all of the validation part; the bar is 1.93. The sample reads like it."""
    text = corpus("tinyshakespeare/input.txt")
    run = trained("shakespeare", tmp_path / "run", train__data=f'text("{text}")')
    assert run.metrics["count"] == 111_539 and run.metrics["loss"] <= 1.93
    words = set(text.read_text().lower().split())
    made = "".join(sample(run.folder, "ROMEO:", 600, 0.8, None, 1, "cpu", print))
    print(made)
    assert sum(w in words for w in made.lower().split()) >= 0.6 * len(made.split())


@pytest.mark.parametrize("model", ["rnn", "lstm", "gru", "cnn", "transformer"])
def test_five_way(model, tmp_path):
    """300 steps on the small corpus beat the frequencies of its characters by half a nat at least."""
    path = corpus("part13/part13-corpus.txt")
    text = path.read_text()
    cut = int(0.9 * len(text))
    seen = Counter(text[:cut])
    unigram = -sum(math.log(seen.get(c, 1) / cut) for c in text[cut:]) / (len(text) - cut)
    run = trained("five_way", tmp_path / "run", model, train__data=f'text("{path}", split = (0.9, 0.1))', train__stop="300 steps")
    assert run.metrics["count"] == 7_535 and run.metrics["loss"] < unigram - 0.5, unigram


@pytest.mark.parametrize("model", ["full", "lsh"])
def test_duplication(model, tmp_path):
    """Both kinds of attention solve the task at length 64."""
    run = trained("duplication", tmp_path / "run", model)
    assert run.metrics["accuracy"] > 0.99


def test_copies_by_two_layers(tmp_path):
    """The same task by two layers of LSH attention: one that is subtly wrong stays at chance. (Public reports of other implementations.)"""
    text = (SPECS / "duplication.plait").read_text()
    block = re.search(r"    residual \{ lsh_attention.*\n    residual .*\n", text)
    assert block is not None
    spec = tmp_path / "two.plait"
    spec.write_text(text.replace(block[0], f"    repeat 2 {{\n{block[0]}    }}\n"))
    run = trained(spec, tmp_path / "run", "lsh")
    assert run.metrics["accuracy"] > 0.99


def test_reformer(tmp_path):
    """4,096 bytes at once, two reversible layers of 128: below 4 bits a byte."""
    path = corpus("enwik8/enwik8_small")
    run = trained("reformer", tmp_path / "run", n="4096", d="128", h="4", L="2", R="2", p="16",
                  train__data=f'bytes("{path}", split = (0.9, 0.05, 0.05))',
                  train__optimizer="adam", train__precision="fp32", train__batch="4 sequences", train__microbatch="4 sequences",
                  train__lr="cosine(2e-3, 2e-4, 50)", train__stop="300 steps", train__clip="1")
    assert run.metrics["bits_per_token"] < 4
