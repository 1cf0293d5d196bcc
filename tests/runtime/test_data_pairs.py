"""Sentence pairs: their vocabularies, their batches, and that a run can go on from any step."""
from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from plait import files
from plait.dsl.errors import PlaitError
from plait.runtime import record
from plait.runtime.codec import Pair, from_facts
from plait.runtime.data.pairs import Pairs
from plait.runtime.prepare import prepare, reopen
from plait.runtime.recipe import Amount
from plait.runtime.train import resume, train

from .test_data_sources import opened, refused

WORDS = "a dog runs over the green field and two men look at it from an old house near the water".split()


def sentences(count: int, seed: int) -> list[tuple[str, str]]:
    """Sentences of 1 to 20 words, and the same words backwards, in capitals."""
    draw = random.Random(seed)
    found = [[draw.choice(WORDS) for _ in range(draw.randint(1, 20))] for _ in range(count)]
    return [(" ".join(s), " ".join(s[::-1]).upper()) for s in found]


@pytest.fixture
def pairs(tmp_path):
    """A folder with 200 pairs for training and 30 for validation."""
    for name, found in (("train", sentences(200, 1)), ("val", sentences(30, 2))):
        for k, side in enumerate(("en", "de")): (tmp_path / f"{name}.{side}").write_text("".join(p[k] + "\n" for p in found))
    return tmp_path


def spec(tokenizer="words", more=', validation = ("val.en", "val.de")', dims="V; m; n", padded="padded", batch="6 sequences") -> str:
    return f"""plait 1
dims {{ {dims} }}
share tok = embedding(V, 8)
model m {{
  input source: tokens[m] of V {padded}
  input target: tokens[n] of V {padded}
  memory = source {{ embed(tok); feed_forward(8) }}
  logits = target {{ shift_right; embed(tok); attention(heads = 2, keys = memory); dropout(0.1); unembed(tok) }}
  output logits: [n, V]
}}
train m {{
  data = parallel_text("train.en", "train.de", tokenizer = {tokenizer}{more})
  loss = cross_entropy(logits, target)
  batch = {batch}
  lr = 1e-2
  stop = 12 steps
  seed = 3
}}
"""


def sides(x: torch.Tensor, y: torch.Tensor, codec: Pair) -> list[tuple[str, str]]:
    return [(codec.decode(s[s >= 0].tolist()), codec.decode(t.tolist())) for s, t in zip(x, y)]


# ---- vocabularies ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("tokenizer", ["words", "characters", "bpe(300)"])
def test_sentences_come_back_from_their_symbols(pairs, tokenizer):
    d = opened(pairs, spec(tokenizer), V="400")
    assert d.codec.end == 1 and d.classes == (d.codec.size, d.codec.size)
    again = from_facts(json.loads(json.dumps(d.codec.facts())))
    assert again == d.codec
    for text, _ in sentences(20, 1):
        ids = d.codec.encode(text)
        assert min(ids) >= 3 and max(ids) < d.codec.size
        assert again.decode(ids) == again.decode([0, *ids, 1, *ids]) == text        # the end ends it


def test_words_are_numbered_by_how_often_they_stand(pairs):
    found = Counter(w for p in sentences(200, 1) for text in p for w in text.split())
    d = opened(pairs, spec("words"))
    assert d.codec.pieces == tuple(sorted(found, key=lambda w: (-found[w], w))) and d.codec.size == 3 + len(found)
    few = opened(pairs, spec("words"), V="10").codec
    assert few.pieces == d.codec.pieces[:7] and few.encode("zebra " + few.pieces[0]) == [2, 3]
    assert few.decode([3, 2]) == few.pieces[0] + " \N{REPLACEMENT CHARACTER}"


def test_byte_pairs_join_what_stands_together_most(pairs):
    """Every word begins with its space; nothing is unknown; the first merge is the most frequent pair of letters."""
    pytest.importorskip("tokenizers")
    codec = opened(pairs, spec("bpe(300)"), V="300").codec
    assert codec.size == 300 and len(codec.merges) == 300 - 3 - 256
    assert codec.encode("a dog") == codec.encode("a") + codec.encode(" dog")
    for text in ("Ünïcode — 字", "two  spaces", "tab\tand 'quotes'", ""): assert codec.decode(codec.encode(text)) == text
    found: Counter = Counter()
    for p in sentences(200, 1):
        for text in p:
            for i, word in enumerate(text.split()):
                letters = ("Ġ" if i else "") + word
                found.update(zip(letters, letters[1:]))
    assert found[codec.merges[0]] == max(found.values())


def test_byte_pairs_are_the_same_in_another_process(pairs):
    pytest.importorskip("tokenizers")
    code = ("import json; from pathlib import Path; from tests.runtime.test_data_pairs import *; "
            f"print(json.dumps(opened(Path({str(pairs)!r}), spec('bpe(320)'), V='320').codec.facts()))")
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root,
                          env={**os.environ, "RAYON_NUM_THREADS": "3", "PYTHONHASHSEED": "77", "PYTHONPATH": str(root)})
    assert json.loads(done.stdout) == opened(pairs, spec("bpe(320)"), V="320").codec.facts()


# ---- batches -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("amount", [Amount(7, "sequences"), Amount(100, "tokens"), Amount(1000, "tokens"), Amount(10**6, "tokens")])
def test_an_epoch_has_every_pair_once_in_batches_of_like_lengths(pairs, amount):
    d = opened(pairs, spec()).by(amount)
    per = d.steps(1)
    orders = []
    for epoch in range(2):
        got = []
        for step in range(1 + epoch * per, 1 + (epoch + 1) * per):
            x, y = d.batch(step)
            assert x.shape[1] % 8 == y.shape[1] % 8 == 0 and len(x) == len(y)
            assert x.shape[1] - 8 < int((x >= 0).sum(1).max()) and y.shape[1] - 8 < int((y >= 0).sum(1).max())
            assert (x >= 0).logical_or(x == -1).all() and ((x >= 0).int().diff(dim=1) <= 0).all(), "padding stands behind"
            lengths = (y >= 0).sum(1)
            assert (y[torch.arange(len(y)), lengths - 1] == 1).all() and (y == 1).sum() == len(y) and (x != 1).all()
            if amount.unit == "tokens": assert len(x) == 1 or x.numel() <= amount.amount and y.numel() <= amount.amount
            else: assert len(x) in (7, 200 % 7)
            assert d.tokens((x, y)) == int(lengths.sum())
            got += sides(x, y, d.codec)
        assert Counter(got) == Counter(sentences(200, 1))
        if amount.unit == "sequences": assert per == 29                          # 28 of 7 and one of 4
        orders.append(got)
    assert orders[0] != orders[1] and d.steps(2.5) == -(-per * 5 // 2)
    assert d.symbols == sum(len(t.split()) + 1 for _, t in sentences(200, 1))


def test_batches_fill_what_they_are_given(pairs):
    """100 tokens: sentences of up to 8 symbols by 12, of up to 16 by 6, of up to 24 by 4."""
    d = opened(pairs, spec()).by(Amount(100, "tokens"))
    rows: dict[int, list[int]] = {}
    for step in range(1, 1 + d.steps(1)):
        x, y = d.batch(step)
        rows.setdefault(max(x.shape[1], y.shape[1]), []).append(len(x))
    assert rows.keys() == {8, 16, 24} and max(rows[8]) == 12 and max(rows[16]) == 6 and max(rows[24]) == 4
    assert [sorted(r)[1] for r in rows.values()] == [max(r) for r in rows.values()], "at most one batch of a length is not full"


def test_a_batch_is_a_function_of_seed_step_and_amount(pairs):
    d, again = opened(pairs, spec()), opened(pairs, spec())
    by = d.by(Amount(90, "tokens"))
    steps = [5, 1, 70, 5, 2]
    for step in steps:
        for a, b in zip(by.batch(step), again.by(Amount(90, "tokens")).batch(step)): assert torch.equal(a, b)
    assert torch.equal(d.batch(9, 4)[0], d.by(Amount(4, "sequences")).batch(9)[0])
    assert not torch.equal(opened(pairs, spec().replace("seed = 3", "seed = 4")).batch(1, 200)[0], d.batch(1, 200)[0])


def test_validation_has_each_pair_once_and_references_their_order(pairs):
    d = opened(pairs, spec())
    assert Counter(p for x, y in d.validation(7) for p in sides(x, y, d.codec)) == Counter(sentences(30, 2))
    given = [(d.codec.decode(s[s >= 0].tolist()), t) for x, written in d.references(8) for s, t in zip(x, written, strict=True)]
    assert given == sentences(30, 2)


def test_bound_lengths_leave_out_what_is_longer_and_say_so(pairs):
    d = opened(pairs, spec(dims="V; m = 10; n = 12"))
    fits = [p for p in sentences(200, 1) if len(p[0].split()) <= 10]
    (note, other) = d.notes
    assert note.startswith(f"{200 - len(fits)} of 200 sentence pairs of the training part are longer") and "validation" in other
    got = []
    for step in range(1, 1 + d.by(Amount(60, "tokens")).steps(1)):
        x, y = d.by(Amount(60, "tokens")).batch(step)
        assert x.shape[1] == 10 and y.shape[1] == 12 and len(x) <= 5
        got += sides(x, y, d.codec)
    assert Counter(got) == Counter(fits)
    assert sum(len(t) for _, t in d.references(7)) == 30, "references are of all"
    assert all(x.shape[1] == 10 for x, _ in d.references(7))


def test_a_part_of_the_training_files_may_validate(pairs):
    d = opened(pairs, spec(more=", split = (0.9, 0.05)"))
    held = [p for x, y in d.validation(100) for p in sides(x, y, d.codec)]
    assert len(d.train) == 180 and len(held) == 10 and d.notes == ()
    trained = [p for s in range(1, 1 + d.steps(1)) for p in sides(*d.batch(s), d.codec)]
    assert not Counter(held) - (Counter(sentences(200, 1)) - Counter(trained))
    given = [(d.codec.decode(s[s >= 0].tolist()), t) for x, written in d.references(3) for s, t in zip(x, written)]
    assert Counter(given) == Counter(held)


def test_packed_files_windows_line_ends_and_empty_lines(tmp_path):
    (tmp_path / "train.en").write_bytes(b"a b\r\n\r\nc\r\n" * 20)
    (tmp_path / "train.de").write_bytes(b"A B\n\nC" + b"\nA B\n\nC" * 19)
    (tmp_path / "train.en.gz").write_bytes(gzip.compress((tmp_path / "train.en").read_bytes()))
    text = spec(more=", split = (0.5, 0.5)").replace("train.en", "train.en.gz")
    d = opened(tmp_path, text)
    assert set(d.codec.pieces) == set("abcABC")
    assert {p for x, y in d.validation(9) for p in sides(x, y, d.codec)} == {("a b", "A B"), ("", ""), ("c", "C")}


PAIRS = [
    ({"train.en": None}, "E0610", "no file `train.en`"), ({"train.de": b""}, "E0611", "`train.de` is empty"),
    ({"val.de": b"A\n" * 29}, "E0612", "`val.en` and `val.de` are no pair"), ({"train.de": b"A\nB"}, "E0612", "are no pair"),
    ({"train.en": b"a\n" * 199 + b"\xff\n"}, "E0612", "`train.en` is not UTF-8"), ({"val.en": None}, "E0610", "no file `val.en`"),
]


@pytest.mark.parametrize("changed, code, part", PAIRS)
def test_files_that_are_no_pair(pairs, changed, code, part):
    for name, content in changed.items(): (pairs / name).unlink() if content is None else (pairs / name).write_bytes(content)
    found = refused(pairs, spec())
    assert found.code == code and part in found.message, found
    if part == "are no pair": assert found.numbers == "200 lines and 2"
    if "UTF-8" in part: assert found.numbers == "byte 398 (line 200) is 0xff"


def test_the_mark_before_a_text_is_no_part_of_it(pairs):
    plain = opened(pairs, spec())
    for name in ("train.en", "val.de"): (pairs / name).write_bytes(b"\xef\xbb\xbf" + (pairs / name).read_bytes())
    marked = opened(pairs, spec())
    assert marked.codec == plain.codec and marked.content == plain.content and marked.written == plain.written


def test_a_pair_of_torn_files(pairs):
    (pairs / "train.en").rename(pairs / "train.en.gz")
    (pairs / "train.en.gz").write_bytes(gzip.compress((pairs / "train.de").read_bytes())[:-20])
    assert refused(pairs, spec().replace("train.en", "train.en.gz")).code == "E0612"


@pytest.mark.parametrize("text, code, part", [
    (spec(padded=""), "E0614", "is not padded"), (spec("bpe(100)"), "E0613", "are too few"), (spec("bpe(V)"), "E0638", "`V` has no value"),
    (spec(dims="V; m = 10; n = 1"), "E0611", "no sentence pair of at most 10 and 1 symbols"),
    (spec().replace("logits, target", "logits, next(target)"), "E0614", "targets of its own"),
    (spec().replace("parallel_text(", "parallel_text(split = (0.5, 0.5), ").replace("train.en", "val.en", 1), "E0612", "no pair")])
def test_pairs_that_do_not_fit(pairs, text, code, part):
    found = refused(pairs, text)
    assert found.code == code and part in found.message, found


def test_a_vocabulary_that_is_too_small(pairs):
    assert refused(pairs, spec("bpe(300)"), V="299").code == "E0613"


def test_without_the_package(pairs, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    found = refused(pairs, spec("bpe(300)"))
    assert found.code == "E0610" and "plait[translation]" in found.help


# ---- runs --------------------------------------------------------------------------------------------------------------
def test_a_resumed_run_is_the_uninterrupted_one(pairs):
    """12 steps of token-filled batches, with dropout, whole and in two parts; the vocabulary of the run is kept, and bound."""
    text = spec(batch="100 tokens")
    (pairs / "spec.plait").write_text(text)

    def fresh(): return prepare(files.opened(pairs / "spec.plait").spec, "m", pairs, compile=False)
    made = fresh()
    whole = train(made.module, made.recipe, made.dataset, pairs / "whole", spec_text=made.spec_text)
    half = fresh()
    train(half.module, half.recipe, half.dataset, pairs / "half", spec_text=half.spec_text, steps=5)
    again = reopen(pairs / "half", compile=False)
    assert isinstance(again.dataset, Pairs) and again.dataset.codec == made.dataset.codec
    assert resume(again.module, again.recipe, again.dataset, pairs / "half").loss == whole.loss
    assert all(torch.equal(a, b) for a, b in zip(made.module.parameters(), again.module.parameters(), strict=True))
    counted = [r["tokens"] for r in record.rows(pairs / "half")]
    assert counted == [r["tokens"] for r in record.rows(pairs / "whole")]
    assert counted[0] == made.dataset.tokens(made.dataset.batch(1))
    (pairs / "train.de").write_text((pairs / "train.de").read_text().replace("DOG", "CAT"))
    changed = reopen(pairs / "half", compile=False)
    with pytest.raises(PlaitError, match="not what the run"): resume(changed.module, changed.recipe, changed.dataset, pairs / "half")


@pytest.mark.skipif("PLAIT_DATA" not in os.environ, reason="PLAIT_DATA names no folder of corpora")
def test_multi30k():
    """29,000 and 1,014 pairs."""
    text = spec("words", ', validation = ("val.en.gz", "val.de.gz")').replace('"train.en", "train.de"', '"train.en.gz", "train.de.gz"')
    d = opened(Path(os.environ["PLAIT_DATA"]).resolve() / "multi30k", text)
    assert len(d.train) == 29_000 and sum(len(t) for _, t in d.references(100)) == 1_014
    assert np.diff(d.train.target.starts).min() >= 2
