"""Autocast, and whole modules in half precision."""
from __future__ import annotations

import pytest
import torch

CHAINS = ["attention(heads = 2, causal = true, dropout = 0.1)", "attention(heads = 2, window = 3)", "lsh_attention(heads = 2, chunk = 4)",
          "gru(8)", "rnn(8); rms_norm", "conv(8, kernel = 3); layer_norm", "positions(sinusoidal); linear(8)",
          "positions(rotary); attention(heads = 2)",
          "reversible(repeat = 2) { a: { layer_norm; lsh_attention(heads = 2, chunk = 4) }; "
          "b: { chunked(over = n, pieces = 2) { feed_forward(9) } } }"]


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("body", [False, True])
def test_bfloat16(kit, chain, body):
    forced = kit.bodies if body else {}
    x = torch.randn(2, 7, 8, generator=torch.Generator().manual_seed(0))
    m = kit.module(chain, forced, dtype=torch.float32)
    y, wanted = kit.gradients(m, list(m.parameters()), x)
    with torch.autocast("cpu", dtype=torch.bfloat16): cast, found = kit.gradients(m, list(m.parameters()), x)
    # bfloat16 has 8 bits: 0.4 % an operation, ten of them in a row
    assert (cast - y).norm() < 0.04 * y.norm()
    most = max(b.norm() for b in wanted)                     # a bias of keys has no gradient but rounding
    slack = 0.2 if "lsh" in chain else 0.01                  # queries rounded otherwise may hash otherwise
    for a, b in zip(found, wanted): assert (a - b).norm() < 0.06 * b.norm() + slack * most
    half = kit.module(chain, forced, dtype=torch.bfloat16)
    assert half(x.bfloat16()).dtype == torch.bfloat16
