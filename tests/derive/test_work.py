"""Training work: derived contractions against those that torch executes, and the worked facts."""
from __future__ import annotations

import random

import pytest
import sympy as sp

from plait.compiler.claim import claim
from plait.compiler.costs.training import by_phase, training
from plait.compiler.costs.work import LEDGERS
from plait.compiler.derive import derive
from plait.compiler.kernels import Target
from plait.compiler.sizes import dim

from .kit import BODIES, compare
from .models import model

n, d, f, L, p, V, h = map(dim, ("n", "d", "f", "L", "p", "V", "h"))
COUNTED = [
    "residual { attention(heads = h, causal = true) }; residual { feed_forward(f, activation = gelu) }", "attention(heads = h, window = 3)",
    "conv(d, kernel = 3, groups = h)", "repeat 2 { residual { gru(d) } }", "lstm(d, direction = both); linear(d)",
    "lsh_attention(heads = h, chunk = 2, rounds = 2, buckets = 4)", "chunked(over = n, pieces = 2) { feed_forward(f) }",
    "reversible(repeat = 2) { one: { layer_norm; attention(heads = h) }; two: { layer_norm; chunked(over = n, pieces = 2) "
    "{ feed_forward(f) } } }",
]


@pytest.mark.parametrize("body", COUNTED)
def test_executed_products_are_the_derived_ones(body):
    """At five random sizes, none of them 1: forward and backward as autograd does them, and the whole schedule with its recompute."""
    draw = random.Random(body)
    for _ in range(5):
        heads, length, width = draw.randint(2, 3), 2 * draw.randint(2, 4), draw.randint(2, 7)
        sizes = f"n = {length}; h = {heads}; d = {heads * draw.randint(2, 3)}; f = {width}; require n % 2 == 0"
        program = model(body, sizes)
        run = compare(program.graph, program.sizes, count=True)
        assert run.macs("forward", "backward") == run.autograd
        assert run.macs() == run.executed
        run = compare(program.graph, program.sizes, {}, count=True)               # claimed: what the kernels recompute is executed too
        assert run.macs() == run.executed


def products(body: str, dims: str = "n; d; h; f; L; p; require n % p == 0; require d % h == 0", kernels: bool = False, **how):
    """Phase → contractions, symbolic."""
    inputs = how.pop("inputs", True)
    program = model(body, dims, **how)
    graph = claim(program.loss or program.graph, Target(), {} if kernels else BODIES)
    found = by_phase(derive(graph, program.sizes, inputs).graph)
    return [found[phase]["contraction"] for phase in ("forward", "recompute", "backward")]


BLOCK = "residual { attention(heads = h) }; residual { feed_forward(f) }"


def test_backward_is_twice_forward():
    """dX and dW of every product."""
    for body in (BLOCK, f"repeat L {{ {BLOCK} }}", "lstm(d)", "conv(d, kernel = 3)", "gated_feed_forward(f)"):
        forward, again, backward = products(body)
        assert again == 0 and sp.expand(backward - 2 * forward) == 0


def test_no_gradient_of_what_needs_none():
    assert products("linear(f); linear(d)", inputs=False) == [2 * d * f * n, 0, 3 * d * f * n]               # no dX of the first
    assert products("embed(tok); unembed(tok)", "n; d; V", io="tokens[n] of V", out="[n, V]",
                    before="share tok = embedding(V, d)") == [V * d * n, 0, 2 * V * d * n]


def test_fused_attention_computes_its_scores_again():
    forward, again, backward = products(BLOCK, kernels=True)
    assert again == d * n**2 and sp.expand(backward - 2 * forward) == 0


def test_reversible_is_four_times_the_forward_work():
    """The parts once in forward, once to undo them, twice for the gradients; with fused attention its scores on top."""
    body = "reversible(repeat = L) { one: { layer_norm; attention(heads = h) }; two: { layer_norm; feed_forward(f) } }"
    forward, again, backward = products(body)
    assert again == forward and sp.expand(backward - 2 * forward) == 0
    assert sp.expand(products(body, kernels=True)[1] - forward - L * d * n**2) == 0


def test_pieces_recompute_what_their_gradient_reads():
    """The first product of a feed-forward, not the second: 7/6 of the work of the whole. Of the logits all: 4/3."""
    forward, again, backward = products("chunked(over = n, pieces = p) { feed_forward(f) }")
    assert sp.simplify((forward + again + backward) / (forward + backward)) == sp.Rational(7, 6)
    forward, again, backward = products("embed(V, width = d); unembed(V)", "n; d; V; p = 2; require n % p == 0", io="tokens[n] of V",
                                        out="[n, V]", loss="cross_entropy(y, next(x), pieces = p)")
    assert sp.simplify((forward + again + backward) / (forward + backward)) == sp.Rational(4, 3)


def test_a_piece_inside_reversible_is_computed_once_more():
    """2·n·d·f forward, 2·n·d·f to undo it (the second product is needed there), 4·n·d·f for the gradients; the same of a linear."""
    assert products("reversible(repeat = L) { one: { linear(d) }; two: { layer_norm; chunked(over = n, pieces = p) { feed_forward(f) } } }"
                    ) == [L * n * d**2 + 2 * L * n * d * f, L * n * d**2 + 2 * L * n * d * f, 2 * L * n * d**2 + 4 * L * n * d * f]


def test_lsh_keeps_its_buckets():
    """Hashing, rounds·n·d·buckets/2, is done once, in forward; undoing the part computes scores and sums again."""
    hashed = "lsh_attention(heads = h, chunk = c, rounds = R, buckets = 8, project = false)"
    body = f"reversible(repeat = L) {{ one: {{ {hashed} }}; two: {{ relu }} }}"
    dims = "n; d; h; L; c; R; require n % c == 0; require d % h == 0"
    c, R = dim("c"), dim("R")
    attended = 4 * L * R * c * d * n
    assert products(body, dims) == [attended + 4 * L * R * d * n, attended, 2 * attended]
    assert products(body, dims, kernels=True) == [attended + 4 * L * R * d * n, attended * sp.Rational(3, 2), 2 * attended]


def test_all_ledgers_of_all_phases():
    program = model("residual { feed_forward(f) }", "n; d; f")
    found = training(derive(program.graph, program.sizes))
    assert set(found.work) == {"forward", "recompute", "backward"} and all(tuple(w) == LEDGERS for w in found.work.values())
