"""Position-wise perceptrons."""
from plait.compiler.builder import Builder
from plait.compiler.graph import Value
from plait.compiler.layer import Size, feature, layer
from plait.compiler.layers.activation import Activation
from plait.compiler.layers.linear import linear


@layer
def feed_forward(b: Builder, x: Value, width: Size, *, activation: Activation = "relu", bias: bool = True) -> Value:
    """Two linear maps with a nonlinearity between: [n, d] → [n, width] → [n, d]. Vaswani et al. 2017, section 3.3."""
    d = feature(x).size
    with b.named("in"): hidden = b.map(activation, linear(b, x, width, bias=bias))
    with b.named("out"): return linear(b, hidden, d, bias=bias)


@layer
def gated_feed_forward(b: Builder, x: Value, width: Size, *, gate: Activation = "silu", bias: bool = True) -> Value:
    """gate(x W) ⊙ (x V), then a linear map back: [n, d] → [n, width] → [n, d]. Shazeer 2020."""
    d = feature(x).size
    with b.named("gate"): opened = b.map(gate, linear(b, x, width, bias=bias))
    with b.named("in"): hidden = b.mul(opened, linear(b, x, width, bias=bias))
    with b.named("out"): return linear(b, hidden, d, bias=bias)
