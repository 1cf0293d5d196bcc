"""Every layer that PyTorch has too, with PyTorch's own weights: the same outputs and input gradients, in float64."""
from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from plait.compiler.expand import expand, open_file
from plait.dsl.parser import parse
from plait.runtime.kernels.dense import Scaled
from plait.runtime.module import Module

B, N, D = 3, 7, 8


def compiled(body: str, out: str = "[n, d]", io: str = "stream[n, d]", before: str = "") -> Module:
    text = f"plait 1\ndims {{ n = {N}; d = {D} }}\n{before}\nmodel m {{ input x: {io}\ny = x {{ {body} }}\noutput y: {out} }}\n"
    return Module(expand(open_file(parse(text, "test")), "m"), compile=False, dtype=torch.float64)


def same(module: Module, weights: dict[str, torch.Tensor], want, x: torch.Tensor) -> None:
    """Outputs and gradients with respect to the input."""
    own = module.state_dict()
    assert set(own) == set(weights), sorted(own)
    module.load_state_dict({k: v.detach().reshape(own[k].shape) for k, v in weights.items()})
    x = x.clone().requires_grad_()
    y, z = module(x), want(x)
    torch.testing.assert_close(y, z, rtol=1e-9, atol=1e-9)
    g = torch.randn_like(z)
    torch.testing.assert_close(torch.autograd.grad(y, x, g)[0], torch.autograd.grad(z, x, g)[0], rtol=1e-9, atol=1e-9)


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.randn(B, N, D, dtype=torch.float64)


def test_linear(x):
    t = nn.Linear(D, 5).double()
    same(compiled("linear(5)", "[n, 5]"), {"y.0.weight": t.weight, "y.0.bias": t.bias}, t, x)


def test_layer_norm(x):
    t = nn.LayerNorm(D).double()
    nn.init.normal_(t.weight), nn.init.normal_(t.bias)
    same(compiled("layer_norm"), {"y.0.scale": t.weight, "y.0.shift": t.bias}, t, x)


def test_a_second_derivative_of_rms_norm():
    """What backward keeps is a function of the input, too: a constant in its place would give another number."""
    torch.manual_seed(0)
    x, scale = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True), torch.randn(5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x, scale: Scaled.apply(x, scale, 1e-5), (x, scale))
    assert torch.autograd.gradcheck(lambda x, scale: Scaled.apply(x, scale, 1e-5), (x, scale))


def test_rms_norm(x):
    t = nn.RMSNorm(D, eps=1e-5).double()
    nn.init.normal_(t.weight)
    same(compiled("rms_norm"), {"y.0.scale": t.weight}, t, x)


@pytest.mark.parametrize("fn", ["relu", "gelu", "silu", "tanh", "sigmoid"])
def test_activations(fn, x):
    same(compiled(fn), {}, getattr(F, fn) if hasattr(F, fn) else getattr(torch, fn), x)


def test_feed_forward(x):
    p, q = nn.Linear(D, 20).double(), nn.Linear(20, D).double()
    same(compiled("feed_forward(20, activation = gelu)"),
         {"y.0.in.weight": p.weight, "y.0.in.bias": p.bias, "y.0.out.weight": q.weight, "y.0.out.bias": q.bias},
         lambda x: q(F.gelu(p(x))), x)


def test_gated_feed_forward(x):
    g, p, q = nn.Linear(D, 20).double(), nn.Linear(D, 20).double(), nn.Linear(20, D).double()
    weights = {f"y.0.{n}.{k}": getattr(t, k) for n, t in (("gate", g), ("in", p), ("out", q)) for k in ("weight", "bias")}
    same(compiled("gated_feed_forward(20)"), weights, lambda x: q(F.silu(g(x)) * p(x)), x)


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal, x):
    t = nn.MultiheadAttention(D, 2, batch_first=True).double()
    nn.init.normal_(t.in_proj_bias), nn.init.normal_(t.out_proj.bias)
    w, b = t.in_proj_weight.chunk(3), t.in_proj_bias.chunk(3)
    names = ("query", "key", "value")
    weights = {f"y.0.{n}": v for n, v in zip(names, w)} | {f"y.0.{n}_bias": v for n, v in zip(names, b)}
    weights |= {"y.0.out": t.out_proj.weight, "y.0.out_bias": t.out_proj.bias}
    mask = nn.Transformer.generate_square_subsequent_mask(N, dtype=torch.float64) if causal else None
    same(compiled(f"attention(heads = 2, causal = {str(causal).lower()})"), weights,
         lambda x: t(x, x, x, attn_mask=mask, need_weights=False)[0], x)


@pytest.mark.parametrize("kernel", ["auto", "rowwise", "body"])
def test_windowed_and_grouped_attention(kernel, x):
    """A mask that allows the window says the same; grouped queries repeat their keys."""
    torch.manual_seed(1)
    i, j = torch.arange(N)[:, None], torch.arange(N)
    if kernel != "rowwise":
        module = compiled(f"attention(heads = 2, window = 3, causal = true, bias = false, kernel = {kernel})")
        p = {k.split(".")[-1]: v.detach() for k, v in module.named_parameters()}
        def want(x):
            q, k, v = (torch.einsum("bnd,hkd->bhnk", x, p[n]) for n in ("query", "key", "value"))
            o = F.scaled_dot_product_attention(q, k, v, attn_mask=(j <= i) & (i - j < 3))
            return torch.einsum("bhnv,dhv->bnd", o, p["out"])
        same(module, module.state_dict(), want, x)
    module = compiled(f"attention(heads = 4, kv_heads = 2, causal = true, bias = false, kernel = {kernel})")
    p = {k.split(".")[-1]: v.detach() for k, v in module.named_parameters()}
    def grouped(x):
        q = torch.einsum("bnd,gskd->bgsnk", x, p["query"]).flatten(1, 2)
        k, v = (torch.einsum("bnd,gkd->bgnk", x, p[n]).repeat_interleave(2, 1) for n in ("key", "value"))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True).unflatten(1, (2, 2))
        return torch.einsum("bgsnv,dgsv->bnd", o, p["out"].reshape(D, 2, 2, 2))
    same(module, module.state_dict(), grouped, x)


@pytest.mark.parametrize("causal, dilation, groups", [(False, 1, 1), (True, 1, 1), (True, 2, 1), (False, 1, 4)])
def test_conv(causal, dilation, groups, x):
    t = nn.Conv1d(D, 12, 3, dilation=dilation, groups=groups).double()
    pad = (2 * dilation, 0) if causal else (dilation, dilation)
    same(compiled(f"conv(12, kernel = 3, causal = {str(causal).lower()}, dilation = {dilation}, groups = {groups})", "[n, 12]"),
         {"y.0.weight": t.weight, "y.0.bias": t.bias}, lambda x: t(F.pad(x.mT, pad)).mT, x)


def test_separable_conv(x):
    t, p = nn.Conv1d(D, D, 4, groups=D, bias=False).double(), nn.Linear(D, 5).double()
    same(compiled("separable_conv(5, kernel = 4)", "[n, 5]"),
         {"y.0.depth.weight": t.weight, "y.0.point.weight": p.weight, "y.0.point.bias": p.bias},
         lambda x: p(t(F.pad(x.mT, (1, 2))).mT), x)


@pytest.mark.parametrize("name, layers, both", [("rnn", 1, False), ("lstm", 1, False), ("gru", 1, False), ("lstm", 2, True),
                                                ("gru", 2, False), ("rnn", 1, True)])
def test_recurrent(name, layers, both, x):
    t = getattr(nn, name.upper())(D, 6, num_layers=layers, bidirectional=both, batch_first=True).double()
    kinds = {"weight_input": "weight_ih", "weight_state": "weight_hh", "bias_input": "bias_ih", "bias_state": "bias_hh"}
    weights = {f"y.0.{k}{'_reverse' if r else ''}.{ours}": getattr(t, f"{theirs}_l{k}{'_reverse' if r else ''}")
               for k in range(layers) for r in ((False, True) if both else (False,)) for ours, theirs in kinds.items()}
    how = f"6, layers = {layers}, direction = {'both' if both else 'forward'}"
    same(compiled(f"{name}({how})", f"[n, {12 if both else 6}]"), weights, lambda x: t(x)[0], x)


def test_sinusoidal_positions(x):
    """PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i + 1) = cos(…). Vaswani et al. 2017, section 3.5."""
    rows = [[(math.sin if k % 2 == 0 else math.cos)(p / 10000 ** ((k - k % 2) / D)) for k in range(D)] for p in range(N)]
    want = torch.tensor(rows, dtype=torch.float64)
    torch.testing.assert_close(compiled("positions(sinusoidal)")(x), x + want, rtol=1e-6, atol=1e-6)


def test_axial_positions(x):
    """Row p // 4 beside column p % 4. Kitaev et al. 2020, section 4."""
    module = compiled("positions(axial, grid = (2, 4), widths = (3, 5))")
    row, column = (p.detach() for p in module.parameters())
    want = torch.stack([torch.cat((row[p // 4], column[p % 4])) for p in range(N)])
    torch.testing.assert_close(module(x), x + want)


def test_rotary_scores_depend_on_distance(x):
    """Su et al. 2021: q_i·k_j after turning depends on i − j only. With equal inputs everywhere every row of a causal-free
    attention sees scores that are a function of i − j, so shifting the sequence changes nothing inside a window."""
    torch.manual_seed(0)
    module = compiled("positions(rotary); attention(heads = 2, window = 3, bias = false)")
    y = module(torch.randn(1, 1, D, dtype=torch.float64).expand(1, N, D))
    torch.testing.assert_close(y[0, 1], y[0, 4])              # equal neighbourhoods, equal outputs
    z = compiled("positions(rotary); attention(heads = 2, bias = false)")
    p = {k.split(".")[-1]: v.detach() for k, v in z.named_parameters()}
    def turned(t):
        angle = torch.arange(N, dtype=torch.float64)[:, None] * 10000 ** -(torch.arange(2, dtype=torch.float64) / 2)
        a, b = t.chunk(2, -1)
        return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)
    q, k, v = (torch.einsum("bnd,hkd->bhnk", x, p[n]) for n in ("query", "key", "value"))
    want = torch.einsum("bhnv,dhv->bnd", F.scaled_dot_product_attention(turned(q), turned(k), v), p["out"])
    torch.testing.assert_close(z(x), want, rtol=1e-5, atol=1e-6)


def test_tied_embedding():
    module = compiled("embed(tok, scale = 3); unembed(tok)", "[n, 11]", "tokens[n] of 11", "share tok = embedding(11, d)")
    table, = module.parameters()
    t = torch.randint(11, (B, N))
    torch.testing.assert_close(module(t), 3 * F.embedding(t, table) @ table.T)


def test_loss_is_torchs_cross_entropy():
    text = """plait 1
dims { n = 5; d = 8; V = 11 }
model m { input text: tokens[n] of V
  y = text { embed(V, width = d); unembed(V) }
  output y: [n, V] }
train m {
  data = text("f"); loss = cross_entropy(y, next(text), smoothing = 0.1, pieces = PIECES); batch = 1 sequences; lr = 1; stop = 1 steps
}
"""
    torch.manual_seed(0)
    t = torch.randint(11, (3, 6))
    for pieces in ("1", "2", "5"):
        program = expand(open_file(parse(text.replace("PIECES", pieces), "test")), "m", loss=True)
        module = Module(program, compile=False, dtype=torch.float64)
        want = F.cross_entropy(module(t[:, :5]).flatten(0, 1), t[:, 1:].flatten(), label_smoothing=0.1)
        torch.testing.assert_close(module.loss(t), want)
        mean, total, count = module.losses(t)
        assert count == 15 and torch.allclose(total, mean * 15)
        _, count, correct = module.score(t)
        assert correct == (module(t[:, :5]).argmax(-1) == t[:, 1:]).sum() and count == 15
        hidden = t.clone(); hidden[:, -1] = -1 - hidden[:, -1]            # a symbol that is read and is no target
        want = F.cross_entropy(module(t[:, :5])[:, :4].flatten(0, 1), t[:, 1:5].flatten(), label_smoothing=0.1)
        torch.testing.assert_close(module.loss(hidden), want)
