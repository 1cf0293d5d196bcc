"""The joint graph of every layer and every construct, executed, gives autograd's outputs and gradients."""
from __future__ import annotations

import pytest

from plait.compiler.layer import LAYERS

from .kit import BODIES, compare
from .models import alone, model

PARTS = ("one: { layer_norm; attention(heads = 2, causal = true); dropout(0.5) }; "
         "two: { layer_norm; feed_forward(5, activation = gelu); dropout(0.5) }")
PIECES = "chunked(over = n, pieces = 3) { feed_forward(5) }"
FEED = "residual { feed_forward(5, activation = silu) }"


@pytest.mark.parametrize("name", sorted(LAYERS))
@pytest.mark.parametrize("kernels", [False, True])
def test_every_layer(name, kernels):
    """Every layer of the registry, without being named here."""
    graph, sizes = alone(name)
    compare(graph, sizes, {} if kernels else BODIES)


CONSTRUCTS = [
    f"repeat 3 {{ {FEED} }}", f"repeat 3 shared {{ {FEED} }}", f"repeat 2 {{ repeat 2 {{ {FEED} }} }}",
    "repeat 3 as i { conv(d, kernel = 2, dilation = 2^i, causal = true); tanh }",
    "repeat 3 as i { residual(norm = post) { attention(heads = 1, window = i + 1) } }",
    "repeat 2 { residual(dropout = 0.3) { lsh_attention(heads = 2, chunk = 2, rounds = 2, buckets = 4) } }",
    "residual(norm = post, dropout = 0.3) { linear(d); relu }", PIECES, "chunked(over = n, pieces = 4) { linear(d); dropout(0.5); gelu }",
    f"linear(d); {PIECES}; linear(d)", f"repeat 2 {{ residual {{ {PIECES} }} }}",
    "repeat 2 { rnn(d) }", "lstm(3, direction = both, layers = 2); linear(d)", "gru(d, direction = backward)",
    "repeat 2 { residual { gru(d) } }", "rnn(d, nonlinearity = relu)",
    f"reversible(repeat = 3) {{ {PARTS} }}", f"reversible(repeat = 2, merge = sum) {{ {PARTS}; three: {{ linear(d); tanh }} }}",
    f"reversible(repeat = 1, merge = concat) {{ {PARTS} }}; linear(d)",
    f"reversible(repeat = 2) {{ one: {{ layer_norm; linear(d) }}; two: {{ layer_norm; {PIECES} }} }}",
    f"reversible(repeat = 2) {{ one: {{ {PIECES} }}; two: {{ residual {{ {PIECES} }} }} }}",
    "reversible(repeat = 2) { one: { positions(learned); linear(d) }; two: { repeat 2 { layer_norm; linear(d) }; gru(d) } }",
    "reversible(repeat = 2) { one: { layer_norm; lsh_attention(heads = 2, chunk = 2, rounds = 2, causal = true, buckets = 4) }; "
    f"two: {{ layer_norm; {PIECES} }} }}",
    "reversible(repeat = 2) { one: { dropout(0.5) }; two: { relu } }",
    f"repeat 2 {{ reversible(repeat = 2) {{ {PARTS} }} }}",
    "parallel(merge = add) { one: { linear(d) }; two: { attention(heads = 2) } }",
    "parallel(merge = multiply) { one: { linear(d); sigmoid }; two: { conv(d, kernel = 3) } }",
    "parallel(merge = concat) { one: { linear(d) }; two: { tanh } }; linear(d)",
    "positions(rotary); attention(heads = 2, causal = true)", "attention(heads = 4, kv_heads = 2, head_width = 2)",
    "positions(axial, grid = (2, 3), widths = (1, 3)); attention(heads = 2, share_qk = true)",
]


@pytest.mark.parametrize("body", CONSTRUCTS)
@pytest.mark.parametrize("kernels", [False, True])
def test_constructs(body, kernels):
    program = model(body, "n = 6; d = 4")
    compare(program.graph, program.sizes, {} if kernels else BODIES)
