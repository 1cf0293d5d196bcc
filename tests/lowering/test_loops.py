"""Copies, pieces, recurrences, and reversible stacks: what is recomputed or inverted gives the gradients of the plain loop."""
from __future__ import annotations

import pytest
import torch

from plait.compiler.claim import claim
from plait.compiler.kernels import Target
from plait.compiler.lower import lower
from plait.compiler.lowering import inverse
from plait.compiler.lowering.tensors import size
from plait.runtime.kernels import EMISSIONS

PARTS = ("one: { layer_norm; attention(heads = 2, causal = true); dropout(0.5) }; "
         "two: { layer_norm; feed_forward(12, activation = gelu); dropout(0.5) }")
STACKS = {
    "two parts": f"reversible(repeat = 3) {{ {PARTS} }}",
    "three parts": f"reversible(repeat = 3) {{ {PARTS}; three: {{ layer_norm; linear(d) }} }}",
    "in pieces": "reversible(repeat = 2) { one: { layer_norm; attention(heads = 2) }; "
                 "two: { layer_norm; chunked(over = n, pieces = 3) { feed_forward(9); dropout(0.3) } } }",
    "one copy, side by side": f"reversible(repeat = 1, merge = concat) {{ {PARTS} }}; linear(d)",
    "hashed": "reversible(repeat = 3) { one: { layer_norm; lsh_attention(heads = 2, chunk = 4, rounds = 2, causal = true, buckets = 4) }; "
              "two: { layer_norm; feed_forward(12) } }",
    "a loop inside": "reversible(repeat = 2) { one: { repeat 2 { layer_norm; linear(d) } }; two: { layer_norm; gru(8) } }",
}


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("body", [False, True])
def test_gradients_of_the_plain_stack(kit, name, body):
    forced = kit.bodies if body else {}
    m, p = (kit.module(STACKS[name], forced) for _ in range(2))
    kit.plain(p)
    x = torch.randn(2, 7, 8, dtype=torch.float64)
    state = torch.get_rng_state()
    ours, theirs = (kit.gradients(k, list(k.parameters()), x) for k in (m, p))
    kit.close(ours, theirs, 1e-10)
    m.eval(), p.eval()                                       # backward in eval mode
    kit.close(*(kit.gradients(k, list(k.parameters()), x) for k in (m, p)), 1e-10)
    assert not torch.equal(state, torch.get_rng_state())     # the keys were drawn …
    torch.manual_seed(1)
    y = m(x)
    state = torch.get_rng_state()
    y.sum().backward()
    assert torch.equal(state, torch.get_rng_state())         # … and backward draws none


def test_input_without_gradient(kit):
    m, p = (kit.module(STACKS["two parts"]) for _ in range(2))
    x = torch.randn(2, 7, 8, dtype=torch.float64)
    found = []
    for k in (m, kit.plain(p)):
        torch.manual_seed(2)
        k(x).square().sum().backward()
        found.append([q.grad for q in k.parameters()])
    assert all(torch.allclose(a, b, atol=1e-10) for a, b in zip(*found))


def test_two_forwards_then_one_backward_and_once_more(kit):
    m, p = (kit.module(STACKS["two parts"]) for _ in range(2))
    x, z = torch.randn(2, 2, 7, 8, dtype=torch.float64)
    found = []
    for k in (m, kit.plain(p)):
        torch.manual_seed(2)
        loss = k(x).square().sum() + k(z).square().sum()
        first = torch.autograd.grad(loss, list(k.parameters()), retain_graph=True)
        second = torch.autograd.grad(loss, list(k.parameters()))
        assert all(torch.equal(a, b) for a, b in zip(first, second))
        found.append(first)
    assert all(torch.allclose(a, b, atol=1e-10) for a, b in zip(*found))


def test_frozen_parameters(kit):
    m, p = kit.module(STACKS["two parts"]), kit.plain(kit.module(STACKS["two parts"]))
    x = torch.randn(2, 7, 8, dtype=torch.float64)
    for k in (m, p):
        for name, q in k.named_parameters(): q.requires_grad_(".1." not in name)
    kit.close(*(kit.gradients(k, list(k.parameters()), x) for k in (m, p)), 1e-10)


def test_autocast_in_forward_only(kit):
    m, p = kit.module(STACKS["two parts"], dtype=torch.float32), kit.plain(kit.module(STACKS["two parts"], dtype=torch.float32))
    x = torch.randn(2, 7, 8)
    found = []
    for k in (m, p):
        torch.manual_seed(2)
        with torch.autocast("cpu", dtype=torch.bfloat16): y = k(x)
        y.float().square().mean().backward()
        found.append([q.grad for q in k.parameters()])
    for a, b in zip(*found): assert (a - b).norm() <= 0.03 * b.norm() + 1e-6           # bfloat16 has 8 bits: 0.4 % an operation


def test_masks_that_change(kit):
    chain = "reversible(repeat = 2) { one: { layer_norm; attention(heads = 2) }; two: { layer_norm; feed_forward(12) } }"
    m, p = kit.module(chain, padded=True), kit.plain(kit.module(chain, padded=True))
    x = torch.randn(2, 7, 8, dtype=torch.float64)
    for length in (3, 7, 5):
        mask = torch.arange(7) < torch.tensor([[length], [7]])
        kit.close(*(kit.gradients(k, list(k.parameters()), x, x_mask=mask) for k in (m, p)), 1e-10)


def test_saved_memory_does_not_grow_with_depth(kit):
    def saved(depth: int) -> int:
        m = kit.module(f"reversible(repeat = {depth}) {{ {PARTS} }}")
        own, seen = {q.untyped_storage().data_ptr() for q in m.parameters()}, {}

        def pack(t):
            if t.untyped_storage().data_ptr() not in own: seen[t.untyped_storage().data_ptr()] = t
            return t
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t): m(torch.randn(2, 7, 8, dtype=torch.float64))
        return sum(t.untyped_storage().nbytes() for t in seen.values() if t.is_floating_point())
    assert saved(2) == saved(8) == 2 * 2 * 7 * 8 * 8                                   # two streams of 2·7·8 float64


def test_choices_are_kept_not_made_again(kit, monkeypatch):
    m = kit.module(STACKS["hashed"])
    x = torch.randn(2, 7, 8, dtype=torch.float64, requires_grad=True)
    replays, plainly = [], inverse.Choices.choose

    def watched(self, fn, below):
        replays.append(self.replay)
        return plainly(self, fn, below)
    monkeypatch.setattr(inverse.Choices, "choose", watched)
    y = m(x)
    assert replays == [False] * 3
    y.sum().backward()
    assert replays == [False] * 3 + [True] * 3


@pytest.mark.parametrize("pieces", [1, 3, 7])
def test_pieces(kit, pieces):
    whole, cut = kit.module("feed_forward(12)"), kit.module(f"chunked(over = n, pieces = {pieces}) {{ feed_forward(12) }}")
    x = torch.randn(2, 7, 8, dtype=torch.float64)
    kit.close(*(kit.gradients(k, list(k.parameters()), x) for k in (whole, cut)), 1e-12)


@pytest.mark.parametrize("pieces", [1, 3, 9])
def test_loss_in_pieces(kit, pieces):
    how = dict(kind="tokens[n] of V", out="[n, V]", V=11)
    x = torch.randint(0, 11, (3, 8), generator=torch.Generator().manual_seed(1))
    x[0, 3:] = -1 - x[0, 3:]
    whole = kit.module("embed(V, width = d); linear(V)", loss="cross_entropy(y, next(x))", **how)
    cut = kit.module("embed(V, width = d); linear(V)", loss=f"cross_entropy(y, next(x), pieces = {pieces})", **how)
    (a, *_), (b, *_) = whole.losses(x), cut.losses(x)
    kit.close(*((m, list(torch.autograd.grad(m, list(k.parameters())))) for m, k in ((a, whole), (b, cut))), 1e-12)
    none = cut.loss(-1 - x.clamp(min=0))
    assert none == 0 and all((g == 0).all() for g in torch.autograd.grad(none, list(cut.parameters())))


def test_copies_that_differ(kit):
    """repeat as i: a body for each i, here dilations 1, 2, 4: the receptive field of a causal width of 2 is 1 + 1 + 2 + 4."""
    m = kit.module("repeat 3 as i { conv(8, kernel = 2, dilation = 2^i, causal = true) }", n=12)
    x = torch.randn(1, 12, 8, dtype=torch.float64, requires_grad=True)
    reached = torch.autograd.grad(m(x)[0, -1].sum(), x)[0].abs().sum(-1)[0] > 0
    assert reached.tolist() == [False] * 4 + [True] * 8


def test_free_length(kit):
    """A dim without a value is read from the inputs; the same module runs every length."""
    for chain in ("attention(heads = 2, causal = true, window = 3)", "lsh_attention(heads = 2, chunk = 4)", "gru(8)",
                  "positions(sinusoidal); feed_forward(9)",
                  "repeat 2 { conv(8, kernel = 3); dropout(0.2); attention(heads = 2) }", "chunked(over = n, pieces = 3) { linear(8) }",
                  "reversible(repeat = 2) { a: { lsh_attention(heads = 2, chunk = 4) }; b: { conv(8, kernel = 3) } }"):
        for forced in ({}, kit.bodies):
            loose = kit.module(chain, forced, n="free")
            for n in (1, 7, 9, 12):
                x = torch.randn(2, n, 8, dtype=torch.float64)
                bound = kit.module(chain, forced, n=n)
                kit.close(*(kit.gradients(k, list(k.parameters()), x) for k in (loose, bound)), 1e-10)


def test_nodes_know_their_place(kit):
    p = kit.program("linear(6); gelu; linear(8)")
    graph = lower(claim(p.graph, Target()), p.sizes, EMISSIONS).graph
    placed = [n for n in graph.nodes if n.op == "call_function" and n.target is not size]
    assert {n.meta["at"] for n in placed} == {"m/y/0", "m/y/1", "m/y/2"}
    assert all(n.meta["span"] is not None for n in placed)
