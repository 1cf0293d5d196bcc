"""The products of the primitive lowering, traced with symbolic sizes: an expression to be held against the derived one."""
from __future__ import annotations

import sympy as sp
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._sympy.functions import FloorDiv

from plait.compiler.axis import BATCH_SIZE
from plait.compiler.claim import claim
from plait.compiler.derive import derive
from plait.compiler.graph import Graph, Value
from plait.compiler.kernels import KERNELS, Target
from plait.compiler.lower import lower, nested
from plait.compiler.prims import Loop, Region
from plait.compiler.program import Program
from plait.compiler.sizes import Sizes

BODIES = {k.region: "body" for k in KERNELS}
BATCH = 17                                                    # unlike any other size: torch takes equal sizes for one
PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.bmm.default)


def traceable(graph: Graph) -> bool:
    """No recurrence, which would be unrolled, and no hashing, whose chunks depend on divisions; no loop with a backward of its own."""
    return not any(isinstance(n.op, Loop) and (n.op.axis.role == "sequence" or n.op.keep != "save")
                   or isinstance(n.op, Region) and n.op.name == "lsh_attention" for n in graph.walk())


def derived(p: Program) -> sp.Expr:
    """Multiply-adds of forward and backward, in the batch and the free dims."""
    from plait.compiler.costs.training import by_phase
    plain = derive(claim(p.graph, Target(), BODIES), p.sizes)
    total = sp.Add(*(ledgers["contraction"] for ledgers in by_phase(plain.graph, BATCH_SIZE).values()))
    return sp.expand(p.sizes.resolve(total).xreplace({s: sp.Integer(v) for s, v in p.sizes.bound.items()}))


def traced(p: Program, at: dict[str, int]) -> sp.Expr:
    """The same, from the operations that torch records while the sizes in `at` are symbols to it."""
    known = p.sizes.bind(**at)
    graph = claim(p.graph, Target(), BODIES)
    tensors = [_drawn(v, known) for v in graph.ins]
    lowered = lower(graph, p.sizes, {})

    def step(*given: Tensor):
        handed = [_cut(x, sum(a.role == "copies" for a in v.axes)) if nested(v) else x for v, x in zip(graph.ins, given)]
        outs = [o for o in lowered(*handed) if o.is_floating_point()]
        wanted = [x for x in given if x.requires_grad]
        return torch.autograd.grad([o.sum() for o in outs], wanted, allow_unused=True)

    made = make_fx(step, tracing_mode="symbolic", _allow_non_fake_inputs=True)(*tensors)
    names = _names(graph, made, p.sizes)
    total = sp.Integer(0)
    for node in made.graph.nodes:
        if node.target not in PRODUCTS: continue
        left = node.args[0].meta["val"].shape
        total += sp.Mul(*(_expression(s) for s in node.meta["val"].shape)) * _expression(left[-1])
    return sp.expand(total.xreplace(names).replace(FloorDiv, lambda x, y: sp.floor(x / y)))         # torch's own class of quotients


def _drawn(v: Value, sizes: Sizes) -> Tensor:
    shape = [int(sizes.bind(b=BATCH).value(a.size)) for a in v.axes]                                              # type: ignore[arg-type]
    if v.kind == "mask": return torch.ones(shape, dtype=torch.bool)
    if v.kind == "index": return torch.zeros(shape, dtype=torch.long)
    return torch.randn(shape).requires_grad_()


def _cut(x: Tensor, times: int):
    return x if times == 0 else tuple(_cut(y, times - 1) for y in x.unbind(0))


def _expression(size) -> sp.Expr:
    return size.node.expr if isinstance(size, torch.SymInt) else sp.Integer(int(size))


def _names(graph: Graph, made: torch.fx.GraphModule, sizes: Sizes) -> dict[sp.Basic, sp.Expr]:
    """torch's symbols → the dims that stand for them in the shapes of the inputs."""
    found: dict[sp.Basic, sp.Expr] = {}
    places = [n for n in made.graph.nodes if n.op == "placeholder"]
    for v, node in zip(graph.ins, places):
        for a, s in zip(v.axes, node.meta["val"].shape):
            e = _expression(s)
            if not e.is_Symbol: continue
            size = sizes.resolve(a.size)
            found.setdefault(e, size.xreplace({s: sp.Integer(x) for s, x in sizes.bound.items()}))
    return found
