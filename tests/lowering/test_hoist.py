"""Hoisting: the products of a recurrence's input stand in front of the loop; values, gradients and work are what they were."""
from __future__ import annotations

import itertools

import pytest
import sympy as sp
import torch

from plait.compiler.claim import claim
from plait.compiler.costs.depth import depth
from plait.compiler.costs.work import work
from plait.compiler.derive import derive
from plait.compiler.kernels import Target
from plait.compiler.lower import lower
from plait.compiler.passes.hoist import hoist
from plait.compiler.prims import Contract, Loop, Region

CHAINS = ["rnn(8)", "lstm(8)", "gru(8, direction = both); linear(8)", "lstm(8, bias = false); rnn(8, direction = backward)",
          "repeat 2 { gru(8) }"]


def graphs(kit, chain: str, padded: bool = False):
    p = kit.program(chain, padded=padded)
    plain = claim(p.graph, Target(), kit.bodies)
    return p, plain, hoist(plain, p.sizes)


def products(graph) -> list[list[str]]:
    """The names of the products in each recurrence."""
    return [[m.name for m in n.op.body.walk() if isinstance(m.op, Contract)] for n in graph.walk()
            if isinstance(n.op, Loop) and n.op.axis.role == "sequence"]


@pytest.mark.parametrize("chain, padded", [*itertools.product(CHAINS, (False, True))])
def test_no_product_of_the_input_is_left(kit, chain, padded):
    p, plain, moved = graphs(kit, chain, padded)
    assert all(found == ["input product", "state product"] for found in products(plain))
    assert products(moved) == [["state product"]] * len(products(plain))
    assert sum(n.name == "input product" for n in moved.walk()) == len(products(plain))
    assert hoist(moved, p.sizes) == moved                     # nothing is left to move


@pytest.mark.parametrize("chain, padded", [*itertools.product(CHAINS, (False, True))])
def test_values_and_gradients(kit, chain, padded):
    p, *both = graphs(kit, chain, padded)
    g = torch.Generator().manual_seed(0)
    one = p.sizes.bind(b=3)
    given = [torch.randint(2, [int(one.value(a.size)) for a in v.axes], generator=g).bool() if v.kind == "mask" else
             torch.randn([int(one.value(a.size)) for a in v.axes], generator=g, dtype=torch.float64).requires_grad_() for v in p.graph.ins]
    reals = [x for x in given if x.requires_grad]
    found = []
    for graph in both:
        handed = [tuple(x.unbind(0)) if any(a.role == "copies" for a in v.axes) else x for v, x in zip(graph.ins, given)]
        y, = lower(graph, p.sizes, {})(*handed)
        found.append((y, list(torch.autograd.grad(y.square().sum(), reals))))
    kit.close(*found, 1e-12)


@pytest.mark.parametrize("chain", CHAINS)
def test_work_and_depth(kit, chain):
    """Forward: the same of everything but movement; by the convention that a step waits for its input a step, each product that is waited
    for adds 1 to the depth. Backward: the same products."""
    p = kit.program(chain, n="free")
    plain = claim(p.graph, Target(), kit.bodies)
    moved = hoist(plain, p.sizes)
    before, after = work(plain), work(moved)
    assert all(sp.expand(before[k] - after[k]) == 0 for k in before if k != "movement")
    waits = sp.expand(depth(moved) - depth(plain))
    assert waits.is_Integer and 0 <= waits <= 2
    joint = [work(derive(g, p.sizes).graph)["contraction"] for g in (plain, moved)]
    assert sp.expand(joint[0] - joint[1]) == 0


def test_what_a_kernel_runs_stays(kit):
    p = kit.program("lstm(8); gru(8)")
    claimed = claim(p.graph, Target("cuda"))
    assert {n.op.kernel for n in claimed.nodes if isinstance(n.op, Region)} == {"lstm", "gru"}
    assert hoist(claimed, p.sizes) == claimed
