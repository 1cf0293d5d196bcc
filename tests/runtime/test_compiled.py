"""The training side on models that the compiler made, not lowered by inductor; every layer compiled is the eager one."""
import pytest
import torch
import torch._dynamo

from plait import files
from plait.compiler.expand import expand, open_file
from plait.compiler.kernels import KERNELS
from plait.compiler.layer import LAYERS
from plait.compiler.lowering import segments
from plait.dsl.errors import PlaitError
from plait.dsl.parser import parse
from plait.runtime import data, optim
from plait.runtime.audit import measure
from plait.runtime.evaluate import evaluate
from plait.runtime.generate.sample import sample
from plait.runtime.module import Module
from plait.runtime.prepare import prepare, reopen
from plait.runtime.recipe import Described, recipe
from plait.runtime.train import resume, train

from .layers import of_layer
from .test_train import same, timeless

SPEC = """plait 1
dims { V = 5; n = 8; d = 16; h = 2 }
share tok = embedding(V, d)
model m {
  input text: tokens[n] of V
  logits = text {
    embed(tok)
    positions(learned)
    repeat 2 { residual(dropout = 0.1) { attention(heads = h, causal = true) }; residual { feed_forward(2 * d) } }
    layer_norm
    unembed(tok)
  }
  output logits: [n, V]
}
train m {
  data = DATA
  loss = cross_entropy(logits, next(text))
  batch = 4 sequences
  optimizer = adamw(betas = (0.9, 0.99), decay = 0.1)
  lr = cosine(1e-2, 1e-3, 5)
  clip = 1
  stop = STOP steps
  seed = 1
  every 6 steps { evaluate(loss, accuracy); checkpoint; sample("ab", length = 5) }
}
"""


class Compiled:
    def __init__(self, folder, source='text("corpus.txt")', stop=12, sample=True):
        self.text = SPEC.replace("DATA", source).replace("STOP", str(stop))
        if not sample: self.text = self.text.replace('; sample("ab", length = 5)', "")
        spec = parse(self.text, "spec.plait")
        self.program = expand(open_file(spec), "m", loss=True)
        self.recipe = recipe(spec, "m", {"V": 5, "n": 8, "d": 16, "h": 2})
        self.folder = folder
        self.data = data.open_for(self.program, self.recipe.data, folder, self.recipe.seed)

    def module(self, seed=0):
        torch.manual_seed(seed)
        return Module(self.program, compile=False)

    def train(self, name, **more):
        module = self.module()
        return train(module, self.recipe, self.data, self.folder / name, spec_text=self.text, **more), module


def test_twelve_steps_are_seven_and_five(corpus):
    c = Compiled(corpus)
    _, whole = c.train("whole")
    c.train("parts", steps=7)
    parts = c.module(seed=9)
    run = resume(parts, c.recipe, c.data, corpus / "parts")
    assert run.step == 12 and same(whole.state_dict(), parts.state_dict())
    assert timeless(corpus / "whole") == [r for r in timeless(corpus / "parts") if (r["step"], r["split"]) != (7, "validation")]


def test_it_learns_and_continues_a_text(corpus):
    c = Compiled(corpus, stop=60)
    run, module = c.train("run")
    assert run.metrics["count"] == 99 and run.metrics["accuracy"] > 0.99
    assert "".join(sample(module, c.data.codec, "ab", length=13, temperature=0)) == "cd\nabcd\nabcd\n"[:13]
    assert "".join(sample(module, c.data.codec, "abcd\nabcd\nabc", length=3, temperature=0)) == "d\na"


def test_the_repeated_part_of_the_last_window_does_not_count(corpus):
    """The mean over all 99 targets, taken window by window with what the last one repeats cut away by hand."""
    c = Compiled(corpus)
    module = c.module().eval()
    text = torch.tensor(c.data.codec.encode("abcd\n" * 20))
    total = 0.0
    for start, kept in [*((i * 8, 8) for i in range(12)), (91, 3)]:
        logits = module(text[None, start:start + 8])[0]
        total += torch.nn.functional.cross_entropy(logits[-kept:], text[start + 1:start + 9][-kept:], reduction="sum").item()
    assert evaluate(module, c.data, ("loss",))["loss"] == pytest.approx(total / 99, rel=1e-5)


def test_only_the_second_half_of_a_duplicate_counts(tmp_path):
    c = Compiled(tmp_path, "duplicate(symbols = 4, length = 8)", sample=False)
    run, _ = c.train("run")
    assert run.metrics["count"] == 256 * 4


def test_biases_are_not_decayed(corpus):
    module = Compiled(corpus).module()
    a = {"betas": (0.9, 0.99), "eps": 1e-8, "decay": 0.1, "decay_all": False}
    decayed = {id(p) for g in optim.build(module, Described("adamw", a)).param_groups if g["weight_decay"] for p in g["params"]}
    for name, p in module.named_parameters(): assert (id(p) in decayed) == (p.dim() >= 2 and "bias" not in name), name


def test_the_layer_that_breaks_is_named_with_its_place(corpus):
    """Weights of 1e20 make sums of products beyond 3e38 in the second layer of the second copy of the repeat, not before."""
    c = Compiled(corpus)
    module = c.module()
    with torch.no_grad(): dict(module.named_parameters())["logits.2.1.1.0.in.weight"].fill_(3e38)
    with pytest.raises(PlaitError) as caught: train(module, c.recipe, c.data, corpus / "run", spec_text=c.text)
    (found,) = caught.value.diagnostics
    assert "`m/logits/2/1/0" in found.message
    assert found.span is not None and "feed_forward" in c.text[found.span.start:found.span.end]


def test_a_free_vocabulary_is_bound_by_the_data_and_a_run_is_opened_again(corpus):
    text = SPEC.replace("DATA", 'text("corpus.txt")').replace("STOP", "12").replace("V = 5;", "V;")
    made = prepare(parse(text, "spec.plait"), None, corpus, compile=False)
    assert "V = 5" in made.spec_text and made.module(torch.zeros(1, 8, dtype=torch.long)).shape == (1, 8, 5)
    train(made.module, made.recipe, made.dataset, corpus / "run", spec_text=made.spec_text, steps=7)
    again = reopen(corpus / "run", compile=False)
    run = resume(again.module, again.recipe, again.dataset, corpus / "run")
    whole = prepare(parse(text, "spec.plait"), "m", corpus, compile=False)
    train(whole.module, whole.recipe, whole.dataset, corpus / "whole", spec_text=whole.spec_text)
    assert run.step == 12 and same(whole.module.state_dict(), again.module.state_dict())


def test_what_keeps_a_model_from_being_prepared(corpus):
    text = SPEC.replace("DATA", 'text("corpus.txt")').replace("STOP", "12")
    for written, part in ((text.replace("V = 5;", "V = 4;"), "only 4"), (text.replace("corpus", "corpse"), "no file `corpse.txt`"),
                          (text[:text.index("train m")], "no train block"), (text.replace("n = 8;", "n <= 8;"), "has no value")):
        with pytest.raises(PlaitError, match=part): prepare(parse(written, "spec.plait"), None, corpus, compile=False)
    with pytest.raises(PlaitError, match="not the folder of a run"): reopen(corpus / "nowhere")


@pytest.mark.parametrize("kernels", ["kernels", "bodies"])
@pytest.mark.parametrize("name", sorted(LAYERS))
def test_every_layer_compiles(name, kernels, monkeypatch):
    """By the backend that only traces: the same output and gradients as eager."""
    monkeypatch.setattr(segments, "BACKEND", "aot_eager")
    torch._dynamo.reset()
    program = expand(files.opened("m.plait", text=of_layer(name)), "m", loss=True)
    found = []
    for compiled in (False, True):
        torch.manual_seed(0)
        module = Module(program, compile=compiled, kernels={k.region: "body" for k in KERNELS} if kernels == "bodies" else None)
        given = measure.inputs(program, False)
        torch.manual_seed(1)
        out = measure.forward(module, given, False)
        leaves = [t for t in (*module.parameters(), *given) if t.requires_grad]
        found.append((out.detach(), *torch.autograd.grad(out, leaves)))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)
    torch._dynamo.reset()
