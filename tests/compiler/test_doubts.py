"""Warnings that the derived costs give. Values: arithmetic beside each."""
from pathlib import Path

import pytest

from plait import files
from plait.compiler.doubts import doubts
from plait.compiler.expand import expand

ROOT = Path(__file__).parents[2]
GIB = 2**30


def found(chain: str, dims: str = "n = 1024; d = 1024; h = 8", memory: int = 16 * GIB, batch: int = 1, train: str = ""):
    text = f"plait 1\ndims {{ {dims} }}\nmodel m {{ input x: stream[n, d]; y = x {{ {chain} }}; output y: [n, d] }}\n{train}"
    file = files.opened(ROOT / "specs" / "m.plait", text=text)
    return doubts(file, expand(file, "m"), memory, batch)


def codes(*a, **k): return [d.code for d in found(*a, **k)]


def test_scores_that_do_not_fit():
    """65,536 squared in float32 is 16 GiB a head (Kitaev et al. 2020, section 1)."""
    long = "n = 64Ki; d = 64; h = 1"
    assert codes("attention(heads = h, kernel = body)", long, 16 * GIB) == []
    assert codes("attention(heads = h, kernel = body)", long, 16 * GIB - 1) == ["W0404"]
    assert codes("attention(heads = h, kernel = body)", long, 16 * GIB, batch=2) == ["W0404"]
    assert codes("attention(heads = h)", long, GIB) == codes("attention(heads = h, kernel = rowwise)", long, GIB) == []
    assert codes("attention(heads = h, dropout = 0.1)", long, GIB) in ([], ["W0404"])                  # whoever takes dropout
    d, = found("repeat 3 { attention(heads = h, kernel = body) }", long, GIB)
    assert "16.0 GiB" in d.message and d.span.source.text[d.span.start:d.span.end] == "attention(heads = h, kernel = body)"


@pytest.mark.parametrize("n, warned", [(1024, True), (2048, True), (2176, True), (2304, False), (4096, False)])
def test_hashing_that_does_not_pay_yet(n, warned):
    """16 rounds, buckets n/64, chunks of 64, width 128: cheaper from 2,304 on."""
    chain = "lsh_attention(heads = h, chunk = 64, rounds = 16, buckets = n / 64, project = false)"
    assert ("W0405" in codes(chain, f"n = {n}; d = 1024; h = 8")) is warned
    if warned: assert "n = 4,096" in found(chain, "n = 1024; d = 1024; h = 8")[0].numbers


def test_hashing_that_outgrows_the_attention():
    """A round: hashing n·k·B/2, scores and sums 2·n·k·2c; B = 2n/c buckets outgrow that where n > 4·c²."""
    def at(n, buckets): return codes(f"lsh_attention(heads = h, chunk = 64, buckets = {buckets})", f"n = {n}; d = 64; h = 1")
    assert "W0406" not in at(4 * 64**2, "2 * n / 64") and "W0406" in at(4 * 64**2 + 128, "2 * n / 64")
    assert "W0406" not in at(64 * 1024, "(32, 64)")


def test_a_stack_that_does_not_reach():
    """Two causal convolutions of width 3 read 5 positions. Only what is to be trained is warned of."""
    train = 'train m { data = bytes("a"); loss = cross_entropy(y, c); batch = 1 sequences; lr = 1; stop = 1 steps }'
    stack = "conv(d, kernel = 3, causal = true); conv(d, kernel = 3, causal = true)"
    assert codes(stack, "n = 8; d = 4") == []
    d, = found(stack, "n = 8; d = 4", train=train)
    assert d.code == "W0403" and "5 of the 8 positions of `x`" in d.message
    assert codes(stack, "n = 5; d = 4", train=train) == codes("gru(d)", "n = 8; d = 4", train=train) == []
