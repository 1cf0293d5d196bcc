"""Every layer of the registry, computed again in backward, gives what it gives."""
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from plait import files
from plait.compiler.costs.work import work
from plait.compiler.expand import expand
from plait.compiler.layer import LAYERS
from plait.compiler.passes.recompute import ONCE, recomputed
from plait.compiler.prims import Contract, Loop
from plait.runtime.module import Module

from .layers import of_layer


def results(program, x) -> list[torch.Tensor]:
    """The output, and the gradients of x and of every parameter."""
    torch.manual_seed(0)
    m = Module(program, compile=False, dtype=torch.float64).train()
    torch.manual_seed(1)
    x = x.clone().requires_grad_() if x.is_floating_point() else x
    y = m(x)
    weight = torch.randn(y.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    leaves = [t for t in (x, *m.parameters()) if t.requires_grad]
    return [y.detach(), *torch.autograd.grad((y * weight).sum(), leaves)]


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_every_layer_can_be_recomputed(name):
    """By the registry: outputs, gradients, and the derived work of its forward stay; what holds a product is recomputed."""
    program = expand(files.opened(Path("m.plait"), text=of_layer(name)), "m")
    other = replace(program, graph=recomputed(program.graph, program.sizes, lambda p: not p.copies))
    held = any(isinstance(n.op, Loop) and n.op.axis == ONCE for n in other.graph.nodes)
    plain = any(isinstance(n.op, Contract) for n in program.graph.walk()) and not any(isinstance(n.op, Loop) for n in program.graph.walk())
    assert held >= plain
    x = torch.randint(4, (2, 7)) if name == "embed" else torch.randn(2, 7, 8, dtype=torch.float64)
    for p, q in zip(results(other, x), results(program, x), strict=True): torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-12)
    assert work(other.graph)["contraction"] == work(program.graph)["contraction"]
