"""The two known implementations of LSH attention, each with its projections."""
from __future__ import annotations

from torch import Tensor, nn


class HuggingFace(nn.Module):
    """transformers' LSHSelfAttention, with an output projection beside it: the layer itself has none."""

    def __init__(self, attention: nn.Module, width: int):
        super().__init__()
        self.attention, self.out = attention, nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor: return self.out(self.attention(hidden_states=x).hidden_states)


def hugging_face(n: int, width: int, heads: int, chunk: int, rounds: int) -> nn.Module:
    from transformers.models.reformer.modeling_reformer import LSHSelfAttention, ReformerConfig
    return HuggingFace(LSHSelfAttention(ReformerConfig(
        hidden_size=width, num_attention_heads=heads, attention_head_size=width // heads, lsh_attn_chunk_length=chunk, num_hashes=rounds,
        num_buckets=2 * n // chunk, is_decoder=True, max_position_embeddings=n, lsh_attention_probs_dropout_prob=0.0,
        hidden_dropout_prob=0.0)), width)


def lucid(width: int, heads: int, chunk: int, rounds: int) -> nn.Module:
    from reformer_pytorch import LSHSelfAttention
    return LSHSelfAttention(width, heads=heads, bucket_size=chunk, n_hashes=rounds, causal=True)
