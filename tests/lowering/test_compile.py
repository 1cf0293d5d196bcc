"""Compiling by region: once a body, no breaks, nothing again after the first steps, the numbers of the eager module."""
from __future__ import annotations

import itertools
import time

import pytest
import torch
import torch._dynamo
from torch._dynamo.utils import counters

from plait.compiler.lowering import segments, tensors
from plait.runtime.kernels import fused

BLOCK = "residual { attention(heads = 2, causal = true) }; residual(dropout = 0.2) { feed_forward(12, activation = gelu) }"


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Nothing compiled before, and by the backend that only traces: seconds, not minutes."""
    monkeypatch.setattr(segments, "BACKEND", "aot_eager")
    fused._compiled.cache_clear()
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()
    fused._compiled.cache_clear()


def graphs() -> int: return counters["stats"]["unique_graphs"]


def both(kit, chain: str, tolerance: float = 1e-4, **how):
    """Eager and compiled: the same outputs and gradients. Gives the compiled module and an input."""
    eager, fast = kit.module(chain, dtype=torch.float32, **how), kit.module(chain, dtype=torch.float32, compile=True, **how)
    x = torch.randn(2, 7, 8, generator=torch.Generator().manual_seed(0))
    kit.close(*(kit.gradients(k, list(k.parameters()), x) for k in (fast, eager)), tolerance)
    assert not counters["graph_break"]
    return fast, x


def test_a_repeated_body_is_compiled_once(kit):
    made = []
    for copies in (2, 6):
        torch._dynamo.reset()
        counters.clear()
        m, x = both(kit, f"linear(8); repeat {copies} {{ {BLOCK} }}")
        made.append(graphs())
        for _ in range(2): kit.gradients(m, list(m.parameters()), x)
        assert graphs() == made[-1]                              # nothing again
    assert made == [2, 2]                                        # the first linear map, and the body


def test_reversible_with_dropout(kit):
    m, x = both(kit, "linear(8); reversible(repeat = 3) { "
                     "one: { layer_norm; lsh_attention(heads = 2, chunk = 4, causal = true); dropout(0.5) }; "
                     "two: { layer_norm; chunked(over = n, pieces = 2) { linear(12); gelu; dropout(0.3); linear(8) } } }")
    before = graphs()
    kit.gradients(m, list(m.parameters()), x)
    assert graphs() == before


def test_recurrence_is_not_unrolled(kit):
    made = []
    for n in (4, 7):
        torch._dynamo.reset()
        counters.clear()
        m = kit.module("gru(8); linear(8)", {"gru": "body"}, torch.float32, compile=True, n=n)
        x = torch.randn(2, n, 8)
        kit.gradients(m, list(m.parameters()), x)
        made.append(graphs())
    assert made[0] == made[1]


def test_free_length_is_dynamic_from_the_start(kit):
    m, x = both(kit, f"repeat 2 {{ {BLOCK} }}", n="free")
    kit.gradients(m, list(m.parameters()), x)
    before = graphs()
    for n in (9, 13, 30): kit.gradients(m, list(m.parameters()), torch.randn(2, n, 8))
    assert graphs() == before


def test_generated_code(kit, monkeypatch):
    """The backend that counts, once: the same numbers, random ones too; and twice, under `retain_graph`, which generated code could not
    bear if it reused what it saved."""
    monkeypatch.setattr(segments, "BACKEND", "inductor")
    m, x = both(kit, f"repeat 2 {{ {BLOCK} }}; reversible(repeat = 2) {{ one: {{ dropout(0.5) }}; two: {{ tanh }} }}")
    loss = m(x).square().sum()
    loss.backward(retain_graph=True)
    once = [p.grad.clone() for p in m.parameters()]
    loss.backward()
    for p, g in zip(m.parameters(), once): torch.testing.assert_close(p.grad, 2 * g)


def test_many_ways_to_be_called(kit):
    """Batches, gradients or none, autocast or not: a recompile past the limit would raise."""
    m = kit.module(f"repeat 2 {{ {BLOCK} }}", dtype=torch.float32, compile=True)
    for cast, grad, batch in itertools.product((False, True), (True, False), (4, 3, 1)):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=cast), torch.set_grad_enabled(grad): y = m(torch.randn(batch, 7, 8))
        if grad: y.float().sum().backward()


def test_no_wrapper_in_the_names(kit):
    m = kit.module(f"repeat 2 {{ {BLOCK} }}", compile=True)
    before = list(m.state_dict())
    with torch.no_grad(): m(torch.randn(2, 7, 8, dtype=torch.float64))
    assert list(m.state_dict()) == before and "y.0.1.0.norm.scale" in before


HASHED = "lsh_attention(heads = 2, chunk = 64, buckets = 4, causal = true, project = false)"


def test_sorting_is_compiled_in_seconds(kit):
    """22. Compile time at n = 4096 is bounded (sorting inside the compiled region was pathological at some sizes). The body, which sorts
    inside it, as it is traced, and its sort in code that is really generated: some seconds; what is pathological takes many minutes."""
    started = time.perf_counter()
    m = kit.module(HASHED, kit.bodies, torch.float32, compile=True, n=4096)
    with torch.no_grad(): assert torch.isfinite(m(torch.randn(1, 4096, 8))).all()
    bucket = torch.randint(8, (1, 2, 4096))
    order = torch.compile(tensors.stable_order, fullgraph=True)(bucket, 2)
    assert torch.equal(order, tensors.stable_order(bucket, 2)) and time.perf_counter() - started < 60


def test_the_code_of_hashing_is_for_every_length(kit):
    """22. … the kernel sorts outside: longer models take the code of one that fills several slabs as it is."""
    made = []
    for n in (256, 4096, 6400, 16_384):
        with torch.no_grad(): kit.module(HASHED, {}, torch.float32, compile=True, n=n)(torch.randn(1, n, 8))
        made.append(graphs())
    assert made[1] == made[2] == made[3] <= made[0] + 1
