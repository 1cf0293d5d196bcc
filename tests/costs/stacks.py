"""Stacks of layers as data: built at any widths, drawn at random, and made as wide as their masks allow."""
import sympy as sp
from hypothesis import strategies as st

from plait.compiler.axis import BATCH, axis
from plait.compiler.builder import Builder
from plait.compiler.graph import Graph
from plait.compiler.layer import LAYERS, Stream
from plait.compiler.layers.linear import linear
from plait.compiler.sizes import Sizes, dim

n, d = dim("n"), dim("d")
I = sp.Symbol("i", integer=True, nonnegative=True)


def layer(name, **how):
    def expand(b, x):
        entry = LAYERS[name]
        sizes = {k: sp.Integer(v) for k, v in how.items() if isinstance(v, int) and not isinstance(v, bool)}
        y = entry.expand(b, Stream(x) if entry.takes_stream else x, **how | sizes)
        return y.value if isinstance(y, Stream) else y
    return expand


def seq(*parts):
    def expand(b, x):
        for k, p in enumerate(parts):
            with b.named(str(k)): x = p(b, x)
        return x
    return expand


def residual(body):
    return lambda b, x: b.add(x, body(b, x))


def beside(*parts):
    def expand(b, x):
        outs = []
        for k, p in enumerate(parts):
            with b.named(str(k)): outs.append(p(b, x))
        y = outs[0]
        for z in outs[1:]: y = b.add(y, z)
        return y
    return expand


def repeat(times, body, index=None):
    return lambda b, x: b.loop(axis("layer", times, "copies"), [x], [], lambda b, c, s: (body(b, c[0]),), own_params=True, index=index)[0]


def reversible(times, *parts):
    """Both streams start as the input; every part adds to the stream that the one before it read."""
    def expand(b, x):
        def copy(b, carried, _):
            target, read = carried
            for k, part in enumerate(parts):
                with b.named(str(k)): target, read = read, b.add(target, b.region("part", part, read, closed=False))
            return target, read
        return b.add(*b.loop(axis("layer", times, "copies"), [x, x], [], copy, own_params=True, keep="invert"))
    return expand


def chunked(pieces, body):
    def expand(b, x):
        m = x.role("sequence")
        p, c = axis("piece", pieces, "chunk"), axis("c", m.size / sp.sympify(pieces), "sequence")
        small = axis(m.name, c.size, "sequence")
        def piece(b, carried, sliced): return (b.rename(body(b, b.rename(sliced[0], "c", small)), m.name, c),)
        y, = b.loop(p, [], [b.split(x, m.name, p, c)], piece, keep="recompute")
        return b.merge(y, "piece", "c", m)
    return expand


def between(lo, hi):
    """Every output sums the inputs j with lo ≤ i − j ≤ hi; None: no bound. As primitives."""
    def expand(b, x):
        m = x.role("sequence")
        there = axis("n'", m.size, "sequence")
        gap = b.sub(b.position(m), b.position(there))
        mask = b.map("eq", 0, 0)
        if lo is not None: mask = b.map("and", mask, b.map("le", lo, gap))
        if hi is not None: mask = b.map("and", mask, b.map("le", gap, hi))
        return b.contract(b.broadcast(b.where(mask, 1, 0), m, there), b.rename(x, m.name, there), there.name)
    return expand


def expanded(term, wide=False):
    """A term as a function of builder and value; `wide`: every window as far as its mask lets it grow."""
    kind, *args = term
    def go(t): return expanded(t, wide)
    match kind:
        case "attention": return layer("attention", heads=1, causal=args[0], share_qk=args[1])
        case "window" | "conv":
            width, gap, causal = args[0], (args[1] if kind == "conv" else 1), args[2]
            left = (width - 1 if causal else (width - 1) // 2) * gap
            if wide: return between(None if (width - 1) * gap > left else 0, None if left else 0)
            if kind == "conv": return layer("conv", width=d, kernel=width, dilation=gap, causal=causal)
            return layer("attention", heads=1, window=width, causal=causal, share_qk=args[1])
        case "rnn" | "lstm" | "gru":
            ways = {"forward": [(0, None)], "backward": [(None, 0)], "both": [(0, None), (None, 0)]}[args[0]]
            if wide: return beside(*(between(*w) for w in ways))
            return seq(layer(kind, width=d, direction=args[0]), lambda b, x: linear(b, x, d))
        case "shift": return layer("shift_right")
        case "point": return layer(args[0], **({"width": d} if args[0] in ("linear", "feed_forward") else {}))
        case "seq": return seq(*map(go, args))
        case "residual": return residual(go(args[0]))
        case "beside": return beside(*map(go, args))
        case "repeat": return repeat(args[0], go(args[1]))
        case "reversible": return reversible(args[0], *map(go, args[1:]))
        case "chunked": return chunked(args[0], go(args[1]))
        case "indexed":
            times, width, base, causal, bypass = args
            left = width - 1 if causal else (width - 1) // 2
            body = (between(None if width - 1 > left else 0, None if left else 0) if wide else
                    layer("conv", width=d, kernel=width, dilation=sp.Integer(base) ** I, causal=causal))
            return repeat(times, residual(body) if bypass else body, I)
    raise ValueError(kind)


def model(term, sizes: Sizes, wide=False) -> Graph:
    b = Builder(sizes)
    x = b.input((BATCH, axis("n", n, "sequence"), axis("d", d)), "real", "x")
    with b.located("m/y/0", None): return b.graph(expanded(term, wide)(b, x))


truth = st.booleans()
ways = st.sampled_from(["forward", "backward", "both"])
points = st.tuples(st.just("point"), st.sampled_from(["linear", "layer_norm", "relu", "feed_forward"]))
mixing = st.one_of(
    st.tuples(st.just("attention"), truth, truth),
    st.tuples(st.just("window"), st.integers(1, 5), truth, truth),
    st.tuples(st.just("conv"), st.integers(1, 5), st.sampled_from([1, 1, 1, 2, 3]), truth),
    st.tuples(st.sampled_from(["rnn", "lstm", "gru"]), ways),
    st.tuples(st.just("shift")), points,
)


def grown(inner):
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda ts: ("seq", *ts)),
        inner.map(lambda t: ("residual", t)),
        st.tuples(st.just("beside"), inner, inner),
        st.tuples(st.just("repeat"), st.integers(1, 4), inner),
        st.tuples(st.just("reversible"), st.integers(1, 3), inner),
        st.tuples(st.just("reversible"), st.integers(1, 3), inner, inner),
        st.tuples(st.just("chunked"), st.just(2), points),
        st.tuples(st.just("indexed"), st.integers(1, 4), st.integers(2, 3), st.integers(2, 3), truth, truth),
    )


terms = st.recursive(mixing, grown, max_leaves=4)
