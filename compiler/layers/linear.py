"""The affine map of every position."""
import sympy as sp

from plait.compiler.axis import Axis, axis
from plait.compiler.builder import Builder, Init
from plait.compiler.graph import Value
from plait.compiler.layer import Mistake, Size, feature, layer


def fan_in(*axes: Axis) -> Init:
    """Uniform on ±1/√(inputs), as torch.nn.Linear and Conv1d start."""
    return Init("uniform", 1 / sp.sqrt(sp.Mul(*[a.size for a in axes])))


def deviation(b: Builder, std: sp.Expr | None) -> None:
    """Raises Mistake for a deviation that is none."""
    value = None if std is None else b.sizes.value(std)
    if value is not None and not 0 <= value < float("inf"):
        raise Mistake("E0503", f"a deviation is at least 0, not {float(value):g}", "std", help="std = 0.02")


ZERO, ONE = Init("constant", sp.Integer(0)), Init("constant", sp.Integer(1))


@layer
def linear(b: Builder, x: Value, width: Size, *, bias: bool = True) -> Value:
    """x W + c at every position: [n, d] → [n, width]. Parameters d·width (+ width)."""
    d, out = feature(x), axis("d'", width)
    y = b.contract(x, b.param("weight", out, d, init=fan_in(d)), "d", name="linear")
    if bias: y = b.add(y, b.param("bias", out, init=fan_in(d)))
    return b.rename(y, "d'", axis("d", width))
