"""What a training step runs, call by call, with sizes as numbers: products, kernels, code made for what goes element by element, the
steps of recurrences. A walk over the joint graph of the plan; `costs.time` says how long each takes on a machine.

What stands between loops and opaque kernels is a segment, compiled as one, as `lowering.segments` cuts it. In it the library has the
products, attention and convolutions; everything else is fused: what hangs together between two of these calls runs as one nest of loops
that reads each of its operands once and writes once what others read. A sum down the columns (of a bias, of the scale of a norm) is a
nest of its own that reads its operands again. A recurrence is n steps one after another, each a few products and pieces of code, or a
library's. A kernel that is a program of its own (rows, bands, LSH) runs as its body, nothing fused, in its blocks."""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, log2, prod
from typing import TYPE_CHECKING

import sympy as sp

from plait.compiler.axis import BATCH_SIZE, Axis, without
from plait.compiler.costs.fused import LIBRARY, Fused
from plait.compiler.costs.memory import width
from plait.compiler.costs.work import macs
from plait.compiler.graph import Graph, Node, Value, live
from plait.compiler.kernels import BAND_SLAB, BLOCK_ROWS, KERNELS, SLAB, Target
from plait.compiler.prims import FUNCTIONS, Const, Contract, Fold, Loop, Map, Position, Random, Reduce, Region, Sort
from plait.compiler.sizes import Free, Sizes

if TYPE_CHECKING:
    from plait.compiler.derive import Joint
    from plait.compiler.step import Step

OPAQUE = {k.name for k in KERNELS if k.opaque} | {f"{k.name}_backward" for k in KERNELS if k.opaque}
KINDS = ("product_nn", "product_nt", "product_tn", "batched", "packed", "packing", "attention", "attention_backward", "convolution",
         "convolution_backward", "rows", "columns", "scatter", "sort", "segment", "segment_backward", "piece", "rnn", "lstm", "gru",
         "rnn_backward", "lstm_backward", "gru_backward", "update")


@dataclass(frozen=True)
class Call:
    """Something that runs as one, on the whole batch. kind: one of KINDS; work: multiply-adds; shape: of a product, its rows, what it sums
    over, its columns; bytes: what is read and written, each once; elements: function → how many of it; operands: tensors that it is
    handed; times: how often it runs, one after another."""
    kind: str
    phase: str
    at: str
    work: float = 0.0
    shape: tuple[float, ...] = ()
    bytes: float = 0.0
    elements: Mapping[str, float] = field(default_factory=dict)
    operands: int = 0
    times: float = 1.0


def calls(step: Step, batch: int) -> list[Call]:
    """Of forward, what is computed again, and backward, for so many sequences. Raises Free with the names of dims without a value."""
    return joint_calls(step.running, step.program.sizes.bind(b=batch), step.target)


def joint_calls(joint: Joint, sizes: Sizes, target: Target) -> list[Call]:
    """The same of a joint graph. A training needs no gradient of its inputs."""
    g = joint.graph
    weights = {v.name for v in g.ins if v.kind == "param"}
    outs = (*g.outs[:joint.count], *(v for name, v in joint.gradients.items() if name in weights))
    found = Walk(sizes, target, dict(joint.measured))
    found.graph(replace(g, nodes=live(g.nodes, outs), outs=outs), 1.0)
    return found.calls


# elements moved for each of a parameter's by the mean over the targets (2), the norm of the gradient (1), clipping (2)
MEAN, NORM, CLIP = 2, 1, 2
MOVED = {"adam": 7, "adamw": 7, "sgd": 5, "adafactor": 20, "muon": 7}


def update(parameters: float, tensors: int, optimizer: str, clipped: bool, parts: int = 1) -> Call:
    """The optimiser's step, in float32. Adam reads gradient, parameter and two moments, and writes three of them. parts: of a batch whose
    gradients add up."""
    moved = MEAN + NORM + CLIP * clipped + MOVED[optimizer] + 3 * (parts - 1)
    return Call("update", "update", "", bytes=4.0 * moved * parameters, operands=tensors)


class Walk:
    """Collects calls. library: place → kernel, of the recurrences that a library runs."""

    def __init__(self, sizes: Sizes, target: Target, library: Mapping[str, str]):
        self.sizes, self.target, self.library = sizes, target, library
        self.calls: list[Call] = []
        self.known: dict[sp.Expr, float] = {}

    # -- numbers -------------------------------------------------------------------------------------------------------------
    def number(self, e: sp.Expr) -> float:
        if e not in self.known:
            value = self.sizes.value(e)
            if value is None:
                raise Free(", ".join(sorted(str(s) for s in self.sizes.resolve(e).free_symbols if self.sizes.value(s) is None)))
            self.known[e] = float(value)
        return self.known[e]

    def elements(self, v: Value) -> float: return prod(self.number(a.size) for a in v.axes)

    def over(self, axes: Iterable[Axis]) -> float: return prod(self.number(a.size) for a in axes)

    def bytes(self, *values: Value) -> float: return sum(self.elements(v) * width(v, self.target) for v in values)

    # -- graphs --------------------------------------------------------------------------------------------------------------
    def graph(self, g: Graph, times: float) -> None:
        """All that a graph runs, so many times."""
        for run in self.runs(g.nodes):
            first = run[0]
            if first.at in self.library: self.recurrence(run, times)
            elif isinstance(first.op, Loop): self.loop(first, first.op, times)
            elif isinstance(first.op, Region) and first.op.kernel in OPAQUE: self.blocks(first, first.op, times)
            else: self.segment(run, left(g, run), times)

    def runs(self, nodes: Sequence[Node]) -> Iterator[list[Node]]:
        """Segments, and between them what stands alone: a loop, an opaque kernel, a library's recurrence with all that belongs to it."""
        run: list[Node] = []
        before: object = None
        for n in nodes:
            alone = isinstance(n.op, Loop) or isinstance(n.op, Region) and n.op.kernel in OPAQUE
            key = ("library", n.at, n.phase) if n.at in self.library else n if alone else n.phase
            if run and key != before:
                yield run
                run = []
            before = key
            run.append(n)
        if run: yield run

    def loop(self, n: Node, op: Loop, times: float) -> None:
        """A recurrence steps; the body of any other loop has segments of its own. Where a body knows the number of its trip, each is
        another one."""
        trips = int(self.number(op.axis.size))
        if op.axis.role == "sequence":
            self.ordered(n, op, times)
            return self.steps(op, n, times * trips)
        if op.index is None: return self.graph(op.body, times * trips)
        for t in range(trips):
            inner = Walk(replace(self.sizes, bound={**self.sizes.bound, op.index: t}), self.target, self.library)
            inner.graph(op.body, times)
            self.calls += inner.calls

    # -- segments ------------------------------------------------------------------------------------------------------------
    def segment(self, run: list[Node], outs: set[Value], times: float) -> None:
        f = Fused(run, outs)
        if not f.apart and not any(map(self.counts, f.nests)): return
        phase, at = run[0].phase, run[0].at
        kind = "segment_backward" if phase == "backward" else "segment"
        self.calls.append(Call(kind, phase, at, operands=len(f.given), times=times))
        self.made(f, times)

    def made(self, f: Fused, times: float) -> None:
        self.calls += [self.alone(n, times) for n in f.apart]
        self.calls += [self.nest(f, nest, times) for nest in f.nests if self.counts(nest)]

    def steps(self, op: Loop, n: Node, times: float) -> None:
        """A recurrence: products with weights that lie packed, and between them pieces of code."""
        f = Fused(op.body.nodes, set(op.body.outs))
        self.calls += [self.alone(m, times, "packed") for m in f.apart]
        # the trip itself: its rows of all stacks, and the step that calls the pieces
        self.calls.append(Call("piece", n.phase, n.at, operands=len(op.body.ins) + len(op.body.outs) + 2 * len(f.apart), times=times))
        pieces: dict[int, list[list[Node]]] = defaultdict(list)
        for nest in f.nests: pieces[f.level[nest[0].outs[0]]].append(nest)
        for nests in pieces.values():
            made = [self.nest(f, nest, times) for nest in nests if self.counts(nest)]
            if not made: continue
            read = {v for nest in nests for m in nest for v in m.ins}
            bytes_, elements = sum(c.bytes for c in made), summed(c.elements for c in made)
            self.calls.append(Call("piece", n.phase, n.at, bytes=bytes_, elements=elements, operands=len(read), times=times))

    def ordered(self, n: Node, op: Loop, times: float) -> None:
        """Before its first step a recurrence brings into the order of its trips what does not lie so, and packs its weights: copied once,
        then laid out."""
        moved = [v for v in n.ins[op.carried:op.carried + op.sliced] if v.axes[0].name != op.axis.name]
        weights = [v for v in n.ins[op.carried + op.sliced:] if v.kind == "param" and len(v.axes) > 1]
        if moved: self.calls.append(Call("rows", n.phase, n.at, bytes=2 * self.bytes(*moved), times=times))
        self.calls += [Call("packing", n.phase, n.at, bytes=4 * self.bytes(v), times=times) for v in weights]

    def counts(self, nest: list[Node]) -> bool:
        """Is anything computed?"""
        return not all(isinstance(n.op, Const | Position) for n in nest)

    def nest(self, f: Fused, nest: list[Node], times: float) -> Call:
        """Reads each operand from outside once, writes what others read."""
        mine = {v for n in nest for v in n.outs}
        read: dict[Value, float] = {}
        for n in nest:
            for v in n.ins:
                root = f.root(v)
                if root in mine or root in f.numbers: continue
                read[root] = max(read.get(root, 0.0), min(self.bytes(v), self.bytes(root)))
        written = self.bytes(*(v for v in mine if v in f.needed))
        elements = summed({function(n): self.computed(n)} for n in nest if not isinstance(n.op, Const | Position))
        kind = "columns" if f.column(nest[0]) else "rows"
        return Call(kind, nest[0].phase, nest[0].at, bytes=sum(read.values()) + written, elements=elements, times=times)

    def computed(self, n: Node) -> float:
        return max(self.elements(n.outs[0]), self.elements(n.ins[0])) if isinstance(n.op, Reduce | Fold) else self.elements(n.outs[0])

    # -- calls of a library --------------------------------------------------------------------------------------------------
    def alone(self, n: Node, times: float, kind: str = "") -> Call:
        """A node that is a call of its own."""
        moved = self.bytes(*n.ins, *n.outs)
        if isinstance(n.op, Contract):
            both, rows, inner, columns, layout = product(n)
            shape = self.over(rows), self.over(inner), self.over(columns)
            count = self.over(both)
            kind = "batched" if both else kind or f"product_{layout}"
            return Call(kind, n.phase, n.at, count * prod(shape), (count, *shape) if both else shape, moved, times=times)
        if isinstance(n.op, Sort):
            size = self.elements(n.outs[0])
            compared = size * max(1.0, log2(self.number(n.outs[0].axis(n.op.axis).size)))
            return Call("sort", n.phase, n.at, bytes=moved, elements={"sort": compared}, times=times)
        if isinstance(n.op, Region): return self.library_call(n, n.op, moved, times)
        return Call("scatter", n.phase, n.at, bytes=moved, times=times)

    def library_call(self, n: Node, op: Region, moved: float, times: float) -> Call:
        kind, work = LIBRARY[op.kernel], self.number(macs(op.body)) * self.number(BATCH_SIZE)
        first = next(m for m in op.body.nodes if isinstance(m.op, Contract))
        if not kind.startswith("attention"):
            _, rows, inner, columns, _ = product(first)
            return Call(kind, n.phase, n.at, work, (self.over(rows), self.over(inner), self.over(columns)), moved, times=times)
        scores = first.outs[0]
        length, keys = self.number(scores.axis("n").size), self.number(scores.axis("n'").size)
        wide = self.number(first.ins[0].axis("k").size)
        seen = (keys + min(keys, BLOCK)) / (2 * keys) if op.arg("causal") and length == keys else 1.0
        elements = {"exp": self.elements(scores) * seen}
        return Call(kind, n.phase, n.at, work * seen, (length, wide), moved, elements, times=times)

    def recurrence(self, run: list[Node], times: float) -> None:
        """A library's: one call a step. What it computes of the whole sequence at once is counted into its steps."""
        first, kernel = run[0], self.library[run[0].at]
        found = [n for n in run if isinstance(n.op, Loop)]
        if not found: return
        loop = found[0]
        assert isinstance(loop.op, Loop)
        trips, state = self.number(loop.op.axis.size), loop.outs[0]
        work = sum(self.number(macs(Graph((), (n,), n.outs))) for n in run) * self.number(BATCH_SIZE)
        weights = dict.fromkeys(v for n in run for v in n.ins if v.kind == "param")
        units = self.number(state.axes[-1].size)
        kind = kernel if first.phase != "backward" else f"{kernel}_backward"
        self.calls.append(Call(kind, first.phase, first.at, work / trips, (self.elements(state) / units, units),
                               self.bytes(*weights, state), times=times * trips))

    def blocks(self, n: Node, op: Region, times: float) -> None:
        """A kernel that is a program: its body in as many blocks as it has, less what the blocks skip. Rows and bands run node by node,
        what hashing does is compiled."""
        length = max((self.number(a.size) for v in n.ins for a in v.axes if a.role == "sequence"), default=1.0)
        count = max(1.0, length / ROWS.get(op.kernel.removesuffix("_backward"), BLOCK_ROWS))
        part = self.share(op, length) / count
        inner = Walk(self.sizes, self.target, {})
        if "lsh" in op.kernel: inner.made(Fused(op.body.nodes, set(op.body.outs)), 1.0)
        else: inner.eager(op.body)
        self.calls += [replace(c, work=c.work * part, bytes=c.bytes * part, times=c.times * times * count,
                               elements={k: e * part for k, e in c.elements.items()}) for c in inner.calls]

    def share(self, op: Region, length: float) -> float:
        """Of the pairs of positions those that the kernel's blocks look at (as in `costs.executed`)."""
        match op.kernel.removesuffix("_backward"):
            case "rowwise_attention" if op.arg("causal"): return (length + min(length, BLOCK_ROWS)) / (2 * length)
            case "banded_attention":
                window = self.number(sp.Min(sp.sympify(op.arg("window")), 2 * sp.Float(length)))
                size = min(max(32.0, min(64.0, 2.0 ** ceil(log2(window)))), length)
                return min(1.0, size * (ceil((window - 1) / size) + 1) / length)
            case _: return 1.0

    def eager(self, g: Graph) -> None:
        for n in g.nodes:
            if isinstance(n.op, Loop): self.loop(n, n.op, 1.0)
            else: self.made(Fused([n], set(n.outs)), 1.0)


ROWS = {"lsh_attention": 64 * SLAB, "banded_attention": 64 * BAND_SLAB}               # positions that a kernel has at hand at once, about
BLOCK = 512                                                   # keys that a library's attention takes at once on a CPU: it skips no less


def product(n: Node) -> tuple[tuple[Axis, ...], tuple[Axis, ...], tuple[Axis, ...], tuple[Axis, ...], str]:
    """Axes that go together, those of its rows, of its sum, of its columns; and which operands lie transposed, as in BLAS."""
    assert isinstance(n.op, Contract)
    a, b = n.ins
    over = n.op.over
    both = tuple(p for p in a.axes if b.has(p.name) and p.name not in over)
    rows, columns = without(a.axes, b.names), without(b.axes, a.names)
    inner = tuple(p for p in a.axes if p.name in over)
    def first(v: Value, own: tuple[Axis, ...]) -> bool:       # does what is summed stand before what is not?
        return bool(own) and bool(over) and min(map(v.names.index, over)) < min(v.names.index(p.name) for p in own)
    layout = "tn" if first(a, rows) else "nn" if first(b, columns) else "nt"
    return both, rows, inner, columns, layout


def function(n: Node) -> str:
    """What is computed for each element."""
    match n.op:
        case Map(fn): return fn if FUNCTIONS[fn] == "transcendental" else "arithmetic"
        case Reduce() | Fold(): return "sum"
        case Random(): return "random"
        case _: return "arithmetic"


def summed(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for part in parts:
        for k, v in part.items(): found[k] += v
    return dict(found)


def left(g: Graph, run: list[Node]) -> set[Value]:
    """What a run makes and others read."""
    inside = {id(n) for n in run}
    return {v for n in g.nodes if id(n) not in inside for v in n.ins} | set(g.outs)
