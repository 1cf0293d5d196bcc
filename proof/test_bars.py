"""The training bars: what the shipped specs must reach on real text. Minutes each, so `make proof` runs them and CI does not.

PLAIT_DATA names a folder with the corpora, as tinyshakespeare/input.txt, part13/part13-corpus.txt and enwik8/enwik8_small; a
bar whose corpus is not there is skipped and says so. Every bar prints what it reached."""
import gzip
import json
import math
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from plait import files
from plait.training import sample, start

SPREAD = 1.0                                   # BLEU

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


def test_enwik8(tmp_path):
    """A small decoder on the first megabyte of enwik8: below the 2.939 bits of a byte n-gram on the same piece."""
    path = corpus("enwik8/enwik8_small")
    run = trained("enwik8", tmp_path / "run", train__data=f'bytes("{path}", split = (0.9, 0.05, 0.05))')
    assert run.metrics["count"] == 53_552 and run.metrics["bits_per_token"] < 2.939


def test_images(tmp_path):
    """Digits of 64 points: read with an accuracy of 0.95, and painted below the entropy of the greys by themselves."""
    path = corpus("digits/digits.csv.gz")
    reader = trained("images", tmp_path / "reader", "reader", train__data=f'images("{path}", split = (0.9, 0.1))')
    assert reader.metrics["accuracy"] > 0.95
    painter = trained("images", tmp_path / "painter", "painter", train__data=f'images("{path}", split = (0.9, 0.1))')
    with gzip.open(path, "rt") as file: rows = [line.split(",")[:64] for line in file.read().split()]
    greys = Counter(int(float(x)) for row in rows if row[0].replace(".", "").isdigit() for x in row)
    alone = -sum(c / greys.total() * math.log2(c / greys.total()) for c in greys.values())
    assert painter.metrics["bits_per_token"] < alone - 0.5, alone


def test_chorales(tmp_path):
    """Bach's chorales, four voices: three notes of four are known from what was sung before."""
    path = corpus("jsb/Jsb16thSeparated.npz")
    run = trained("chorales", tmp_path / "run", train__data=f'sequences("{path}")')
    assert run.metrics["accuracy"] > 0.75


def test_translation(tmp_path):
    """Reversible layers translate as well as plain ones of the same size (Kitaev et al. 2020, section 5): within 1 BLEU on the test set of
    2016, or within the spread over seeds, which docs/papers.md has."""
    import sacrebleu

    from plait.runtime.generate.beam import Beam
    from plait.training import translate
    folder = corpus("multi30k/train.en.gz").parent
    sides = [gzip.open(folder / f"test_2016_flickr.{side}.gz", "rt").read() for side in ("en", "de")]
    (tmp_path / "test.en").write_text(sides[0])
    a, b, c, d = (folder / f"{name}.{side}.gz" for name in ("train", "val") for side in ("en", "de"))
    data = f'train.data=parallel_text("{a}", "{b}", tokenizer = bpe(V), validation = ("{c}", "{d}"))'
    models = ("plain", "reversible_layers")
    plait = (sys.executable, "-c", "from plait.cli import main; main()")
    at_once = [subprocess.Popen([*plait, "train", SPECS / "translation.plait", "--model", m, "--set", data, "--out", tmp_path / m])
               for m in models]
    assert [p.wait() for p in at_once] == [0, 0]
    found = {}
    for m in models:
        made = list(translate(tmp_path / m, tmp_path / "test.en", Beam(4, 0.6), 64, (), "cpu", print))
        found[m] = sacrebleu.corpus_bleu(made, [sides[1].splitlines()]).score
    print(found)
    assert min(found.values()) > 30 and found["reversible_layers"] > found["plain"] - SPREAD
