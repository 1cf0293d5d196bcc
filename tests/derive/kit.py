"""Joint graphs, executed, against torch.autograd on the lowered forward graph: what the tests of this folder share."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from plait.compiler.claim import claim, unclaimed
from plait.compiler.costs.training import by_phase
from plait.compiler.derive import Joint, derive
from plait.compiler.graph import Graph, Value
from plait.compiler.kernels import KERNELS, Target
from plait.compiler.lower import lower, nested
from plait.compiler.prims import Loop
from plait.compiler.sizes import Sizes

BODIES = {k.region: "body" for k in KERNELS}
BATCH = 2


def plain(graph: Graph) -> Graph:
    """Loops that save everything, regions that run their body: what autograd differentiates by itself."""
    graph = unclaimed(graph).map_bodies(plain)
    return replace(graph, nodes=tuple(replace(n, op=replace(n.op, keep="save")) if isinstance(n.op, Loop) else n for n in graph.nodes))


def shape(v: Value, sizes: Sizes) -> list[int]:
    return [int(sizes.bind(b=BATCH).value(a.size)) for a in v.axes]


def operands(graph: Graph, sizes: Sizes, symbols: int = 2, seed: int = 0) -> list[Tensor]:
    """Random inputs: reals that need a gradient, symbols below `symbols`, a mask of prefixes (some empty), a key."""
    g = torch.Generator().manual_seed(seed)
    made = []
    for v in graph.ins:
        size = shape(v, sizes)
        if v.kind in ("real", "param"): made.append((0.6 * torch.randn(size, generator=g, dtype=torch.float64)).requires_grad_())
        elif v.kind == "mask":
            lengths = torch.randint(size[-1] + 1, [*size[:-1], 1], generator=g)
            made.append(torch.arange(size[-1]) < lengths)
        else: made.append(torch.randint(symbols if v.axes else 2**40, size, generator=g))
    return made


def handed(graph: Graph, tensors: list[Tensor]) -> list:
    """As a lowered graph takes them: parameters of copies as tuples."""
    def cut(x: Tensor, depth: int): return x if depth == 0 else tuple(cut(y, depth - 1) for y in x.unbind(0))
    return [cut(x, sum(a.role == "copies" for a in v.axes)) if nested(v) else x for v, x in zip(graph.ins, tensors)]


@dataclass
class Run:
    """A joint graph that was compared. flops: multiply-adds that torch counted, of autograd on the plain body and of the joint graph."""
    joint: Joint
    sizes: Sizes
    autograd: int
    executed: int

    def macs(self, *phases: str) -> int:
        """Contractions of the whole batch, derived; all phases by default."""
        found = by_phase(self.joint.graph, BATCH)
        return int(sum(self.sizes.value(found[p]["contraction"]) for p in phases or found))


def compare(graph: Graph, sizes: Sizes, forced: Mapping[str, str] = BODIES, symbols: int = 2, tolerance: float = 1e-9, seed: int = 0,
            inputs: bool = True, count: bool = False) -> Run:
    """Derive and run the joint graph of a claimed graph; its outputs and all gradients are autograd's on the plain one."""
    joint = derive(claim(graph, Target(), forced), sizes, inputs)
    given = operands(graph, sizes, symbols, seed)
    g = torch.Generator().manual_seed(seed + 1)
    forward, both = lower(plain(graph), sizes, {}), lower(unclaimed(joint.graph), sizes, {})

    def by_autograd():
        outs = forward(*handed(graph, given))
        cts = {k: torch.randn(outs[k].shape, generator=g, dtype=torch.float64) for k in joint.seeds}
        torch.autograd.backward([outs[k] for k in cts], list(cts.values()))
        return outs, cts

    @torch.no_grad()
    def by_schedule(): return both(*handed(graph, [x.detach() for x in given]), *cts.values())

    (outs, cts), autograd = counted(by_autograd) if count else (by_autograd(), 0)
    made, executed = counted(by_schedule) if count else (by_schedule(), 0)
    assert {v.name for v in graph.ins if v.kind == "param" or v.kind == "real" and inputs} == set(joint.gradients)
    for p, q in zip(made, outs): same(p, q, tolerance, "output")
    found = dict(zip(joint.gradients, made[joint.count:]))
    for v, x in zip(graph.ins, given):
        if v.name in found: same(found[v.name], torch.zeros_like(x) if x.grad is None else x.grad, tolerance, v.name)
    return Run(joint, sizes, autograd, executed)


def counted(fn):
    """What fn gives, and the multiply-adds of its products."""
    count = FlopCounterMode(display=False)
    with count: made = fn()
    return made, count.get_total_flops() // 2


def same(p: Tensor, q: Tensor, tolerance: float, name: str) -> None:
    assert p.shape == q.shape, (name, p.shape, q.shape)
    assert torch.isfinite(p.double()).all(), f"{name} is not finite"
    p, q = p.detach().double(), q.detach().double()
    far = float((p - q).abs().max()) if p.numel() else 0.0
    assert far <= tolerance * max(1.0, float(q.abs().max()) if q.numel() else 0.0), (name, far)
