"""Pointwise nonlinearities."""
from typing import Literal

from plait.compiler.builder import Builder
from plait.compiler.graph import Value
from plait.compiler.layer import feature, layer

Activation = Literal["relu", "gelu", "silu", "tanh", "sigmoid"]


@layer
def relu(b: Builder, x: Value) -> Value:
    """max(0, x), element by element."""
    feature(x)
    return b.map("relu", x)


@layer
def gelu(b: Builder, x: Value) -> Value:
    """x·Φ(x) with the exact normal distribution. Hendrycks and Gimpel 2016."""
    feature(x)
    return b.map("gelu", x)


@layer
def silu(b: Builder, x: Value) -> Value:
    """x·σ(x). Elfwing et al. 2017."""
    feature(x)
    return b.map("silu", x)


@layer
def tanh(b: Builder, x: Value) -> Value:
    """Hyperbolic tangent, element by element."""
    feature(x)
    return b.map("tanh", x)


@layer
def sigmoid(b: Builder, x: Value) -> Value:
    """1 / (1 + e^−x), element by element."""
    feature(x)
    return b.map("sigmoid", x)
