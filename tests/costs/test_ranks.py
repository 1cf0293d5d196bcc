"""Memory of one process of several: by arithmetic from the sizes of the parameters."""
from pathlib import Path

import pytest
import sympy as sp

import plait
from plait import files
from plait.api import Spec
from plait.compiler.costs.ranks import share
from plait.runtime.sources import OPTIMIZERS
from plait.scaling import REMEMBERED, scaled

SPECS = Path(__file__).parents[2] / "specs"
V, d, n, L, b = 16, 8, 4, 3, 6
TEXT = f"""plait 1
dims {{ n = {n}; d = {d}; V = {V}; L = {L} }}
model m {{ input x: tokens[n] of V; y = x {{ embed(V, width = d); repeat L {{ BODY }}; unembed(V, bias = false) }}; output y: [n, V] }}
train m {{ data = bytes("a"); loss = cross_entropy(y, next(x)); batch = {b} sequences; lr = 1e-3; stop = 1 steps; optimizer = OPT }}
"""
LINEAR = d * d + d                                             # numbers of a linear layer with its bias
ROOT = 2 * V * d                                               # the embedding and the output layer


def of(body: str = "linear(d)", optimizer: str = "adam", ranks: int = 2, shard: str = "fsdp"):
    path = Path("m.plait")
    return scaled(Spec(path, files.opened(path, text=TEXT.replace("BODY", body).replace("OPT", optimizer))), "m", ranks, shard)


def test_every_optimizer_says_what_it_remembers():
    assert REMEMBERED.keys() == OPTIMIZERS.keys()


@pytest.mark.parametrize("spec", ["shakespeare", "reformer"])
def test_a_process_alone_takes_what_the_table_says(spec):
    """The peak of the table is of Adam: alone, nothing else is counted."""
    loaded = plait.load(SPECS / f"{spec}.plait")
    step = loaded.step()
    assert sp.expand(share(step, 1, "ddp", lambda v: 2 * v.size).peak - step.peak) == 0


def test_ddp_divides_the_batch_only():
    found = of(shard="ddp", ranks=2)
    each, alone = found.bytes(found.each, found.here), found.bytes(found.whole, found.batch)
    assert (found.here, found.batch) == (b // 2, b)
    for q in ("parameters", "gradients", "optimizer"): assert each[q] == alone[q]
    assert each["parameters"] == 4 * (ROOT + L * LINEAR) and each["optimizer"] == 2 * each["parameters"]
    assert each["saved"] < alone["saved"] <= 2 * each["saved"]
    assert each["traffic"] == 2 * each["parameters"] // 2                 # (N − 1) / N of twice the gradients


def test_fsdp_has_a_part_of_everything_and_gathers_two_copies():
    found = of(ranks=2)
    each = found.bytes(found.each, found.here)
    assert each["parameters"] == each["gradients"] == 4 * (ROOT + L * LINEAR) // 2
    assert each["optimizer"] == 2 * each["parameters"]
    alone = found.bytes(found.whole, found.batch)
    gathered = 4 * (ROOT + 2 * LINEAR)                                    # what is in no repeat, a copy that runs, the next one
    sharded = each["parameters"] + each["gradients"] + each["optimizer"]
    assert sharded + 2 * gathered <= each["peak"] <= sharded + 2 * gathered + alone["saved"]
    assert each["traffic"] == 4 * (2 * ROOT + 3 * L * LINEAR) // 2        # root: gathered, reduced; copies: gathered twice, reduced
    parts = of(optimizer="adam; microbatch = 1 sequences", ranks=2)       # three of them on each rank
    assert parts.here == 1 and parts.bytes(parts.each, 1)["traffic"] == 3 * each["traffic"]


def test_what_does_not_divide_is_rounded_up():
    """8 rows over 3 ranks: the first holds 3; a vocabulary of 16: 6. Biases too."""
    found = of(ranks=3)
    assert found.bytes(found.each, found.here)["parameters"] == 4 * (2 * 6 * d + L * (3 * d + 3))


def test_an_axis_that_divides_is_cut_before_one_that_does_not():
    """Two heads over 4 ranks: the weights of queries are cut along their width."""
    found = of("attention(heads = 2, bias = false)", ranks=4)
    assert found.bytes(found.each, found.here)["parameters"] == 4 * (ROOT + L * 4 * d * d) // 4


def test_the_copies_of_an_inner_repeat_are_gathered_inside_the_outer_one():
    """Deeper copies: the outer copy's own parameters, and one of the inner ones, and the next to come."""
    inner, outer = of("repeat 5 { linear(d) }; layer_norm", ranks=2), of("repeat 5 { linear(d) }", ranks=2)
    known = inner.sizes.bind(b=inner.here)
    assert known.integer(inner.each.parameters) - known.integer(outer.each.parameters) == 4 * L * 2 * d // 2
    gathered = 4 * (ROOT + (LINEAR + 2 * d) + LINEAR)
    assert known.integer(inner.each.peak) >= 4 * known.integer(inner.each.parameters) + 2 * gathered


@pytest.mark.parametrize("optimizer, numbers", [
    ("adam", 2 * (ROOT + L * LINEAR)), ("sgd", 0), ("sgd(momentum = 0.9)", ROOT + L * LINEAR),
    ("adafactor", 2 * (V + d) + L * (d + d + d)), ("muon", 2 * ROOT + L * (d * d + 2 * d))])
def test_what_the_optimizer_remembers(optimizer, numbers):
    found = of(optimizer=optimizer, ranks=1, shard="ddp")
    assert found.bytes(found.each, found.here)["optimizer"] == 4 * numbers
