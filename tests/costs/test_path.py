"""Paths that are known: Vaswani et al. 2017, table 1, and arithmetic. n = 1000, k = 3, r = 64."""
import subprocess
import sys

import pytest
import sympy as sp

from plait.compiler.axis import BATCH, axis
from plait.compiler.builder import Builder
from plait.compiler.costs.path import Unreadable, as_written, leak, reach, reads_ahead, stacked
from plait.compiler.layer import LAYERS, Stream
from plait.compiler.sizes import Sizes, dim
from plait.runtime.audit.positions import FAR, DataDependent, distances

from .stacks import I, chunked, d, layer, n, repeat, residual, reversible, seq

k, r, L, h, c = map(dim, "k r L h c".split())
AT = Sizes().bind(n=1000, k=3, r=64, L=7, d=512, h=8, c=10)
FREE = Sizes()

attention, causal = layer("attention", heads=h), layer("attention", heads=h, causal=True)
window = layer("attention", heads=h, window=r, causal=True)
conv, centred = layer("conv", width=d, kernel=k, causal=True), layer("conv", width=d, kernel=k)
rnn = layer("rnn", width=d)
dilated = repeat(L, layer("conv", width=d, kernel=k, dilation=k ** I, causal=True), I)
point = layer("feed_forward", width=d)


def graph(*parts, sizes=AT):
    b = Builder(sizes)
    x = b.input((BATCH, axis("n", n, "sequence"), axis("d", d)), "real", "x")
    for at, part in enumerate(parts):
        with b.located(f"m/y/{at}", None): x = part(b, x)
    g = b.graph(x)
    return g, next(v for v in g.ins if v.name == "x")


def written(*parts, sizes=AT): return as_written(*graph(*parts, sizes=sizes), sizes)
def stack(*parts, sizes=AT): return stacked(*graph(*parts, sizes=sizes), sizes)


@pytest.mark.parametrize("part, exact, path, copies", [
    (attention, 1, 1, 1), (causal, 1, 1, 1), (rnn, n, 1000, 1), (layer("lstm", width=d, direction="both"), n, 1000, 1),
    (conv, sp.ceiling((n - 1) / (k - 1)), 500, 500),                        # ⌈999 / 2⌉
    (centred, sp.ceiling((n - 1) / sp.floor((k - 1) / 2)), 999, 999),       # one position a layer
    (window, sp.ceiling((n - 1) / (r - 1)), 16, 16),                        # ⌈999 / 63⌉
    (layer("attention", heads=h, window=r), sp.ceiling((n - 1) / sp.floor((r - 1) / 2)), 33, 33),      # ⌈999 / 31⌉: the smaller side
    (dilated, sp.ceiling(sp.log(n) / sp.log(k)), 7, 7),                     # 3^6 < 1000 ≤ 3^7
    (layer("lsh_attention", heads=h, chunk=c), 1, 1, 1),
    (repeat(L, residual(window)), sp.ceiling((n - 1) / (r - 1)), 16, 3),    # ⌈999 / (7·63)⌉ copies, and the path of the windows needed
])
def test_stacked(part, exact, path, copies):
    p = stack(part)
    assert sp.simplify(p.exact - exact) == 0
    assert (p.value, p.copies_value) == (path, copies)


@pytest.mark.parametrize("parts, exact, value", [
    ((attention,), 1, 1), ((rnn,), n, 1000), ((rnn, rnn), n + 1, 1001), ((dilated,), L, 7), ((point,), 0, 0),
    ((repeat(3, window), causal), 4, 4), ((repeat(3, residual(window)), residual(causal)), 1, 1),
    ((repeat(L, seq(residual(causal), residual(point))),), 1, 1), ((reversible(L, causal, point),), 1, 1),
    ((chunked(c, point),), 0, 0), ((layer("shift_right"), causal), 1, 1), ((layer("pool", kind="mean"),), 1, 1),
    ((repeat(L, rnn),), n + L - 1, 1006), ((repeat(L, residual(rnn)),), n, 1000),
])
def test_as_written(parts, exact, value):
    p = written(*parts)
    assert sp.simplify(p.exact - exact) == 0
    assert p.value == value and p.connected


def test_what_is_not_connected_says_how_far_it_reaches():
    p = written(conv)
    assert p.connected is False and p.value is None and p.exact is None and p.witness == (0, 999)
    assert {name: (str(e["exact"]), e["value"]) for name, e in p.reach.items()} == {
        "back": ("k - 1", 2), "ahead": ("0", 0), "positions": ("k", 3)}
    assert written(window).reach["positions"]["value"] == 64
    many = written(repeat(L, conv)).reach["positions"]
    assert sp.expand(many["exact"] - L * (k - 1) - 1) == 0 and many["value"] == 15


def test_free_dims_leave_the_form():
    p = written(dilated, sizes=FREE)
    assert p.exact == L and p.value is None and p.connected is None and "k**L" in p.why
    p = stack(conv, sizes=FREE)
    assert p.exact == sp.ceiling((n - 1) / (k - 1)) and p.value is None and p.copies_value is None


def test_without_a_form_there_is_the_number():
    # a residual around dilated windows: the digits of an offset in base 3 that are not 0, at most 6 below 1000 (364 = 111111₃)
    p = written(repeat(L, residual(layer("conv", width=d, kernel=k, dilation=k ** I, causal=True)), I))
    assert p.exact is None and p.value == 6 and "no closed form" in p.why
    # a dilation alone never reaches the odd offsets
    p = stack(layer("conv", width=d, kernel=k, dilation=2, causal=True), sizes=AT.bind(n=100))
    assert p.value is None and p.connected is False
    long = written(residual(window), residual(conv), rnn, sizes=AT.bind(n=5000))       # bounds from both ends meet
    assert long.value == 4937 and long.connected                 # 4,999 = 63 in one hop, 2 in one hop, 4,934 + 1 in the scan


def test_lsh_is_assumed():
    assert written(layer("lsh_attention", heads=h, chunk=c, causal=True)).assumed
    assert not written(causal).assumed


def test_the_future():
    assert reach(*graph(causal, conv), AT) == (0, None) and leak(*graph(causal, conv), AT) == ()
    assert reads_ahead(reach(*graph(causal, centred), AT)) and reads_ahead(reach(*graph(attention), AT))
    assert leak(*graph(point, causal, centred, causal), AT) == ("m/y/0", "m/y/1", "m/y/2", "m/y/3")
    assert reach(*graph(layer("shift_right"), causal), AT) == (1, None)
    assert not reads_ahead(reach(*graph(repeat(L, residual(window))), FREE))
    lo, hi = reach(*graph(reversible(L, conv, causal, window), sizes=FREE), FREE)
    assert lo == 0 and hi is None


CASES = {"dropout": dict(p=sp.Rational(1, 10)), "embed": dict(width=d), "positions": dict(kind="sinusoidal"), "pool": dict(kind="mean")}
ANY = {"width": sp.Integer(2), "kernel": sp.Integer(3), "heads": sp.Integer(1), "chunk": sp.Integer(3), "table": sp.Integer(5),
       "p": sp.Rational(1, 2)}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", sorted(LAYERS))
def test_every_layer_is_read_as_it_is(name, masked):
    entry, sizes = LAYERS[name], Sizes().bind(n=6, d=2)
    b = Builder(sizes)
    seq_axis = axis("n", n, "sequence")
    x = b.input((BATCH, seq_axis), "index", "x") if name == "embed" else b.input((BATCH, seq_axis, axis("d", d)), "real", "x")
    s = Stream(x, b.input((BATCH, seq_axis), "mask", "there")) if masked else Stream(x)
    how = {a.name: ANY.get(a.name, a.choices[0] if a.choices else sp.Integer(2)) for a in entry.arguments if a.required}
    how |= CASES.get(name, {})
    with b.located("m/y/0", None): y = entry.expand(b, s if entry.takes_stream else x, **how)
    g = b.graph(y.value if isinstance(y, Stream) else y)
    p = as_written(g, x, sizes)
    assert p.connected is not None, p.why
    try: true = distances(g, sizes.bound, x)
    except DataDependent:
        assert p.assumed
        return
    from plait.compiler.costs.hops import hops
    from plait.compiler.costs.path import _read
    for bound in (True, False):
        assert (hops(_read(g, x, sizes, None, bound).base, 6, range(6), sizes.bound) == true).all()
    if p.connected: assert p.value == true[true < FAR].max()


def decoder(copies):
    """Two inputs: a target that attends to itself, then to a memory."""
    sizes = Sizes().bind(n=6, m=4, d=2)
    b = Builder(sizes)
    x = b.input((BATCH, axis("n", n, "sequence"), axis("d", d)), "real", "x")
    m = b.input((BATCH, axis("n", dim("m"), "sequence"), axis("d", d)), "real", "memory")
    def body(b, y):
        with b.named("self"): y = b.add(y, layer("attention", heads=1, window=3, causal=True)(b, y))
        with b.named("cross"): return b.add(y, layer("attention", heads=1, keys=Stream(memory))(b, y))
    with b.located("m/y/0", None): memory = layer("rnn", width=d)(b, m)
    with b.located("m/y/1", None): y = repeat(copies, body)(b, x)
    return b.graph(y), x, m, sizes


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_a_memory(copies):
    from plait.compiler.costs.hops import hops
    from plait.compiler.costs.path import _read
    g, x, m, sizes = decoder(copies)
    for source, size in ((x, 6), (m, 4)):
        true = distances(g, sizes.bound, source)
        for bound in (True, False):
            assert (hops(_read(g, source, sizes, None, bound).base, size, range(size), sizes.bound) == true).all()
    assert as_written(g, m, sizes).value == 2                    # a step into the recurrence, and one hop from there to anywhere


def test_unread_inputs_and_strangers():
    b = Builder(AT)
    x, y = (b.input((BATCH, axis("n", n, "sequence"), axis("d", d)), "real", name) for name in "xy")
    g = b.graph(b.map("relu", x))
    assert as_written(g, y, AT).value is None and "does not read" in as_written(g, y, AT).why
    b = Builder(AT)
    x = b.input((BATCH, axis("n", n, "sequence"), axis("d", d)), "real", "x")
    g = b.graph(b.gather(x, b.sort(b.sum(x, "d"), "n"), "n"))
    p = as_written(g, x, AT)
    assert p.value is None and p.connected is None and "Sort" in p.why
    with pytest.raises(Unreadable): reach(g, x, AT)


def test_forms_need_no_numpy():
    code = ("import sys; import plait.compiler.costs.path; "
            "assert not {'numpy', 'networkx', 'torch'} & set(sys.modules), set(sys.modules)")
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_billion_copies_are_not_walked():
    """Closed forms do not count; what has none, and never rests, says so."""
    from .models import model
    for body, says in (("repeat L as i { conv(d, kernel = 3, dilation = 2^i, causal = true) }", "L"),
                       ("repeat L as i { residual { conv(d, kernel = 3, dilation = 2^i, causal = true) } }", None)):
        program = model(body, "n = 64; d = 8; L = 10^9")
        p = as_written(program.graph, program.inputs[0].value, program.sizes)
        assert str(p.exact) == says if says else p.value is None and "too many" in p.why
