"""Beam search, translation and BLEU."""
import builtins
import itertools
import math

import pytest
import torch

from plait.dsl.errors import PlaitError
from plait.runtime.codec import Numbers
from plait.runtime.generate.beam import Beam, search
from plait.runtime.generate.bleu import bleu, bleu_of
from plait.runtime.generate.translate import MORE, padded, translate, translated

from .generating import continued, incremental, recomputing, translator

END = 1


class Words:
    """Symbols 0 to 6: start, end, unknown, and a to d with spaces between them."""
    size, end = 7, END

    def encode(self, text): return ["abcd".index(w) + 3 for w in text.split()]
    def decode(self, ids): return " ".join("abcd"[i - 3] if i > 2 else "?" for i in ids)


def sources(*lengths: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(len(lengths))
    return padded([torch.randint(3, 7, (k,), generator=g).tolist() for k in lengths])


def worth(m, x: torch.Tensor, y: list[int], penalty: float) -> float:
    """The score of symbols y after source x [1, m], from the whole model at once."""
    with torch.no_grad(): p = m(x, torch.tensor([y])).log_softmax(-1)[0]
    return sum(float(p[t, s]) for t, s in enumerate(y)) / (((5 + len(y)) / 6) ** penalty)


@pytest.mark.parametrize("penalty", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_beam_as_wide_as_all_there_is_finds_the_best(seed, penalty):
    """Of 4 symbols, one the end, and at most 4 of them: 27 + 9 + 3 + 1 that end and 81 that do not, each scored by itself."""
    m, x = translator(V=4, seed=seed), torch.tensor([[2, 3, 2]])
    every = [[*front, END] for k in range(4) for front in itertools.product((0, 2, 3), repeat=k)]
    every += [list(y) for y in itertools.product((0, 2, 3), repeat=4)]
    assert len(every) == 40 + 81
    best = max(every, key=lambda y: worth(m, x, y, penalty))
    found, = search(incremental(m), torch.zeros((1, 0), dtype=torch.long), {"source": x}, [4], Beam(200, penalty), END)
    assert list(found.symbols) == [s for s in best if s != END]
    assert found.score == pytest.approx(worth(m, x, best, penalty), abs=1e-10)


def test_a_beam_of_one_takes_the_likeliest_symbol_each_time():
    m, x = translator(), sources(5, 2, 7)
    found = search(incremental(m), torch.zeros((3, 0), dtype=torch.long), {"source": x}, [12, 12, 12], Beam(1, 0.6), END)
    for row, f in zip(x, found):
        y: list[int] = []
        while len(y) < 12:
            symbol = int(m(row[row >= 0][None], torch.tensor([[*y, 0]]))[0, len(y)].argmax())
            y.append(symbol)
            if symbol == END: break
        assert [*f.symbols, END][:len(y)] == y
        assert f.score == pytest.approx(worth(m, row[row >= 0][None], y, 0.6), abs=1e-10)


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("decoder", ["plain", "reversible"])
def test_caches_follow_their_beams(decoder, width):
    """With what is kept, put in order as beams change, and with everything computed anew: the same. Each sentence as by itself."""
    m, x, limits = translator(decoder), sources(5, 2, 7, 1), [9, 14, 4, 1]
    start, beam = torch.zeros((4, 0), dtype=torch.long), Beam(width, 0.6)
    found = search(incremental(m), start, {"source": x}, limits, beam, END)
    again = search(recomputing(m), start, {"source": x}, limits, beam, END)
    alone = [search(incremental(m), start[:1], {"source": x[k:k + 1, :int((x[k] >= 0).sum())]}, limits[k:k + 1], beam, END)[0]
             for k in range(4)]
    for other in (again, alone):
        assert [f.symbols for f in found] == [f.symbols for f in other]
        assert [f.score for f in found] == pytest.approx([f.score for f in other], abs=1e-10)
    assert all(len(f.symbols) <= k for f, k in zip(found, limits))


@pytest.mark.parametrize("ahead", [True, False])
def test_a_language_model_goes_on_from_a_prompt(ahead):
    """A beam of 2 over 3 symbols is worth at least what the likeliest each time is worth; all 11³ are searched by 1,331."""
    m, prompt = continued("attention(heads = 2, causal = true)", ahead=ahead), torch.tensor([[3, 1, 4], [1, 5, 9]])
    greedy, two, all_ = (search(incremental(m), prompt, {}, [3, 3], Beam(k, 0)) for k in (1, 2, 1331))
    assert [f.symbols for f in two] == [f.symbols for f in search(recomputing(m), prompt, {}, [3, 3], Beam(2, 0))]
    for row in range(2):
        assert len(greedy[row].symbols) == 3 and greedy[row].score <= two[row].score + 1e-12 <= all_[row].score + 2e-12
        tails = torch.tensor(list(itertools.product(range(11), repeat=3)))
        y = torch.cat([prompt[row].expand(len(tails), -1), tails], 1)
        with torch.no_grad(): p = m(torch.cat([y, y.new_zeros(len(y), 6)], 1)).log_softmax(-1)
        at = range(2, 5) if ahead else range(3, 6)                                          # where symbols 3 to 5 are predicted
        total = sum(p[torch.arange(len(y)), t, y[:, 3 + k]] for k, t in enumerate(at))
        assert all_[row].symbols == tuple(tails[int(total.argmax())].tolist())
        assert all_[row].score == pytest.approx(float(total.max()), abs=1e-10)


def test_the_length_penalty_is_that_of_wu_et_al():
    """α = 0.6, |Y| = 7: (12 / 6)^0.6 = 1.5157…; α = 0 leaves the log probability."""
    assert Beam(4, 0.6).divisor(7) == pytest.approx(12**0.6 / 6**0.6) == pytest.approx(1.51571656651)
    assert Beam(4, 0).divisor(7) == 1 and Beam().width == 4 and Beam().penalty == 0.6
    for wrong in ({"width": 0}, {"penalty": -1.0}, {"penalty": math.inf}):
        with pytest.raises(PlaitError, match="at least"): Beam(**wrong)


def test_lines_are_translated_in_order_whatever_the_batch():
    m, lines = translator(), ["a b c\n", "", "d", "b b a d c c\n", "a"]
    one = list(translate(m, Words(), lines, batch=1))
    assert one == list(translate(m, Words(), lines, batch=2)) == list(translate(m, Words(), iter(lines))) and one[1] == "" and len(one) == 5
    assert all(len(t.split()) <= len(s.split()) + MORE for s, t in zip(lines, one)) and any(one)
    short = translator(m=" = 6", n=" = 3")
    assert all(len(t.split()) <= 3 for t in translate(short, Words(), lines))


def test_what_cannot_be_translated_is_a_sentence():
    with pytest.raises(PlaitError, match="two inputs of tokens"): translate(continued("linear(d)"), Words(), ["a"])
    with pytest.raises(PlaitError, match="no symbol that ends"): translate(translator(), Numbers(7), ["a"])
    with pytest.raises(PlaitError, match="a sentence has 4 symbols, and the model reads 3"):
        list(translate(translator(m=" = 3"), Words(), ["a b c d"]))


class Pairs:
    """Three validation sentences in batches of two."""
    codec = Words()

    def __init__(self, references): self.there = references
    def references(self, size):
        yield sources(3, 5), self.there[:2]
        yield sources(4), self.there[2:]


def test_bleu_is_of_translations_against_references():
    """Against its own translations a model has 100; against others less. Sacrebleu's signature goes with it."""
    m, beam = translator(), Beam(2)
    own = [t for s in (sources(3, 5), sources(4)) for t in translated(m, Words(), s, beam)]
    assert len(own) == 3 and sum(len(t.split()) for t in own) > 30
    best = bleu(m, Pairs(own), beam)
    assert best.score == pytest.approx(100) and best.sentences == 3 and "|version:2" in best.signature
    assert bleu(m, Pairs([t.replace("a", "c").replace("d", "b") + " e e" for t in own]), beam).score < 90
    assert m.training is False


def test_bleu_by_hand():
    """the cat sat on the mat / the cat sat on a mat: 5/6, 3/5, 2/4, 1/3 of the n-grams, one length: their geometric mean is 53.7."""
    found = bleu_of(["the cat sat on a mat"], ["the cat sat on the mat"])
    assert found.score == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25)


def test_bleu_without_sacrebleu_says_what_to_install(monkeypatch):
    whole = builtins.__import__

    def without(name, *rest, **named):
        if name.startswith("sacrebleu"): raise ImportError(name)
        return whole(name, *rest, **named)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(PlaitError, match=r"sacrebleu(.|\n)*plait\[translation\]"): bleu(translator(), Pairs(["a"] * 3))


def test_data_without_references_has_no_bleu():
    with pytest.raises(PlaitError, match="this data has none"): bleu(translator(), object())
