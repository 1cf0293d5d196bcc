"""Random stacks: the reading against the position graph built element by element, everywhere and at the borders."""
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from plait.compiler.costs.affine import Unreadable
from plait.compiler.costs.hops import hops
from plait.compiler.costs.path import _read, as_written, reach, reads_ahead, stacked
from plait.compiler.sizes import Sizes

from .explicit import FAR, distances
from .stacks import model, terms


def sized(term, size):
    """Pieces are two: a chunked stack has an even length."""
    sizes = Sizes().bind(n=size + size % 2 if "chunked" in str(term) else size, d=2)
    return sizes, sizes.integer(model(term, sizes).ins[0].role("sequence").size)


def everywhere(base, n, bound, shape, how="plain"):
    return np.broadcast_to(hops(base, n, range(n), bound, how), shape)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@example(("seq", ("attention", False, False), ("shift",)), 3)
@example(("seq", ("shift",), ("attention", False, False)), 3)
@given(terms, st.one_of(st.integers(1, 12), st.integers(1, 12), st.integers(13, 24)))
def test_random_stacks(term, size):
    sizes, n = sized(term, size)
    g = model(term, sizes)
    x = g.ins[0]
    true = distances(g, sizes.bound, x)
    base = _read(g, x, sizes, None, True).base
    assert (everywhere(base, n, sizes.bound, true.shape) == true).all()
    if n > 1:
        try: named = _read(g, x, sizes, None, False).base
        except Unreadable: pass                   # what hangs on the sizes is read by their numbers only
        else: assert (everywhere(named, n, sizes.bound, true.shape) == true).all()
    allowed = distances(model(term, sizes, wide=True), sizes.bound, x) < FAR
    assert ((everywhere(base, n, sizes.bound, true.shape, "allowed") < FAR) == allowed).all()
    p, longest = as_written(g, x, sizes), int(np.where(allowed, true, -1).max())
    if longest < 0: return                        # the masks allow no pair
    assert (p.connected, p.value) == (longest < FAR, longest if longest < FAR else None)
    j, i = p.witness
    assert allowed[j, i] and true[j, i] == longest
    j, i = (true < FAR).nonzero()
    lo, hi = reach(g, x, sizes)
    assert all((lo is None or sizes.value(lo) <= o) and (hi is None or o <= sizes.value(hi)) for o in i - j)
    if (i < j).any(): assert reads_ahead((lo, hi))
    if p.reach: assert p.reach["positions"]["value"] >= (true < FAR).sum(0).max()


def _alone(term):
    """Two equal branches side by side are one."""
    return _alone(term[1]) if term[0] == "beside" and all(t == term[1] for t in term[2:]) else term


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(terms, st.integers(2, 12))
def test_random_stacks_repeated(term, size):
    sizes, n = sized(term, size)
    g = model(term, sizes)
    x = g.ins[0]
    p = stacked(g, x, sizes)
    if p is None or p.value is None or _alone(term)[0] == "indexed": return       # a stack of those extends its index instead
    def at(copies):
        many = ("repeat", copies, term)
        true = distances(model(many, sizes), sizes.bound, x)
        allowed = distances(model(many, sizes, wide=True), sizes.bound, x) < FAR
        return int(np.where(allowed, true, -1).max())
    assert at(p.copies_value) == max(p.value, -1)
    if p.copies_value > 1: assert at(p.copies_value - 1) >= FAR


@pytest.mark.parametrize("term, n", [(("seq", ("residual", ("window", 4, True, False)), ("residual", ("conv", 3, 1, True))), 1500),
                                     (("seq", ("window", 4, False, False), ("rnn", "both")), 1300)])
def test_long_sequences_agree_with_every_source_followed(term, n, monkeypatch):
    """The bounds from the two ends meet, and are what following every source gives."""
    from plait.compiler.costs import path
    sizes = Sizes().bind(n=n, d=2)
    g = model(term, sizes)
    few = path._counted(g, g.ins[0], sizes, None, "")
    monkeypatch.setattr(path, "WHOLE", n)
    every = path._counted(g, g.ins[0], sizes, None, "")
    assert few.connected == every.connected and few.value == every.value
