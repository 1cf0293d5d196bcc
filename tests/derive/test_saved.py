"""What the adjoints read of the forward is what torch keeps: bytes of distinct storages handed to its hooks, kernels claimed, in
float32, eager. Only where nothing is made again (tables of angles, masks without an input) and no library keeps an opaque workspace."""
from __future__ import annotations

import pytest
import sympy as sp
import torch

from plait.compiler.claim import claim
from plait.compiler.derive import derive
from plait.compiler.kernels import Target
from plait.compiler.lower import lower
from plait.compiler.sizes import dim
from plait.runtime.kernels import EMISSIONS

from .kit import handed, operands
from .models import model

BYTES = {"index": 8, "mask": 1}
BLOCK = "residual { attention(heads = 2, causal = true) }; residual { feed_forward(20, activation = gelu) }"
CASES = [
    "tanh; relu", "sigmoid; tanh", *(f"linear(5); {fn}; linear(d)" for fn in ("relu", "gelu", "silu", "tanh", "sigmoid")),
    "gated_feed_forward(20)", "tanh; layer_norm", "tanh; rms_norm", "linear(d); dropout(0.5)",
    "residual(norm = post, dropout = 0.1) { linear(d) }",
    BLOCK, f"repeat 3 {{ {BLOCK} }}", f"linear(d); tanh; repeat 3 {{ {BLOCK} }}", "attention(heads = 2, share_qk = true)",
    "attention(heads = 4, kv_heads = 2)", "attention(heads = 2, kernel = rowwise)", "attention(heads = 4, kv_heads = 2, kernel = rowwise)",
    "tanh; conv(5, kernel = 3); linear(d)", "linear(d); separable_conv(5, kernel = 3); linear(d)",
    "positions(learned); linear(d); linear(d)",
    "linear(d); chunked(over = n, pieces = 3) { feed_forward(20) }", "parallel { one: { linear(d); tanh }; two: { linear(d) } }",
    "reversible(repeat = 3) { one: { layer_norm; attention(heads = 2) }; two: { layer_norm; feed_forward(20) } }",
    "linear(d); tanh; rnn(d)", "tanh; lstm(d)", "linear(d); lstm(d); tanh; gru(d, direction = backward)",
    "repeat 2 { residual { gru(d) } }",
]
BY_BODY = {"rnn": "body", "lstm": "body", "gru": "body"}         # a library's recurrence keeps what it likes


@pytest.mark.parametrize("body, padded", [(c, p) for c in CASES for p in ((False, True) if "attention" in c else (False,))])
def test_saved_is_what_torch_keeps(body, padded):
    torch.set_default_dtype(torch.float32)
    program = model(body, "n = 12; d = 8", "stream[n, d] padded" if padded else "stream[n, d]")
    graph, sizes = claim(program.graph, Target(), BY_BODY), program.sizes
    given = [x.detach().float().requires_grad_() if x.is_floating_point() else x for x in operands(graph, sizes)]
    own, kept = {x.untyped_storage().data_ptr() for x in given}, {}

    def pack(t):
        if t.untyped_storage().data_ptr() not in own: kept[t.untyped_storage().data_ptr()] = t
        return t
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t): lower(graph, sizes, EMISSIONS)(*handed(graph, given))
    joint = derive(graph, sizes)
    elsewhere = [first for first in joint.starts.values() if first in joint.graph.ins or first in joint.saved]
    found = sum(BYTES.get(v.kind, 4) * int(sizes.bind(b=2).value(joint.elements(v))) for v in joint.saved)
    found -= sum(4 * int(sizes.bind(b=2).value(v.size)) for v in elsewhere)
    assert found == sum(t.untyped_storage().nbytes() for t in kept.values())


def saved(body: str, dims: str = "n; d; L; require d % 2 == 0"):
    program = model(body, dims)
    joint = derive(claim(program.graph, Target()), program.sizes)
    return [joint.elements(v) for v in joint.saved]


def test_a_reversible_stack_keeps_its_last_streams():
    """Two streams whatever L is; with LSH besides the buckets, rounds·heads·n integers a layer: not the order, which follows from them."""
    b, n, d, L = map(dim, "bndL")
    body = "reversible(repeat = L) {{ one: {{ layer_norm; {} }}; two: {{ layer_norm; feed_forward(d) }} }}"
    assert saved(body.format("attention(heads = 2)")) == [b * n * d] * 2
    found = saved(body.format("lsh_attention(heads = 2, chunk = 4, rounds = 3)"))
    assert sorted(found, key=str) == sorted([b * n * d, b * n * d, 6 * L * b * n], key=str)


def test_trips_that_differ_add_up():
    """A causal convolution keeps its padded input: n + 2^i of d, i from 0 to L − 1, and tanh its output."""
    b, n, d, L = map(dim, "bndL")
    found = sp.Add(*saved("repeat L as i { conv(d, kernel = 2, dilation = 2^i, causal = true); tanh }"))
    at = {b: 2, n: 8, d: 4, L: 3}
    assert found.subs(at).doit() == 2 * 4 * ((8 + 1) + (8 + 2) + (8 + 4)) + 3 * 2 * 8 * 4
