"""A module's names, inputs, modes and copies."""
from __future__ import annotations

import copy
import re

import pytest
import torch

from plait import files
from plait.compiler.claim import claim
from plait.compiler.expand import expand
from plait.compiler.kernels import Target
from plait.compiler.passes.evaluation import evaluation
from plait.dsl.errors import PlaitError
from plait.runtime.module import Module

TOKENS = dict(kind="tokens[n] of V", out="[n, V]", V=11, share="share tok = embedding(V, d)")
CHAIN = "embed(tok); repeat 2 { residual { attention(heads = 2, causal = true) }; repeat 2 { linear(8) } }; unembed(tok)"


def test_names_are_the_places_in_the_spec(kit):
    m = kit.module(CHAIN, **TOKENS)
    names = [*m.state_dict()]
    assert names[0] == "tok" and names.count("tok") == 1                       # shared, so once
    for i in (0, 1):
        assert f"y.1.{i}.0.norm.scale" in names and f"y.1.{i}.0.0.query" in names
        assert {f"y.1.{i}.1.{j}.0.weight" for j in (0, 1)} <= set(names)       # a repeat in a repeat
    assert [*dict(m.named_parameters())] == names


def test_starts_as_said(kit):
    m = kit.module("linear(64, bias = false); layer_norm", out="[n, 64]", d=100)
    weight = m.state_dict()["y.0.weight"]
    assert weight.abs().max() <= 0.1 and abs(weight.std() - 0.1 / 3**0.5) < 2e-3           # uniform on ±1/√100
    assert (m.state_dict()["y.1.scale"] == 1).all()
    again = kit.module("linear(64, bias = false); layer_norm", out="[n, 64]", d=100)
    assert all(torch.equal(a, b) for a, b in zip(m.parameters(), again.parameters()))


@pytest.mark.parametrize("layers, name, std", [
    ("embed(50, width = 100)", "weight", 0.1), ("embed(50, width = 100, std = 1)", "weight", 1.0),
    ("embed(50, width = 100, std = 0)", "weight", 0),
    ("positions(learned)", "weight", 0.1), ("positions(learned, std = 0.02)", "weight", 0.02),
    ("positions(axial, grid = (60, 60), widths = (50, 50), std = 2)", "row", 2.0)])
def test_tables_start_with_the_deviation_that_is_asked_for(layers, name, std):
    """By itself 1/√d; nn.Embedding starts with 1."""
    source = "tokens[n] of 50" if "embed" in layers else "stream[n, d]"
    text = f"plait 1\n\ndims {{ n = 60; d = 100 }}\nmodel m {{\n  input x: {source}\n  y = x {{ {layers} }}\n  output y: [n, d]\n}}\n"
    torch.manual_seed(0)
    table = Module(expand(files.opened("m.plait", text=text), "m"), compile=False).state_dict()[f"y.0.{name}"]
    assert abs(table.std() - std) <= 0.05 * std and abs(table.mean()) <= 0.05 * max(std, 1e-9)
    assert table.abs().max() > 2 * std or std == 0             # normal, not uniform on ±√3·std


def test_state_goes_there_and_back(kit):
    m, other = kit.module(CHAIN, **TOKENS), kit.module(CHAIN, **TOKENS)
    for q in m.parameters(): q.data.normal_()
    other.load_state_dict(m.state_dict())
    x = torch.randint(0, 11, (2, 7))
    twin = copy.deepcopy(m)
    assert torch.equal(m(x), other(x)) and torch.equal(m(x), twin(x)) and twin.program is m.program
    twin.to(torch.float32)
    assert twin(x).dtype == torch.float32 and m(x).dtype == torch.float64
    half = copy.deepcopy(m).to(torch.bfloat16)
    assert half(x).dtype == torch.bfloat16


def test_a_stream_called_like_a_method(kit):
    from plait.compiler.expand import expand, open_file
    from plait.dsl.parser import parse
    text = "plait 1\ndims {\n n = 3\n d = 4\n}\nmodel m {\n input x: stream[n, d]\n loss = x { linear(d) }\n output loss: [n, d]\n}\n"
    m = Module(expand(open_file(parse(text)), "m"), compile=False)
    assert [*m.state_dict()] == ["loss.0.weight", "loss.0.bias"] and m(torch.randn(1, 3, 4)).shape == (1, 3, 4)


def test_training_draws_a_key_and_evaluation_does_not(kit):
    m = kit.module("linear(8); dropout(0.5); lsh_attention(heads = 2, chunk = 4)")
    x = torch.randn(2, 7, 8, dtype=torch.float64)
    torch.manual_seed(1)
    a, b = m(x), m(x)
    torch.manual_seed(1)
    assert torch.equal(a, m(x)) and not torch.equal(a, b)
    m.eval()
    state = torch.get_rng_state()
    assert torch.equal(m(x), m(x)) and torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("chain", ["attention(heads = 2, dropout = 0.4)", "attention(heads = 2, window = 3, dropout = 0.4)",
                                   "residual(dropout = 0.5) { linear(8) }",
                                   "lsh_attention(heads = 2, chunk = 4, dropout = 0.4)",
                                   "repeat 2 { dropout(0.1); linear(8); dropout(0.3) }",
                                   "reversible(repeat = 2) { a: { linear(8); dropout(0.5) }; b: { attention(heads = 2, dropout = 0.5) } }"])
def test_evaluation_is_the_model_without_dropout(kit, chain):
    m = kit.module(chain, n=8)
    plain = kit.module(re.sub(r"dropout = [0-9.]+", "dropout = 0", re.sub(r"dropout\([0-9.]+\);?", "", chain)), n=8)
    # the same parameters, and where the keys are told apart by number (LSH) the same choices: one dropout fewer, so a forced body
    m.eval(), plain.eval()
    graph = evaluation(m.program.graph, m.program.sizes)
    assert not any(getattr(n.op, "name", "") == "dropout" for n in graph.walk())
    assert all(not n.op.arg("dropout") for n in graph.walk() if hasattr(n.op, "arg"))
    claim(graph, Target())
    for n, q in m.state_dict().items(): assert torch.equal(q, dict(zip(m.state_dict(), plain.state_dict().values()))[n])
    x = torch.randn(2, 8, 8, dtype=torch.float64)
    if "lsh" not in chain: assert torch.allclose(m(x), plain(x), atol=1e-12)


@pytest.mark.parametrize("call, code, words", [
    (lambda m: m(), "E0602", "x is missing"),
    (lambda m: m(torch.zeros(2, 7, dtype=torch.long), torch.zeros(2, 7)), "E0602", "was given 2 inputs"),
    (lambda m: m(y=torch.zeros(2, 7, dtype=torch.long)), "E0602", "no input y"),
    (lambda m: m(torch.zeros(2, 7, dtype=torch.long), x=torch.zeros(2, 7, dtype=torch.long)), "E0602", "twice"),
    (lambda m: m([1, 2]), "E0603", "list"),
    (lambda m: m(torch.zeros(2, 7)), "E0603", "integers"),
    (lambda m: m(torch.full((2, 7), 11)), "E0604", "11"),
    (lambda m: m(torch.full((2, 7), -1)), "E0604", "-1"),
    (lambda m: m(torch.zeros(2, 8, dtype=torch.long)), "E0605", "(2, 8)"),
    (lambda m: m(torch.zeros(7, dtype=torch.long)), "E0605", "(7,)"),
    (lambda m: m.loss(torch.zeros(2, 7, dtype=torch.long)), "E0601", "no loss"),
])
def test_inputs_that_do_not_fit(kit, call, code, words):
    with pytest.raises(PlaitError) as found: call(kit.module(CHAIN, **TOKENS))
    (d,) = found.value.diagnostics
    assert d.code == code and words in d.message


def test_padding(kit):
    how = {**TOKENS, "padded": True}
    m = kit.module("embed(tok); attention(heads = 2); lstm(8); unembed(tok)", **how)
    x = torch.randint(0, 11, (2, 7))
    short = x.clone()
    short[0, 4:] = -1
    by_sign, by_mask = m(short), m(short, x_mask=short >= 0)
    other = torch.where(short < 0, 5, short)
    assert torch.equal(by_sign, by_mask) and torch.allclose(m(other, x_mask=short >= 0)[0, :4], by_sign[0, :4])
    alone = kit.module("embed(tok); attention(heads = 2); lstm(8); unembed(tok)", **{**how, "n": 4})
    assert torch.allclose(alone(x[:1, :4]), by_sign[:1, :4])
    with pytest.raises(PlaitError): m(x, x_mask=torch.ones(2, 7))


@pytest.mark.parametrize("chain", [
    "attention(heads = 2)", "attention(heads = 2, window = 3)", "attention(heads = 2, causal = true, share_qk = true)",
    "lsh_attention(heads = 2, chunk = 2)", "conv(d, kernel = 3)", "conv(d, kernel = 3, dilation = 2, causal = true)",
    "conv(d, kernel = 3, groups = 2)", "separable_conv(d, kernel = 5)", "rnn(d)", "lstm(d, direction = both); linear(d)",
    "gru(d, direction = backward)",
    "shift_right; attention(heads = 2)", "repeat 2 { residual { conv(d, kernel = 3) } }", "positions(learned); feed_forward(9)",
])
def test_what_is_not_there_has_no_influence(kit, chain):
    """Behind the padding anything may stand: the positions that are there neither read it, nor send it a gradient."""
    m = kit.module(chain, padded=True).eval()
    there = torch.arange(7) < torch.tensor([[5], [7], [1]])
    x = torch.randn(3, 7, 8, dtype=torch.float64)
    other = torch.where(there[..., None], x, 7.0).requires_grad_()
    y = m(other, x_mask=there)
    assert torch.allclose(y[there], m(x, x_mask=there)[there], atol=1e-12)
    y[there].square().sum().backward()
    assert (other.grad[~there] == 0).all() and (other.grad[there] != 0).any()


def test_free_sizes_are_held_to_what_was_promised(kit):
    m = kit.module("positions(learned, max = 9); linear(d)", n="free")
    assert m(torch.zeros(1, 9, 8, dtype=torch.float64)).shape == (1, 9, 8)
    with pytest.raises(PlaitError, match="learned positions for 9 places"): m(torch.zeros(1, 13, 8))
    m = kit.module("positions(axial, grid = (4, 4), widths = (4, 4))", n="free")
    with pytest.raises(PlaitError, match="16 places"): m(torch.zeros(1, 17, 8))
    m = kit.module("linear(d)", n="free", c="n / 4")
    with pytest.raises(PlaitError, match="c = 1.5 is no size"): m(torch.zeros(1, 6, 8))
    m = kit.module("linear(d)", share="dims { w = 3; require n % w == 0 }", n="free")
    with pytest.raises(PlaitError, match="the spec requires n % w == 0"): m(torch.zeros(1, 7, 8))
    assert m(torch.zeros(1, 6, 8, dtype=torch.float64)).shape == (1, 6, 8)


@pytest.mark.parametrize("name", ["lambda", "self", "None", "forward", "loss", "args"])
def test_names_that_python_has_too(kit, name):
    from plait.compiler.expand import expand, open_file
    from plait.dsl.parser import parse
    text = f"plait 1\nmodel m {{ input {name}: stream[7, 8]; out = {name} {{ linear(8) }}; output out: [7, 8] }}\n"
    m = Module(expand(open_file(parse(text)), "m"), compile=False)
    assert m(torch.zeros(2, 7, 8)).shape == (2, 7, 8)


def test_a_tensor_that_is_no_plain_one(kit):
    m = kit.module("linear(d)")
    with pytest.raises(PlaitError, match="sparse"): m(torch.zeros(1, 7, 8).to_sparse())
    with pytest.raises(PlaitError, match="lies on meta"): m(torch.zeros(1, 7, 8, device="meta"))


def test_a_target_is_asked_for_by_the_loss_alone():
    from plait.compiler.expand import expand, open_file
    from plait.dsl.parser import parse
    text = """plait 1
model m { input text: tokens[7] of 5; input label: class of 3; y = text { embed(5, width = 8); pool(mean); linear(3) }; output y: [3] }
train m { data = bytes("a"); loss = cross_entropy(y, label); batch = 1 sequences; lr = 1; stop = 1 steps }
"""
    m = Module(expand(open_file(parse(text)), "m", loss=True), compile=False)
    x = torch.zeros(2, 7, dtype=torch.long)
    assert m(x).shape == (2, 3) and m.loss(x, torch.tensor([0, 2])).isfinite()
    with pytest.raises(PlaitError, match="label is missing"): m.loss(x)


def test_losses_and_scores(kit):
    m = kit.module(CHAIN, loss="cross_entropy(y, next(x))", **TOKENS)
    x = torch.randint(0, 11, (3, 8))
    mean, total, count = m.losses(x)
    logits = m(x[:, :-1])
    each = torch.nn.functional.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten(), reduction="none")
    assert torch.allclose(total, each.sum()) and count == 21 and torch.allclose(mean, total / 21) and torch.equal(m.loss(x), mean)
    total, count, correct = m.score(x)
    assert torch.allclose(total, each.sum()) and count == 21 and correct == (logits.argmax(-1) == x[:, 1:]).sum()


@pytest.mark.parametrize("chain", ["residual { gru(8) }", "residual { attention(heads = 2, window = 3) }",
                                   "residual { lsh_attention(heads = 2, chunk = 4) }", "residual { attention(heads = 2, dropout = 0.1) }",
                                   "residual { chunked(over = n, pieces = 2) { feed_forward(16) } }",
                                   "reversible(repeat = 2) { f: { linear(8) }; g: { linear(8) } }"])
def test_a_second_derivative_is_refused(kit, chain):
    """A residual leads round what has a first derivative only: without a word the way through it would be left out."""
    m = kit.module(f"{chain}; linear(8)", dtype=torch.float32)                   # in float32 a gru is plait's own scan
    x = torch.randn(2, 7, 8, requires_grad=True)
    with pytest.raises(PlaitError) as wrong: torch.autograd.grad(m(x).square().sum(), x, create_graph=True)
    assert wrong.value.diagnostics[0].code == "E0608"
    plain = kit.module("residual { linear(8); tanh }; linear(8)", dtype=torch.float32)
    g, = torch.autograd.grad(plain(x).square().sum(), x, create_graph=True)
    assert torch.autograd.grad(g.square().sum(), x)[0].isfinite().all()
