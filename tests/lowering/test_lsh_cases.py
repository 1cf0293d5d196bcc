"""LSH attention where public implementations went wrong: by the kernel and by its body, eager and compiled. (22, the time it takes to
compile, is in test_compile.py.)"""
from __future__ import annotations

import pytest
import torch
from torch import Tensor

from plait.compiler.layer import LAYERS
from plait.runtime.kernels import lsh

from .conftest import WAYS
from .test_lsh import naive


def call(**how: object) -> str:
    """The layer without projections: queries, keys and values are the stream itself, cut into two heads."""
    told = {"heads": 2, "chunk": 4, "buckets": 4, "project": False, **how}
    return f"lsh_attention({', '.join(f'{k} = {str(v).lower() if isinstance(v, bool) else v}' for k, v in told.items())})"


CAUSAL, ACROSS = call(rounds=4, causal=True), call(chunk=16, rounds=3, buckets="auto", causal=True, within_bucket=False)
every = pytest.mark.parametrize("way", WAYS, indirect=True)


def stream(n: int, b: int = 2, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(b, n, 8, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def hashed(kit, chain: str, x: Tensor, monkeypatch) -> Tensor:
    """The buckets that every way to run this chain in evaluation chooses, [rounds, b, h, n]."""
    found, real = [], lsh.buckets
    with monkeypatch.context() as patch:
        patch.setattr(lsh, "buckets", lambda *args: found.append(real(*args)) or found[-1])
        kit.module(chain, n=x.shape[1]).eval()(x)
    return found[0]


def influence(m, x: Tensor, i: int, **named: Tensor) -> Tensor:
    """[n]: does output i of the first sequence depend on the input at each position, by the gradient?"""
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(m(leaf, **named)[0, i].sum(), leaf)[0][0].ne(0).any(-1)


@every
def test_any_length(kit, way):
    """12. Lengths 1, 63, 64, 65, 127, 129 with chunk 64: right shape, equal to a padded run; length 32 after length 64 on the same
    module."""
    chain = call(chunk=64, rounds=2, causal=True)
    m, padded, x = way.module(chain, n="free").eval(), way.module(chain, n="free", padded=True).eval(), stream(192)
    few = (64, 129) if way.forced else (1, 64, 32, 129)                     # of code that is generated for it
    for n in few if way.compile else (1, 63, 64, 32, 65, 127, 129):
        y = m(x[:, :n])
        assert y.shape == (2, n, 8)
        there = (torch.arange(192) < n).expand(2, -1)
        assert torch.allclose(padded(x, x_mask=there)[:, :n], y, atol=1e-12)
        if n == 32: assert torch.allclose(y, kit.module(chain, way.forced, n=32).eval()(x[:, :32]), atol=1e-12)


def full_attention(x: Tensor, causal: bool) -> Tensor:
    """Shared queries and keys of unit length, no second scale; a position sees itself where it sees nothing else."""
    q, n = x.unflatten(-1, (2, 4)).transpose(1, 2), x.shape[1]
    scores = q @ (q / q.norm(dim=-1, keepdim=True)).transpose(-1, -2)
    hidden = torch.ones(n, n).triu() > 0 if causal else torch.eye(n) > 0
    if causal: hidden[0, 0] = False
    return (scores.masked_fill(hidden, -torch.inf).softmax(-1) @ q).transpose(1, 2).flatten(2)


@every
@pytest.mark.parametrize("n", [5, 16])
def test_one_chunk_is_full_attention(way, n):
    """13. With `within_bucket = false` and n ≤ chunk it equals full attention with shared, normalised keys and no self, to 1e-5. One
    scale, that of the keys' unit length. The first of a causal row sees nothing else, so itself."""
    m, x = way.module(ACROSS, n="free").eval(), stream(n)
    assert torch.allclose(m(x), full_attention(x, True), atol=1e-5) and torch.equal(m(x)[:, 0], x[:, 0])
    m = way.module(ACROSS.replace("causal = true", "causal = false"), n="free").eval()
    assert torch.allclose(m(x), full_attention(x, False), atol=1e-5)


def test_rounds_are_one_softmax_over_their_union(kit, way, monkeypatch):
    """14. Multi-round output equals softmax over the union of the rounds' windows to 1e-6 in float64."""
    x = stream(13)
    chains = {CAUSAL: True} if way.compile else {CAUSAL: True, call(rounds=4, within_bucket=False): False}
    for chain, causal in chains.items():
        bucket = hashed(kit, chain, x, monkeypatch)

        def by_table(x: Tensor, bucket: Tensor = bucket, causal: bool = causal) -> Tensor:
            q = x.unflatten(-1, (2, 4))
            return naive(q, q, bucket, 4, None, causal, causal).flatten(2)
        kit.close(kit.gradients(way.module(chain, n=13).eval(), [], x), kit.gradients(by_table, [], x), 1e-6)


@every
def test_a_padded_batch(way):
    """15. A padded batch: each row equals the row alone under the same buckets. Masking only position 0 removes its influence."""
    quick = bool(way.compile and way.forced)                               # seconds, not a minute
    m, x = way.module(call(rounds=1 if quick else 2), n="free", padded=True).eval(), stream(13, 2 if quick else 3)
    lengths = (13, 7) if quick else (13, 7, 2)
    y = m(x, x_mask=torch.arange(13) < torch.tensor(lengths)[:, None])
    for row, n in enumerate(lengths): assert torch.allclose(m(x[row:row + 1, :n])[0], y[row, :n], atol=1e-12)
    but_the_first = torch.arange(13).expand(len(x), -1) > 0
    other = x.clone()
    other[:, 0] = 77
    assert torch.equal(m(x, x_mask=but_the_first)[:, 1:], m(other, x_mask=but_the_first)[:, 1:])
    assert not torch.equal(m(x)[:, 1:], m(other)[:, 1:])
    if quick: return                            # torch's backend that only traces lays a cropped gradient out otherwise than it runs
    assert not any(influence(m, x, i, x_mask=but_the_first)[0] for i in range(1, 13))


@every
@pytest.mark.parametrize("wrap", [False, True])
def test_the_first_chunk_has_none_before_it(kit, way, wrap, monkeypatch):
    """16. The first chunk does not attend to the last; round r's first chunk does not attend into round r − 1. A position that lies in
    the first chunk of every round is reached from these chunks alone. (`wrap = true` is the other implementations' behaviour.)"""
    n, chain = 16, call(rounds=2, within_bucket=False, wrap=wrap)
    x = stream(n, b=1)
    bucket = hashed(kit, call(rounds=2, within_bucket=False), x, monkeypatch)
    home = torch.argsort(torch.argsort(bucket * n + torch.arange(n), -1), -1)[:, 0] // 4                   # [rounds, heads, n]
    m, looked = way.module(chain, n=n).eval(), 0
    for head in (0, 1):
        first, last = (home[:, head] == 0), (home[:, head] == 3).any(0)
        for i in first.all(0).nonzero().flatten().tolist():
            leaf = x.clone().requires_grad_()
            g, = torch.autograd.grad(m(leaf)[0, i, 4 * head:4 * head + 4].sum(), leaf)
            reached = g[0, :, 4 * head:4 * head + 4].ne(0).any(-1)
            assert torch.equal(reached & ~first.any(0), last & ~first.any(0) if wrap else torch.zeros(n, dtype=torch.bool))
            looked += int((last & ~first.any(0)).any())
    assert looked


@every
def test_causality_under_long_queries(way):
    """17. Queries scaled by 1e4: causality still holds: in the gradient, strictly."""
    m = way.module(CAUSAL, n=13).eval()
    for scale in (1, 1e4):
        for i in (0, 3, 7, 12):
            reached = influence(m, stream(13, b=1) * scale, i)
            assert not reached[i + 1:].any() and reached.any()


@every
def test_no_logit_beats_the_mask(way):
    """Masks are no constant that a logit can beat: products of −10¹² do not let in what is masked, nor what comes later."""
    m, x = way.module(call(rounds=2), n="free", padded=True).eval(), 1e12 * stream(13)
    there = torch.arange(13).expand(2, -1) % 3 > 0
    other = torch.where(there[..., None], x, -x.flip(1))
    assert torch.equal(m(x, x_mask=there)[there], m(other, x_mask=there)[there]) and torch.isfinite(m(x, x_mask=there)).all()


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_row_in_which_everything_is_masked(way, dtype):
    """17. … a row in which everything is masked is finite in fp16, bf16, fp32: who sees nothing gives its own value."""
    m, x = way.module("linear(d); " + call(rounds=2, causal=True), n=13, padded=True).eval(), stream(13)
    m.to(dtype)
    y = m(x.to(dtype), x_mask=torch.zeros(2, 13, dtype=torch.bool))
    gradients = torch.autograd.grad(y.float().square().sum(), list(m.parameters()))
    assert y.dtype == dtype and torch.isfinite(y).all() and all(torch.isfinite(g).all() for g in gradients)


def test_the_number_of_buckets(kit):
    """18. The number of buckets is even and at least 2 for every length from 2 to 4096."""
    p = kit.program("lsh_attention(heads = 2, chunk = 64)", n="free")
    (factor,) = next(n.op.arg("buckets") for n in p.graph.walk() if getattr(n.op, "name", "") == "lsh_attention")
    for n in range(2, 4097):
        count = p.sizes.bind(n=n).integer(factor)
        assert count is not None and count >= 2 and count % 2 == 0 and count == 2 * -(-n // 64)


@every
def test_another_number_of_rounds(kit, way):
    """19. Evaluated with another number of rounds than trained: works, backward included; more rounds see more."""
    few, many = (way.module(f"lsh_attention(heads = 2, chunk = 4, buckets = 4, rounds = {r})", n=13) for r in (1, 3 if way.compile else 8))
    few(stream(13)).square().sum().backward()
    with torch.no_grad():
        for p in few.parameters(): p -= 0.01 * p.grad
    many.load_state_dict(few.state_dict())
    y, g = kit.gradients(many.eval(), list(many.parameters()), stream(13))
    assert torch.isfinite(y).all() and all(torch.isfinite(t).all() for t in g) and any(t.any() for t in g)
    (seen, more) = (sum(int(influence(m.eval(), stream(13), i).sum()) for i in range(13)) for m in (few, many))
    assert seen < more


@every
def test_step_by_step(way):
    """20. With `within_bucket = false`, generation step by step equals the full forward for lengths below one chunk."""
    m, x = way.module(ACROSS, n="free").eval(), stream(15)
    whole = m(x)
    for n in range(1, 15): assert torch.allclose(m(x[:, :n])[:, -1], whole[:, n - 1], atol=1e-12)


@every
def test_later_symbols_move_borders(way):
    """Strict causality holds in the gradient, not in the values: later tokens can move chunk borders. The layer's documentation says so."""
    m, moved = way.module(CAUSAL, n=13).eval(), 0
    for seed in range(5):
        x = stream(13, seed=seed)
        other = torch.cat((x[:, :-1], -x[:, -1:]), 1)
        moved += int(not torch.allclose(m(x)[:, :-1], m(other)[:, :-1], atol=1e-9))
    assert moved
    assert "causality is exact in the gradient, not in the values" in " ".join(LAYERS["lsh_attention"].doc.split())
