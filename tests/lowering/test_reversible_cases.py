"""Reversible stacks where public implementations went wrong: by kernels and by bodies, eager and compiled, against the plain stack."""
from __future__ import annotations

import itertools

import pytest
import torch
import torch._dynamo
from torch import Tensor

from plait.compiler.expand import expand, open_file
from plait.compiler.lowering import inverse, segments
from plait.dsl.errors import PlaitError
from plait.dsl.parser import parse

ATTENTION = ("reversible(repeat = {L}) {{ attend: {{ layer_norm; attention(heads = 2, causal = true); dropout(0.5) }}; "
             "feed: {{ layer_norm; feed_forward(12, activation = gelu); dropout(0.5) }} }}")
HASHED = ("reversible(repeat = {L}) {{ "
          "attend: {{ layer_norm; lsh_attention(heads = 2, chunk = 4, rounds = 2, causal = true, buckets = 4) }}; "
          "feed: {{ layer_norm; chunked(over = n, pieces = 2) {{ linear(12); gelu; dropout(0.5); linear(d) }} }} }}")
STACKS = {"attention": ATTENTION.format(L=3), "hashed": HASHED.format(L=3)}
each = pytest.mark.parametrize("name", STACKS)


def stream(seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(2, 7, 8, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def grads(m) -> list[Tensor]: return [p.grad for p in m.parameters()]


@each
def test_dropout_replays(kit, way, name, monkeypatch):
    """1. Dropout replays in the recompute: gradients with dropout 0.5 equal the plain stack's under the same random state; recovered
    inputs equal the inputs."""
    m, p, x, found, undo = way.module(STACKS[name]), way.plain(STACKS[name]), stream(), [], inverse.Reversible.undo

    def watched(cast, part, run, numbers, choices, streams, *more):
        undo(cast, part, run, numbers, choices, streams, *more)
        found.append(list(streams))
    monkeypatch.setattr(inverse.Reversible, "undo", staticmethod(watched))
    kit.close(*(kit.gradients(k, list(k.parameters()), x) for k in (m, p)), 1e-10)
    assert len(found) == 3 * 2                                                 # copies · parts, each once; the plain stack undoes nothing
    for recovered in found[-1]: assert torch.allclose(recovered, x, atol=1e-12)


@each
def test_an_input_that_needs_no_gradient(way, name):
    """2. An input that needs no gradient: every parameter still gets one."""
    m, p, x = way.module(STACKS[name]), way.plain(STACKS[name]), stream()
    for k in (m, p):
        torch.manual_seed(2)
        k(x).square().sum().backward()
    assert all(torch.allclose(a, b, atol=1e-10) for a, b in zip(grads(m), grads(p), strict=True)) and x.grad is None
    assert sum(bool(g.any()) for g in grads(m)) == sum(bool(g.any()) for g in grads(p)) > 0.8 * len(grads(m))


@each
def test_backward_in_eval_mode(kit, way, name):
    """3. Backward in eval mode works and equals the reference."""
    m, p, x = way.module(STACKS[name]).eval(), way.plain(STACKS[name]).eval(), stream()
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


@pytest.mark.parametrize("stack, bucket", [(ATTENTION, 0), (HASHED, 2 * 2 * 2 * 7 * 2)])
def test_saved_memory_does_not_depend_on_depth(way, stack, bucket):
    """4. Saved activation memory does not depend on depth (4 against 16 layers); LSH's stored buckets are their own term: 2 rounds, 2
    sequences, 2 heads, 7 places of 2 bytes a layer; the body keeps orders of buckets too, of 8 places."""
    (least, few), (most, many) = (saved(way.module(stack.format(L=depth))) for depth in (4, 16))
    assert least == most == 2 * 2 * 7 * 8 * 8                                  # two streams of 2 · 7 · 8 float64
    assert few >= 4 * bucket and many == 4 * few and (bool(few) == bool(bucket))
    if not way.forced: assert few == 4 * bucket


@each
def test_autocast_in_forward_and_not_in_backward(kit, way, name):
    """6. bf16 autocast in forward, backward outside it: the halves see one dtype both times; gradients equal the plain stack's under
    autocast."""
    m, p, x = way.module(STACKS[name], dtype=torch.float32), way.plain(STACKS[name], dtype=torch.float32), stream(dtype=torch.float32)
    seen, kinds, hooks = [], [], []
    for k in (m, p):
        if k is m:
            with torch.no_grad(): m(x)                                         # lowered, so that its halves are there
            halves = [run for loop in next(iter(m._lowered.values())).modules() if isinstance(loop, inverse.Inverse)
                      for row in loop.runs for run in row]
            assert len(halves) == 2
            hooks = [h.register_forward_hook(lambda _m, given, out: kinds.append(([t.dtype for t in given if isinstance(t, Tensor)],
                                                                                   out[0].dtype))) for h in halves]
        torch.manual_seed(2)
        with torch.autocast("cpu", dtype=torch.bfloat16): y = k(x)
        y.float().square().mean().backward()
        seen.append(grads(k))
    for h in hooks: h.remove()
    assert len(kinds) == 2 * 3 * 2 and kinds[:6] == kinds[6:][::-1]            # forward, and backward in the other order
    assert all(cast and x == torch.float32 for cast, x, _ in kinds)            # the streams stay long: sums over all layers
    for a, b in zip(*seen, strict=True): assert (a - b).norm() <= 0.03 * b.norm() + 1e-6     # bfloat16 has 8 bits: 0.4 % an operation


@each
def test_masks_that_change(kit, way, name):
    """7. Masks that change from batch to batch are honoured in every batch."""
    causal = STACKS[name].replace("causal = true", "causal = false").replace("dropout(0.5)", "dropout(0.1)")
    m, p, x = way.module(causal, padded=True), way.plain(causal, padded=True), stream()
    outs = []
    for length in (3, 7, 5):
        mask = torch.arange(7) < torch.tensor([[length], [7]])
        found = [kit.gradients(k, list(k.parameters()), x, x_mask=mask) for k in (m, p)]
        kit.close(*found, 1e-10)
        outs.append(found[0][0])
    assert all(not torch.allclose(a[0, :3], b[0, :3]) for a, b in itertools.combinations(outs, 2))
    assert torch.allclose(outs[0][1], outs[1][1]) or name == "hashed"


@each
def test_a_second_backward_doubles(way, name):
    """8. A second backward under `retain_graph=True` doubles the gradients."""
    m = way.module(STACKS[name])
    loss = m(stream()).square().sum()
    loss.backward(retain_graph=True)
    once = [g.clone() for g in grads(m)]
    loss.backward()
    assert all(torch.equal(2 * a, b) for a, b in zip(once, grads(m), strict=True))


@each
def test_depth_12_stays_bounded(way, name):
    """9. Depth 12: the scale of the outputs stays bounded. A norm in front of each half makes what it adds of the order of 1 or less, so
    24 of them on an input of 1 stay below 1 + 24."""
    m = way.module({"attention": ATTENTION, "hashed": HASHED}[name].format(L=12).replace("dropout(0.5)", "dropout(0.0)"))
    x = stream()
    with torch.no_grad(): y = m(x)
    assert 0.5 < y.square().mean().sqrt() / x.square().mean().sqrt() < 5       # √24 if they were independent


def test_a_half_that_changes_the_width():
    """9. … a half that changes the width: a compile-time error with the shapes."""
    text = ("plait 1\nmodel m { input x: stream[7, 8]; y = x { reversible(repeat = 2) { a: { linear(9) }; b: { linear(8) } } }; "
            "output y: [7, 8] }\n")
    with pytest.raises(PlaitError) as caught: expand(open_file(parse(text)), "m")
    found = caught.value.diagnostics[0]
    assert found.code == "E0310" and "[7, 9]" in found.message and "[7, 8]" in found.message


@each
def test_two_forwards_then_one_backward(way, name):
    """10. Two forwards, then one backward of the summed loss, with dropout: equals the reference. Backward leaves the global random state
    untouched."""
    m, p = way.module(STACKS[name]), way.plain(STACKS[name])
    for k in (m, p):
        torch.manual_seed(2)
        loss = k(stream(0)).square().sum() + k(stream(1)).square().sum()
        state = torch.get_rng_state()
        loss.backward()
        assert torch.equal(state, torch.get_rng_state())
    assert all(torch.allclose(a, b, atol=1e-10) for a, b in zip(grads(m), grads(p), strict=True))


@pytest.mark.parametrize("kernels", ["kernels", "bodies"])
def test_generated_code(kit, kernels, monkeypatch):
    """11. A compiled reversible stack with dropout equals the eager one: here in code that is really generated. (By the backend that only
    traces, every test above.) And once more after `retain_graph`, which generated code could not bear if it reused what it saved."""
    monkeypatch.setattr(segments, "BACKEND", "inductor")
    torch._dynamo.reset()
    chain, forced = "linear(d); " + ATTENTION.format(L=2), kit.bodies if kernels == "bodies" else {}
    x = stream(dtype=torch.float32)
    eager, fast = (kit.module(chain, forced, torch.float32, compile=c) for c in (False, True))
    kit.close(*(kit.gradients(k, list(k.parameters()), x) for k in (fast, eager)), 1e-4)
    loss = fast(x).square().sum()
    loss.backward(retain_graph=True)
    once = [g.clone() for g in grads(fast)]
    loss.backward()
    assert all(torch.allclose(2 * a, b, rtol=1e-5, atol=1e-6) for a, b in zip(once, grads(fast), strict=True))
    torch._dynamo.reset()


@each
def test_the_callers_tensors_stay(way, name):
    """Backward never frees the caller's tensors, nor writes into them."""
    m, x = way.module(STACKS[name]), stream().requires_grad_()
    y = m(x)
    mine = {"input": x, "output": y, "weight": (w := torch.randn_like(y))}
    before = {k: t.detach().clone() for k, t in mine.items()}
    (y * w).sum().backward()
    assert all(torch.equal(t, before[k]) and t.untyped_storage().nbytes() for k, t in mine.items())


@each
def test_gradients_are_returned(way, name, monkeypatch):
    """No nested backward: gradients are returned, so hooks on parameters (DDP's) run once each, after the whole stack."""
    m, calls, hooked = way.module(STACKS[name]), [], []
    engine = torch.autograd.backward
    monkeypatch.setattr(torch.autograd, "backward", lambda *a, **k: (calls.append(1), engine(*a, **k))[1])
    handles = [p.register_post_accumulate_grad_hook(lambda p, i=i: hooked.append(i)) for i, p in enumerate(m.parameters())]
    m(stream()).sum().backward()
    for h in handles: h.remove()
    assert calls == [1] and sorted(hooked) == list(range(len(handles)))
