"""The joint graph as a graph: its inputs and outputs, its phases, what it leaves out."""
from __future__ import annotations

import pytest

from plait.compiler.claim import claim
from plait.compiler.derive import derive
from plait.compiler.derive.inline import chosen
from plait.compiler.kernels import Target
from plait.compiler.prims import Loop

from .kit import BODIES, compare
from .models import model

BLOCK = "residual { attention(heads = 2) }; residual { feed_forward(5) }"


@pytest.mark.parametrize("body", ["linear(5); linear(d)", BLOCK, f"repeat 2 {{ {BLOCK} }}",
                                  f"reversible(repeat = 2) {{ one: {{ {BLOCK} }}; two: {{ linear(d) }} }}", "lstm(d)",
                                  "lsh_attention(heads = 2, chunk = 2)"])
def test_without_gradients_of_inputs(body):
    program = model(body)
    for forced in ({}, BODIES): compare(program.graph, program.sizes, forced, inputs=False)


def test_the_loss_alone():
    """Of a loss graph's outputs the mean and the total have a gradient, the count has none; `of` takes the mean only."""
    program = model("embed(V, width = d); linear(V)", "n = 6; d = 8; V = 5", "tokens[n] of V", "[n, V]", loss="cross_entropy(y, next(x))")
    both = derive(claim(program.loss, Target()), program.sizes)
    mean = derive(claim(program.loss, Target()), program.sizes, of=[0])
    assert set(both.seeds) == {0, 1} and set(mean.seeds) == {0} and both.count == mean.count == 3
    params = [v.name for v in program.loss.ins if v.kind == "param"]
    assert list(mean.gradients) == params and mean.graph.outs[3:] == tuple(mean.gradients.values())
    assert mean.graph.ins == (*mean.forward.ins, mean.seeds[0]) and mean.forward.ins == program.loss.ins
    for name, g in mean.gradients.items(): assert g.axes == next(v for v in program.loss.ins if v.name == name).axes


def test_what_nothing_reads_gets_zeros():
    """The parameters of a branch that no output reads have gradients of zeros."""
    program = model("parallel { one: { linear(d) }; two: { linear(d) } }")
    graph = program.graph
    compare(type(graph)(graph.ins, graph.nodes, (graph.nodes[0].outs[0],)), program.sizes)


@pytest.mark.parametrize("kernels", [False, True])
def test_choices_are_made_once(kernels):
    """A bucket is chosen in forward only: what backward does again starts from it."""
    program = model("reversible(repeat = 2) { one: { layer_norm; lsh_attention(heads = 2, chunk = 2, rounds = 2) }; two: { relu } }")
    joint = derive(claim(program.graph, Target(), {} if kernels else BODIES), program.sizes)
    assert [n.phase for n in joint.graph.walk() if chosen(n)] == ["forward"]
    assert "recompute" in {n.phase for n in joint.graph.walk()}


def test_places_and_order():
    """Backward nodes come from the statement they differentiate; forward stands before backward."""
    joint = derive(model("linear(5); gelu; linear(d)").graph, model("linear(d)").sizes)
    phases = [n.phase for n in joint.graph.nodes]
    assert phases == sorted(phases, key=("forward", "recompute", "backward").index)
    assert {n.at for n in joint.graph.nodes if n.phase == "backward"} == {"m/y/0", "m/y/1", "m/y/2"}


def test_library_recurrences_say_that_they_are_measured():
    joint = derive(claim(model("lstm(d); layer_norm").graph, Target()), model("lstm(d)").sizes)
    assert joint.measured == (("m/y/0", "lstm"),)
    assert derive(claim(model("lstm(d)").graph, Target(), BODIES), model("lstm(d)").sizes).measured == ()


def test_loops_run_back():
    """A recurrence is differentiated by a loop the other way, an indexed one keeps its index."""
    joint = derive(model("repeat 3 as i { conv(d, kernel = 2, dilation = 2^i, causal = true) }").graph, model("linear(d)").sizes)
    there, back = (n.op for n in joint.graph.nodes if isinstance(n.op, Loop))
    assert (there.reverse, back.reverse) == (False, True) and there.index == back.index is not None
