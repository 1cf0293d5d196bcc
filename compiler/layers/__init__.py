"""One file a kind of layer; importing this package registers them all."""
from plait.compiler.layers import (  # noqa: F401
    activation,
    attention,
    convolution,
    dropout,
    embedding,
    feed_forward,
    linear,
    local,
    lsh,
    norm,
    pool,
    positions,
    recurrent,
    shift,
)
