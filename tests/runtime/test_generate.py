"""Steps of a model against the whole sequence at once."""
import pytest
import torch

from plait.compiler.layer import LAYERS
from plait.dsl.errors import PlaitError
from plait.runtime.codec import Numbers
from plait.runtime.generate import sample as sampling
from plait.runtime.generate import steps as generating_steps
from plait.runtime.generate.beam import Beam
from plait.runtime.generate.sample import pick, sample
from plait.runtime.generate.steps import Recomputing, stepper, steps, target_input

from .generating import AHEAD, DECODERS, ENDS, VARIANTS, N, causal, continued, incremental, recomputing, stepped, translator

LAYER = {name: causal(name) for name in LAYERS if name not in ENDS}
FORMS = {"ahead": {}, "shifted": {"ahead": False}, "free": {"n": None}, "padded": {"padded": True}}


ANEW = ("local_attention",)                    # docs/generation.md, "What is computed anew"


def symbols(b: int = 2, n: int = N, V: int = 11, seed: int = 1):
    return torch.randint(0, V, (b, n), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("chain", [*LAYER.values(), *VARIANTS.values()], ids=[*LAYER, *VARIANTS])
def test_every_causal_layer_goes_on_where_it_stood(chain, form):
    """Prompts of 1, 2 and 7 symbols, and all at once: the logits at every position are those of the whole sequence."""
    if "learned" in chain and "max" not in chain and form == "free": pytest.skip("a table of n rows needs an n")
    m, x = continued(chain, **FORMS[form]), symbols()
    whole = m(x)
    if chain.startswith(ANEW):                  # by the way of test_what_has_no_rule_computes_everything_anew_and_says_so
        assert isinstance(stepper(m), Recomputing)
        return
    assert whole.std() > 0.01 and not (form != "free" and incremental(m).recomputed)
    for first in (1, 2, 7, N): assert (stepped(m, x, first) - whole).abs().max() < 1e-12


def test_all_layers_in_one_stack_in_single_precision():
    own = [c for c in (*LAYER.values(), *VARIANTS.values()) if c != "dropout(1 / 2)" and not c.startswith(ANEW)]
    m = continued("; ".join(f"residual {{ {c} }}" for c in own), dtype=torch.float32)
    x = symbols()
    whole = m(x)
    for first in (1, 7): assert (stepped(m, x, first) - whole).abs().max() < 1e-5 * max(1, whole.abs().max())


@pytest.mark.parametrize("chain", AHEAD.values(), ids=AHEAD)
def test_what_looks_ahead_cannot_be_continued(chain):
    with pytest.raises(PlaitError, match="looks at later positions at y/1.*cannot be continued"): stepper(continued(chain))


@pytest.mark.parametrize("before", ["embed(V, width = d); shift_right", "embed(V, width = d); linear(d); shift_right; shift_right"])
def test_vectors_that_are_shifted(before):
    """A vector of zeros stands first, not that of symbol 0."""
    m, x = continued("attention(heads = 2, causal = true)", ahead=False, unshifted=True, before=before), symbols()
    for first in (1, 2, N): assert (stepped(m, x, first) - m(x)).abs().max() < 1e-12


@pytest.mark.parametrize("before", ["embed(V, width = d)", "embed(V, width = d); positions(learned); shift_right"])
def test_what_is_shifted_late_or_never_is_computed_anew(before):
    m = continued("gru(d)", ahead=False, unshifted=True, before=before)
    assert steps(m, target_input(m.program)) is None


def test_a_long_prompt_goes_in_pieces(monkeypatch):
    monkeypatch.setattr(generating_steps, "PIECE", 5)
    m, x = continued("attention(heads = 2, causal = true); gru(d)", ahead=False, padded=True), symbols()
    assert (stepped(m, x, N) - m(x)).abs().max() < 1e-12


def test_two_ways_on_from_one_place():
    """A step changes nothing of what it goes on from: the second way finds its cache as it was."""
    m, x = continued("attention(heads = 2, causal = true); gru(d); conv(d, kernel = 3, causal = true)"), symbols()
    run = incremental(m)
    _, at = run.step(x[:, :5], run.begin(2))
    for other in (3, 4, 3):
        y, there = run.step(torch.full((2, 1), other), at)
        z, _ = run.step(x[:, 6:7], there)
        whole = m(torch.cat([x[:, :5], torch.full((2, 1), other), x[:, 6:]], 1))
        assert (torch.cat([y, z], 1) - whole[:, 5:7]).abs().max() < 1e-12
    one = run.choose(at, torch.tensor([1, 1, 0]))
    y, _ = run.step(x[[1, 1, 0], 5:6], one)
    assert (y[:, 0] - m(x)[[1, 1, 0], 5]).abs().max() < 1e-12


def test_what_is_kept():
    """Attention keeps keys and values of all positions so far, a window its last r − 1, a convolution (kernel − 1)·dilation inputs, a
    recurrence its states; norms and feed-forward nothing."""
    def kept(chain):
        run = incremental(continued(chain))
        _, at = run.step(symbols(n=7), run.begin(2))
        return sorted(tuple(x.shape) for x in at.kept)
    assert kept("attention(heads = 2, causal = true)") == [(2, 2, 7, 4)] * 2
    assert kept("attention(heads = 4, kv_heads = 2, causal = true)") == [(2, 2, 7, 2)] * 2
    assert kept("attention(heads = 2, causal = true, window = 4)") == [(2, 3, 2, 4)] * 2
    assert kept("conv(d, kernel = 3, dilation = 2, causal = true)") == [(2, 4, 8)]
    assert kept("lstm(d)") == [(2, 8)] * 2 and kept("gru(d)") == [(2, 8)]
    assert kept("layer_norm; chunked(over = n, pieces = 3) { feed_forward(16) }; positions(learned)") == []
    assert kept(f"lsh_attention(heads = 2, rounds = 3, chunk = {N}, causal = true)") == [(2, 2, 7, 3), (2, 2, 7, 4), (2, 2, 7, 4)]


def test_hashing_over_several_chunks_is_computed_over_all_positions_so_far_and_says_so():
    """The new positions' values are those of the layer over what is there: the last position of each prefix."""
    m, x, said = continued("lsh_attention(heads = 2, rounds = 2, chunk = 4, causal = true)", n=None), symbols(), []
    run = stepper(m, said.append)
    assert len(said) == 1 and "y/1" in said[0]
    at = run.begin(2)
    for t in range(N):
        y, at = run.step(x[:, t:t + 1], at)
        assert (y[:, 0] - m(x[:, :t + 1])[:, t]).abs().max() < 1e-12


def test_what_has_no_rule_computes_everything_anew_and_says_so():
    m, x, said = continued("lsh_attention(heads = 2, chunk = 4, causal = true, wrap = true)"), symbols(), []
    run = stepper(m, said.append)
    assert said == ["the whole model is computed over all positions so far for every new symbol"]
    y, at = run.step(x[:, :5], run.begin(2))
    z, at = run.step(x[:, 5:], at)
    assert torch.equal(z, m(x)[:, 5:])


@pytest.mark.parametrize("sizes", [{}, {"m": " = 9", "n": " = 10"}, {"m": " <= 20", "n": " <= 20"}])
@pytest.mark.parametrize("decoder", DECODERS)
def test_a_decoder_reads_a_memory_that_is_computed_once(decoder, sizes):
    m = translator(decoder, **sizes)
    source, target = symbols(3, 9, 7, seed=2), symbols(3, 10, 7)
    source[0, 5:] = source[1, 8:] = -1
    whole, run = m(source, target), incremental(m)
    assert len(run.form.given) >= 4                                    # keys and values of two layers
    for first in (1, 3, 10): assert (stepped(m, target, first, source=source) - whole).abs().max() < 1e-12


def test_steps_follow_the_weights():
    """A module's steps are derived once, and read its parameters as they are when a sequence begins."""
    m, x = continued("attention(heads = 2, causal = true)"), symbols()
    before, run = stepped(m, x, 3), incremental(m)
    with torch.no_grad():
        for p in m.parameters(): p.add_(0.1)
    assert incremental(m) is run and not torch.allclose(before, m(x))
    assert (stepped(m, x, 3) - m(x)).abs().max() < 1e-12


@pytest.mark.parametrize("form", ["ahead", "shifted", "free"])
def test_sampling_gives_the_symbols_that_computing_everything_gives(form, monkeypatch):
    """Same seed, same options; a prompt of 3 and 20 more symbols, which goes beyond n where that is 12."""
    m = continued("repeat 2 { residual { attention(heads = 2, causal = true) }; residual { gru(d) } }", **FORMS[form])
    def texts(): return [list(sample(m, Numbers(11), "3 1 4", length=20, seed=k, **how)) for k, how in enumerate(HOW)]
    found = texts()
    monkeypatch.setattr(sampling, "stepper", lambda m, say: recomputing(m))
    assert found == texts() and all(len(t) == 20 for t in found) and found[0] != found[1]


HOW = ({}, {"temperature": 0.5, "top_k": 5}, {"top_p": 0.7}, {"temperature": 0})


def test_top_p_keeps_the_likeliest_that_together_are_so_probable():
    """Of 0.5, 0.3, 0.15, 0.05: 0.5 reaches 0.5 alone; 0.51 needs two, and 0.8 is what they have; 0.96 needs all."""
    logits, random = torch.tensor([0.15, 0.5, 0.05, 0.3], dtype=torch.float64).log(), torch.Generator().manual_seed(0)
    def seen(p, temperature=1.0): return {pick(logits, temperature, None, p, random) for _ in range(400)}
    assert [seen(0.5), seen(0.51), seen(0.79), seen(0.96), seen(1.0)] == [{1}, {1, 3}, {1, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}]
    assert seen(0.51, 0.1) == {1}                                      # after the temperature


def test_a_beam_instead_of_a_draw():
    """Its text is worth at least that of the likeliest symbol each time; what does not fit into n is a sentence."""
    m = continued("attention(heads = 2, causal = true)")
    greedy = "".join(sample(m, Numbers(11), "3 1", length=5, temperature=0))
    assert "".join(sample(m, Numbers(11), "3 1", length=5, beam=Beam(1))) == greedy
    def worth(text):
        ids = Numbers(11).encode("3 1" + text)
        p = m(torch.tensor([[*ids, *[0] * (N - 7)]])).log_softmax(-1)[0]
        return sum(float(p[t - 1, ids[t]].detach()) for t in range(2, 7))
    assert worth("".join(sample(m, Numbers(11), "3 1", length=5, beam=Beam(8)))) >= worth(greedy)
    list(sample(m, Numbers(11), "3 1", length=11, beam=Beam(2)))
    with pytest.raises(PlaitError, match="reads 12 symbols"): sample(m, Numbers(11), "3 1", length=12, beam=Beam(2))


def test_a_length_that_the_spec_forbids_is_a_sentence():
    m = continued("positions(learned, max = 5)", n=None)
    run = incremental(m)
    with pytest.raises(PlaitError, match="learned positions for 5 places"): run.step(symbols(n=6), run.begin(2))
