"""A loss or gradient that is not finite: the run stops, keeps its last good checkpoint, and names the layer."""
import math

import pytest
import torch

from plait.dsl.errors import PlaitError
from plait.runtime import checkpoint
from plait.runtime.train import train

from .tiny import FAMILIES, made, resumed, same_bits, spec

# two weights that are made so large that the product with the second overflows → the layer that is to be named
SPOILED = [("conv", "logits.0.weight", "logits.1.weight", "logits/1"),
           ("attention", "logits.1.0.value", "logits.1.0.out", "logits/1/0"),
           ("lsh", "logits.1.0.value", "logits.1.0.out", "logits/1/0"),
           ("stack", "logits.1.1.1.0.in.weight", "logits.1.1.1.0.out.weight", "logits/1/1/0"),
           ("reversible", "logits.1.1.b.0.in.weight", "logits.1.1.b.0.out.weight", "logits/1/b/0")]


def broken(p, at: int, spoil) -> None:
    """`spoil` is called before the loss of that call."""
    real, calls = p.module.losses, []

    def losses(*x):
        calls.append(1)
        if len(calls) == at: spoil()
        return real(*x)
    p.module.losses = losses


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("family, first, second, place", SPOILED)
def test_the_layer_is_named(corpus, family, first, second, place, precision):
    """In the third part of step 4."""
    text = spec(FAMILIES[family], precision=precision, microbatch="1 sequences", every="every 2 steps { checkpoint }")
    p = made(text, corpus)

    def spoil():
        with torch.no_grad():
            for name in (first, second): p.module.get_parameter(name).mul_(1e25)
    broken(p, 3 * 5 + 3, spoil)
    with pytest.raises(PlaitError) as caught: train(p.module, p.recipe, p.dataset, corpus / "run", spec_text=p.spec_text)
    (found,) = caught.value.diagnostics
    assert found.code == "E0622"
    assert found.message == f"the loss is not finite at step 4: `m/{place}` is the first layer whose output is not"
    assert "the last checkpoint is step 2" in found.numbers and checkpoint.steps(corpus / "run") == [0, 2]
    run, module = resumed(text, corpus, "run")
    assert run.step == 6 and math.isfinite(run.loss) and same_bits(module, text, corpus)


@pytest.mark.parametrize("family", ["gru", "reversible", "stack"])
def test_only_the_gradient(corpus, family):
    """NaN in the gradient of one parameter: that one is named, though the norm to clip by is NaN too, and nothing is updated."""
    text = spec(FAMILIES[family], microbatch="1 sequences", every="")
    p = made(text, corpus)
    name, q = list(p.module.named_parameters())[3]
    before = {k: v.clone() for k, v in p.module.state_dict().items()}
    q.register_hook(lambda g: g * math.nan)
    with pytest.raises(PlaitError) as caught: train(p.module, p.recipe, p.dataset, corpus / "run", spec_text=p.spec_text)
    assert f"the gradient is not finite at step 1: the gradient of `{name}` is the first that is not" in caught.value.diagnostics[0].message
    assert all(torch.equal(before[k], v) for k, v in p.module.state_dict().items())
    assert resumed(text, corpus, "run")[0].step == 6


def test_a_parameter_that_was_spoiled(corpus):
    p = made(spec("gru(d)", average="0.9", every=""), corpus)
    q = p.module.get_parameter("logits.1.0.weight_state")

    def spoil():
        with torch.no_grad(): q[0, 0, 0] = math.nan
    broken(p, 3, spoil)
    with pytest.raises(PlaitError) as caught: train(p.module, p.recipe, p.dataset, corpus / "run", spec_text=p.spec_text)
    assert "the parameter `logits.1.0.weight_state` no longer is" in caught.value.diagnostics[0].message
    assert checkpoint.steps(corpus / "run") == [0]


def test_first_values_that_are_not_finite(corpus):
    p = made(spec("gru(d)"), corpus)
    with torch.no_grad(): next(p.module.parameters()).fill_(math.inf)
    with pytest.raises(PlaitError) as caught: train(p.module, p.recipe, p.dataset, corpus / "run", spec_text=p.spec_text)
    assert "there is no checkpoint yet" in caught.value.diagnostics[0].numbers
