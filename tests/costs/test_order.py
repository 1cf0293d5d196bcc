"""Leading orders, by the rule of the design: a term falls if another divided by it is a product of non-negative powers of dims."""
import pytest
import sympy as sp

from plait.compiler.costs.maxplus import covers, late, latest, plus, times, written
from plait.compiler.costs.order import order, smallest
from plait.compiler.sizes import CeilLog2, Sizes, ceil_log2, dim, evaluate

n, d, k, r = map(dim, "ndkr")


@pytest.mark.parametrize("e, want", [
    (2 * n**2 * d + n * d, n**2 * d),
    (4 * n * d**2 + 2 * n**2 * d, n * d**2 + n**2 * d),       # neither outgrows the other
    (sp.ceiling((n - 1) / (k - 1)), n / k),
    (sp.ceiling(n / k) * k, n),
    (sp.Max(n * d, n**2, evaluate=False) + 3, sp.Max(n * d, n**2, evaluate=False)),
    (sp.Max(n, 5, evaluate=False), n),
    (sp.Integer(7), 1), (sp.Integer(0), 0),
    (n * CeilLog2(n) + n, n * sp.log(n)),
    (n * (n + 1) / 2, n**2),
])
def test_order(e, want):
    assert order(e) == want


def test_smallest():
    b = dim("b")
    assert smallest([b * n, b]) == b and smallest([]) is None
    assert smallest([b * n, b * k]).args in ((b * n, b * k), (b * k, b * n))


def test_late():
    """max(n + 2, 2n) + 1: neither covers the other at n = 1 and n = 3; n ≥ 1 lets 2n cover n + 1."""
    x = plus(latest([late(n + 2), late(2 * n)]), late(1))
    at = [evaluate(written(x), {n: v}) for v in (1, 2, 3)]
    assert at == [4, 5, 7]
    assert latest([late(n + 1), late(2 * n)]) == late(2 * n)
    assert written(times(late(n + 1), d)) == n * d + d
    assert covers(late(3 * n)[0], late(2 * n + 1)[0]) and not covers(late(n)[0], late(k)[0])


@pytest.mark.parametrize("x", [1, 2, 3, 1023, 1024, 1025, 2**40, 2**40 + 1])
def test_ceil_log2_is_exact(x):
    want = (x - 1).bit_length()                                # the smallest k with 2^k ≥ x
    assert ceil_log2(x) == want and evaluate(CeilLog2(n), {n: x}) == want
    assert evaluate(sp.ceiling(sp.log(n, 2)), {n: x}) == want
    assert str(CeilLog2(n)) == "ceiling(log(n)/log(2))"
    assert sp.sympify(str(CeilLog2(n)), {"n": n}) == sp.ceiling(sp.log(n) / sp.log(2))


def test_sizes():
    s = Sizes({n: 12, k: 4}, {d: n / k}, ((n, k),))
    assert s.quotient(n, k) == n / k and s.quotient(n, 5) == sp.ceiling(n / 5) and s.quotient(6 * n, 3) == 2 * n
    assert s.same(d * k, n) and not s.same(n, k) and s.value(n / 5) == sp.Rational(12, 5)
    assert s.value(r) is None and s.integer(n / 5) is None
