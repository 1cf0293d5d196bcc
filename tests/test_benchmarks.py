"""The benchmarks: peers compute what plait computes, and a row says what its numbers say."""
from __future__ import annotations

import importlib
import itertools

import pytest
import torch

from benchmarks import gpu
from benchmarks.__main__ import SCRIPTS, line
from benchmarks.harness import agree, at_most, faster, in_turn, layer
from benchmarks.peers.attention import Blocks, Full
from benchmarks.peers.checkpointed import Checkpointed
from benchmarks.peers.recurrent import Recurrent
from benchmarks.peers.transformer import Decoder
from benchmarks.transformer import ours


def test_every_script_has_rows():
    for name in SCRIPTS: assert callable(importlib.import_module(f"benchmarks.{name}").rows)


def test_a_row_is_against_the_fastest_peer():
    row = faster("layer", "peers", 2.0, {"plait": 2.0, "slow": 9.0, "quick": 3.0, "another": 1.0}, "plait", ("slow", "quick"))
    assert row.ratio == 1.5 and not row.met                        # 3 s / 2 s
    assert at_most("memory", "peer", 0.5, 0.5).met
    assert line(row.as_dict()).startswith("| layer | peers | ≥ 2.0× | 1.500× | **no** |")


def test_each_is_called_in_turn():
    called = []
    times = in_turn({"a": lambda: called.append("a"), "b": lambda: called.append("b")}, rounds=3, warm=1)
    assert called == ["a", "b"] * 4 and set(times) == {"a", "b"}


def test_the_decoder_by_hand_is_the_same_function():
    text, module = torch.randint(256, (2, 9)), ours(8, 16, 2, 2, compile=False)
    hand = Decoder(256, 8, 16, 2, 2)
    hand.take(module)
    agree(module.loss(text), hand.loss(text), 1e-5)
    x, stack = torch.randn(2, 8, 16), Checkpointed(16, 2, 2)
    stack.blocks = hand.blocks
    plain = x
    for block in hand.blocks: plain = block(plain)
    agree(stack(x), plain, 1e-6)


@pytest.mark.parametrize("n, window", [(5, 1), (40, 3), (300, 40), (300, 300)])
def test_attention_by_hand_is_the_same_function(n, window):
    x = torch.randn(2, n, 8)
    agree(layer(f"attention(heads = 2, causal = true, window = {window}, project = false)", n, 8, compile=False)(x), Blocks(2, window)(x))
    agree(layer("attention(heads = 2, causal = true, project = false)", n, 8, compile=False)(x), Full(2)(x))


@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru"])
def test_the_loop_over_a_cell_is_the_layer(kind):
    text, whole, loop = torch.randint(7, (2, 6)), Recurrent(kind, 7, 4, 5), Recurrent(kind, 7, 4, 5, loop=True)
    for p, q in itertools.zip_longest(loop.parameters(), whole.parameters()): p.data = q.data
    agree(loop.loss(text), whole.loss(text), 1e-6)


def test_the_run_on_a_gpu_on_a_small_cpu():
    """Every piece of it, tiny and eager; a peer that is not installed is noted, and nothing fails."""
    tiny = gpu.Sizes(width=16, heads=2, layers=1, deep=2, tokens=32, short=16, lengths=(16, 32), window=4, chunk=4, rounds=2, square=32,
                     batch=2, layer=((16, 1),))
    points = {p.what: p.found for p in gpu.rows("cpu", tiny, compile=False)}
    assert len(points) == 1 + 1 + 3 * 2 + 4 + 5 + 1 + 2
    for what, found in points.items(): assert not {"error", "skipped"} & {*found}, (what, found)
    assert {"ms", "tokens/s", "share of the peak rate"} <= {*points["LSH decoder, n = 32, batch 1"]}
    assert points["LSH layer, n = 16, rounds 1, width 8"]["plait ms"] > 0


def test_a_point_that_fails_is_noted():
    def full(): raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")
    assert gpu.measured("x", 1, full, 9).found == {"error": "out of memory"}
    assert gpu.measured("x", 1, lambda: {}["gone"], 9).found == {"error": "KeyError: 'gone'"}
    assert gpu.measured("x", 10, full, 9).found == {"skipped": "about 10 s, and 9 s are left"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_ends_with_a_sentence():
    with pytest.raises(SystemExit, match="^error: torch sees no GPU here"): gpu.main([])
