"""Reversible stacks where public implementations went wrong: by kernels and by bodies, eager and compiled, against the plain stack, which
is eager. So each test says of a compiled stack with dropout too that it equals the eager one (11)."""
from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from plait.compiler.expand import expand, open_file
from plait.compiler.lowering import inverse
from plait.dsl.errors import PlaitError
from plait.dsl.parser import parse

from .conftest import WAYS

ATTEND = "attend: {{ layer_norm; attention(heads = 2, causal = {causal}); dropout(0.5) }}; "
HASH = "hash: {{ layer_norm; lsh_attention(heads = 2, chunk = 4, rounds = 2, causal = {causal}, buckets = 4) }}; "
FEED = "feed: {{ layer_norm; chunked(over = n, pieces = 2) {{ linear(12); gelu; dropout(0.5); linear(d) }} }}"
# What no other test compiles is not compiled for bodies, or not at all, for the sake of time.
every = pytest.mark.parametrize("way", WAYS, indirect=True)


def stack(way, copies: int = 4, causal: str = "true") -> str:
    """Three parts; compiled, for the sake of time, without the hashing, which test_compile.py has."""
    parts = (ATTEND + ("" if way.compile else HASH) + FEED).format(causal=causal)
    return f"reversible(repeat = {copies}) {{ {parts} }}"


def stream(seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(2, 7, 8, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def grads(m) -> list[Tensor]: return [p.grad for p in m.parameters()]


def test_dropout_replays(kit, way, monkeypatch):
    """1. Dropout replays in the recompute: gradients with dropout 0.5 equal the plain stack's under the same random state; recovered
    inputs equal the inputs."""
    m, p, x, found, undo = way.module(stack(way)), way.plain(stack(way)), stream(), [], inverse.Reversible.undo

    def watched(cast, part, run, numbers, choices, streams, *more):
        undo(cast, part, run, numbers, choices, streams, *more)
        found.append(list(streams))
    monkeypatch.setattr(inverse.Reversible, "undo", staticmethod(watched))
    kit.close(*(kit.gradients(k, list(k.parameters()), x) for k in (m, p)), 1e-10)
    assert len(found) == 4 * (2 if way.compile else 3)                         # copies · parts, each once
    for recovered in found[-1]: assert torch.allclose(recovered, x, atol=1e-12)


def test_an_input_that_needs_no_gradient(way):
    """2. An input that needs no gradient: every parameter still gets one."""
    m, p, x = way.module(stack(way)), way.plain(stack(way)), stream()
    for k in (m, p):
        torch.manual_seed(2)
        k(x).square().sum().backward()
    assert all(torch.allclose(a, b, atol=1e-10) for a, b in zip(grads(m), grads(p), strict=True)) and x.grad is None
    assert sum(bool(g.any()) for g in grads(m)) == sum(bool(g.any()) for g in grads(p)) > 0.8 * len(grads(m))


@every
def test_backward_in_eval_mode(kit, way):
    """3. Backward in eval mode works and equals the reference."""
    m, p, x = way.module(stack(way)).eval(), way.plain(stack(way)).eval(), stream()
    kit.close(*(kit.gradients(k, list(k.parameters()), x) for k in (m, p)), 1e-10)


def saved(m) -> tuple[int, int]:
    """Bytes that forward hands to autograd: reals, and choices. Parameters and inputs are not counted, a storage counts once."""
    x = stream()
    own, seen = {t.untyped_storage().data_ptr() for t in (*m.parameters(), x)}, {}

    def pack(t):
        if t.untyped_storage().data_ptr() not in own and t.dim(): seen[t.untyped_storage().data_ptr()] = t         # keys have no axis
        return t
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t): m(x)
    return tuple(sum(t.untyped_storage().nbytes() for t in seen.values() if t.is_floating_point() == real) for real in (True, False))


@every
def test_saved_memory_does_not_depend_on_depth(way):
    """4. Saved activation memory does not depend on depth (4 against 16 layers); LSH's stored buckets are their own term: of the kernel
    2 rounds, 2 sequences, 2 heads, 7 places of 2 bytes a layer; of the body at least those."""
    (least, few), (most, many) = (saved(way.module(stack(way, copies))) for copies in (4, 16))
    assert least == most == 2 * 2 * 7 * 8 * 8                                  # two streams of 2 · 7 · 8 float64
    assert many == 4 * few and (few == 0 if way.compile else few >= 4 * 112 if way.forced else few == 4 * 112)


@every
def test_autocast_in_forward_and_not_in_backward(kit, way):
    """6. bf16 autocast in forward, backward outside it: the halves see one dtype both times; gradients equal the plain stack's under
    autocast."""
    m, p, x = way.module(stack(way), dtype=torch.float32), way.plain(stack(way), dtype=torch.float32), stream(dtype=torch.float32)
    with torch.no_grad(): m(x)                                                 # lowered, so that its parts are there
    (loop,) = (part for part in next(iter(m._lowered.values())).modules() if isinstance(part, inverse.Inverse))
    (runs,) = loop.runs
    kinds: list[tuple] = []
    watch = [r.register_forward_hook(lambda _m, given, out: kinds.append((torch.is_autocast_enabled("cpu"), given[0].dtype, out[0].dtype)))
             for r in runs]
    for k in (m, p):
        torch.manual_seed(2)
        with torch.autocast("cpu", dtype=torch.bfloat16): y = k(x)
        y.float().square().mean().backward()
    for w in watch: w.remove()
    half = 4 * len(runs)
    assert len(kinds) == 2 * half > 0 and kinds[:half] == kinds[half:][::-1]   # forward, and backward in the other order
    assert all(cast and x == torch.float32 for cast, x, _ in kinds)            # the streams stay long: they are sums over all layers
    # bfloat16 has 8 bits: 0.4 % an operation. A key's bias has no gradient (it adds the same to all scores of a row): what is left is
    # rounding, as small as that beside the largest gradient.
    largest = max(b.norm() for b in grads(p))
    for a, b in zip(grads(m), grads(p), strict=True): assert (a - b).norm() <= 0.03 * b.norm() + 0.004 * largest


@every
def test_masks_that_change(kit, way):
    """7. Masks that change from batch to batch are honoured in every batch."""
    chain = stack(way, 2, "false")
    m, p, x = way.module(chain, padded=True), way.plain(chain, padded=True), stream()
    outs = []
    for length in (3, 7, 5):
        mask = torch.arange(7) < torch.tensor([[length], [7]])
        found = [kit.gradients(k, list(k.parameters()), x, x_mask=mask) for k in (m, p)]
        kit.close(*found, 1e-10)
        outs.append(found[0][0])
    assert all(not torch.allclose(a[0, :3], b[0, :3]) and torch.equal(a[1], b[1]) for a, b in itertools.combinations(outs, 2))


def test_a_second_backward_doubles(way):
    """8. A second backward under `retain_graph=True` doubles the gradients."""
    m = way.module(stack(way))
    loss = m(stream()).square().sum()
    loss.backward(retain_graph=True)
    once = [g.clone() for g in grads(m)]
    loss.backward()
    assert all(torch.equal(2 * a, b) for a, b in zip(once, grads(m), strict=True))


@every
def test_depth_does_not_blow_up(way):
    """9. Depth 12: the scale of the outputs stays bounded; here at 16. A norm in front of each part makes what it adds of the order of 1,
    so 48 of them would be √48 on an input of 1, if they were independent and as large as that."""
    x = stream()
    with torch.no_grad(): y = way.module(stack(way, 16))(x)
    assert 0.5 < y.square().mean().sqrt() / x.square().mean().sqrt() < 7


def test_a_half_that_changes_the_width():
    """9. … a half that changes the width: a compile-time error with the shapes."""
    text = ("plait 1\nmodel m { input x: stream[7, 8]; y = x { reversible(repeat = 2) { a: { linear(9) }; b: { linear(8) } } }; "
            "output y: [7, 8] }\n")
    with pytest.raises(PlaitError) as caught: expand(open_file(parse(text)), "m")
    found = caught.value.diagnostics[0]
    assert found.code == "E0310" and "[7, 9]" in found.message and "[7, 8]" in found.message


def test_two_forwards_then_one_backward(way):
    """10. Two forwards, then one backward of the summed loss, with dropout: equals the reference. Backward leaves the global random state
    untouched."""
    m, p = way.module(stack(way)), way.plain(stack(way))
    for k in (m, p):
        torch.manual_seed(2)
        loss = k(stream(0)).square().sum() + k(stream(1)).square().sum()
        state = torch.get_rng_state()
        loss.backward()
        assert torch.equal(state, torch.get_rng_state())
    assert all(torch.allclose(a, b, atol=1e-10) for a, b in zip(grads(m), grads(p), strict=True))


def test_the_callers_tensors_stay(way):
    """Backward never frees the caller's tensors, nor writes into them."""
    m, x = way.module(stack(way)), stream().requires_grad_()
    y = m(x)
    mine = {"input": x, "output": y, "weight": (w := torch.randn_like(y))}
    before = {k: t.detach().clone() for k, t in mine.items()}
    (y * w).sum().backward()
    assert all(torch.equal(t, before[k]) and t.untyped_storage().nbytes() for k, t in mine.items())


def test_gradients_are_returned(way, monkeypatch):
    """No nested backward: gradients are returned, so hooks on parameters (DDP's) run once each, after the whole stack."""
    m, calls, hooked = way.module(stack(way)), [], []
    engine = torch.autograd.backward
    monkeypatch.setattr(torch.autograd, "backward", lambda *a, **k: (calls.append(1), engine(*a, **k))[1])
    handles = [p.register_post_accumulate_grad_hook(lambda p, i=i: hooked.append(i)) for i, p in enumerate(m.parameters())]
    m(stream()).sum().backward()
    for h in handles: h.remove()
    assert calls == [1] and sorted(hooked) == list(range(len(handles)))
