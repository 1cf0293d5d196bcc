"""Executed work: what the kernels of the plan do, against what torch counts and against blocks counted by hand."""
import pytest
import torch

from plait.compiler.table import Row
from plait.runtime.audit.measure import products


def executed(kit, chain: str, **how):
    p = kit.program(chain, **how)
    found = Row(p, "m", "model", "m").executed
    return None if found is None else p.sizes.value(found)


@pytest.mark.parametrize("causal", ["true", "false"])
@pytest.mark.parametrize("n", [5, 64, 128, 200, 300])
def test_blocks_of_rows(kit, n, causal):
    """Causal rows meet the keys up to the last row of their block of 128."""
    chain = f"attention(heads = 2, causal = {causal}, kernel = rowwise)"
    with torch.no_grad(): counted = products(lambda: kit.module(chain, n=n)(torch.zeros(1, n, 8, dtype=torch.float64)))
    assert executed(kit, chain, n=n) == counted


def test_blocks_of_a_window(kit):
    """Window 64: blocks of 64 queries meet two blocks of keys; 1,000 queries are 16 blocks. Scores and sums, 8 numbers each. Of a window
    of 64 that is not causal, 40 positions have 32 and 31 on either side: blocks of 40, and two of keys beyond their own."""
    chain = "attention(heads = 1, window = 64, causal = {}, project = false)"
    assert executed(kit, chain.format("true"), n=1000) == 2 * 8 * 1024 * 128
    assert executed(kit, chain.format("false"), n=40) == 2 * 8 * 40 * 120


def test_what_a_library_does_not_tell(kit):
    assert executed(kit, "attention(heads = 1, causal = true)") is None
    assert executed(kit, "attention(heads = 1, project = false)", n=7) == 2 * 7 * 7 * 8
    assert executed(kit, "attention(heads = 1, causal = true, project = false, kernel = body)", n=7) == 2 * 7 * 7 * 8
    assert executed(kit, "repeat 3 { conv(d, kernel = 3) }", n=7) == 3 * 7 * 8 * 8 * 3
