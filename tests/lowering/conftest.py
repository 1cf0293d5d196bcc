"""Models from a few words of the language, and how two ways to run one are compared."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pytest
import torch
import torch._dynamo
from torch import Tensor

from plait.compiler.expand import expand, open_file
from plait.compiler.kernels import KERNELS
from plait.compiler.lowering import segments
from plait.compiler.prims import Loop
from plait.compiler.program import Program
from plait.dsl.parser import parse
from plait.runtime.kernels import fused
from plait.runtime.module import Module

torch.set_num_threads(1)
BODIES = {k.region: "body" for k in KERNELS}


def program(chain: str, padded: bool = False, loss: str = "", share: str = "", kind: str = "stream[n, d]", out: str = "[n, d]",
            **dims: int | str) -> Program:
    """One model `m`: input x, output y. A dim given as "free" has no value."""
    given = {"n": 7, "d": 8, **dims}
    lines = [f"  {k}" if v == "free" else f"  {k} = {v}" for k, v in given.items()]
    train = f"train m {{\n  data = bytes(\"a\")\n  loss = {loss}\n  stop = 1 steps\n}}\n" if loss else ""
    text = ("plait 1\n\ndims {\n" + "\n".join(lines) + f"\n}}\n\n{share}\n\nmodel m {{\n  input x: {kind}{' padded' if padded else ''}\n"
            f"  y = x {{ {chain} }}\n  output y: {out}\n}}\n{train}")
    return expand(open_file(parse(text)), "m", loss=bool(loss))


def module(chain: str, kernels: dict | None = None, dtype: torch.dtype = torch.float64, compile: bool = False, **how) -> Module:
    torch.manual_seed(0)
    return Module(program(chain, **how), compile=compile, kernels=kernels, dtype=dtype)


def gradients(m: Callable, parameters, x: Tensor, seed: int = 3, **named) -> tuple[Tensor, list[Tensor]]:
    """The output, and the gradients of x and of every parameter for a fixed weighting of the outputs."""
    torch.manual_seed(seed)
    x = x.detach().clone().requires_grad_() if x.is_floating_point() else x
    y = m(x, **named)
    g = torch.Generator().manual_seed(5)
    weight = torch.randn(y.shape, generator=g, dtype=torch.float64).to(y.dtype)
    leaves = [t for t in (x, *parameters) if t.requires_grad]
    found = torch.autograd.grad((y * weight).sum(), leaves, allow_unused=True)
    return y.detach(), [torch.zeros_like(t) if f is None else f for t, f in zip(leaves, found)]


def close(p: tuple[Tensor, list[Tensor]], q: tuple[Tensor, list[Tensor]], tolerance: float) -> None:
    """Outputs and gradients equal to `tolerance` of the largest entry of each."""
    for a, b in zip((p[0].detach(), *p[1]), (q[0].detach(), *q[1])):
        assert a.shape == b.shape and torch.isfinite(a).all() and torch.isfinite(b).all()
        assert (a - b).abs().max() <= tolerance * max(1.0, float(b.abs().max())), float((a - b).abs().max())


def plain(m: Module) -> Module:
    """The same module with loops that save everything."""
    def keeping(graph):
        return replace(graph.map_bodies(keeping), nodes=tuple(
            replace(n, op=replace(n.op, keep="save")) if isinstance(n.op, Loop) else n for n in graph.map_bodies(keeping).nodes))
    m.program = replace(m.program, graph=keeping(m.program.graph))
    return m


@pytest.fixture(scope="session")
def kit():
    """The functions of this file, for the tests."""
    from types import SimpleNamespace
    return SimpleNamespace(program=program, module=module, gradients=gradients, close=close, plain=plain, bodies=BODIES)


@dataclass
class Way:
    """One way to run a model: by kernels or by the bodies of its regions, eager or compiled by the backend that only traces."""
    forced: dict[str, str]
    compile: bool
    made: dict = field(default_factory=dict)

    def module(self, chain: str, **how) -> Module:
        """The module of a chain, in training mode. What was made before is given again, so that nothing is compiled twice."""
        key = (chain, *sorted(how.items(), key=str))
        if key not in self.made: self.made[key] = module(chain, self.forced, compile=self.compile, **how)
        return self.made[key].train().zero_grad() or self.made[key]

    def plain(self, chain: str, **how) -> Module:
        """Eager, by the same kernels, with loops that save everything."""
        return plain(module(chain, self.forced, **how))


WAYS = ("kernels, eager", "bodies, eager", "kernels, compiled", "bodies, compiled")


@pytest.fixture(scope="module", params=WAYS)
def way(request) -> Iterator[Way]:
    torch._dynamo.reset()
    fused._compiled.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "BACKEND", "aot_eager")
        yield Way(BODIES if "bodies" in request.param else {}, "compiled" in request.param)
    torch._dynamo.reset()
    fused._compiled.cache_clear()
