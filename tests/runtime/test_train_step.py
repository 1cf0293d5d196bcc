"""One update: parts of a batch, half precision, every optimiser against code of its own or torch's."""
import math

import pytest
import torch
import torch.nn.functional as F

from plait.compiler.lowering import segments
from plait.dsl.errors import PlaitError
from plait.runtime import optim
from plait.runtime.batch import Stop, part, parts
from plait.runtime.checkpoint import State
from plait.runtime.optimizers import orthogonal
from plait.runtime.recipe import Amount, Described
from plait.runtime.sources import OPTIMIZERS
from plait.runtime.step import gradient, mean, update

from .conftest import Small
from .tiny import FAMILIES, made, spec, trained

STILL = {k: v for k, v in FAMILIES.items() if "dropout" not in v and k != "lsh"}          # nothing random in them


def cut(inputs, rows):
    return parts(inputs, Amount(rows, "sequences"), 8)


def grads(module):
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


def batch_of(p, ignored: bool = True):
    """A batch of five rows, some of whose symbols are no targets: all in the first row, two in the last."""
    (x,) = p.dataset.batch(1, 5)
    if ignored: x[0, 1:] = ~x[0, 1:]; x[4, 3:5] = ~x[4, 3:5]
    return (x,)


# ---- parts of a batch --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("family", STILL)
def test_parts_have_the_gradient_of_the_whole(corpus, family, rows):
    """Of the mean over all 5·8 − 8 − 2 = 30 targets, though the parts have 0 to 14 of them."""
    p = made(spec(FAMILIES[family]), corpus)
    x = batch_of(p)
    whole, total, count = p.module.losses(*x)
    assert count == 30
    whole.backward()
    wanted = grads(p.module)
    found = gradient(p.module, cut(x, rows), lambda k: None)
    assert found is not None and found[1] == 30
    assert found[0] / 30 == pytest.approx(whole.item(), rel=1e-6)
    mean(p.module, found[1])
    for name, g in grads(p.module).items(): assert torch.allclose(g, wanted[name], rtol=1e-4, atol=1e-7), name


def test_a_mean_of_means_is_another_gradient(corpus):
    """The test above would notice."""
    p = made(spec("gru(d)"), corpus)
    x = batch_of(p)
    p.module.loss(*x).backward()
    wanted = grads(p.module)
    p.module.zero_grad()
    for some in cut(x, 2): (p.module.loss(*some) / 3).backward()
    assert any(not torch.allclose(g, wanted[name], rtol=1e-2, atol=1e-4) for name, g in grads(p.module).items())


@pytest.mark.parametrize("micro", ["2 sequences", "6 sequences", "", "20 tokens"])
def test_a_run_in_parts_is_the_run_in_one(corpus, micro):
    """60 tokens are 7 rows, and 20 are 2: the last part has one."""
    batch = "60 tokens" if "tokens" in micro else "6 sequences"
    text = spec("gru(d)", batch=batch, microbatch=micro, optimizer="sgd(momentum = 0.9)", lr="0.1")
    _, whole = trained(spec("gru(d)", batch=batch, optimizer="sgd(momentum = 0.9)", lr="0.1"), corpus, "whole")
    run, found = trained(text, corpus, "parts")
    assert run.step == 6
    for a, b in zip(found.parameters(), whole.parameters()): assert torch.allclose(a, b, rtol=1e-4, atol=1e-6)


def test_rows_of_a_part(corpus):
    """16 tokens are 2 rows of 8; 9 tokens one; no part is larger than the batch."""
    def rows(**keys): return part((p := made(spec("gru(d)", **keys), corpus)).recipe, p.dataset.length)
    assert rows() == 5 and rows(batch="48 tokens", microbatch="16 tokens") == 2 and rows(batch="45 tokens", microbatch="9 tokens") == 1
    assert [len(x[0]) for x in cut((torch.zeros(5, 9),), 2)] == [2, 2, 1]
    assert [len(x[0]) for x in parts((torch.zeros(5, 9),), None, 8)] == [5]


def test_tokens_of_a_part_are_counted_by_its_longest_row():
    """24 tokens are one row of a source of 16 or two of 12, whatever the model could read; a class of a sequence goes along."""
    for length, rows in ((16, 1), (12, 2), (8, 3)):
        given = torch.zeros(6, length), torch.zeros(6, 4), torch.zeros(6)
        assert {len(t) for part in parts(given, Amount(24, "tokens"), 512) for t in part} == {rows}


def test_every_part_has_random_numbers_of_its_own(corpus):
    """Equal rows in two parts: without dropout their losses are equal, with it they are not, and the next step's are others again."""
    p = made(spec("dropout(0.5); gru(d)"), corpus)
    row = p.dataset.batch(1, 1)
    seen = []
    real = p.module.losses
    p.module.losses = lambda *x: seen.append(found := real(*x)) or found
    optimizer = optim.build(p.module, p.recipe.optimizer)
    for step in (1, 1, 2): update(p.module, optimizer, p.recipe, [row, row], step, 0.0)
    losses = [total.item() for _, total, _ in seen]
    assert losses[:2] == losses[2:4] and len(set(losses)) == 4


def test_a_stop_between_parts_leaves_everything(corpus):
    p = made(spec("gru(d)"), corpus)
    before = {k: v.clone() for k, v in p.module.state_dict().items()}
    calls = iter([False, True])
    x = batch_of(p)
    assert update(p.module, optim.build(p.module, p.recipe.optimizer), p.recipe, cut(x, 1), 1, 0.1, lambda: next(calls)) is None
    assert all(torch.equal(before[k], v) for k, v in p.module.state_dict().items()) and all(q.grad is None for q in p.module.parameters())


def test_a_batch_without_a_target_moves_nothing(corpus):
    p = made(spec("gru(d)", optimizer="sgd"), corpus)
    (x,) = p.dataset.batch(1, 2)
    x[:, 1:] = ~x[:, 1:]
    assert update(p.module, optim.build(p.module, p.recipe.optimizer), p.recipe, cut((x,), 1), 1, 0.1) == (0.0, 0.0)


# ---- when a run ends ---------------------------------------------------------------------------------------------------
def test_stops(corpus):
    """5 rows of 8 are 40 targets a step. Half of two minutes after 30 steps: the schedule has 60. 1,000 tokens at 30 a step are 34."""
    def stop(**keys): return Stop((p := made(spec("gru(d)", **keys), corpus)).recipe, p.dataset)
    start = State(0, 0, 0.0, "", 1)
    assert [stop(stop=s).last(start) for s in ("7 steps", "1k tokens", "1001 tokens")] == [7, 25, 26]
    counted = stop(stop="1k tokens")
    assert counted.last(State(10, 300, 1.0, "", 1)) == 34 and not counted.reached(State(25, 999, 1.0, "", 1), None)
    assert counted.reached(State(25, 1000, 1.0, "", 1), None) and counted.reached(State(25, 1000, 1.0, "", 1), 99)
    assert not stop(stop="7 steps").reached(State(7, 280, 1.0, "", 1), 9), "more steps than the recipe's may be asked for"
    timed = stop(stop="2 minutes")
    at = State(30, 0, 60.0, "", 1)
    assert timed.last(at) == 60 and not timed.reached(at, None) and timed.reached(at, 30)
    assert timed.reached(State(60, 0, 120.0, "", 1), None) and timed.reached(State(60, 0, 120.0, "", 1), 99)


def test_a_run_by_time_and_one_by_tokens(corpus):
    run, _ = trained(spec("gru(d)", stop="0.002 minutes", lr="cosine(1e-2, 1e-3, 2)"), corpus, "timed")
    assert run.step >= 1 and run.metrics
    run, _ = trained(spec("gru(d)", stop="90 tokens"), corpus, "counted")
    assert run.step == 3                                         # 120 targets are the first 90 or more


# ---- half precision ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("family", FAMILIES)
def test_bf16_trains_every_family(corpus, family):
    """The parameters, what Adam remembers and the loss stay float32; products do not."""
    p = made(spec(FAMILIES[family], precision="bf16"), corpus)
    assert p.module(p.dataset.batch(1, 2)[0][:, :8]).dtype == torch.bfloat16
    _, total, _ = p.module.losses(*p.dataset.batch(1, 2))
    assert total.dtype == torch.float32
    run, module = trained(spec(FAMILIES[family], precision="bf16", stop="40 steps", every=""), corpus, "half")
    exact, _ = trained(spec(FAMILIES[family], stop="40 steps", every=""), corpus, "whole")
    assert all(q.dtype == torch.float32 for q in module.parameters())
    assert math.isfinite(run.loss) and run.loss < 1.2 and abs(run.loss - exact.loss) < 0.25      # from ln 5 = 1.6


def test_bf16_differs_from_fp32(corpus):
    p, q = (made(spec("gru(d)", precision=k), corpus) for k in ("bf16", "fp32"))
    x = p.dataset.batch(1, 5)
    a, b = p.module.loss(*x).item(), q.module.loss(*x).item()
    assert a != b and a == pytest.approx(b, rel=1e-2)


def test_bf16_compiled(corpus, monkeypatch):
    """By the backend that only traces; proof/ has the one that generates code."""
    monkeypatch.setattr(segments, "BACKEND", "aot_eager")
    text = spec(FAMILIES["stack"] + "; gru(d)", precision="bf16", stop="3 steps", every="")
    run, _ = trained(text, corpus, "compiled", compile=True)
    eager, _ = trained(text, corpus, "eager")
    assert run.loss == pytest.approx(eager.loss, rel=5e-2)


# ---- optimisers --------------------------------------------------------------------------------------------------------
def described(kind: str, **given) -> Described:
    return Described(kind, {**{name: q.default for name, q in OPTIMIZERS[kind].parameters.items()}, **given})


class Matrices(torch.nn.Module):
    """A matrix and a vector, with gradients that are given."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.weight, self.bias = torch.nn.Parameter(torch.randn(6, 4)), torch.nn.Parameter(torch.randn(6))

    def push(self, step):
        g = torch.Generator().manual_seed(step)
        for q in self.parameters(): q.grad = torch.randn(q.shape, generator=g)


def follow(kind, theirs, lr=1e-3, **given):
    """Five steps of ours and of torch's, the decay on the matrix alone in both."""
    ours, other = Matrices(), Matrices()
    optimizer, reference = optim.build(ours, described(kind, **given)), theirs(other)
    for step in range(1, 6):
        for m, o in ((ours, optimizer), (other, reference)):
            m.push(step)
            optim.set_rate(o, lr / step)
            o.step()
    return ours, other


def apart(decay):
    return lambda m: [{"params": [m.weight], "weight_decay": decay}, {"params": [m.bias], "weight_decay": 0.0}]


TORCH = {
    "adam": ({"decay": 0.1, "betas": (0.8, 0.95)}, lambda m: torch.optim.Adam(apart(0.1)(m), betas=(0.8, 0.95))),
    "adamw": ({"decay": 0.1}, lambda m: torch.optim.AdamW(apart(0.1)(m))),
    "sgd": ({"decay": 0.1, "momentum": 0.9, "nesterov": True}, lambda m: torch.optim.SGD(apart(0.1)(m), momentum=0.9, nesterov=True)),
    "adafactor": ({"decay": 0.1}, lambda m: torch.optim.Adafactor(apart(0.1)(m), eps=(1e-15, 1e-3))),      # its rate is below 1/√t here
}


@pytest.mark.parametrize("kind", TORCH)
def test_against_torch(kind):
    given, theirs = TORCH[kind]
    ours, other = follow(kind, theirs, **given)
    start = Matrices()
    for a, b, c in zip(ours.parameters(), other.parameters(), start.parameters()):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-6) and not torch.allclose(a, c, atol=1e-5)


def test_sgd_without_momentum_is_a_step_along_the_gradient():
    ours, _ = follow("sgd", lambda m: torch.optim.SGD(m.parameters()))
    wanted = Matrices()
    for step in range(1, 6):
        wanted.push(step)
        for q in wanted.parameters(): q.data -= 1e-3 / step * q.grad
    for a, b in zip(ours.parameters(), wanted.parameters()): assert torch.allclose(a, b, atol=1e-7)


def test_adafactor_by_the_paper():
    """Algorithm 4 of Shazeer & Stern 2018 with α_t = max(ε₂, RMS(X))·lr, in float64; an embedding row without a gradient stays."""
    m = Matrices()
    x = m.weight.detach().double()
    optimizer = optim.build(m, described("adafactor", clip=0.5))
    r, c = torch.zeros(6, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    for t in range(1, 6):
        m.push(t)
        m.weight.grad[2] = 0
        g, beta, lr = m.weight.grad.double(), 1 - t ** -0.8, 3.0                             # a rate above 1/√t is not cut
        r = beta * r + (1 - beta) * (g ** 2 + 1e-30).sum(1)
        c = beta * c + (1 - beta) * (g ** 2 + 1e-30).sum(0)
        u = g / (torch.outer(r, c) / r.sum()).sqrt()
        u /= max(1.0, float((u ** 2).mean().sqrt()) / 0.5)
        x = x - max(1e-3, float((x ** 2).mean().sqrt())) * lr * u
        optim.set_rate(optimizer, lr)
        optimizer.step()
        assert torch.allclose(m.weight.double(), x, rtol=1e-4, atol=1e-4)
    assert torch.equal(m.weight[2], Matrices().weight[2])
    state = optimizer.state[m.weight]
    assert state["rows"].numel() + state["columns"].numel() == 6 + 4


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
def test_muon_against_torch(corpus, shape, nesterov):
    """On the linear layers of a spec, with Moonshot's scale; the rest moves by AdamW."""
    text = spec(f"linear({shape[0]}); linear({shape[1]}); linear(d)", optimizer=f"muon(nesterov = {str(nesterov).lower()}, decay = 0.2)")
    ours, other = made(text, corpus), made(text, corpus)
    optimizer = optim.build(ours.module, ours.recipe.optimizer)
    named = dict(other.module.named_parameters())
    hidden = [f"logits.{k}.weight" for k in (1, 2, 3)]
    assert set(optim.hidden_matrices(other.module)) == set(hidden)
    muon = torch.optim.Muon([named[k] for k in hidden], weight_decay=0.2, nesterov=nesterov, adjust_lr_fn="match_rms_adamw")
    tables = [q for k, q in named.items() if k not in hidden and q.dim() == 2]
    adam = torch.optim.AdamW([{"params": tables, "weight_decay": 0.2},
                              {"params": [q for k, q in named.items() if k not in hidden and q.dim() == 1], "weight_decay": 0.0}])
    for step in (1, 2, 3):
        x = ours.dataset.batch(step, 5)
        for q, optimizers in ((ours, [optimizer]), (other, [muon, adam])):
            q.module.zero_grad()
            q.module.loss(*x).backward()
            for o in optimizers: optim.set_rate(o, 0.01); o.step()
    for (name, a), b in zip(ours.module.named_parameters(), other.module.parameters()):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-5), name


def test_what_muon_takes(corpus):
    """Every product between hidden layers, heads of attention as one matrix, gates apart; no table, filter of one feature, norm or bias."""
    layers = ("positions(learned); layer_norm; attention(heads = 2, causal = true); gru(d); conv(d, kernel = 3, causal = true); "
              "separable_conv(d, kernel = 3, causal = true); repeat 2 { feed_forward(12) }")
    p = made(spec(layers, optimizer="muon"), corpus)
    found = optim.hidden_matrices(p.module)
    shapes = {k: tuple(q.shape) for k, q in p.module.named_parameters()}
    assert {k: (shapes[k], found[k]) for k in found} == {
        "logits.3.query": ((2, 4, 8), (0, 2)), "logits.3.key": ((2, 4, 8), (0, 2)), "logits.3.value": ((2, 4, 8), (0, 2)),
        "logits.3.out": ((8, 2, 4), (0, 1)), "logits.4.0.weight_input": ((3, 8, 8), (1, 1)), "logits.4.0.weight_state": ((3, 8, 8), (1, 1)),
        "logits.5.weight": ((8, 8, 3), (0, 1)), "logits.6.point.weight": ((8, 8), (0, 1)),
        **{f"logits.7.{i}.0.{k}.weight": (s, (0, 1)) for i in (0, 1) for k, s in (("in", (12, 8)), ("out", (8, 12)))}}
    optimizer = optim.build(p.module, p.recipe.optimizer)
    assert sum(q.numel() for g in optimizer.param_groups for q in g["params"]) == sum(q.numel() for q in p.module.parameters())


def test_orthogonal():
    """Singular values of a well-conditioned matrix come to 0.6 to 1.3, and its axes stay."""
    torch.manual_seed(0)
    for shape in ((8, 8), (3, 4, 9), (9, 4)):
        x = torch.randn(shape)
        u, _, vh = torch.linalg.svd(x, full_matrices=False)
        turned = u.mT @ orthogonal(x) @ vh.mT
        values = turned.diagonal(dim1=-2, dim2=-1)
        assert 0.3 < values.min() and values.max() < 1.4
        assert (turned - torch.diag_embed(values)).abs().max() < 0.1


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_convergence(corpus, kind):
    """After "a" always comes "b": whatever the optimiser, the loss falls from ln 5 = 1.6 to almost nothing."""
    lr = {"sgd": "0.5", "adafactor": "0.1"}.get(kind, "2e-2")
    run, _ = trained(spec("linear(d); gelu", optimizer=f"{kind}(momentum = 0.9)" if kind == "sgd" else kind, lr=lr, stop="120 steps",
                          every=""), corpus, "run")
    assert run.loss < 0.1


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_decay_spares_norms_and_biases(corpus, kind):
    """Also those of gates and heads, which have several axes; a stack's copies are apart, so theirs have one."""
    layers = "gru(d); lstm(d); repeat 2 { layer_norm; attention(heads = 2, causal = true); rms_norm; linear(d) }"
    p = made(spec(layers, optimizer=f"{kind}(decay = 0.3)"), corpus)
    names = {q: k for k, q in p.module.named_parameters()}
    decayed = {names[q] for g in optim.build(p.module, p.recipe.optimizer).param_groups if g["weight_decay"] == 0.3 for q in g["params"]}
    rest = set(names.values()) - decayed
    assert rest == {k for k in names.values() if k.rpartition(".")[2] in (
        "shift", "scale", "bias", "bias_input", "bias_state", "query_bias", "key_bias", "value_bias", "out_bias")}
    assert len([k for k in rest if p.module.get_parameter(k).dim() > 1]) >= 7


# ---- averages ----------------------------------------------------------------------------------------------------------
def test_the_average_is_the_weighted_mean():
    """Weights β² , β, 1 over their sum: the first values are no part of it."""
    m = Small(5, 8)
    average, seen = optim.Average(m, 0.9), []
    for step in (1, 2, 3):
        with torch.no_grad(): m.out.bias.copy_(torch.randn(5))
        seen.append(m.out.bias.clone())
        average.update(step)
    wanted = sum(w * b for w, b in zip((0.81, 0.9, 1.0), seen)) / 2.71
    assert torch.allclose(average.values["out.bias"], wanted, atol=1e-6)
    with average.taken(): assert torch.allclose(m.out.bias, wanted, atol=1e-6)
    assert torch.equal(m.out.bias, seen[-1])


# ---- label smoothing ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("pieces", ["", ", pieces = 2"])
def test_smoothing_is_that_of_torch_and_no_part_of_an_evaluation(corpus, pieces):
    smooth = made(spec("gru(d)", loss=f"cross_entropy(logits, next(text), smoothing = 0.1{pieces})"), corpus)
    plain = made(spec("gru(d)"), corpus)
    (x,) = smooth.dataset.batch(1, 5)
    logits = smooth.module(x[:, :8]).flatten(0, 1)
    found = float(smooth.module.loss(x))
    assert found == pytest.approx(float(F.cross_entropy(logits, x[:, 1:].flatten(), label_smoothing=0.1)), rel=1e-5)
    from plait.runtime.evaluate import evaluate
    assert found != pytest.approx(float(plain.module.loss(x)), rel=1e-3)
    for metrics in (("loss",), ("loss", "accuracy")):
        a, b = (evaluate(p.module, p.dataset, metrics)["loss"] for p in (smooth, plain))
        assert a == pytest.approx(b)


def test_a_metric_that_is_not_there(corpus):
    with pytest.raises(PlaitError, match="bleu"): trained(spec("gru(d)", every="every 2 steps { evaluate(bleu) }"), corpus, "run")
