"""`plait sample`, `plait translate` and `plait evaluate --metric bleu` on small runs."""
import json
from types import SimpleNamespace

import pytest

from plait.training import _typed

from .test_cli import run

TEXT = """plait 1
dims {{ R = 1; V; {n} }}
model lm {{
  input text: tokens[n] of V
  logits = text {{ embed(V, width = 8); residual {{ {layer} }}; unembed(V) }}
  output logits: [n, V]
}}
train lm {{
  data = text("words", split = (0.5, 0.5))
  loss = cross_entropy(logits, next(text))
  batch = 2 sequences
  lr = 0.01
  stop = 2 steps
  every 2 steps {{ sample("a", length = 5) }}
}}
"""
PAIRS = """plait 1
dims { m; n; d = 8; V }
model t {
  input source: tokens[m] of V padded
  input target: tokens[n] of V padded
  memory = source { embed(V, width = d); lstm(d) }
  logits = target { shift_right; embed(V, width = d); lstm(d); residual { attention(heads = 2, keys = memory) }; unembed(V) }
  output logits: [n, V]
}
train t {
  data = parallel_text("en", "de", tokenizer = words, split = (0.5, 0.5))
  loss = cross_entropy(logits, target)
  batch = 4 sequences
  optimizer = adam
  lr = 0.02
  stop = 60 steps
  every 60 steps { evaluate(loss, bleu) }
}
"""


def trained(folder, layer: str, n: str = "n = 12", more=()):
    (folder / "words").write_text("abcd\n" * 40)
    (folder / "m.plait").write_text(TEXT.format(layer=layer, n=n))
    run("train", folder / "m.plait", "--eager", "--out", folder / "run", *more)
    return folder / "run"


def test_sampling_says_once_where_the_window_begins_to_move(tmp_path):
    made = trained(tmp_path, "attention(heads = 2, causal = true)")
    short, long = run("sample", made, "--prompt", "abc", "--length", 9), run("sample", made, "--prompt", "abc", "--length", 40)
    assert short.stderr == "" and len(short.stdout) == 3 + 9 + 1
    assert long.stdout.startswith(short.stdout[:-1]) and long.stderr.count("reads 12 symbols") == long.stderr.count("\n") == 1
    assert run("sample", made, "--top-p", 0.000001, "--length", 9).stdout == run("sample", made, "--temperature", 0, "--length", 9).stdout
    assert "top-p above 0" in run("sample", made, "--top-p", 0, code=1).stderr


def test_sampling_with_more_rounds(tmp_path):
    """Rounds of hashing have no weights; a width has, and is refused."""
    made = trained(tmp_path, "lsh_attention(heads = 2, rounds = R, chunk = 4, causal = true)")
    found = run("sample", made, "--set", "R=4", "--length", 5)
    assert len(found.stdout) == 5 + 1 and found.stderr.count("computed over all positions so far") == 1 and "logits/1" in found.stderr
    assert run("sample", made, "--set", "R=4,5", code=1).stderr


def test_what_looks_ahead_trains_and_cannot_be_sampled(tmp_path):
    (tmp_path / "words").write_text("abcd\n" * 40)
    text = TEXT.format(layer="attention(heads = 2)", n="n = 12")
    (tmp_path / "m.plait").write_text(text.replace('sample("a", length = 5)', "evaluate(loss)"))
    run("train", tmp_path / "m.plait", "--eager", "--out", tmp_path / "run")
    assert "cannot be continued" in run("sample", tmp_path / "run", code=1).stderr
    assert "two inputs of tokens" in run("translate", tmp_path / "run", code=1).stderr


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """A run that learns to say each word in another language."""
    folder = tmp_path_factory.mktemp("pairs")
    english, german = ["one", "two", "three"], ["eins", "zwei", "drei"]
    lines = [[(k * j + k) % 3 for j in range(4)] for k in range(40)]
    (folder / "en").write_text("".join(" ".join(english[i] for i in line) + "\n" for line in lines))
    (folder / "de").write_text("".join(" ".join(german[i] for i in line) + "\n" for line in lines))
    (folder / "m.plait").write_text(PAIRS)
    run("train", folder / "m.plait", "--eager", "--out", folder / "run")
    return folder


def test_bleu_is_measured_in_training_and_after_it_with_its_signature(pairs):
    last = [r for r in map(json.loads, (pairs / "run" / "metrics.jsonl").read_text().splitlines()) if r["split"] == "validation"][-1]
    found = json.loads(run("evaluate", pairs / "run", "--metric", "bleu", "--json").stdout)
    assert 0 <= found["bleu"] < 100.001 and found["bleu"] == pytest.approx(last["bleu"])
    assert "version" in found["bleu_signature"] and found["bleu_signature"] == last["bleu_signature"]
    wide = run("evaluate", pairs / "run", "--metric", "loss,bleu", "--beam", 1, "--length-penalty", 1).stdout
    assert "bleu" in wide and "loss" in wide and found["bleu_signature"] in wide


def test_translations_of_a_file(pairs):
    found = run("translate", pairs / "run", "--file", pairs / "en", "--beam", 2).stdout.splitlines()
    assert len(found) == 40 and set(" ".join(found).split()) <= {"eins", "zwei", "drei", "one", "two", "three", "\N{REPLACEMENT CHARACTER}"}
    assert run("translate", pairs / "run", "--file", pairs / "en", "--beam", 2, "--batch", 7).stdout.splitlines() == found
    said = run("translate", pairs / "run", "--file", pairs / "fr", code=1).stderr
    assert "there is no file" in said and "paths start at the current folder" in said and "spec" not in said
    assert "plait translate" in run("sample", pairs / "run", code=1).stderr


def test_the_mark_before_typed_text_is_no_part_of_it(monkeypatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=[b"\xef\xbb\xbfone\r\n", b"\xef\xbb\xbftwo\n"]))
    assert list(_typed()) == ["one", "\ufefftwo"]                                 # within a text it is a character as any other


def test_bleu_of_a_text_is_refused_before_the_training(tmp_path):
    (tmp_path / "words").write_text("abcd\n" * 40)
    text = TEXT.format(layer="lstm(8)", n="n = 12").replace('sample("a", length = 5)', "evaluate(bleu)")
    (tmp_path / "m.plait").write_text(text)
    assert "compares translations with their references" in run("train", tmp_path / "m.plait", "--out", tmp_path / "run", code=1).stderr
    assert not (tmp_path / "run").exists()
