"""Names that a person may have meant: the field's aliases first, then close spellings."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher

MOST = 3

# What other libraries and papers say → what it is called here; several where the place decides. Lower case, without `_` at the ends.
ALIASES: dict[str, str] = {
    # attention
    "n_head": "heads h", "n_heads": "heads h", "num_heads": "heads h", "nhead": "heads h", "nheads": "heads h",
    "num_attention_heads": "heads h", "head": "heads", "attention_heads": "heads h", "encoder_attention_heads": "heads h",
    "decoder_attention_heads": "heads h", "n_kv_heads": "kv_heads", "num_kv_heads": "kv_heads", "num_key_value_heads": "kv_heads",
    "n_query_groups": "kv_heads", "head_dim": "head_width", "head_size": "head_width", "d_head": "head_width",
    "dim_head": "head_width", "d_k": "head_width", "d_kv": "head_width", "attention_head_size": "head_width",
    "is_causal": "causal", "causal_mask": "causal", "masked": "causal", "autoregressive": "causal", "window_size": "window",
    "sliding_window": "window", "attention_window": "window", "local_window": "window", "memory": "keys", "key": "keys",
    "kv": "keys", "context": "keys", "encoder_output": "keys", "share_kq": "share_qk", "shared_qk": "share_qk",
    "attn": "attention", "self_attention": "attention", "multi_head_attention": "attention", "multihead_attention": "attention",
    "multiheadattention": "attention", "mha": "attention", "cross_attention": "attention",
    "scaled_dot_product_attention": "attention",
    # hashing
    "n_hashes": "rounds", "num_hashes": "rounds", "hashes": "rounds", "n_rounds": "rounds", "hash_rounds": "rounds",
    "n_buckets": "buckets", "num_buckets": "buckets", "bucket_size": "chunk", "chunk_size": "chunk", "chunk_length": "chunk",
    "chunk_len": "chunk", "lsh_attn_chunk_length": "chunk", "num_chunks_before": "look_back", "num_chunks_after": "look_ahead",
    "local": "local_attention", "block_attention": "local_attention", "chunked_attention": "local_attention",
    "local_self_attention": "local_attention", "local_attn_chunk_length": "chunk", "layer_norm_eps": "eps", "epsilon": "eps",
    "lsh": "lsh_attention", "reformer_attention": "lsh_attention", "lsh_self_attention": "lsh_attention",
    # sizes
    "hidden_size": "d width", "hidden_dim": "d width", "hidden": "d width", "n_embd": "d width", "d_model": "d width",
    "dmodel": "d width", "embed_dim": "d width", "embedding_dim": "d width", "emb_dim": "d width", "model_dim": "d width",
    "dim": "d width", "n_embed": "d width", "emb": "d width", "d_embed": "d width", "input_size": "d width",
    "in_features": "d width", "width": "d", "out_features": "width f", "units": "width", "size": "width", "features": "width d",
    "channels": "width d", "out_channels": "width d", "in_channels": "d", "filters": "width", "output_size": "width",
    "block_size": "n", "context_length": "n", "context_size": "n", "ctx_len": "n", "n_ctx": "n", "seq_len": "n", "seqlen": "n",
    "sequence_length": "n", "seq_length": "n", "max_len": "n max", "max_length": "n max", "max_seq_len": "n max",
    "max_position_embeddings": "n max", "max_positions": "n max", "length": "n", "src_len": "m", "source_length": "m",
    "dim_feedforward": "f width", "d_ff": "f width", "dff": "f width", "ffn_dim": "f width", "ff_dim": "f width",
    "d_inner": "f width", "intermediate_size": "f width", "n_inner": "f width", "mlp_dim": "f width",
    "ffn_hidden_size": "f width", "feed_forward_size": "f width", "vocab_size": "V", "vocab": "V", "n_vocab": "V",
    "vocabulary": "V", "num_embeddings": "V", "ntoken": "V", "n_tokens": "V", "num_classes": "C", "n_classes": "C",
    "num_layers": "L layers", "n_layer": "L layers", "n_layers": "L layers", "nlayers": "L layers",
    "num_hidden_layers": "L layers", "depth": "L layers", "encoder_layers": "L", "decoder_layers": "L", "layers": "L",
    "num_encoder_layers": "L", "num_decoder_layers": "L", "heads": "h",
    # layers and their arguments
    "dropout_rate": "dropout p", "dropout_p": "dropout p", "p_dropout": "dropout p", "pdrop": "dropout p", "drop": "dropout p",
    "drop_rate": "dropout p", "dropout_prob": "dropout p", "keep_prob": "dropout p", "attention_dropout": "dropout", "rate": "p",
    "p": "dropout", "kernel_size": "kernel", "filter_size": "kernel", "filter_width": "kernel", "receptive_field": "kernel",
    "dilation_rate": "dilation", "bidirectional": "direction", "reverse": "direction", "use_bias": "bias", "has_bias": "bias",
    "act": "activation", "activation_function": "activation", "hidden_act": "activation", "nonlin": "nonlinearity",
    "act_fn": "activation", "n_chunks": "pieces", "num_chunks": "pieces", "chunks": "pieces", "label_smoothing": "smoothing",
    "max_norm": "clip", "dense": "linear", "fc": "linear", "fully_connected": "linear", "affine": "linear",
    "projection": "linear", "lin": "linear", "mlp": "feed_forward", "ffn": "feed_forward", "ff": "feed_forward",
    "feedforward": "feed_forward", "position_wise": "feed_forward", "glu": "gated_feed_forward", "swiglu": "gated_feed_forward",
    "geglu": "gated_feed_forward", "layernorm": "layer_norm", "ln": "layer_norm", "norm": "layer_norm rms_norm",
    "rmsnorm": "rms_norm", "swish": "silu", "conv1d": "conv", "convolution": "conv", "depthwise_conv": "separable_conv",
    "separable_convolution": "separable_conv", "depthwise_separable_conv": "separable_conv", "elman": "rnn", "recurrent": "rnn",
    "simple_rnn": "rnn", "embedding": "embed", "token_embedding": "embed", "lm_head": "unembed", "output_projection": "unembed",
    "logits": "unembed", "positional_encoding": "positions", "position_embedding": "positions", "pos_enc": "positions",
    "positional_embedding": "positions", "pos_emb": "positions", "rope": "rotary positions",
    "rotary_embedding": "rotary positions", "sin": "sinusoidal", "sine": "sinusoidal", "sinusoid": "sinusoidal",
    "axial_positions": "axial", "pooling": "pool", "mean_pool": "pool", "average": "mean", "avg": "mean", "skip": "residual",
    "shortcut": "residual", "prenorm": "pre", "pre_norm": "pre", "post_norm": "post", "shift": "shift_right",
    "split_heads": "heads", "revnet": "reversible", "reversible_block": "reversible", "branch": "parallel",
    "softmax_cross_entropy": "cross_entropy", "nll": "cross_entropy", "ce": "cross_entropy", "xent": "cross_entropy",
    "bpc": "bits_per_token", "bits_per_byte": "bits_per_token", "bits_per_char": "bits_per_token", "perplexity": "bits_per_token",
    "ppl": "bits_per_token", "acc": "accuracy",
    # training
    "learning_rate": "lr", "max_lr": "lr", "base_lr": "lr", "batch_size": "batch", "train_batch_size": "batch", "bs": "batch",
    "micro_batch": "microbatch", "micro_batch_size": "microbatch", "microbatch_size": "microbatch",
    "device_batch_size": "microbatch", "optim": "optimizer", "optimiser": "optimizer", "opt": "optimizer", "grad_clip": "clip",
    "clip_grad_norm": "clip", "max_grad_norm": "clip", "gradient_clipping": "clip", "max_steps": "stop", "max_iters": "stop",
    "num_steps": "stop", "steps": "stop", "total_steps": "stop", "train_steps": "stop", "epochs": "stop", "num_epochs": "stop",
    "dtype": "precision", "amp": "precision", "mixed_precision": "precision", "random_seed": "seed", "dataset": "data",
    "train_data": "data", "criterion": "loss", "objective": "loss", "lr_schedule": "lr", "schedule": "lr", "scheduler": "lr",
    "warmup_steps": "warmup", "n_warmup": "warmup", "num_warmup_steps": "warmup", "half": "bf16", "bfloat16": "bf16",
    "float32": "fp32", "fp32": "f32", "float": "fp32 f32",
    # values of other languages
    "True": "true", "False": "false", "None": "none", "null": "none", "nil": "none", "yes": "true", "no": "false",
}


def suggest(name: str, candidates: Iterable[str], aliases: Mapping[str, str] = ALIASES) -> list[str]:
    """At most three of the candidates that `name` may stand for, the likeliest first. Candidates that are not close are left out."""
    known = dict.fromkeys(candidates)
    known.pop(name, None)
    key = name.strip("_")
    meant = aliases.get(key) or aliases.get(key.lower()) or ""
    found = [target for target in meant.split() if target in known]
    if found:                                # a table of synonyms is surer than a likeness
        return found[:MOST]
    scored = sorted(((_likeness(key, other), other) for other in known), key=lambda s: (-s[0], s[1]))
    return [other for score, other in scored if score > 0][:MOST]


def _likeness(name: str, other: str) -> float:
    """0 (no likeness) to 2 (the same but for case)."""
    a, b = name.lower().replace("_", ""), other.lower().replace("_", "")
    if not a or not b:
        return 0.0
    if a == b:
        return 2.0
    longer = max(len(a), len(b))
    edits = _edits(a, b)
    if longer <= 2:                          # of `d` and `h` neither stands for the other
        return 0.0
    allowed = 1 if longer <= 4 else 2 if longer <= 8 else 3
    if edits <= allowed and edits < min(len(a), len(b)):
        return 1.0 + 0.9 * (1 - edits / longer)
    short, long = sorted((a, b), key=len)
    if len(short) >= 3 and (long.startswith(short) or long.endswith(short)):
        return 0.5 + 0.5 * len(short) / len(long)
    ratio = SequenceMatcher(None, a, b).ratio()
    return ratio if ratio >= 0.75 else 0.0


def _edits(a: str, b: str) -> int:
    """Letters changed, added, dropped or exchanged with their neighbour (Damerau–Levenshtein, each place edited once)."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i in range(1, len(a) + 1):
        before, last, row = row, before, [i] + [0] * len(b)
        for j in range(1, len(b) + 1):
            row[j] = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a[i - 1] != b[j - 1]))
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                row[j] = min(row[j], last[j - 2] + 1)
    return row[-1]
