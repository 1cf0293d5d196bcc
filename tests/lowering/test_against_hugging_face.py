"""LSH attention, the reversible stack and the chunked feed-forward are those of Hugging Face's Reformer: the same weights, its options
matched."""
from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers.models.reformer.modeling_reformer import ChunkReformerFeedForward, LSHSelfAttention, ReformerConfig, ReformerEncoder

from plait.compiler.lowering import tensors

N, D, HEADS, CHUNK, BUCKETS = 24, 8, 2, 4, 6


class Layer(nn.Module):
    """The layer with an output projection, which it leaves to the module around it. It takes our rotations for its own."""

    def __init__(self, rounds: int, back: int, causal: bool):
        super().__init__()
        self.attention = LSHSelfAttention(ReformerConfig(
            hidden_size=D, num_attention_heads=HEADS, attention_head_size=D // HEADS, lsh_attn_chunk_length=CHUNK, num_hashes=rounds,
            num_buckets=BUCKETS, lsh_num_chunks_before=back, is_decoder=causal, max_position_embeddings=N))
        self.out = nn.Linear(D, D, bias=False)

    def forward(self, x): return self.out(self.attention(hidden_states=x).hidden_states)


@pytest.mark.parametrize("rounds, back, how", [(1, 1, "wrap = true"), (1, 0, ""), (3, 0, ""), (3, 1, "wrap = rounds"),
                                               (2, 2, "wrap = rounds")])
@pytest.mark.parametrize("causal", [True, False])
def test_lsh_attention(kit, rounds, back, how, causal, monkeypatch):
    """Theirs looks back around the end, and into the round before. Theirs attends across buckets and counts a pair once a round. Their
    keys have 10⁻⁶ more under the root."""
    drawn, real = [], tensors.random

    def noted(*args):
        drawn.append(real(*args))
        return drawn[-1]
    monkeypatch.setattr(tensors, "random", noted)
    extra = f", {how}" if how else ""
    ours = kit.module(f"lsh_attention(heads = {HEADS}, chunk = {CHUNK}, rounds = {rounds}, buckets = {BUCKETS}, look_back = {back}, "
                      f"causal = {str(causal).lower()}, within_bucket = false, dedup = false, bias = false{extra})",
                      kit.bodies, n=N, d=D).eval()
    theirs = Layer(rounds, back, causal).double().eval()
    with torch.no_grad():
        for p, q in zip((theirs.attention.query_key.weight, theirs.attention.value.weight, theirs.out.weight), ours.parameters()):
            p.copy_(q.reshape(D, D))
    x = 8 * torch.randn(2, N, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))    # beside long queries 10⁻⁶ is little
    mine = kit.gradients(ours, list(ours.parameters()), x)
    turn, = drawn                                                             # [heads, rounds, width, buckets / 2]
    hashed = theirs.attention._hash_vectors

    def with_ours(*args):
        with monkeypatch.context() as m:
            m.setattr(torch, "randn", lambda shape, **_: turn.permute(0, 2, 1, 3).reshape(shape))
            return hashed(*args)
    theirs.attention._hash_vectors = with_ours
    other = kit.gradients(theirs, [theirs.attention.query_key.weight, theirs.attention.value.weight, theirs.out.weight], x)
    kit.close((mine[0], [g.reshape(h.shape) for g, h in zip(mine[1], other[1])]), other, 1e-5)


@pytest.mark.parametrize("pieces", [1, 3])
def test_chunked_feed_forward(kit, pieces):
    """Theirs: norm, up, relu, down; in pieces of a fixed length."""
    ours = kit.module(f"layer_norm; chunked(over = n, pieces = {pieces}) {{ feed_forward(12) }}", n=N, d=D)
    theirs = ChunkReformerFeedForward(ReformerConfig(hidden_size=D, feed_forward_size=12, chunk_size_feed_forward=N // pieces,
                                                     hidden_dropout_prob=0.0, layer_norm_eps=1e-5)).double()
    own = [theirs.layer_norm.weight, theirs.layer_norm.bias, theirs.dense.dense.weight, theirs.dense.dense.bias,
           theirs.output.dense.weight, theirs.output.dense.bias]
    with torch.no_grad():
        for p, q in zip(own, ours.parameters(), strict=True): p.copy_(q)
    x = torch.randn(2, N, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    kit.close(kit.gradients(ours, list(ours.parameters()), x), kit.gradients(theirs, own, x), 1e-10)


def test_reversible_stack(kit):
    """Two layers. At a length of one chunk theirs is full attention with shared queries and keys, as ours is across buckets."""
    ours = kit.module(f"""reversible(repeat = 2, merge = concat) {{
        attend: {{ layer_norm; lsh_attention(heads = {HEADS}, chunk = n, buckets = 2, causal = true, within_bucket = false, bias = false) }}
        feed: {{ layer_norm; feed_forward(12) }}
      }}
      layer_norm""", n=N, d=D, out="[n, 2 * d]")
    theirs = ReformerEncoder(ReformerConfig(
        hidden_size=D, num_attention_heads=HEADS, attention_head_size=D // HEADS, lsh_attn_chunk_length=N, attn_layers=["lsh", "lsh"],
        feed_forward_size=12, is_decoder=True, max_position_embeddings=N, layer_norm_eps=1e-5, hidden_dropout_prob=0.0)).double()
    own = []
    for layer in theirs.layers:
        a, f = layer.attention, layer.feed_forward
        own += [a.layer_norm.weight, a.layer_norm.bias, a.self_attention.query_key.weight, a.self_attention.value.weight,
                a.output.dense.weight, f.layer_norm.weight, f.layer_norm.bias, f.dense.dense.weight, f.dense.dense.bias,
                f.output.dense.weight, f.output.dense.bias]
    own += [theirs.layer_norm.weight, theirs.layer_norm.bias]
    mine = list(ours.parameters())
    with torch.no_grad():
        for p, q in zip(own, mine, strict=True): p.copy_(q.reshape(p.shape))
    x = 8 * torch.randn(2, N, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    got = kit.gradients(ours, mine, x)
    # Theirs writes gradients onto the parameters and hands none out: a backward of its own, weighted as in `gradients`.
    given = x.clone().requires_grad_()
    out = theirs(given, head_mask=[None] * 2).hidden_states
    (out * torch.randn(out.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)).sum().backward()
    want = (out, [p.grad for p in (given, *own)])
    kit.close((got[0], [g.reshape(h.shape) for g, h in zip(got[1], want[1])]), want, 1e-5)
