"""What runs, measured: products that torch counts, tensors that autograd keeps, bytes that the allocator hands out, influences."""
from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from plait.compiler.program import Program
from plait.runtime.module import Module

BATCH = 2


def inputs(program: Program, loss: bool, seed: int = 0) -> tuple[Tensor, ...]:
    """Random inputs in the order of the program, BATCH sequences; with one symbol more where the loss reads ahead."""
    g = torch.Generator().manual_seed(seed)
    made = []
    for i in program.inputs:
        shape = [BATCH, *(_whole(program, a.size) for a in i.value.axes[1:])]
        if i.kind == "tokens" and i.ahead and loss: shape[1] += 1
        if i.kind == "stream": made.append(torch.randn(shape, generator=g).requires_grad_())
        else: made.append(torch.randint(_whole(program, i.classes), shape, generator=g))
    return tuple(made)


def _whole(program: Program, size) -> int:
    found = program.sizes.integer(size)
    if found is None: raise ValueError(f"{size} has no value")
    return found


def forward(module: Module, given: Sequence[Tensor], loss: bool) -> Tensor:
    """The scalar that a step differentiates: the loss, else the sum of the outputs."""
    if loss: return module.loss(*given)
    out = module(*given)
    return sum(o.sum() for o in out) if isinstance(out, tuple) else out.sum()


def step(module: Module, given: Sequence[Tensor], loss: bool) -> None:
    """One step: gradients gone, forward, backward. The seed keeps dropout and hashing the same from step to step."""
    torch.manual_seed(0)
    for p in (*module.parameters(), *given): p.grad = None
    total = forward(module, given, loss)
    if total.requires_grad: total.backward()


def products(fn: Callable[[], object]) -> int:
    """Multiply-adds of matrix products, by torch's own formulas (half its flops). torch's FlopCounterMode itself hooks modules, and
    those hooks fail where a backward runs a module again."""
    with _Counting() as counter: fn()
    return counter.flops // 2


class _Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        packet = func._overloadpacket
        plain = getattr(torch.ops.aten, packet.__name__.removesuffix("_"), packet)            # a product into its operand counts too
        formula = flop_registry.get(packet) or flop_registry.get(plain)
        if formula is not None: self.flops += formula(*args, **(kwargs or {}), out_val=out)
        return out


# ---- what is saved --------------------------------------------------------------------------------------------------------
def saved(module: Module, given: Sequence[Tensor], loss: bool) -> dict[int, int]:
    """Storage → bytes of what forward hands to autograd to keep, without parameters and the caller's inputs; each storage once."""
    own = {t.untyped_storage().data_ptr() for t in (*module.parameters(), *given)}
    found: dict[int, int] = {}
    alive: list[Tensor] = []

    def pack(t: Tensor) -> Tensor:
        storage = t.untyped_storage()
        if storage.data_ptr() not in own and storage.nbytes():
            found[storage.data_ptr()] = storage.nbytes()
            alive.append(t)                                   # so that no other storage takes its place
        return t

    torch.manual_seed(0)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t): forward(module, given, loss)
    return found


def held(module: Module, given: Sequence[Tensor], loss: bool) -> int:
    """Bytes of storages made in forward and still alive when only its result is held."""
    torch.manual_seed(0)
    with _storages() as made: out = forward(module, given, loss)
    own = {t.untyped_storage().data_ptr() for t in (*module.parameters(), *given, out)}
    return sum(s.nbytes() for s in {r().data_ptr(): r() for r in made if r() is not None}.values() if s.data_ptr() not in own)


@contextmanager
def _storages() -> Iterator[list]:
    """Weak references to the storages of all tensors that operations make."""
    made: list = []

    class Noting(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            made.extend(weakref.ref(t.untyped_storage()) for t in tree_leaves(out) if isinstance(t, Tensor))
            return out
    with Noting(): yield made


# ---- the allocator ----------------------------------------------------------------------------------------------------------
def peak(fn: Callable[[], object]) -> int:
    """The most bytes that the CPU's allocator had out at once during fn, beyond those before it."""
    from torch._C._profiler import _EventType
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof: fn()
    changes, waiting = [], list(prof.profiler.kineto_results.experimental_event_tree())
    while waiting:
        e = waiting.pop()
        waiting.extend(e.children)
        if e.tag == _EventType.Allocation: changes.append((e.start_time_ns, e.extra_fields.alloc_size))
    live = most = 0
    for _, change in sorted(changes, key=lambda c: c[0]):
        live += change
        most = max(most, live)
    return most


# ---- who has an influence on whom -------------------------------------------------------------------------------------------
def influences(run: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """[input position, output position], true where the gradient of an output at that position (any of its numbers, by a random
    weighting) by the input at that position is not 0. x [1, n, d] float64; run gives [1, m, …] or [1, …]."""
    x = x.detach().requires_grad_()
    y = run(x)
    y = y.flatten(2) if y.dim() > 2 else y[:, None]
    weight = torch.randn(y.shape, dtype=y.dtype)
    rows = []
    for i in range(y.shape[1]):
        g, = torch.autograd.grad((y[:, i] * weight[:, i]).sum(), x, retain_graph=True, allow_unused=True)
        rows.append(torch.zeros(x.shape[1], dtype=torch.bool) if g is None else (g[0].flatten(1) != 0).any(1))
    return torch.stack(rows, 1)
