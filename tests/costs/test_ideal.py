"""Ideal work against pairs counted one by one."""
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.compiler.costs.ideal import ideal

from .models import model


def derived(body, dims):
    program = model(body, dims)
    return program.sizes.value(ideal(program.graph, program.inputs[0].value, program.sizes))


def test_worked_values():
    """Causal n = 8, width 4, one head: 36 pairs, two products. Causal window 512 at n = 2048: 917,760 pairs."""
    assert derived("attention(heads = 1, causal = true, project = false)", "n = 8; d = 4") == 36 * 8
    assert derived("attention(heads = 1, window = r, causal = true, project = false)", "n = 2048; d = 4; r = 512") == 917_760 * 8


@settings(deadline=None, max_examples=25)
@given(n=st.integers(2, 30), r=st.integers(1, 40), dilation=st.integers(1, 5), causal=st.booleans())
def test_counts(n, r, dilation, causal):
    before = r - 1 if causal else (r - 1) // 2
    word = "true" if causal else "false"
    def pairs(step): return sum(0 <= i + (w - before) * step < n for i in range(n) for w in range(r))
    assert derived(f"attention(heads = 1, window = r, causal = {word}, project = false)", f"n = {n}; d = 2; r = {r}") == pairs(1) * 4
    assert derived(f"conv(3, kernel = r, dilation = {dilation}, causal = {word}, bias = false); linear(d, bias = false)",
                   f"n = {n}; d = 2; r = {r}") == pairs(dilation) * 6 + n * 6


@pytest.mark.parametrize("n", [2, 3, 7])
def test_a_position_that_leaves_itself_out(n):
    """Causal and without itself: all earlier ones, and the first sees itself: n(n − 1)/2 + 1."""
    assert derived("attention(heads = 1, causal = true, share_qk = true, project = false)", f"n = {n}; d = 2") == (n * (n - 1) // 2 + 1) * 4


def test_without_masks_ideal_is_dense():
    assert derived("feed_forward(8); lstm(d)", "n = 5; d = 4") == 5 * (64 + 4 * 4 * 8)


def test_inside_a_repeat():
    body = "repeat 3 { residual { attention(heads = 2, causal = true, bias = false) } }"
    assert derived(body, "n = 6; d = 4") == 3 * (4 * 6 * 16 + 2 * 21 * 4)


def test_lsh_depends_on_the_data():
    program = model("lsh_attention(heads = 1, chunk = 2)", "n = 6; d = 4")
    assert ideal(program.graph, program.inputs[0].value, program.sizes) is None
