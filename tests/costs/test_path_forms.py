"""Closed forms with symbols, against the numbers of the same stack at random bindings."""
import pytest
import sympy as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plait.compiler.axis import BATCH, axis
from plait.compiler.builder import Builder
from plait.compiler.costs import path
from plait.compiler.costs.affine import sure, tidy
from plait.compiler.costs.path import as_written, stacked
from plait.compiler.sizes import Sizes, dim

from .stacks import I, d, layer, n, repeat, residual, seq

k, r, L = map(dim, "k r L".split())
conv, centred = layer("conv", width=d, kernel=k, causal=True), layer("conv", width=d, kernel=k)
window, local = layer("attention", heads=1, window=r, causal=True), layer("attention", heads=1, window=r)
rnn, both = layer("rnn", width=d), seq(layer("rnn", width=d, direction="both"), layer("linear", width=d))
causal, full = layer("attention", heads=1, causal=True), layer("attention", heads=1)

FORMS = {
    "conv": conv, "centred": centred, "window": window, "local": local, "rnn": rnn, "both": both, "causal": causal, "full": full,
    "convs": repeat(L, conv), "centred convs": repeat(L, centred), "residual convs": repeat(L, residual(conv)),
    "residual windows": repeat(L, residual(local)), "recurrences": repeat(L, rnn), "residual recurrences": repeat(L, residual(rnn)),
    "both, repeated": repeat(L, residual(both)), "windows, then attention": seq(repeat(3, window), causal),
    "the same with bypasses": seq(repeat(3, residual(window)), residual(causal)), "conv, recurrence": seq(conv, rnn),
    "convs, bypassed attention": seq(repeat(L, conv), residual(full)),
    "transformer": repeat(L, seq(residual(causal), residual(layer("feed_forward", width=d)))),
    "dilated": repeat(L, layer("conv", width=d, kernel=k, dilation=k ** I, causal=True), I),
    "dilated by 2": repeat(L, layer("conv", width=d, kernel=3, dilation=2 ** I, causal=True), I),
    "dilated, centred": repeat(L, layer("conv", width=d, kernel=3, dilation=2 ** I), I),
    "shifted": seq(layer("shift_right"), repeat(L, conv)), "shifted attention": seq(layer("shift_right"), causal),
    "a pair, then bypassed attention": seq(layer("conv", width=d, kernel=2, causal=True), residual(full)),
    "alike": layer("attention", heads=1, causal=True, share_qk=True),
}
STACKED = [name for name in FORMS if "shifted" not in name]


def graph(part, sizes):
    b = Builder(sizes)
    x = b.input((BATCH, axis("n", n, "sequence"), axis("d", d)), "real", "x")
    with b.located("m/y/0", None): return b.graph(part(b, x)), x


bindings = st.fixed_dictionaries({"n": st.integers(1, 60),
                                  "k": st.integers(1, 5), "r": st.integers(1, 6), "L": st.integers(1, 5), "d": st.just(2)})


@pytest.mark.parametrize("name", FORMS)
def test_forms(name):
    free, x = graph(FORMS[name], Sizes())
    exact = as_written(free, x, Sizes()).exact
    assert exact is not None

    @settings(max_examples=20, deadline=None)
    @given(bindings)
    def check(at):
        sizes = Sizes().bind(**at)
        p, q = as_written(free, x, sizes), path._counted(free, x, sizes, None, "")
        if q.connected is None: return             # a shift of two positions and more leaves no pair
        assert (p.connected, p.value) == (q.connected, q.value)
        if p.connected and p.exact is not None: assert sizes.value(exact) == q.value
        assert p.reach["positions"]["value"] == q.reach["positions"]["value"] and p.reach["back"]["value"] == q.reach["back"]["value"]

    check()


@pytest.mark.parametrize("name", STACKED)
def test_stacked_forms(name):
    free, x = graph(FORMS[name], Sizes())
    p = stacked(free, x, Sizes())
    if p.exact is None: pytest.skip(p.why)

    @settings(max_examples=15, deadline=None)
    @example({"n": 4, "k": 1, "r": 1, "L": 2, "d": 2})                     # widths of 1: the logarithm of a dilated stack has no base
    @given(bindings)
    def check(at):
        sizes = Sizes().bind(**at)
        q = path._tried(path._numbers(free, x, sizes, None), at["n"], sizes, "")
        bound = stacked(free, x, sizes)
        assert (bound.value, bound.copies_value) == (q.value, q.copies_value)

    check()


def test_forms_are_plain():
    """Only + · / powers, log, ceiling, floor, Max, Min, Piecewise."""
    plain = (sp.Add, sp.Mul, sp.Pow, sp.log, sp.ceiling, sp.floor, sp.Max, sp.Min, sp.Piecewise, sp.Symbol, sp.Number)
    for name in STACKED:
        g, x = graph(FORMS[name], Sizes())
        for p in (as_written(g, x, Sizes()), stacked(g, x, Sizes())):
            for e in (p.exact, p.copies):
                if e is not None: assert all(isinstance(a, plain) for a in sp.preorder_traversal(e) if isinstance(a, sp.Expr)), (name, e)


half = sp.floor((r - 1) / 2)                       # the smaller side of a centred window; the other is r − 1 − half
widths = st.sampled_from([half, r - 1 - half, r - 1, k, k - 1, sp.floor(r / k), L * half, r - k])
rounds = st.builds(lambda a, f: f((n - 1) / a), widths, st.sampled_from([sp.floor, sp.ceiling]))
sums = st.builds(lambda xs, c: sum((m * x for m, x in xs), sp.Integer(c)), st.lists(
    st.tuples(st.sampled_from([1, -1, 2, -2, L, -L]), st.one_of(rounds, widths)), min_size=1, max_size=3), st.integers(-2, 2))


@settings(max_examples=100, deadline=None)
@example(sp.ceiling((n - 1) / half) - sp.ceiling((n - 1) / (r - 1 - half)), [{"n": 4, "k": 2, "r": 6, "L": 2, "d": 2}])
@example(sp.ceiling((n - 1) / (r - 1 - half)) - sp.ceiling((n - 1) / half), [{"n": 4, "k": 2, "r": 6, "L": 2, "d": 2}])
@given(sums, st.lists(bindings, min_size=8, max_size=8))
def test_what_is_sure_holds(e, at):
    if not sure(tidy(e)): return
    for binding in at:
        try: assert Sizes().bind(**binding).value(e) >= 0
        except ZeroDivisionError: pass


def test_the_smaller_side_is_the_longer_way():
    assert sure(sp.ceiling((n - 1) / half) - sp.ceiling((n - 1) / (r - 1 - half)))
    assert not sure(sp.ceiling((n - 1) / (r - 1 - half)) - sp.ceiling((n - 1) / half))
