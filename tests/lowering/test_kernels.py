"""Every kernel gives its region's outputs and gradients: in float64 to rounding, and in float32."""
from __future__ import annotations

import itertools

import pytest
import torch
import torch._dynamo

from plait.compiler.claim import claim
from plait.compiler.kernels import KERNELS, Target
from plait.compiler.lowering import segments

# kernel → chains whose region it runs, with the lengths to try
ATTENTION = ["attention(heads = 2)", "attention(heads = 2, causal = true)", "attention(heads = 2, share_qk = true)",
             "attention(heads = 2, share_qk = true, causal = true)", "attention(heads = 4, kv_heads = 2, causal = true)",
             "attention(heads = 1, project = false)"]
CASES: dict[str, tuple[list[str], tuple[int, ...]]] = {
    "softmax": (["attention(heads = 2, causal = true)", "attention(heads = 2, window = 3)"], (1, 5)),
    "layer_norm": (["layer_norm", "layer_norm(bias = false)"], (1, 5)),
    "rms_norm": (["rms_norm"], (1, 5)),
    "scaled_dot_product_attention": (ATTENTION, (1, 7)),
    "rowwise_attention": ([*ATTENTION, "attention(heads = 2, causal = true, dropout = 0.3)",
                           "attention(heads = 4, kv_heads = 2, dropout = 0.3)"], (1, 7, 130)),
    "banded_attention": ([f"attention(heads = {h}, window = {w}, causal = {c})" for w in (1, 2, 5, 40)
                          for c, h in (("true", 2), ("false", "4, kv_heads = 2"))]
                         + ["attention(heads = 2, window = 4, share_qk = true)"], (1, 5, 33, 67)),
    "conv1d": (["conv(6, kernel = 3); linear(8)", "conv(8, kernel = 4, causal = true, dilation = 2)", "conv(8, kernel = 3, groups = 2)",
                "separable_conv(8, kernel = 5)", "conv(8, kernel = 1)"], (1, 2, 9)),
    "lsh_attention": ([f"lsh_attention(heads = 2, chunk = 4, rounds = {r}, causal = {c}, within_bucket = {w}, {more})"
                       for (r, c, w), more in zip(itertools.product((1, 3), ("true", "false"), ("true", "false")),
                                                  ["buckets = 4", "bias = false", "buckets = (2, 4)", "share_rotations = true",
                                                   "dedup = false", "buckets = 2", "bias = false", "bias = false"])], (1, 7, 8, 21)),
    "rnn": (["rnn(6); linear(8)", "rnn(8, nonlinearity = relu, bias = false)", "rnn(8, direction = backward)"], (1, 5)),
    "lstm": (["lstm(6); linear(8)", "lstm(4, direction = both)"], (1, 5)),
    "gru": (["gru(6, bias = false); linear(8)", "gru(8, direction = backward)"], (1, 5)),
}


def test_every_kernel_is_compared():
    assert {*CASES, "cross_entropy", "linear_cross_entropy"} == {k.name for k in KERNELS}


def masks(kernel: str) -> tuple[bool, ...]:
    return (False, True) if "attention" in kernel else (False,)


@pytest.mark.parametrize("kernel", CASES)
def test_kernel_is_its_body(kit, kernel):
    chains, lengths = CASES[kernel]
    region = next(k.region for k in KERNELS if k.name == kernel)
    for chain, n, padded in itertools.product(chains, lengths, masks(kernel)):
        x = torch.randn(3, n, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
        mask = {"x_mask": torch.arange(n) < torch.tensor([[n], [(n + 1) // 2], [0]])} if padded else {}
        results = {}
        for dtype, forced in itertools.product((torch.float64, torch.float32), ({**kit.bodies, region: kernel}, kit.bodies)):
            m = kit.module(chain, forced, dtype, padded=padded, n=n)
            if forced is not kit.bodies:
                claimed = claim(m.program.graph, Target(), forced)
                assert kernel in {getattr(p.op, "kernel", "") for p in claimed.walk()}, (chain, "not claimed")
            results[dtype, forced is kit.bodies] = kit.gradients(m, list(m.parameters()), x.to(dtype), **mask)
        kit.close(results[torch.float64, False], results[torch.float64, True], 1e-10)
        # float32 has 24 bits: 6e-8 an operation, some hundred of them in a row. Hashing may choose otherwise in another precision.
        kit.close(results[torch.float32, False], results[torch.float32, True], 1e-4)


@pytest.mark.parametrize("size", ["known", "free"])
@pytest.mark.parametrize("kernel", CASES)
def test_compiled_kernel_is_the_eager_one(kit, kernel, size, monkeypatch):
    """By the backend that only traces. A free length is run at three lengths, a short one first."""
    monkeypatch.setattr(segments, "BACKEND", "aot_eager")
    chains, lengths = CASES[kernel]
    region = next(k.region for k in KERNELS if k.name == kernel)
    forced = {**kit.bodies, region: kernel}
    torch._dynamo.reset()
    chain, n = (chains[0], lengths[-1]) if size == "known" else (chains[-1], "free")
    eager, fast = (kit.module(chain, forced, torch.float32, compile=c, n=n) for c in (False, True))
    for length in (min(lengths[-1], 9), lengths[-1], lengths[-1] + 4) if size == "free" else (lengths[-1],):
        x = torch.randn(3, length, 8, generator=torch.Generator().manual_seed(0))
        kit.close(*(kit.gradients(m, list(m.parameters()), x) for m in (fast, eager)), 1e-4)
    torch._dynamo.reset()


@pytest.mark.parametrize("pieces", [1, 3, 7, 20])
@pytest.mark.parametrize("layer", ["linear(V)", "linear(V, bias = false)", "unembed(V, bias = true)"])
@pytest.mark.parametrize("smoothing", ["0", "0.1"])
def test_cross_entropy_is_its_body(kit, smoothing, layer, pieces):
    how = dict(loss=f"cross_entropy(y, next(x), smoothing = {smoothing}, pieces = {pieces})", kind="tokens[n] of V", out="[n, V]", V=11)
    x = torch.randint(0, 11, (3, 8), generator=torch.Generator().manual_seed(1))
    x[0, 3:] = -1 - x[0, 3:]
    found = []
    region = "cross_entropy" if pieces == 1 else "linear_cross_entropy"
    for forced in ({**kit.bodies, region: region}, kit.bodies):
        m = kit.module(f"embed(V, width = d); {layer}", forced, **how)
        claimed = {getattr(p.op, "kernel", "") for p in claim(m.program.loss, Target(), forced).walk()}
        assert (region in claimed) == (forced is not kit.bodies)
        mean, total, count = m.losses(x)
        assert count == 7 + 7 + 2 and torch.isclose(mean, total / count)          # of the first row, targets 1 and 2 count
        with torch.no_grad(): assert torch.isclose(m.loss(x), mean)
        once = torch.autograd.grad(mean, list(m.parameters()), retain_graph=True)
        again = torch.autograd.grad(2 * mean, list(m.parameters()))
        for g, h in zip(once, again): torch.testing.assert_close(2 * g, h)
        found.append((mean, list(once)))
    kit.close(*found, 1e-12)
    torch.testing.assert_close(found[0][0].double(), torch.nn.functional.cross_entropy(
        m(x[:, :-1].where(x[:, :-1] >= 0, -1 - x[:, :-1])).flatten(0, 1), x[:, 1:].clamp(min=-1).flatten(), ignore_index=-1,
        label_smoothing=float(smoothing)))


@pytest.mark.parametrize("kernel", ["linear_cross_entropy", "body"])
def test_a_compiled_loss_in_pieces_is_the_eager_one(kit, kernel):
    how = dict(loss="cross_entropy(y, next(x), smoothing = 0.1, pieces = 3)", kind="tokens[n] of V", out="[n, V]", V=11, n="free",
               dtype=torch.float32)
    eager, fast = (kit.module("embed(V, width = d); linear(V)", {"linear_cross_entropy": kernel}, compile=c, **how) for c in (False, True))
    for n in (8, 12):
        x = torch.randint(0, 11, (3, n), generator=torch.Generator().manual_seed(1))
        kit.close(*((loss := m.loss(x), list(torch.autograd.grad(loss, list(m.parameters())))) for m in (fast, eager)), 1e-5)


@pytest.mark.parametrize("name, chain, gates", [("LSTM", "lstm(6)", 4), ("GRU", "gru(6)", 3), ("RNN", "rnn(6)", 1)])
def test_recurrent_layers_are_torchs(kit, name, chain, gates):
    m = kit.module(chain, out="[n, 6]")
    theirs = getattr(torch.nn, name)(8, 6, batch_first=True, dtype=torch.float64)
    for mine, yours in zip(m.parameters(), theirs.parameters()): yours.data.copy_(mine.data.flatten(0, 1))
    x = torch.randn(2, 7, 8, dtype=torch.float64)
    ours, other = kit.gradients(m, list(m.parameters()), x), kit.gradients(lambda x: theirs(x)[0], list(theirs.parameters()), x)
    other = other[0], [g.view_as(h) for g, h in zip(other[1], ours[1])]
    kit.close(ours, other, 1e-12)


@pytest.mark.parametrize("window, left, own, padded", [(1, 0, True, False), (5, 4, True, True), (5, 2, False, True), (40, 39, True, False),
                                                       (200, 100, False, True)])
@pytest.mark.parametrize("n", [1, 33, 130])
def test_windowed_attention_of_other_devices_is_that_of_the_cpu(window, left, own, padded, n):
    """The library's call on blocks, which a CPU does not take, beside the own function: outputs and gradients, grouped heads too."""
    from plait.runtime.kernels.banded import Banded, How, fused_on_blocks
    g = torch.Generator().manual_seed(n)
    q, k, v = (torch.randn(2, h, n, 4, dtype=torch.float64, generator=g).requires_grad_() for h in (4, 2, 2))
    mask = torch.arange(n) < torch.tensor([[n], [(n + 1) // 2]]) if padded else None
    before = min(left, n - 1)
    how = How(before + min(window - 1 - left, n - 1) + 1, before, own, 0.5, False)
    weight = torch.randn(2, 4, n, 4, dtype=torch.float64, generator=g)
    found = []
    for fn in (fused_on_blocks, Banded.apply):
        y = fn(q, k, v, mask, how)
        found.append((y, torch.autograd.grad((y.nan_to_num() * weight).sum(), (q, k, v))))
    for p, o in zip((found[0][0].nan_to_num(), *found[0][1]), (found[1][0], *found[1][1])): torch.testing.assert_close(p, o)
