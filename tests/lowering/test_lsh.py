"""LSH attention against a naive softmax over all pairs that some round allows, and what other implementations got wrong."""
from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from plait.runtime.kernels import lsh

KEY = torch.tensor(99)


def naive(q: Tensor, v: Tensor, bucket: Tensor, chunk: int, mask: Tensor | None, causal: bool, within: bool) -> Tensor:
    """q, v [b, n, h, ·], bucket [rounds, b, h, n]: pairs in one chunk or in neighbouring ones, by a full n × n table."""
    n = q.shape[1]
    at = torch.arange(n)
    see = torch.zeros(q.shape[0], q.shape[2], n, n, dtype=torch.bool)
    for one in bucket:
        if mask is not None: one = torch.where(mask[:, None], one, 10**6)
        home = torch.argsort(torch.argsort(one * n + at, -1), -1) // chunk
        gap = home[..., :, None] - home[..., None, :]
        ok = (gap == 0) | (gap == 1)
        if within: ok &= one[..., :, None] == one[..., None, :]
        see |= ok
    see &= at[:, None] > at if causal else at[:, None] != at
    if mask is not None: see &= mask[:, None, None, :]
    see |= ~see.any(-1, keepdim=True) & torch.eye(n, dtype=torch.bool)
    q, v = q.transpose(1, 2), v.transpose(1, 2)
    scores = q @ torch.nn.functional.normalize(q, dim=-1).transpose(-1, -2)
    return (scores.masked_fill(~see, -torch.inf).softmax(-1) @ v).transpose(1, 2)


@pytest.mark.parametrize("n", [1, 15, 16, 17, 63, 64, 65, 127, 129])
def test_the_union_of_the_rounds(n):
    for rounds, causal, within, masked in itertools.product((1, 4), (True, False), (True, False), (False, True)):
        g = torch.Generator().manual_seed(n)
        q, v, w = (torch.randn(2, n, 2, 4, dtype=torch.float64, generator=g).requires_grad_() for _ in range(3))
        mask = torch.rand(2, n, generator=g) > 0.3 if masked else None
        count = max(2, 2 * (n // 32))
        bucket = lsh.buckets(q, KEY, [count], rounds, False, False)
        ours = lsh.attend(q, v, bucket, count, 16, mask, causal, within, True, False)
        theirs = naive(q, v, bucket, 16, mask, causal, within)
        for a, b in zip((ours, *torch.autograd.grad((ours * w).sum(), (q, v))), (theirs, *torch.autograd.grad((theirs * w).sum(), (q, v)))):
            assert (a - b).abs().max() < 1e-6 * max(1, b.abs().max())          # unit keys: 1e-12 under a root here, 1e-12 as a floor there


def test_slabs_do_not_show():
    q, v = torch.randn(2, 3, 50, 2, 4, dtype=torch.float64)
    bucket = lsh.buckets(q, KEY, [6], 2, False, False)
    whole = lsh.attend(q, v, bucket, 6, 4, None, True, True, True, False)
    before, lsh.SLAB["cpu"] = lsh.SLAB["cpu"], 3
    try: assert torch.allclose(lsh.attend(q, v, bucket, 6, 4, None, True, True, True, False), whole, atol=1e-12)
    finally: lsh.SLAB["cpu"] = before


def test_many_sequences_are_kept_apart():
    """A sequence among many is what it is alone."""
    q, v = torch.randn(2, 40, 9, 3, 4, dtype=torch.float64)
    bucket = lsh.buckets(q, KEY, [4], 2, True, False)
    whole = lsh.attend(q, v, bucket, 4, 4, None, False, False, True, False)
    for i in (0, 1, 17, 39):
        alone = lsh.attend(q[i:i + 1], v[i:i + 1], bucket[:, i:i + 1], 4, 4, None, False, False, True, False)
        assert torch.allclose(whole[i], alone[0], atol=1e-12)


def test_short_is_full_attention(kit):
    """within_bucket = false and n ≤ chunk: full attention with shared queries and keys."""
    x = torch.randn(2, 8, 8, dtype=torch.float64)
    for causal in ("true", "false"):
        hashed = kit.module(f"lsh_attention(heads = 2, chunk = 8, buckets = 2, rounds = 3, within_bucket = false, causal = {causal})", n=8)
        full = kit.module(f"attention(heads = 2, share_qk = true, causal = {causal})", n=8)
        for a, b in zip(full.parameters(), hashed.parameters()): a.data.copy_(b.data)
        assert torch.allclose(hashed(x), full(x), atol=1e-10)


def test_extreme_queries_and_masks():
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        q, v = (torch.randn(2, 21, 2, 4) * 1e4).to(dtype), torch.randn(2, 21, 2, 4).to(dtype)
        bucket = lsh.buckets(q.float(), KEY, [4], 2, False, False)
        mask = torch.zeros(2, 21, dtype=torch.bool)
        y = lsh.attend(q.float(), v.float(), bucket, 4, 4, mask, True, False, True, False)
        assert torch.isfinite(y).all() and torch.equal(y, v.float())           # who sees nothing gives its own value


def test_causal_in_the_gradient(kit):
    for within in ("true", "false"):
        m = kit.module(f"lsh_attention(heads = 2, chunk = 4, rounds = 2, buckets = 4, causal = true, within_bucket = {within})", n=13)
        m.eval()
        x = torch.randn(1, 13, 8, dtype=torch.float64) * 100
        for i in (0, 3, 7, 12):
            leaf = x.clone().requires_grad_()
            (g,) = torch.autograd.grad(m(leaf)[0, i].sum(), leaf)
            assert (g[0, i + 1:] == 0).all()


def test_a_masked_position_has_no_influence(kit):
    m = kit.module("lsh_attention(heads = 2, chunk = 4, rounds = 2, buckets = 4)", padded=True, n=9).eval()
    x = torch.randn(1, 9, 8, dtype=torch.float64)
    mask = torch.ones(1, 9, dtype=torch.bool)
    mask[0, 0] = False
    y = x.clone()
    y[0, 0] = 77
    assert torch.equal(m(x, x_mask=mask)[0, 1:], m(y, x_mask=mask)[0, 1:])


def test_other_rounds_in_evaluation(kit):
    trained = kit.module("lsh_attention(heads = 2, chunk = 4, rounds = 1)")
    more = kit.module("lsh_attention(heads = 2, chunk = 4, rounds = 8)")
    more.load_state_dict(trained.state_dict())
    x = torch.randn(2, 7, 8, dtype=torch.float64, requires_grad=True)
    more.eval()(x).sum().backward()
    assert torch.isfinite(x.grad).all()


def test_buckets_are_argmax_of_both_signs():
    q = torch.randn(2, 5, 3, 4, dtype=torch.float64)
    from plait.compiler.lowering.tensors import mix, random
    got = lsh.buckets(q, KEY, [4, 6], 2, False, False)
    want = 0
    for digit, (f, worth) in enumerate(((4, 1), (6, 4))):
        turned = torch.einsum("bnhk,hrkf->rbhnf", q, random("normal", [3, 2, 4, f // 2], mix(KEY, 2 + digit), q))
        want = want + worth * torch.cat((turned, -turned), -1).argmax(-1)
    assert torch.equal(got, want)
