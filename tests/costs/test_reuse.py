"""Weight reuse: b·n in a projection, b in a recurrence."""
import pytest

from plait.compiler.costs.reuse import reuse
from plait.compiler.sizes import dim

from .models import model

b, n, p = dim("b"), dim("n"), dim("p")


@pytest.mark.parametrize("body, want", [
    ("attention(heads = 2)", b * n), ("linear(5); linear(d)", b * n), ("conv(d, kernel = 3)", b * n), ("repeat 3 { linear(d) }", b * n),
    ("rnn(d)", b), ("residual { attention(heads = 2) }; lstm(d)", b), ("attention(heads = 1, project = false)", None), ("layer_norm", None),
    ("chunked(over = n, pieces = p) { linear(d) }", b * n / p),
])
def test_reuse(body, want):
    assert reuse(model(body, "n = 1000; d = 8; p = 4; require n % p == 0").graph) == want
