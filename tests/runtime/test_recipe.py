import math
import subprocess
import sys
from fractions import Fraction

import pytest

from plait.dsl.errors import PlaitError
from plait.dsl.parser import parse
from plait.runtime.recipe import recipe, trainable

from .conftest import HEAD, made, source


def wrong(text: str) -> list[tuple[str, str, str]]:
    with pytest.raises(PlaitError) as caught: made(text)
    return [(d.code, d.message, d.help) for d in caught.value.diagnostics]


def refused(text: str) -> list[tuple[str, str]]:
    with pytest.raises(PlaitError) as caught: trainable(made(text))
    assert all(d.span is not None for d in caught.value.diagnostics)
    return [(d.code, d.message) for d in caught.value.diagnostics]


def test_everything_of_a_block_is_read():
    r = made(source(data='text("a.txt", tokens = bytes, split = (0.8, 0.1, 0.1))', clip="1",
                    optimizer="adamw(betas = (0.9, 0.99), decay = 0.1)",
                    every='every 500 steps { evaluate(loss, accuracy); checkpoint(keep = 3); sample(prompt = "x", length = 10) }'))
    assert r.data.kind == "text"
    tenth = Fraction(1, 10)
    assert dict(r.data.arguments) == {"file": "a.txt", "tokens": "bytes", "split": (8 * tenth, tenth, tenth)}
    assert dict(r.optimizer.arguments) == {"betas": (0.9, 0.99), "eps": 1e-8, "decay": 0.1, "decay_all": False}
    assert (r.batch.amount, r.batch.unit, r.stop.amount, r.stop.unit) == (4, "sequences", 20, "steps")
    assert (r.clip, r.seed, r.precision) == (1, 3, "fp32")
    (every,) = r.every
    assert every.period == 500 and [a.kind for a in every.actions] == ["evaluate", "checkpoint", "sample"]
    assert r.metrics == ("loss", "accuracy")
    assert every.actions[2].arguments == {"prompt": "x", "length": 10, "temperature": 1.0, "top_k": None, "top_p": None}
    trainable(r)


def test_defaults_are_those_of_pytorch():
    assert made(source()).optimizer.kind == "adam"
    assert made(source(optimizer="adam")).optimizer.arguments == {"betas": (0.9, 0.999), "eps": 1e-8, "decay": 0.0, "decay_all": False}
    assert made(source(optimizer="adamw()")).optimizer.arguments["decay"] == 0.01


def test_no_block_names_the_model():
    assert recipe(parse(HEAD + "model other { }\n".replace("{ }", "{ input t: tokens[n] of V; y = t { embed(V, width = 2) } }")
                        + source().removeprefix(HEAD), "s"), "other", {"n": 8}) is None


def test_a_block_without_names_is_for_every_model():
    assert recipe(parse(source().replace("train m", "train"), "s"), "m", {"n": 8}) is not None


def test_a_block_that_names_the_model_goes_before_one_that_names_none():
    both = source(seed="1").replace("train m", "train") + source(seed="2").removeprefix(HEAD)
    assert made(both).seed == 2


def test_two_blocks_for_one_model():
    text = source() + source().removeprefix(HEAD)
    assert wrong(text)[0][:2] == ("E0637", "two train blocks are for the model `m`")


def test_several_mistakes_are_said_at_once():
    found = wrong(source(learning_rate="1", data='txt("a")', stop="100 sequences", optimizer="adamw(weight = 1)"))
    assert sorted(code for code, _, _ in found) == ["E0631", "E0632", "E0633", "E0634"]
    said = {message: help for _, message, help in found}
    assert "`lr`" in said["a train block has no key `learning_rate`"]
    assert "`text`" in said["there is no data source `txt`"]
    assert "`stop` is counted in steps or epochs or tokens or minutes, not in sequences" in said


@pytest.mark.parametrize("keys, code, part", [
    ({"lr": ""}, "E0631", "does not say `lr`"),
    ({"batch": "32"}, "E0634", "unit is missing"),
    ({"batch": "0 sequences"}, "E0633", "at least 1"),
    ({"batch": "2.5 sequences"}, "E0633", "whole number"),
    ({"stop": "1.5 steps"}, "E0633", "whole number"),
    ({"clip": "0"}, "E0633", "above 0"),
    ({"clip": "1 steps"}, "E0634", "plain number"),
    ({"seed": "0 - 1"}, "E0633", "at least 0"),
    ({"optimizer": "adam(betas = (0.9, 1))"}, "E0633", "below 1"),
    ({"optimizer": "adam(betas = 0.9)"}, "E0633", "two numbers"),
    ({"optimizer": "adam(0.9)"}, "E0633", "has no name"),
    ({"optimizer": "adem"}, "E0632", "no optimizer `adem`"),
    ({"data": 'text("a", split = (0.9, 0.2))'}, "E0633", "more than 1"),
    ({"data": 'text("a", split = (1, 0))'}, "E0633", "above 0"),
    ({"data": "text()"}, "E0633", "needs `file`"),
    ({"data": "text(a)"}, "E0633", "double quotes"),
    ({"data": 'text("a", tokens = words)'}, "E0633", "`characters` or `bytes`"),
    ({"data": "duplicate(length = 2)"}, "E0633", "at least 4"),
    ({"optimizer": "sgd(nesterov = true)"}, "E0633", "looks ahead by the momentum"), ({"average": "1"}, "E0633", "below 1"),
    ({"every": "every 5 steps { checkpoint(best = loss); checkpoint(best = accuracy) }"}, "E0633", "one metric"),
    ({"precision": "fp8"}, "E0633", "`fp32` or `bf16`"),
    ({"lr": "foo(step)"}, "E0635", "no function `foo`"),
    ({"lr": "1 / stap"}, "E0635", "`stap` is not defined"),
    ({"lr": "1e-3 - step"}, "E0635", "negative at step 1"),
    ({"lr": "1 / (20 - step)"}, "E0635", "not a number at step 20"),
    ({"lr": "sqrt(step, 2)"}, "E0635", "one value"),
    ({"lr": "cosine(1e-3)"}, "E0635", "needs `floor` and `warmup`"),
    ({"lr": "step < 3"}, "E0635", "gives no number"),
    ({"batch": "step sequences"}, "E0635", "only in the learning rate"),
    ({"batch": "6 sequences", "microbatch": "4 sequences"}, "E0633", "whole number of microbatches"),
    ({"every": "every 10 epochs { evaluate(loss) }"}, "E0634", "`every` is counted in steps"),
    ({"every": "every 10 steps { evaluate(los) }"}, "E0632", "takes metrics"),
    ({"every": "every 10 steps { checkpoint(keep = 0) }"}, "E0633", "at least 1"),
    ({"every": "every 10 steps { save }"}, "E0632", "no action `save`"),
])
def test_wrong(keys, code, part):
    every = keys.get("every", "")
    found = wrong(source(every, **{k: v for k, v in keys.items() if k != "every"}))
    assert len(found) == 1 and found[0][0] == code and part in found[0][1], found


@pytest.mark.parametrize("written, why", [
    ("1 / 0", "divides by zero"), ("1 % 0", "divides by zero"), ("0 ^ (-1)", "divides by zero"), ("log(0)", "no real number"),
    ("sqrt(-1)", "no real number"), ("(-8) ^ (1 / 3)", "no real number"), ("10 ^ 9999", "too large"), ("exp(10 ^ 9)", "too large"),
    ("100.5 ^ 200", "too large"), ("10^64 * 10^64 * 10^64 * 10^64 * 10^64", "too large")])
@pytest.mark.parametrize("key", ["clip = {}", "seed = {}", "batch = {} sequences", "stop = {} epochs"])
def test_what_has_no_value_is_said_without_python(key, written, why):
    name, _, value = key.format(f"({written})" if " sequences" in key or " epochs" in key else written).partition(" = ")
    ((code, message, _),) = wrong(source(**{name: value}))
    assert code == "E0633" and message.startswith("this has no value: it ") and why in message


def test_bleu_is_of_translations():
    (found,) = refused(source("every 5 steps { evaluate(bleu) }"))
    assert refused(source("every 5 steps { checkpoint(best = bleu) }")) == [found]
    assert found == ("E0614", "BLEU compares translations with their references, and `text` has none")
    trainable(made(source("every 5 steps { evaluate(bleu) }", data='parallel_text("a", "b", tokenizer = words)')))


def test_a_free_dim_waits():
    text = source(lr="1 / sqrt(V)", data='parallel_text("a", "b", tokenizer = bpe(V))')
    assert [w.dim for w in made(text).waiting] == ["V", "V"]
    assert ("E0638", "`V` has no value") in refused(text)
    trainable(made(source(lr="1 / sqrt(V)"), {"n": 8, "V": 100}))


def test_dims_and_lets_have_their_values():
    r = made(source(batch="2 * n sequences", lr="p / n"), {"n": 8, "p": Fraction(1, 10)})
    assert r.batch.amount == 16 and r.lr(1, 20) == 0.1 / 8


def test_the_rate_of_the_transformer():
    """512^-0.5 · min(step^-0.5, step · 4000^-1.5): the two meet at step 4000, where both are 1 / sqrt(512 · 4000)."""
    lr = made(source(lr="d ^ -0.5 * min(step ^ -0.5, step * 4k ^ -1.5)", stop="100k steps"), {"d": 512}).lr
    assert lr(4000, 100_000) == pytest.approx(1 / math.sqrt(512 * 4000), rel=1e-12)
    assert lr(1, 100_000) == pytest.approx(1 / math.sqrt(512) / 4000**1.5, rel=1e-12)
    assert lr(16_000, 100_000) == pytest.approx(lr(4000, 100_000) / 2, rel=1e-12)


def test_cosine():
    """Up to 1e-3 over 100 steps; half way between 100 and 2000 lies 1050, at the mean of peak and floor; then the floor."""
    for written in ("cosine(1e-3, 1e-4, 100)", "cosine(peak = 1e-3, warmup = 100, floor = 1e-4)"):
        lr = made(source(lr=written, stop="2k steps")).lr
        assert lr(1, 2000) == pytest.approx(1e-5) and lr(100, 2000) == pytest.approx(1e-3)
        assert lr(1050, 2000) == pytest.approx(5.5e-4) and lr(2000, 2000) == lr(3000, 2000) == 1e-4


def test_functions_of_a_formula():
    r = made(source(lr="max(0, log2(8) + log(exp(1)) + cos(pi) + floor(2.7) + ceil(0.2) + 7 % 4 - 9 + 1e-3 * 2 ^ -1)"))
    assert r.lr(1, 20) == pytest.approx(3 + 1 - 1 + 2 + 1 + 3 - 9 + 5e-4)


def test_reading_a_recipe_needs_no_torch():
    code = "import sys; import plait.runtime.recipe; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
