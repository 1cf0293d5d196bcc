"""The affine map of every position."""
import sympy as sp

from plait.compiler.axis import Axis, axis
from plait.compiler.builder import Builder, Init
from plait.compiler.graph import Value
from plait.compiler.layer import Size, feature, layer


def fan_in(*axes: Axis) -> Init:
    """Uniform on ±1/√(inputs), as torch.nn.Linear and Conv1d start."""
    return Init("uniform", 1 / sp.sqrt(sp.Mul(*[a.size for a in axes])))


ZERO, ONE = Init("constant", sp.Integer(0)), Init("constant", sp.Integer(1))


@layer
def linear(b: Builder, x: Value, width: Size, *, bias: bool = True) -> Value:
    """x W + c at every position: [n, d] → [n, width]. Parameters d·width (+ width)."""
    d, out = feature(x), axis("d'", width)
    y = b.contract(x, b.param("weight", out, d, init=fan_in(d)), "d", name="linear")
    if bias: y = b.add(y, b.param("bias", out, init=fan_in(d)))
    return b.rename(y, "d'", axis("d", width))
