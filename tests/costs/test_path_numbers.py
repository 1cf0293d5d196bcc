"""Random stacks: the reading against the position graph built element by element, everywhere and at the borders."""
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from plait.compiler.costs.affine import Unreadable
from plait.compiler.costs.hops import hops
from plait.compiler.costs.path import _read, as_written, reach, reads_ahead, stacked
from plait.compiler.sizes import Sizes
from plait.runtime.audit.positions import FAR, distances

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


def in_place(term):
    """Does it leave every position to itself, for nothing?"""
    sizes, n = sized(term, 6)
    g = model(term, sizes)
    return (distances(g, sizes.bound, g.ins[0]) == np.where(np.eye(n) > 0, 0, FAR)).all()


def alone(term):
    """The one indexed repeat that a term is: nothing else of it mixes positions, nothing goes round it, nothing repeats it."""
    kind, *parts = term
    if kind == "indexed": return term
    if kind == "repeat": return alone(parts[1]) if parts[0] == 1 else None
    if kind == "seq":
        mixing = [t for t in parts if not in_place(t)]
        return alone(mixing[0]) if len(mixing) == 1 else None
    if kind == "beside":
        found = set(map(alone, parts))
        return found.pop() if len(found) == 1 else None
    return None


def longer(term, copies):
    """A stack of copies; an indexed repeat runs on, and its index with it."""
    one = alone(term)
    return ("repeat", copies, term) if one is None else ("indexed", copies, *one[2:])


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@example(("seq", ("indexed", 2, 2, 2, False, True)), 3)
@example(("repeat", 1, ("indexed", 2, 2, 2, True, False)), 4)
@example(("seq", ("repeat", 2, ("reversible", 1, ("rnn", "both"), ("rnn", "both"))), ("indexed", 1, 2, 2, True, True)), 4)
@given(terms, st.integers(2, 12))
def test_random_stacks_repeated(term, size):
    sizes, n = sized(term, size)
    g = model(term, sizes)
    x = g.ins[0]
    p = stacked(g, x, sizes)
    def at(copies):
        many = longer(term, copies)
        true = distances(model(many, sizes), sizes.bound, x)
        return true, distances(model(many, sizes, wide=True), sizes.bound, x) < FAR
    def longest(copies):
        true, allowed = at(copies)
        return int(np.where(allowed, true, -1).max())
    if p.value is None:                           # not that soon, at least
        assert p.connected is False or p.why
        assert all(not 0 <= longest(copies) < FAR for copies in (1, 2, 3))
        return
    assert longest(p.copies_value) == p.value
    if p.copies_value > 1: assert longest(p.copies_value - 1) >= FAR
    if p.witness is not None: assert [x[p.witness] for x in at(p.copies_value)] == [p.value, True]


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


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(terms, st.integers(60, 200))
def test_random_stacks_at_length(term, size):
    """Every pair of up to 200 positions, borders included; whole attention alone makes the explicit graph too large to build."""
    assume("attention" not in str(term) and str(term).count("(") <= 12)
    sizes, n = sized(term, size)
    g = model(term, sizes)
    true = distances(g, sizes.bound, g.ins[0])
    assert (everywhere(_read(g, g.ins[0], sizes, None, True).base, n, sizes.bound, true.shape) == true).all()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("bypass", [True, False])
def test_dilated_stacks_at_200(causal, bypass):
    """Centred ones differ at the borders from what offsets alone would say."""
    term = ("indexed", 5, 3, 3, causal, bypass)
    sizes, n = sized(term, 200)
    g = model(term, sizes)
    true = distances(g, sizes.bound, g.ins[0])
    assert (everywhere(_read(g, g.ins[0], sizes, None, True).base, n, sizes.bound, true.shape) == true).all()
    allowed = np.triu(np.ones_like(true, bool)) if causal else np.ones_like(true, bool)            # [input, output]
    assert as_written(g, g.ins[0], sizes).connected is bool((true < FAR)[allowed].all())
