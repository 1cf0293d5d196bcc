"""Another device than the CPU: nothing is made in the wrong place, and nothing in a step waits for a number.

Tensors on torch's device `meta` have shapes and no content: to mix one with a tensor of the CPU is an error there as on a GPU, and so is
to ask for its content, which on a GPU would be to wait. Both of forward and of backward."""
import pytest
import torch

from plait import files
from plait.compiler.expand import expand
from plait.compiler.kernels import KERNELS
from plait.compiler.layer import LAYERS
from plait.runtime.module import Module

from .layers import of_layer

MORE = {
    "dropout in attention": "attention(heads = 2, causal = true, dropout = 0.1)",
    "a window": "attention(heads = 2, window = 3, share_qk = true)",
    "rounds of hashing": "lsh_attention(heads = 2, chunk = 4, rounds = 3, causal = true)",
    "two ways": "lstm(4, direction = both); gru(8); rnn(8)",
    "copies and pieces": "repeat 2 { residual(dropout = 0.1) { linear(d) } }; "
                         "chunked(over = n, pieces = 3) { feed_forward(12); dropout(0.5) }",
    "reversible": "reversible(repeat = 2) { a: { layer_norm; lsh_attention(heads = 2, chunk = 4) }; "
                  "b: { layer_norm; chunked(over = n, pieces = 2) { feed_forward(9); dropout(0.5) } } }",
    "dilations": "repeat 2 as i { conv(d, kernel = 3, dilation = 2^i) }; positions(rotary); attention(heads = 2)",
}
TEXTS = {**{name: of_layer(name) for name in sorted(LAYERS)},
         **{f"{name}{', padded' * padded}": f"plait 1\ndims {{ n = 7; d = 8 }}\nmodel m {{\n  input x: stream[n, d]{' padded' * padded}\n"
            f"  y = x {{ {chain} }}\n  output y: [n, d]\n}}\n" for name, chain in MORE.items() for padded in (False, True)}}
LIBRARY = ("rnn", "lstm", "gru", "two ways")           # torch's recurrent calls are not to be had on `meta`
LOSS = """plait 1
model m {{ input x: tokens[7] of 11; y = x {{ embed(11, width = 8); linear(8); unembed(11) }}; output y: [7, 11] }}
train m {{ data = bytes("a"); loss = cross_entropy(y, next(x), pieces = {pieces}, smoothing = 0.1); stop = 1 steps }}
"""


def opened(text: str, kernels: str, loss: bool = False) -> Module:
    forced = {k.region: "body" for k in KERNELS} if kernels == "bodies" else None
    return Module(expand(files.opened("m.plait", text=text), "m", loss=loss), "meta", compile=False, kernels=forced)


@pytest.fixture(autouse=True)
def autocast_as_on_a_cpu(monkeypatch):
    """`meta` has none of its own, and what is made again in backward asks for its state."""
    for name in ("autocast", "is_autocast_enabled", "get_autocast_dtype"):
        real = getattr(torch, name)
        monkeypatch.setattr(torch, name, lambda device_type="cpu", *a, real=real, **more: real(
            "cpu" if device_type == "meta" else device_type, *a, **more))


@pytest.mark.parametrize("name, kernels", [(n, k) for n in TEXTS for k in ("kernels", "bodies") if k == "bodies" or n not in LIBRARY])
def test_a_step_stays_on_the_device(name, kernels):
    module = opened(TEXTS[name], kernels)
    (given,) = module.program.inputs
    x = torch.zeros(2, 7, dtype=torch.long, device="meta") if given.kind == "tokens" else torch.zeros(2, 7, 8, device="meta")
    for training in (True, False):
        out = module.train(training)(x)
        found = torch.autograd.grad(out, list(module.parameters()), torch.ones_like(out), allow_unused=True) if out.requires_grad else ()
        assert all(t.device.type == "meta" for t in (out, *found) if t is not None)


@pytest.mark.parametrize("kernels", ["kernels", "bodies"])
@pytest.mark.parametrize("pieces", [1, 3])
def test_a_loss_stays_on_the_device(pieces, kernels):
    module = opened(LOSS.format(pieces=pieces), kernels, loss=True)
    mean, total, count = module.losses(torch.zeros(2, 8, dtype=torch.long, device="meta"))
    mean.backward()
    assert {t.device.type for t in (mean, total, count, *(p.grad for p in module.parameters()))} == {"meta"}
    assert all(t.device.type == "meta" for t in module.score(torch.zeros(2, 8, dtype=torch.long, device="meta")))


def test_the_device_tells():
    """The two mistakes that these tests are for are errors here."""
    x = torch.zeros(3, device="meta")
    with pytest.raises(Exception, match="device|meta"): x + torch.zeros(3)
    with pytest.raises(Exception, match="meta"): (x.sum() > 0).item()
