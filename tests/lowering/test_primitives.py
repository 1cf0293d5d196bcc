"""Each primitive against its meaning, written plainly."""
from __future__ import annotations

import itertools

import pytest
import sympy as sp
import torch
from torch.utils.flop_counter import FlopCounterMode

from plait.compiler.axis import BATCH, axis
from plait.compiler.builder import Builder
from plait.compiler.lower import lower
from plait.compiler.lowering import tensors
from plait.compiler.prims import Fold, Scatter, Wrong
from plait.compiler.sizes import Sizes, dim

N, D, F = axis("n", dim("n"), "sequence"), axis("d", 4), axis("f", 5)


def run(build, *tensors_: torch.Tensor, axes=((BATCH, N, D),), kinds=("real",)):
    """The outputs of a graph with these inputs."""
    b = Builder(Sizes())
    ins = [b.input(a, k) for a, k in zip(axes, kinds)]
    out = build(b, *ins)
    return lower(b.graph(out), b.sizes, {})(*tensors_)[0], out


@pytest.mark.parametrize("x_axes", ["bnd", "dbn", "ndb", "bnhd", "hdnb"])
@pytest.mark.parametrize("y_axes", ["fd", "df", "fdh", "hfd", "bfd", "dbfh", "d"])
def test_contract_is_einsum(x_axes, y_axes):
    sizes = dict(b=2, n=3, d=4, f=5, h=2)
    made = {a: axis(a, sizes[a]) for a in sizes}
    x, y = (torch.randn([sizes[a] for a in s], dtype=torch.float64) for s in (x_axes, y_axes))
    for over in (["d"], ["d", "h"]) if "h" in x_axes and "h" in y_axes else (["d"],):
        b = Builder(Sizes())
        out = b.contract(b.input([made[a] for a in x_axes]), b.input([made[a] for a in y_axes]), *over)
        module = lower(b.graph(out), b.sizes, {})
        want = torch.einsum(f"{x_axes},{y_axes}->{''.join(out.names)}", x, y)
        count = FlopCounterMode(display=False)
        with count: got = module(x, y)[0]
        assert torch.allclose(got, want, atol=1e-12)
        terms = 1
        for a in over: terms *= sizes[a]
        assert count.get_total_flops() == 2 * want.numel() * terms            # one product, all of it counted


def test_products_with_weights_copy_nothing():
    """x W for W laid out [out, in]: both operands are views."""
    b = Builder(Sizes())
    out = b.contract(b.input((BATCH, N, D)), b.input((F, D)), "d")
    names = [n.target for n in lower(b.graph(out), b.sizes, {}).graph.nodes if n.op == "call_function"]
    assert torch.mm in names and torch.permute not in names


@pytest.mark.parametrize("width, left, dilation", list(itertools.product((1, 2, 5), (0, 1, 4), (1, 3))))
def test_window_and_fold(width, left, dilation):
    x = torch.randn(2, 6, 3, dtype=torch.float64)
    got = tensors.window(x, 1, width, left, dilation)
    want = torch.zeros(2, 6, width, 3, dtype=torch.float64)
    for t, j in itertools.product(range(6), range(width)):
        at = t + (j - left) * dilation
        if 0 <= at < 6: want[:, t, j] = x[:, at]
    assert torch.equal(got, want)
    y = torch.randn_like(want)
    assert torch.isclose((got * y).sum(), (x * tensors.fold(y, 1, 2, left, dilation)).sum())        # adjoint


def test_gather_and_scatter():
    x, index = torch.randn(2, 6, 4, dtype=torch.float64), torch.randint(0, 6, (2, 5))
    m = axis("m", 5, "sequence")
    got, out = run(lambda b, x, i: b.gather(x, i, "n"), x, index, axes=((BATCH, N, D), (BATCH, m)), kinds=("real", "index"))
    assert out.names == ("b", "m", "d") and torch.equal(got, torch.stack([x[i, index[i]] for i in (0, 1)]))
    y = torch.randn_like(got)
    back, out = run(lambda b, y, i: b.emit(Scatter(axis("n", 6, "sequence"), ("b",)), y, i), y, index,
                    axes=((BATCH, m, D), (BATCH, m)), kinds=("real", "index"))
    assert out.names == ("n", "b", "d") and torch.isclose((got * y).sum(), (x.transpose(0, 1) * back).sum())       # adjoint
    table = torch.randn(7, 4, dtype=torch.float64)
    rows, _ = run(lambda b, t, i: b.gather(t, i, "V"), table, index, axes=((axis("V", 7), D), (BATCH, m)), kinds=("real", "index"))
    assert torch.equal(rows, table[index])
    one, _ = run(lambda b, x: b.select(x, "n", 2), x)
    assert torch.equal(one, x[:, 2])


def test_kinds():
    x = torch.randn(2, 6, 4, dtype=torch.float64)
    got, out = run(lambda b, x: b.where(b.map("lt", 0, x), 1, 0), x)
    assert got.dtype == torch.float64 and out.kind == "real"                   # two numbers: the reals' dtype
    got, _ = run(lambda b, x: b.add(x, b.map("sin", b.div(b.position(N), 3))), x[..., 0], axes=((BATCH, N),))
    assert got.dtype == torch.float64
    got, _ = run(lambda b, x: b.sort(x, "n"), torch.tensor([[2, 1, 2, 1, 0]]), axes=((BATCH, N),), kinds=("index",))
    assert got.tolist() == [[4, 1, 3, 0, 2]]                                   # stable
    got, out = run(lambda b, x: b.max(b.map("lt", 0, x), "n"), x)
    assert torch.equal(got, (x > 0).any(1))


def test_movement():
    x = torch.randn(2, 6, 4, dtype=torch.float64)
    p, q = axis("p", 2), axis("q", 2)
    got, out = run(lambda b, x: b.merge(b.split(x, "d", p, q), "q", "n", axis("z", 2 * N.size)), x)
    assert out.names == ("b", "p", "z") and torch.equal(got, x.view(2, 6, 2, 2).permute(0, 2, 3, 1).reshape(2, 2, 12))
    got, _ = run(lambda b, x: b.slice(b.pad(x, "n", 1, 0), "n", 0, N.size), x)
    assert torch.equal(got, torch.cat((torch.zeros(2, 1, 4, dtype=torch.float64), x[:, :-1]), 1))
    b = Builder(Sizes())
    v = b.input((BATCH, N, D))
    graph = lower(b.graph(b.slice(b.pad(v, "n", 0, 0), "n", 0, N.size)), b.sizes, {}).graph
    assert [n.op for n in graph.nodes] == ["placeholder", "output"]            # nothing moves: nothing is written


def test_free_sizes_are_arithmetic():
    """2·⌈n/3⌉ + max(n, 4) − ⌊n/2⌋ ones, n read from the input."""
    n = dim("n")
    e = 2 * sp.ceiling(n / 3) + sp.Max(n, 4) - sp.floor(n / 2)
    b = Builder(Sizes())
    x = b.input((BATCH, N, D))
    module = lower(b.graph(b.position(axis("m", e)), x), b.sizes, {})
    for k in (1, 2, 5, 6): assert module(torch.zeros(1, k, 4))[0].numel() == 2 * -(-k // 3) + max(k, 4) - k // 2


def test_fold_node():
    b = Builder(Sizes())
    w = axis("w", 3, "window")
    v = b.input((BATCH, N, D))
    out = b.emit(Fold("n", "w", sp.Integer(1)), b.window(v, "n", w, 1))
    x = torch.ones(1, 5, 4)
    assert lower(b.graph(out), b.sizes, {})(x)[0][0, :, 0].tolist() == [2, 3, 3, 3, 2]       # in how many windows each stands


def test_wrong_types_are_loud():
    b = Builder(Sizes())
    with pytest.raises(Wrong): b.contract(b.input((BATCH, N, D)), b.input((F,)), "d")
