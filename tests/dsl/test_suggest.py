"""Names that a person may have meant."""
import pytest

from plait.dsl.suggest import ALIASES, suggest

DIMS = ["V", "n", "d", "h", "f", "L", "c"]
LAYERS = ["attention", "lsh_attention", "linear", "layer_norm", "rms_norm", "gelu", "relu", "embed", "unembed", "positions", "dropout",
          "conv", "separable_conv", "lstm", "gru", "rnn", "feed_forward", "gated_feed_forward"]
ARGUMENTS = ["heads", "causal", "keys", "window", "kv_heads", "head_width", "dropout", "rounds", "chunk", "buckets", "width", "kernel"]


@pytest.mark.parametrize("name, candidates, best", [
    ("dff", DIMS, "f"), ("d_ff", DIMS, "f"), ("d_model", DIMS, "d"), ("hidden_size", DIMS, "d"),
    ("n_embd", DIMS, "d"), ("block_size", DIMS, "n"),
    ("vocab_size", DIMS, "V"), ("n_layer", DIMS, "L"), ("D", DIMS, "d"),
    ("attnetion", LAYERS, "attention"), ("layernorm", LAYERS, "layer_norm"), ("Linear", LAYERS, "linear"), ("dropuot", LAYERS, "dropout"),
    ("ffn", LAYERS, "feed_forward"), ("lsh_atention", LAYERS, "lsh_attention"), ("embedd", LAYERS, "embed"),
    ("n_head", ARGUMENTS, "heads"), ("num_heads", ARGUMENTS, "heads"), ("nhead", ARGUMENTS, "heads"), ("is_causal", ARGUMENTS, "causal"),
    ("n_hashes", ARGUMENTS, "rounds"), ("bucket_size", ARGUMENTS, "chunk"), ("kernel_size", ARGUMENTS, "kernel"),
    ("dropout_rate", ARGUMENTS, "dropout"), ("hidden_size", ARGUMENTS, "width"), ("widht", ARGUMENTS, "width"),
    ("learning_rate", ["lr", "loss", "batch"], "lr"), ("batch_size", ["lr", "loss", "batch"], "batch"), ("True", ["true", "false"], "true"),
])
def test_the_first_suggestion(name, candidates, best):
    assert suggest(name, candidates)[0] == best


@pytest.mark.parametrize("name", ["xyzzy", "q", "", "_", "h2o"])
def test_nothing_close_is_nothing(name):
    assert suggest(name, DIMS + LAYERS) == []


def test_at_most_three_and_only_candidates():
    found = suggest("heads", ["head", "headS", "hea_ds", "heads_", "other"], {})
    assert len(found) == 3 and "other" not in found
    assert suggest("num_heads", ["d", "n"]) == []              # `heads` is not among the candidates


def test_a_name_is_not_its_own_suggestion():
    assert "gelu" not in suggest("gelu", LAYERS)


def test_every_alias_has_targets():
    assert all(value.split() for value in ALIASES.values())
    assert all(key not in value.split() for key, value in ALIASES.items())
