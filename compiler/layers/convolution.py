"""Convolutions along the sequence."""
import sympy as sp

from plait.compiler.axis import axis
from plait.compiler.builder import Builder
from plait.compiler.graph import Value
from plait.compiler.layer import SIZE_1, Mistake, Size, Stream, divided, feature, layer, sequence
from plait.compiler.layers.linear import fan_in, linear


def before(kernel, causal: bool) -> sp.Expr:
    """How many neighbours stand before a position: all but itself if causal, else ⌊(k − 1)/2⌋."""
    return kernel - 1 if causal else sp.floor((kernel - 1) / sp.Integer(2))


def convolved(b: Builder, x: Value, weight: Value, kernel, dilation, left, over: tuple[str, ...], groups) -> Value:
    """The region: neighbourhoods times weights. Zeros stand outside the sequence."""
    n = sequence(x).name

    def body(b, x, weight):
        return b.contract(b.window(x, n, axis("w", kernel, "window"), left, dilation), weight, *over, name="convolution")

    return b.region("convolution", body, x, weight, kernel=kernel, dilation=dilation, left=left, groups=groups)


def present(b: Builder, x: Stream) -> Value:
    """The stream with zeros where nothing is, as there are outside the sequence."""
    return x.value if x.mask is None else b.where(x.mask, x.value, 0)


@layer
def conv(b: Builder, stream: Stream, width: Size, *, kernel: Size, dilation: Size = SIZE_1, groups: Size = SIZE_1,
         causal: bool = False, bias: bool = True) -> Value:
    """A convolution of `kernel` neighbours `dilation` apart: [n, d] → [n, width]; kernel·n·d·width / groups MACs.
    Causal: the kernel − 1 before and itself; else ⌊(kernel − 1)/2⌋ before and the rest after. Positions that are padding count as zeros."""
    x = present(b, stream)
    d, out = feature(x), axis("d'", width)
    w, left = axis("w", kernel, "window"), before(kernel, causal)
    if b.sizes.integer(groups) == 1:
        y = convolved(b, x, b.param("weight", out, d, w, init=fan_in(d, w)), kernel, dilation, left, ("w", "d"), 1)
    else:
        g, o = axis("g", groups), axis("o", divided(b, width, groups, "groups", "a convolution splits its output evenly over the groups"))
        i = axis("i", divided(b, d.size, groups, "groups", "a convolution splits its input evenly over the groups"))
        split = b.split(x, "d", g, i)
        y = convolved(b, split, b.param("weight", g, o, i, w, init=fan_in(i, w)), kernel, dilation, left, ("w", "i"), groups)
        y = b.merge(y, "g", "o", out)
    if bias: y = b.add(y, b.param("bias", out, init=fan_in(d, w)))
    return b.rename(y, "d'", axis("d", width))


@layer
def separable_conv(b: Builder, stream: Stream, width: Size, *, kernel: Size, dilation: Size = SIZE_1, causal: bool = False,
                   bias: bool = True) -> Value:
    """Every feature convolved by itself, then a linear map: [n, d] → [n, width]; kernel·n·d + n·d·width MACs.
    Vaswani et al. 2017, section 4."""
    x = present(b, stream)
    d, w = feature(x), axis("w", kernel, "window")
    with b.named("depth"):
        y = convolved(b, x, b.param("weight", d, w, init=fan_in(w)), kernel, dilation, before(kernel, causal), ("w",), d.size)
    if not y.has("d"): raise Mistake("E0302", "a separable convolution keeps its features apart")
    with b.named("point"): return linear(b, y, width, bias=bias)
