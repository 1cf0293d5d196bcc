"""The time of a step: arithmetic by hand on machines that are made up, and every layer and every spec has one."""
from __future__ import annotations

import math
from pathlib import Path

import pytest

from plait import files
from plait.compiler.costs.calls import KINDS, Call, calls, joint_calls, update
from plait.compiler.costs.time import Kernel, Machine, Seconds, hours, seconds, total
from plait.compiler.derive import derive
from plait.compiler.expand import expand
from plait.compiler.kernels import KERNELS, Target
from plait.compiler.layer import LAYERS
from plait.compiler.plan import plan
from plait.compiler.step import Step
from tests.derive.models import alone, model

SPECS = sorted((Path(__file__).parents[2] / "specs").glob("*.plait"))
COMPILED = Target(compiled=True)
FAR = ((1.0, 1e30),)                                          # bytes cost nothing
MACHINE = Machine(1e9, ((1e3, 1e9), (1e6, 1e8)), 1e-6, {}, {"arithmetic": 1e9, "tanh": 1e8})


def of(body: str, batch: int = 2, **dims: int) -> list[Call]:
    named = "; ".join(f"{k} = {v}" for k, v in {"n": 6, "d": 8, **dims}.items())
    program = model(body, named)
    return calls(Step(lambda: program, COMPILED), batch)


def test_a_linear_layer():
    """2 sequences of 6 rows of 8 by 8: forward, and the gradient of the weight; no gradient of the input is needed. 2 · 768 multiply-adds
    at 1,000 a second."""
    found = of("linear(d, bias = false)")
    products = [c for c in found if c.work]
    assert [(c.kind, c.shape, c.phase) for c in products] == [
        ("product_nt", (12, 8, 8), "forward"), ("product_tn", (8, 12, 8), "backward")]
    assert total(found, Machine(1000, FAR, 0.0)).arithmetic == pytest.approx(2 * 768 / 1000)
    # 12·8 numbers of x, 64 of the weight, 12·8 of y, 4 bytes each, at 512 bytes a second
    assert seconds(products[0], Machine(1e30, ((1.0, 512.0),), 0.0)).traffic == pytest.approx(4 * (96 + 64 + 96) / 512)


def test_two_linear_layers_have_the_gradient_between_them():
    layouts = [c.kind for c in of("linear(d, bias = false); linear(d, bias = false)") if c.work]
    assert sorted(layouts) == ["product_nn", "product_nt", "product_nt", "product_tn", "product_tn"]


def test_what_goes_element_by_element_runs_as_one():
    """relu, tanh, relu: reads 96 numbers, writes 96; 96 times one tanh and two of plain arithmetic."""
    (nest,) = [c for c in of("relu; tanh; relu") if c.phase == "forward" and c.kind == "rows"]
    assert nest.bytes == 4 * (96 + 96) and dict(nest.elements) == {"arithmetic": 192, "tanh": 96}
    # 192/1e9 + 96/1e8 s of arithmetic, more than 768 bytes at 1e9 a second; and a call
    assert seconds(nest, MACHINE) == Seconds(pytest.approx(192e-9 + 960e-9), 0.0, 1e-6)


def test_a_product_ends_what_runs_as_one():
    """relu, a product, relu, a product: the two are apart, and each writes what is read."""
    nests = [c for c in of("relu; linear(d, bias = false); relu; linear(d, bias = false)") if c.phase == "forward" and c.kind == "rows"]
    assert [c.bytes for c in nests] == [4 * 192] * 2


def test_a_bias_has_a_sum_down_its_columns():
    """It reads the 96 numbers of the gradient, and writes 8."""
    (column,) = [c for c in of("linear(d)") if c.kind == "columns"]
    assert column.phase == "backward" and column.bytes == 4 * (96 + 8)


@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru"])
def test_a_recurrence_waits_n_times(kind):
    """Where only calls cost, twice as long a sequence takes twice as long in its steps, forward and backward."""
    costly = Machine(1e30, FAR, 0.0, {k: Kernel(1e30, call=1.0) for k in ("packed", "lstm", "lstm_backward")})
    times = [total(of(f"{kind}(d)", n=n), costly) for n in (6, 12, 24)]
    assert times[0].latency > 0 and times[0].total == times[0].latency
    assert times[1].latency == 2 * times[0].latency and times[2].latency == 4 * times[0].latency
    if kind == "lstm": assert times[0].latency == 2 * 6                     # a library's: one call a step, each way


def test_layers_side_by_side_do_not_wait_for_a_longer_sequence():
    costly = Machine(1e30, FAR, 1.0)
    short, long = (total(of("feed_forward(16)", n=n), costly).latency for n in (6, 600))
    assert short == long > 0


def test_copies_run_one_after_another():
    one, four = (total(of(f"repeat {k} {{ residual {{ feed_forward(16) }} }}"), MACHINE).total for k in (1, 4))
    assert 3 * one < four <= 4 * one * (1 + 1e-9)


@pytest.mark.parametrize("body", ["linear(d); tanh; linear(d)", "attention(heads = 2, causal = true)", "lstm(d)", "rnn(d)",
                                  "residual { conv(d, kernel = 3) }", "repeat 2 { residual { feed_forward(16) } }"])
def test_it_grows_with_the_length_and_the_batch(body):
    lengths = [total(of(body, n=n), MACHINE).total for n in (4, 16, 64, 256)]
    batches = [total(of(body, batch), MACHINE).total for batch in (1, 4, 16)]
    assert lengths == sorted(set(lengths)) and batches == sorted(set(batches))


# -- a machine's numbers -----------------------------------------------------------------------------------------------------
def test_half_of_the_rate_at_half():
    kernel = Kernel(1000, (10.0, 0.0, 0.0))
    call = Call("product_nn", "forward", "", work=1000.0, shape=(10, 5, 20))
    assert seconds(call, Machine(1, FAR, 0.0, {"product_nn": kernel})).total == 2.0


def test_a_kernel_that_is_not_known_has_the_machines_numbers():
    assert Machine(5.0, FAR, 7.0).kernel("attention") == Kernel(5.0, call=7.0)
    assert Machine(5.0, FAR, 7.0).kernel("segment").call == 0.0               # what a host does beside a device costs nothing, if not said


def test_the_bandwidth_between_two_sizes():
    """1e9 at 1e3 bytes, 1e8 at 1e6: in the middle of the logarithms the middle of the logarithms; beyond the ends as there."""
    assert MACHINE.brings(10**4.5) == pytest.approx(10**8.5)
    assert MACHINE.brings(1) == 1e9 and MACHINE.brings(1e3) == 1e9 and MACHINE.brings(1e9) == 1e8


def test_a_call_takes_the_longer_of_computing_and_waiting():
    call = Call("attention", "forward", "", work=2e9, bytes=1e9, times=3)
    assert seconds(call, Machine(1e9, ((1.0, 1e9),), 0.5)) == Seconds(6.0, 0.0, 1.5)
    assert seconds(call, Machine(1e9, ((1.0, 1e8),), 0.5)) == Seconds(0.0, 30.0, 1.5)


def test_adamw_moves_seven_numbers_a_parameter():
    """Gradient, parameter, two moments read, three written; the mean reads and writes the gradient, its norm reads it, clipping both."""
    assert update(100, 3, "adamw", clipped=True).bytes == 4 * 100 * (7 + 2 + 1 + 2)
    assert update(100, 3, "adamw", clipped=False).bytes == 4 * 100 * (7 + 2 + 1)


@pytest.mark.parametrize("each, steps, expected", [(0.4, 100_000, 11.1), (1.0, 300_000, 83.3)])
def test_hours_of_the_paper(each, steps, expected):
    """Vaswani et al. 2017, section 5.2: the base model's 100,000 steps of 0.4 s took 12 hours, the big one's 300,000 of 1.0 s 3.5 days."""
    assert round(hours(each, steps), 1) == expected


# -- everything there is -------------------------------------------------------------------------------------------------------
def sound(found: list[Call], machine: Machine) -> None:
    """Every call has a finite time, which is no less than nothing, and there is some."""
    assert found and {c.kind for c in found} <= set(KINDS)
    each = [seconds(c, machine) for c in found]
    assert all(math.isfinite(p) and p >= 0 for s in each for p in (s.arithmetic, s.traffic, s.latency))
    assert sum(s.total for s in each) > 0


@pytest.mark.parametrize("kernels", [{}, {k.region: "body" for k in KERNELS}], ids=["kernels", "bodies"])
@pytest.mark.parametrize("name", sorted(LAYERS))
def test_every_layer(name, kernels):
    graph, sizes = alone(name)
    joint = derive(plan(graph, sizes, COMPILED, kernels).graph, sizes)
    sound(joint_calls(joint, sizes.bind(b=2), COMPILED), MACHINE)


@pytest.mark.parametrize("kernel", [k for k in KERNELS if k.region.endswith("attention")], ids=lambda k: k.name)
def test_every_kernel_of_attention(kernel):
    layer = {"attention": "attention(heads = 2, causal = true)", "windowed_attention": "attention(heads = 2, window = 3, causal = true)",
             "lsh_attention": "lsh_attention(heads = 2, chunk = 2, rounds = 2, buckets = 4)"}[kernel.region]
    program = model(layer, "n = 8; d = 8")
    sound(calls(Step(lambda: program, COMPILED, {kernel.region: kernel.name}), 2), MACHINE)


MODELS = [(p, m) for p in SPECS for m in files.opened(p).models]


@pytest.mark.parametrize("path, name", MODELS, ids=[f"{p.stem}/{m}" for p, m in MODELS])
def test_every_spec(path, name):
    """At full size; dims that a corpus gives have some value."""
    file = files.opened(path)
    free = [k for k, e in file.names_of(name).entries.items() if e.kind == "dim" and file.names_of(name).sizes.value(e.value) is None]
    file = files.opened(path, files.overrides({k: 64 for k in free}))
    sound(calls(Step(lambda: expand(file, name, loss=True), COMPILED), 4), MACHINE)
