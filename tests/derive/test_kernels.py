"""What each kernel computes in the alphabet, kept values and backward included, is its region: outputs and gradients of the plain body."""
from __future__ import annotations

import pytest

from plait.compiler.claim import claim
from plait.compiler.kernels import KERNELS, Target

from .kit import BODIES, compare
from .models import model

ATTENTION = ["attention(heads = 2, causal = true)", "attention(heads = 2, share_qk = true, causal = true)",
             "attention(heads = 2, share_qk = true)", "attention(heads = 4, kv_heads = 2, causal = true)",
             "attention(heads = 1, project = false)"]
CASES: dict[str, list[str]] = {
    "softmax": ["attention(heads = 2, causal = true)", "attention(heads = 2, window = 3)"],
    "layer_norm": ["layer_norm", "layer_norm(bias = false)"],
    "rms_norm": ["rms_norm"],
    "scaled_dot_product_attention": ATTENTION,
    "rowwise_attention": [*ATTENTION, "attention(heads = 4, kv_heads = 2, dropout = 0.3)"],
    "banded_attention": ["attention(heads = 2, window = 3, causal = true)", "attention(heads = 4, kv_heads = 2, window = 4)",
                         "attention(heads = 2, window = 40, share_qk = true)"],
    "conv1d": ["conv(6, kernel = 3); linear(8)", "conv(8, kernel = 4, causal = true, dilation = 2)", "conv(8, kernel = 3, groups = 2)",
               "separable_conv(8, kernel = 5)", "conv(8, kernel = 1)"],
    "lsh_attention": [f"lsh_attention(heads = 2, chunk = 4, {how})" for how in (
        "rounds = 3, causal = true, buckets = 4", "rounds = 2, within_bucket = false", "buckets = (2, 4), causal = true",
        "rounds = 2, dedup = false, share_rotations = true", "rounds = 3, buckets = 2, causal = true, within_bucket = false")],
    "rnn": ["rnn(6); linear(8)", "rnn(8, nonlinearity = relu, bias = false)", "rnn(8, direction = backward)"],
    "lstm": ["lstm(6); linear(8)", "lstm(4, direction = both)"],
    "gru": ["gru(6, bias = false); linear(8)", "gru(8, direction = backward)"],
}


def test_every_kernel_is_compared():
    assert {*CASES, "cross_entropy", "linear_cross_entropy"} == {k.name for k in KERNELS}


@pytest.mark.parametrize("kernel", CASES)
@pytest.mark.parametrize("n", [1, 7, 8])
def test_kernel_is_its_body(kernel, n):
    region = next(k.region for k in KERNELS if k.name == kernel)
    for chain in CASES[kernel]:
        for padded in (False, True) if "attention" in kernel else (False,):
            program = model(chain, f"n = {n}; d = 8", "stream[n, d] padded" if padded else "stream[n, d]")
            forced = {**BODIES, region: kernel}
            assert kernel in {getattr(p.op, "kernel", "") for p in claim(program.graph, Target(), forced).walk()}, (chain, "not claimed")
            compare(program.graph, program.sizes, forced)


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("how", ["", ", smoothing = 0.1", ", pieces = 3", ", pieces = 7", ", pieces = 4, smoothing = 0.1"])
@pytest.mark.parametrize("layer", ["linear(V)", "linear(V, bias = false)", "unembed(V, bias = true)", "linear(V); layer_norm"])
def test_cross_entropy(kernels, how, layer):
    program = model(f"embed(V, width = d); {layer}", "n = 7; d = 8; V = 5", "tokens[n] of V", "[n, V]",
                    loss=f"cross_entropy(y, next(x){how})")
    compare(program.loss, program.sizes, {} if kernels else BODIES, symbols=5)
