"""What a machine is measured by: one kind of call after another, each by itself, at a few sizes. No model, and nothing of a model's sizes.

A probe is a call as `costs.calls` has them, with a function that makes it; `calibrate` finds the numbers by which `costs.time` gives
what was measured."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from math import log2
from types import SimpleNamespace
from typing import Any

import torch
import torch._inductor
import torch.nn.functional as F
from torch import Tensor, fx, nn

from plait.compiler.costs.calls import BLOCK, CLIP, MEAN, MOVED, NORM, Call
from plait.compiler.lowering import segments, tensors
from plait.runtime import step


@dataclass(frozen=True)
class Probe:
    """run: makes the call `count` times."""
    call: Call
    run: Callable[[], object]
    count: int = 1


@dataclass(frozen=True)
class Place:
    """Where it runs. part: 1, or less for smaller sizes, of which nothing useful comes (for tests)."""
    device: torch.device
    dtype: torch.dtype = torch.float32
    part: float = 1.0

    def numbers(self, *shape: int, grad: bool = False) -> Tensor:
        return torch.randn(shape, device=self.device, dtype=self.dtype, requires_grad=grad)

    def size(self, whole: int) -> int: return max(4, int(whole * self.part))

    @property
    def width(self) -> int: return self.dtype.itemsize


Shape = tuple[int, int, int]
# rows, sum, columns: as forward and the gradient of the input have them, many rows; as the gradient of a weight, a long sum
LONG: tuple[Shape, ...] = (
    (4096, 64, 64), (4096, 256, 64), (4096, 64, 256), (1024, 256, 256), (512, 192, 768), (512, 768, 192), (2048, 96, 384), (2048, 384, 96),
    (3072, 160, 480), (1024, 1024, 512), (768, 64, 64), (384, 320, 320), (2048, 1024, 1024))
THIN: tuple[Shape, ...] = ((32, 128, 128), (32, 250, 1000), (32, 512, 512), (32, 1000, 250), (32, 750, 750), (8, 500, 500), (128, 450, 450),
                           (32, 350, 350), (64, 256, 256))
BATCHED = ((64, 64, 32, 64), (64, 64, 64, 32), (32, 128, 64, 128), (16, 256, 32, 256), (16, 64, 256, 64))
# matrices, length, width; sequences, length, width, taps; steps, sequences, width, units; rows, table, width; powers of two
HEADS = ((64, 16, 32), (64, 64, 32), (32, 256, 32), (16, 256, 64), (8, 512, 64), (64, 96, 64))
FILTERS = ((16, 64, 64, 3), (16, 16, 100, 5), (16, 128, 151, 3), (32, 32, 128, 5), (8, 256, 256, 3), (8, 32, 300, 3), (32, 128, 75, 3))
STATES = ((16, 32, 128, 128), (16, 32, 128, 250), (32, 32, 250, 450), (32, 8, 128, 250), (16, 64, 128, 384))
TABLES = ((1024, 256, 64), (2048, 128, 256), (4096, 512, 512))
SIZES = (12, 14, 16, 18, 20, 22, 24)


def repeated(fn: Callable[[], object], count: int) -> Callable[[], None]:
    def run() -> None:
        for _ in repeat(None, count): fn()
    return run


def short(call: Call, fn: Callable[[], object], seconds: float) -> Probe:
    """A call of about so many seconds, as often as it takes to be seen."""
    count = max(1, min(300, int(2e-3 / seconds)))
    return Probe(call, repeated(fn, count), count)


# -- products --------------------------------------------------------------------------------------------------------------
def products(at: Place) -> Iterator[Probe]:
    for layout in ("nn", "nt", "tn"):
        for shape in LONG:
            m, k, n = (at.size(s) for s in (shape if layout != "tn" else (shape[1], shape[0], shape[2])))
            x = at.numbers(k, m).t() if layout == "tn" else at.numbers(m, k)
            y = at.numbers(n, k).t() if layout == "nt" else at.numbers(k, n)
            call = Call(f"product_{layout}", "", "", float(m * k * n), (m, k, n), at.width * float(m * k + k * n + m * n))
            yield short(call, partial(torch.mm, x, y), m * k * n / 5e10)


def batched(at: Place) -> Iterator[Probe]:
    for shape in BATCHED:
        b, m, k, n = (at.size(s) for s in shape)
        x, y = at.numbers(b, m, k), at.numbers(b, k, n)
        work = float(b * m * k * n)
        yield short(Call("batched", "", "", work, (b, m, k, n), at.width * float(b * (m * k + k * n + m * n))),
                    partial(torch.bmm, x, y), work / 3e10)


def packed(at: Place) -> Iterator[Probe]:
    """Products of a recurrence's step: on a CPU with weights that lie packed."""
    own = at.device.type == "cpu" and at.dtype == torch.float32 and torch.backends.mkldnn.is_available()
    for shape in THIN:
        m, k, n = (at.size(s) for s in shape)
        x, w = at.numbers(m, k), at.numbers(n, k)
        if own:
            lying = torch.ops.mkldnn._reorder_linear_weight(w, m)
            def run(x=x, w=lying): return torch.ops.mkldnn._linear_pointwise(x, w, None, "none", [], "")
        else:
            def run(x=x, w=w): return torch.mm(x, w.t())
        yield short(Call("packed", "", "", float(m * k * n), (m, k, n), at.width * float(m * k + k * n + m * n)), run, m * k * n / 5e10)


def packed_weight(w: Tensor) -> Tensor: return torch.ops.mkldnn._reorder_linear_weight(w.t().contiguous(), 32)


def packing(at: Place) -> Iterator[Probe]:
    """Weights that a scan lays out once, before its first step."""
    if at.device.type != "cpu" or at.dtype != torch.float32 or not torch.backends.mkldnn.is_available(): return
    for wide in (256, 500, 750):
        w = at.numbers(at.size(wide), at.size(wide))
        yield Probe(Call("packing", "", "", bytes=at.width * 4.0 * w.numel()),
                    partial(packed_weight, w))


# -- kernels of a library --------------------------------------------------------------------------------------------------
def both(kind: str, call: Call, fn: Callable[..., Tensor], operands: list[Tensor], backward: Call) -> Iterator[Probe]:
    """A library's call and its backward, each by itself."""
    y = fn(*operands)
    g = torch.randn_like(y)
    yield Probe(replace(call, kind=kind), lambda: fn(*operands))
    yield Probe(replace(backward, kind=f"{kind}_backward"), lambda: torch.autograd.grad(y, operands, g, retain_graph=True))


def attention(at: Place) -> Iterator[Probe]:
    for shape in HEADS:
        b, n, k = (at.size(s) for s in shape)
        for causal in (True, False):
            q, x, v = (at.numbers(b // 4 or 1, n, 4, k).transpose(1, 2).requires_grad_() for _ in range(3))
            pairs = float(b // 4 or 1) * 4 * n * ((n + min(n, BLOCK)) / 2 if causal else n)
            moved = at.width * 4.0 * q.numel()
            call = Call("", "", "", 2 * pairs * k, (n, k), moved, {"exp": pairs})
            yield from both("attention", call, partial(F.scaled_dot_product_attention, is_causal=causal), [q, x, v],
                            replace(call, work=5 * pairs * k, bytes=2 * moved))


def convolution(at: Place) -> Iterator[Probe]:
    for shape in FILTERS:
        b, n, d, w = (at.size(s) for s in shape)
        x = at.numbers(b, n + w - 1, d).transpose(1, 2).requires_grad_()
        weight = at.numbers(d, d, w, grad=True)
        work = float(b * n * d * d * w)
        call = Call("", "", "", work, (b * n, d * w, d), at.width * float(x.numel() + weight.numel() + b * n * d))
        yield from both("convolution", call, F.conv1d, [x, weight], replace(call, work=2 * work, bytes=2 * call.bytes))


def states(layer: nn.Module, x: Tensor, *weights: Tensor) -> Tensor: return layer(x)[0]


def recurrences(at: Place) -> Iterator[Probe]:
    for kind, make, gates in (("lstm", nn.LSTM, 4), ("gru", nn.GRU, 3), ("rnn", nn.RNN, 1)):
        for shape in STATES:
            n, b, d, u = (at.size(s) for s in shape)
            layer = make(d, u, device=at.device, dtype=at.dtype)
            work, weights = float(b * gates * u * (d + u)), at.width * float(gates * u * (d + u) + b * u)
            call = Call("", "", "", work, (b, u), weights, times=n)
            yield from both(kind, call, partial(states, layer), [at.numbers(n, b, d, grad=True), *layer.parameters()],
                            replace(call, work=2 * work, bytes=weights))


# -- what goes element by element ------------------------------------------------------------------------------------------
def traffic(at: Place) -> Iterator[Probe]:
    """A sum of two tensors, from what a cache holds to what none does."""
    for power in SIZES:
        size = max(64, int(2**power * at.part))
        x, y = at.numbers(size), at.numbers(size)
        yield short(Call("traffic", "", "", bytes=3.0 * at.width * size), partial(torch.add, x, y), 3 * at.width * size / 2e10 + 2e-6)


def columns(at: Place) -> Iterator[Probe]:
    """What is read is not at hand: others have run in between."""
    total = compiled(lambda x: x.sum(0))
    for rows, wide in ((1024, 128), (4096, 256), (2048, 768)):
        x = at.numbers(at.size(rows), at.size(wide))
        yield Probe(Call("columns", "", "", bytes=at.width * float(x.numel())), repeated(partial(total, x), 10), 10)


def added(g: Tensor, index: Tensor, size: int) -> Tensor: return g.new_zeros(size, g.shape[1]).index_put_((index,), g, accumulate=True)


def scatter(at: Place) -> Iterator[Probe]:
    """The gradient of a table that rows were looked up in, as compiled code has it."""
    for shape in TABLES:
        n, size, d = (at.size(s) for s in shape)
        index, g = torch.randint(size, (n,), device=at.device), at.numbers(n, d)
        yield Probe(Call("scatter", "", "", bytes=at.width * float(n * d + size * d) + 8 * n),
                    partial(added, g, index, size))


def sort(at: Place) -> Iterator[Probe]:
    x = torch.randint(64, (at.size(64), at.size(4096)), device=at.device)
    yield Probe(Call("sort", "", "", elements={"sort": x.numel() * log2(x.shape[1])}), lambda: torch.sort(x, stable=True, dim=-1))


aten = torch.ops.aten
UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": torch.exp, "log": torch.log, "sin": torch.sin, "cos": torch.cos, "tanh": torch.tanh, "sigmoid": torch.sigmoid,
    "gelu": F.gelu, "silu": F.silu, "rsqrt": torch.rsqrt,
    "gelu_slope": lambda x: aten.gelu_backward(x, x), "silu_slope": lambda x: aten.silu_backward(x, x),
    "sum": lambda x: x.view(64, -1).sum(-1)}
CHAIN = 16


def chained(x: Tensor) -> Tensor:
    for k in range(CHAIN // 2): x = x * 1.0625 + (k + 0.5)
    return x


def functions(at: Place) -> Iterator[Probe]:
    """Of a tensor that a cache holds."""
    x = torch.rand(64 * at.size(4096), device=at.device, dtype=at.dtype) + 0.5
    for name, fn in UNARY.items():
        yield Probe(Call("function", "", "", elements={name: float(x.numel())}), repeated(partial(fn, x), 4), 4)
    chain, key = compiled(chained), torch.tensor(7, device=at.device)
    yield Probe(Call("function", "", "", elements={"arithmetic": float(CHAIN * x.numel())}, operands=1), repeated(lambda: chain(x), 4), 4)
    draw = compiled(lambda key, like: tensors.random("uniform", (64, like.numel() // 64), key, like))
    yield Probe(Call("function", "", "", elements={"random": float(x.numel())}, operands=2), lambda: draw(key, x))


# -- what a call costs -----------------------------------------------------------------------------------------------------
def compiled(fn: Callable) -> Callable:
    """As segments are."""
    segments._settle()
    return torch.compile(fn, fullgraph=True, backend=segments.BACKEND, dynamic=False)


def small(count: int) -> fx.Graph:
    """A few operations on so many tensors."""
    graph = fx.Graph()
    x, *rest = [graph.placeholder(f"x{k}") for k in range(count)]
    for y in rest: x = graph.call_function(torch.mul, (x, y))
    graph.output((graph.call_function(torch.tanh, (x,)),))
    return graph


OPERANDS = (2, 18)


def calls(at: Place) -> Iterator[Probe]:
    """An operation that takes no time; a compiled segment, forward and backward."""
    x = at.numbers(4)
    yield Probe(Call("latency", "", ""), repeated(lambda: x + x, 300), 300)
    empty = compiled(lambda x: x + 1)
    yield Probe(Call("compiled", "", ""), repeated(lambda: empty(x), 100), 100)
    w = at.numbers(4, 4)
    yield Probe(Call("product", "", ""), repeated(lambda: torch.mm(w, w), 300), 300)
    for count in OPERANDS:
        segment = segments.Segment(fx.GraphModule(nn.Module(), small(count)), [[] for _ in range(count)])
        given = [at.numbers(4, grad=True) for _ in range(count)]
        (y,), g = segment(*given), torch.ones_like(x)
        yield Probe(Call("segment", "", "", operands=count), partial(segment, *given))          # once, as in a step: it is not at hand
        yield Probe(Call("segment_backward", "", "", operands=count), partial(torch.autograd.grad, y, given, g, retain_graph=True))


def steps(at: Place) -> Iterator[Probe]:
    """A piece of code of a recurrence's step, called once a trip with its rows of stacks."""
    trips = 100
    for count in OPERANDS:
        graph = fx.GraphModule(nn.Module(), small(count))
        stacks = [at.numbers(trips, 4, 4) for _ in range(count)]
        first: list = [x[0] for x in stacks]
        piece = torch._inductor.compile(graph, list(first)) if segments.BACKEND == "inductor" else graph

        def run(piece=piece, stacks=stacks) -> None:
            for operands in zip(*(x.unbind(0) for x in stacks)): piece(*operands)
        yield Probe(Call("piece", "", "", operands=count), run, trips)


class Given(torch.autograd.Function):
    """A loss that costs nothing, with gradients of zeros."""

    @staticmethod
    def forward(ctx, *weights: Tensor) -> Tensor:
        ctx.save_for_backward(*weights)
        return weights[0].new_zeros(())

    @staticmethod
    def backward(ctx, *g: Tensor): return tuple(map(torch.zeros_like, ctx.saved_tensors))


class Bare(nn.Module):
    """Weights without a model, with the face of one."""

    def __init__(self, weights: list[Tensor]):
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(w) for w in weights)

    def losses(self, count: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        total = Given.apply(*self.weights)
        return total, total, count


RECIPE: Any = SimpleNamespace(seed=0, clip=1.0)                   # what an update reads of one


def update(at: Place) -> Iterator[Probe]:
    """Everything that a training does in a step besides its model: of many small tensors, and of a few large ones."""
    for count, size in ((2, 16), (64, 16), (192, 16), (4, 2**17), (2, 2**20), (8, 2**20)):
        size = max(4, int(size * at.part))
        module = Bare([at.numbers(size) for _ in range(count)])
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=True)
        given = [(torch.tensor(1.0, device=at.device),)]
        moved = (MEAN + NORM + CLIP + MOVED["adamw"] + 1) * at.width * float(count * size)         # 1: the zeros
        yield Probe(Call("update", "", "", bytes=moved, operands=count), partial(step.update, module, optimizer, RECIPE, given, 1, 1e-4))


GROUPS: Mapping[str, Callable[[Place], Iterator[Probe]]] = {
    "calls": calls, "steps": steps, "traffic": traffic, "functions": functions, "products": products, "batched": batched, "packed": packed,
    "packing": packing, "attention": attention, "convolution": convolution, "recurrences": recurrences, "columns": columns,
    "scatter": scatter, "sort": sort, "update": update}
