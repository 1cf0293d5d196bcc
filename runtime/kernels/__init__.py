"""Torch's side of every kernel of `plait.compiler.kernels`: one emission each."""
from plait.compiler.lowering.emission import Emission
from plait.runtime.kernels import attention, banded, dense, linear_cross_entropy, lsh, recurrent

EMISSIONS: dict[str, Emission] = {
    "softmax": dense.softmax,
    "layer_norm": dense.layer_norm,
    "rms_norm": dense.rms_norm,
    "conv1d": dense.conv1d,
    "cross_entropy": dense.cross_entropy,
    "linear_cross_entropy": linear_cross_entropy.linear_cross_entropy,
    "scaled_dot_product_attention": attention.fused,
    "rowwise_attention": attention.rowwise,
    "banded_attention": banded.banded,
    "lsh_attention": lsh.lsh_attention,
    "rnn": recurrent.rnn,
    "lstm": recurrent.lstm,
    "gru": recurrent.gru,
}
