"""Normalisation over the features of each position."""
import sympy as sp

from plait.compiler.builder import Builder
from plait.compiler.graph import Value
from plait.compiler.layer import Number, feature, layer
from plait.compiler.layers.linear import ONE, ZERO

EPS = sp.Rational(1, 10**5)


@layer
def layer_norm(b: Builder, x: Value, *, bias: bool = True, eps: Number = EPS) -> Value:
    """(x − mean) / √(variance + eps) · scale + shift over the features: [n, d] → [n, d]. Ba et al. 2016."""
    d = feature(x)

    def body(b, x, scale, *shift):
        centred = b.sub(x, b.div(b.sum(x, "d", name="mean"), d.size))
        inverse = b.map("rsqrt", b.add(b.div(b.sum(b.mul(centred, centred), "d", name="variance"), d.size), eps))
        y = b.mul(b.mul(centred, inverse), scale)
        return b.add(y, shift[0]) if shift else y

    scale = b.param("scale", d, init=ONE)
    shift = (b.param("shift", d, init=ZERO),) if bias else ()
    return b.region("layer_norm", body, x, scale, *shift, over="d", eps=eps)


@layer
def rms_norm(b: Builder, x: Value) -> Value:
    """x / √(mean of x² + 1e-5) · scale over the features: [n, d] → [n, d]. Zhang and Sennrich 2019."""
    d = feature(x)

    def body(b, x, scale):
        inverse = b.map("rsqrt", b.add(b.div(b.sum(b.mul(x, x), "d", name="mean square"), d.size), EPS))
        return b.mul(b.mul(x, inverse), scale)

    return b.region("rms_norm", body, x, b.param("scale", d, init=ONE), over="d", eps=EPS)


def softmax(b: Builder, x: Value, over: str) -> Value:
    """e^x / Σ e^x along one axis, with the maximum taken off first. A row without a finite entry gives zeros."""
    def body(b, x):
        top = b.map("maximum", b.max(x, over, name="max"), LOWEST)
        e = b.map("exp", b.sub(x, top))
        total = b.sum(e, over, name="sum")
        return b.div(e, b.add(total, b.where(b.map("eq", total, 0), 1, 0)))
    return b.region("softmax", body, x, over=over)


LOWEST = -sp.Integer(10) ** 30           # below every score, and finite: −∞ − LOWEST is still −∞, so a row without keys is 0
