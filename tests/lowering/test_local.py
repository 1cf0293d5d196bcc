"""Local attention is attention with a mask of chunks; and Hugging Face's, around the ends too."""
from __future__ import annotations

import pytest
import torch
from transformers.models.reformer.modeling_reformer import LocalSelfAttention, ReformerConfig

N, D, HEADS, CHUNK = 24, 8, 2, 4


def attended(m, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """Attention by the module's weights where `seen` [b, n, n] says so, written out."""
    p = dict(m.named_parameters())
    q, k, v = (torch.einsum("bnd,hkd->bhnk", x, p[f"y.0.{name}"]) + p[f"y.0.{name}_bias"][:, None] for name in ("query", "key", "value"))
    s = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~seen[:, None], -torch.inf)
    return torch.einsum("bhnv,dhv->bnd", s.softmax(-1).nan_to_num(0) @ v, p["y.0.out"]) + p["y.0.out_bias"]


@pytest.mark.parametrize("back, ahead, how", [(1, 0, ""), (2, 1, ""), (0, 0, ""), (1, 1, "wrap = true"), (0, 2, "wrap = true")])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("n", [N, 22, 3])
def test_is_attention_with_a_mask(kit, back, ahead, how, causal, n):
    """22: the last chunk is cut off; 3: there is one, and nothing beside it."""
    chunks = -(-n // CHUNK)
    if how and back + ahead >= chunks: pytest.skip("would see a chunk twice, which is a mistake")
    m = kit.module(f"local_attention(heads = {HEADS}, chunk = {CHUNK}, look_back = {back}, look_ahead = {ahead}, "
                   f"causal = {str(causal).lower()}{', ' + how if how else ''})", n=n, d=D)
    x = torch.randn(2, n, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    i = torch.arange(n)
    gap = (i // CHUNK)[:, None] - (i // CHUNK)[None, :]
    seen = (gap <= back) & (gap >= -ahead)
    if how: seen = seen | (gap + chunks <= back) | (gap - chunks >= -ahead)
    if causal: seen = seen & (i[None, :] <= i[:, None])
    kit.close(kit.gradients(m, list(m.parameters()), x),
              kit.gradients(lambda x: attended(m, x, seen.expand(2, -1, -1)), list(m.parameters()), x), 1e-12)


def test_padding_is_not_seen(kit):
    m = kit.module(f"local_attention(heads = {HEADS}, chunk = {CHUNK})", padded=True, n=N, d=D)
    x = torch.randn(2, N, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    there = torch.arange(N) < torch.tensor([[24], [9]])
    i = torch.arange(N) // CHUNK
    seen = ((i[:, None] - i[None, :]).clamp(-1) >> 1 == 0) & (i[:, None] >= i[None, :]) & there[:, None]
    assert torch.allclose(m(x, x_mask=there), attended(m, x, seen), atol=1e-12)


@pytest.mark.parametrize("back, ahead, causal", [(1, 0, True), (1, 0, False), (2, 1, False), (0, 1, True)])
def test_hugging_face(kit, back, ahead, causal):
    """Theirs always looks around the ends."""
    theirs = LocalSelfAttention(ReformerConfig(
        hidden_size=D, num_attention_heads=HEADS, attention_head_size=D // HEADS, local_attn_chunk_length=CHUNK,
        local_num_chunks_before=back, local_num_chunks_after=ahead, is_decoder=causal, max_position_embeddings=N)).double().eval()
    m = kit.module(f"local_attention(heads = {HEADS}, chunk = {CHUNK}, look_back = {back}, look_ahead = {ahead}, bias = false, "
                   f"wrap = true, causal = {str(causal).lower()})", n=N, d=D).eval()
    query, key, value, out = m.parameters()
    with torch.no_grad():
        out.copy_(torch.eye(D, dtype=torch.float64).view(D, HEADS, -1))
        for p, q in zip((theirs.query.weight, theirs.key.weight, theirs.value.weight), (query, key, value)): p.copy_(q.reshape(D, D))
    x = torch.randn(2, N, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    want = kit.gradients(lambda x: theirs(hidden_states=x).hidden_states, [theirs.query.weight, theirs.key.weight, theirs.value.weight], x)
    got = kit.gradients(m, [query, key, value], x)
    kit.close((got[0], [g.reshape(h.shape) for g, h in zip(got[1], want[1])]), want, 1e-10)


@pytest.mark.parametrize("causal", ["true", "false"])
def test_the_future_is_told(causal):
    """Within its chunk a position sees what follows it, unless it is causal: W0401, and not."""
    from plait.compiler.causality import leaks
    from plait.compiler.expand import open_file
    from plait.dsl.parser import parse
    text = ("plait 1\ndims { n = 16; d = 8 }\nmodel m { input x: tokens[n] of 9; y = x { embed(9, width = d); reversible(repeat = 2) { "
            f"a: {{ local_attention(heads = 2, chunk = 4, causal = {causal}) }}; b: {{ linear(d) }} }}; unembed(9) }}\n"
            'output y: [n, 9] }\ntrain m { data = bytes("a"); loss = cross_entropy(y, next(x)); batch = 1 sequences; '
            "lr = 1; stop = 1 steps }\n")
    assert [w.code for w in leaks(open_file(parse(text)), "m")] == ([] if causal == "true" else ["W0401"])
