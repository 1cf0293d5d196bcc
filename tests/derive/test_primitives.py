"""Every primitive and every function: its adjoint against autograd, and against differences of values."""
from __future__ import annotations

import pytest
import sympy as sp
import torch

from plait.compiler.axis import BATCH, axis
from plait.compiler.builder import Builder
from plait.compiler.derive import derive
from plait.compiler.derive.adjoint import FLAT, MAPS, TWICE
from plait.compiler.lower import lower
from plait.compiler.prims import FUNCTIONS, Broadcast, Fold, Scatter
from plait.compiler.sizes import Sizes

from .kit import compare, operands

N, D, F, H = axis("n", 6, "sequence"), axis("d", 4), axis("f", 5), axis("h", 2, "head")
W = axis("w", 3, "window")
X, Y, I = ((BATCH, N, D), "real"), ((F, D), "param"), ((BATCH, N), "index")

BUILD = {
    "contract": (lambda b, x, y: b.contract(x, y, "d"), X, Y),
    "contract over two": (lambda b, x, y: b.contract(x, y, "n", "d"), X, ((D, F, N), "real")),
    "contract with itself": (lambda b, x: b.contract(x, x, "d"), X),
    "outer product": (lambda b, x, y: b.contract(x, y), X, ((F,), "real")),
    "reduce sum": (lambda b, x: b.sum(x, "n", "b"), X),
    "reduce max": (lambda b, x: b.max(x, "n"), X),
    "broadcast": (lambda b, x: b.broadcast(x, F, N, BATCH, D), X),
    "rename": (lambda b, x: b.rename(x, "d", axis("e", 4)), X),
    "split and merge": (lambda b, x: b.merge(b.split(x, "d", H, axis("k", 2)), "k", "n", axis("z", 12)), X),
    "slice": (lambda b, x: b.slice(x, "n", 2, 3), X),
    "pad": (lambda b, x: b.pad(x, "n", 2, 1), X),
    "concat": (lambda b, x, y: b.concat("d", x, y, x), X, ((N, BATCH, axis("d", 3)), "real")),
    "window": (lambda b, x: b.window(x, "n", W, 1, 2), X),
    "fold": (lambda b, x: b.emit(Fold("n", "w", sp.Integer(1)), x), ((BATCH, N, W, D), "real")),
    "gather": (lambda b, x, i: b.gather(x, i, "d"), X, I),
    "gather rows": (lambda b, x, i: b.gather(x, i, "f"), Y, I),
    "gather along its own axis": (lambda b, x, i: b.gather(x, i, "n"), X, I),
    "select": (lambda b, x: b.select(x, "n", 4), X),
    "scatter": (lambda b, x, i: b.emit(Scatter(axis("z", 3), ("b",)), x, i), X, I),
    "sort": (lambda b, x: b.gather(x, b.rename(b.sort(b.map("mod", b.position(N), 3), "n"), "n", axis("z", 6)), "n"), X),
    "argmax": (lambda b, x: b.gather(x, b.argmax(x, "d"), "d"), X),
    "position": (lambda b, x: b.mul(x, b.map("sin", b.position(N))), X),
    "random": (lambda b, x, key: b.mul(x, b.random("normal", key, N, D)), X, ((), "index")),
    "constant input": (lambda b, x: b.add(x, b.emit(Broadcast((N, D)), b.const(2))), X),
}
POSITIVE = ("log", "rsqrt", "div")                            # functions asked only where they are defined


def graph_of(build, *types):
    b = Builder(Sizes().bind(b=2))
    ins = [b.input(axes, kind, f"in{k}") for k, (axes, kind) in enumerate(types)]
    return b.graph(build(b, *ins)), b.sizes


def function(fn: str):
    """The function of one or two reals, of positive ones where it needs that, beside a broadcast operand."""
    def build(b, x, y):
        if fn in POSITIVE: x, y = (b.map("exp", t) for t in (x, y))
        if fn == "where": return b.where(b.map("lt", 0, x), x, y)
        return b.map(fn, x, y) if len(MAPS[fn]) == 2 else b.map(fn, x)
    return build, X, ((F, D), "real")


@pytest.mark.parametrize("name", BUILD)
def test_primitive(name):
    compare(*graph_of(*BUILD[name]))


@pytest.mark.parametrize("fn", MAPS)
def test_function(fn):
    compare(*graph_of(*function(fn)))


def test_every_function_is_known():
    assert {*MAPS, *FLAT, *TWICE} == set(FUNCTIONS) and not set(MAPS) & {*FLAT, *TWICE}
    with pytest.raises(NotImplementedError): derive(*graph_of(lambda b, x: b.map("gelu_slope", x), X))


@pytest.mark.parametrize("build", [BUILD["window"], BUILD["reduce max"], function("gelu"), function("div"), BUILD["contract"]])
def test_against_differences(build):
    """Central differences of step h err by h² and by rounding / h: h = 1e-6 leaves 1e-9."""
    graph, sizes = graph_of(*build)
    joint = derive(graph, sizes)
    given = [x.detach() for x in operands(graph, sizes)]
    forward, both = lower(graph, sizes, {}), lower(joint.graph, sizes, {})
    ct = torch.randn_like(forward(*given)[0])
    found = both(*given, ct)[1:]
    for k, g in enumerate(found):
        along, h = torch.randn_like(given[k]), 1e-6
        ends = [(forward(*(x + s * along if i == k else x for i, x in enumerate(given)))[0] * ct).sum() for s in (h, -h)]
        assert abs((ends[0] - ends[1]) / (2 * h) - (g * along).sum()) < 1e-8


def test_ties_share_a_maximum():
    graph, sizes = graph_of(lambda b, x: b.max(b.map("relu", x), "d"), X)
    compare(graph, sizes, seed=3)
