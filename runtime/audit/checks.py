"""The lines of an audit: a derived number, the measured one beside it, and what must hold between them."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import sympy as sp
import torch

from plait.compiler.axis import BATCH_SIZE
from plait.compiler.claim import claim
from plait.compiler.costs import depth as depths
from plait.compiler.costs import memory, path
from plait.compiler.costs.hops import FAR, hops
from plait.compiler.costs.params import params
from plait.compiler.costs.training import by_phase
from plait.compiler.costs.training import depth as training_depth
from plait.compiler.costs.work import macs
from plait.compiler.derive import Joint, derive
from plait.compiler.graph import Graph, Value
from plait.compiler.kernels import KERNELS, Target
from plait.compiler.lower import lower, nested
from plait.compiler.passes.evaluation import evaluation
from plait.compiler.prims import Loop
from plait.compiler.program import Program
from plait.compiler.sizes import Sizes
from plait.compiler.step import Step
from plait.runtime.audit import measure, positions, symbolic, unrolled
from plait.runtime.audit.cut import from_vectors
from plait.runtime.audit.slack import slack
from plait.runtime.module import Module

BODIES = {k.region: "body" for k in KERNELS}
LONGEST = 32                                                  # positions that are followed one by one
FEW = 4                                                       # trips from which on the closed forms of backward loops are exact
MOST_TRACED, LENGTH = 120, 23                                 # nodes; a length unlike other sizes
DRAWS = 3                                                     # of random parameters: an influence may be 0 by chance


@dataclass(frozen=True)
class Finding:
    """kind: equal, within (derived ≤ measured ≤ bound), contained, measured, shown (nothing is claimed), skipped.
    holds: None where nothing is claimed."""
    what: str
    kind: str
    derived: object
    measured: object
    holds: bool | None
    note: str = ""


def equal(what: str, derived: object, measured: object, note: str = "") -> Finding:
    return Finding(what, "equal", derived, measured, derived == measured, note)


def skipped(what: str, why: str) -> Finding:
    return Finding(what, "skipped", None, None, None, why)


@dataclass(frozen=True, eq=False)
class Subject:
    """A model to be audited: with its sizes bound, with its loss where it has one; `others`: the same at other sizes; `free`: the same
    with the length left open, and other sizes as they are; `compiled`: what the compiler makes of it is shown, too."""
    program: Program
    others: tuple[Program, ...] = ()
    free: Program | None = None
    compiled: bool = False

    @cached_property
    def loss(self) -> bool:
        return self.program.loss is not None

    @cached_property
    def step(self) -> Step:
        return Step(lambda: self.program)

    @cached_property
    def module(self) -> Module:
        """Eager, by the kernels of the plan, float32, in training."""
        torch.manual_seed(0)
        return Module(self.program, compile=False).train()

    @cached_property
    def given(self) -> tuple[torch.Tensor, ...]:
        return measure.inputs(self.program, self.loss)

    def bytes(self, e: sp.Expr) -> int:
        return int(self.program.sizes.bind(b=measure.BATCH).value(e))                                         # type: ignore[arg-type]


def of_parameters(s: Subject) -> Iterator[Finding]:
    derived = s.program.sizes.integer(params(s.program.graph))
    yield equal("parameters", derived, sum(p.numel() for p in s.module.parameters()))


def of_products(s: Subject) -> Iterator[Finding]:
    """Multiply-adds of products on the primitive lowering, forward, and forward with backward, at every size."""
    found = [_products(p) for p in (s.program, *s.others)]
    for k, phase in enumerate(("forward", "training")):
        pairs = [f[k] for f in found]
        shown = next((p for p in pairs if p[0] != p[1]), pairs[0])
        yield Finding(f"products, {phase}", "equal", *shown, all(d == m for d, m in pairs), f"at {len(pairs)} sizes")


def _products(p: Program) -> tuple[tuple[int, int], tuple[int, int]]:
    """(derived, counted) of forward, and of forward with backward."""
    loss = p.loss is not None
    torch.manual_seed(0)
    module, given = Module(p, compile=False, kernels=BODIES).train(), measure.inputs(p, loss)
    plain = derive(claim(p.loss or p.graph, Target(), BODIES), p.sizes, of=(0,) if loss else None)
    counts = {phase: p.sizes.integer(ledgers["contraction"]) for phase, ledgers in by_phase(plain.graph, measure.BATCH).items()}
    work = {phase: count or 0 for phase, count in counts.items()}
    again = measure.BATCH * (p.sizes.integer(_hashed_again(plain)) or 0)
    bare = [t.detach() for t in given]
    with torch.no_grad(): forward = measure.products(lambda: measure.forward(module, bare, loss))
    both = measure.products(lambda: measure.step(module, given, loss))
    return (work["forward"], forward), (sum(work.values()) + again, both)


def _hashed_again(joint: Joint) -> sp.Expr:
    """The primitive lowering hashes once more where a reversible loop is undone, though it then takes the choice that was kept."""
    loops = [n for n in joint.graph.nodes if isinstance(n.op, Loop) and n.phase == "forward" and n.name == "invert"]
    return sp.Add(*(macs(n.op.body, lambda m: m.name == "hashing") * n.op.axis.size for n in loops))           # type: ignore[union-attr]


def of_symbols(s: Subject) -> Iterator[Finding]:
    """Forward and backward traced with the batch and the length as symbols: what torch records, less what is derived, is 0."""
    what = "products, symbolic"
    if s.free is None: yield skipped(what, "the length is no dim that could be left open"); return
    if not symbolic.traceable(s.free.graph):
        yield skipped(what, "recurrences, hashing and recomputed loops are not traced: see the sizes above")
        return
    if sum(1 for _ in s.free.graph.walk()) > MOST_TRACED: yield skipped(what, f"more than {MOST_TRACED} nodes take long to trace"); return
    lengths = [s.free.sizes.resolve(a.size).free_symbols for i in s.free.inputs for a in i.value.axes if a.role == "sequence"]
    length = next(x for found in lengths for x in found)
    traced, derived = symbolic.traced(s.free, {str(length): LENGTH}), symbolic.derived(s.free)
    note = "outputs only, no loss"
    if derived.has(BATCH_SIZE) and not traced.has(BATCH_SIZE):         # torch took a size of the batch for a number: so do we
        derived, note = derived.subs(BATCH_SIZE, symbolic.BATCH), f"{note}; at a batch of {symbolic.BATCH}, which torch does not keep open"
    yield Finding(what, "equal", str(derived), str(traced), sp.expand((traced - derived).rewrite(sp.floor)) == 0, note)


def of_saved(s: Subject) -> Iterator[Finding]:
    """Equal; where a layout or a library decides what is kept besides, within what that can be."""
    derived = s.bytes(s.step.saved())
    kept = sum(measure.saved(s.module, s.given, s.loss).values())
    if s.step.joint.measured:
        which = ", ".join(sorted({kernel for _, kernel in s.step.joint.measured}))
        yield Finding("saved bytes", "measured", derived, kept, None, f"what the library's {which} keeps is its own")
        return
    held = measure.held(s.module, s.given, s.loss)
    room = slack(s.step.claimed)
    low, high = derived - s.bytes(room.less), derived + s.bytes(room.more)
    for found, how in ((kept, "storages handed to autograd's hooks"), (held, "storages still alive after forward")):
        if found == derived or low == high: yield equal("saved bytes", derived, found, how)
        else:
            yield Finding("saved bytes", "within", derived, found, low <= found <= high,
                          f"{how}; {low:,} ≤ measured ≤ {high:,}: {', '.join(room.why)}")


def of_compiled(s: Subject) -> Iterator[Finding]:
    """What the compiler's partition keeps, beside the derived bytes: it fuses, and recomputes what is cheap. Nothing is claimed."""
    if not s.compiled: return
    torch.manual_seed(0)
    module = Module(s.program, compile=True).train()
    for _ in range(2): measure.step(module, s.given, s.loss)
    derived, kept = s.bytes(s.step.saved()), sum(measure.saved(module, s.given, s.loss).values())
    yield Finding("saved bytes, compiled", "shown", derived, kept, None, f"{kept / derived:.2f} times the derived" if derived else "")
    high = s.bytes(memory.peak(s.step.running, s.step.target, slack=True))
    for p in (*module.parameters(), *s.given): p.grad = None
    found = measure.peak(lambda: measure.step(module, s.given, s.loss))
    yield Finding("peak bytes, compiled", "within", kept, found, kept <= found <= high, f"what it saves ≤ measured ≤ {high:,}, unfused")




def of_peak(s: Subject) -> Iterator[Finding]:
    joint, target = s.step.running, s.step.target
    low, high = s.bytes(memory.peak(joint, target)), s.bytes(memory.peak(joint, target, slack=True))
    least = low - s.bytes(slack(s.step.claimed).less) - 4 * len(joint.seeds)         # a sum has one number as its gradient
    for _ in range(2): measure.step(s.module, s.given, s.loss)
    for p in (*s.module.parameters(), *s.given): p.grad = None
    found = measure.peak(lambda: measure.step(s.module, s.given, s.loss))
    if found == low: yield equal("peak bytes", low, found); return
    holds = None if joint.measured else least <= found <= high
    yield Finding("peak bytes", "measured" if joint.measured else "within", low, found, holds,
                  f"{least:,} ≤ measured ≤ {high:,}, with the scratch that nodes may take")


# ---- who reads whom -----------------------------------------------------------------------------------------------------
def small(s: Subject) -> Program | None:
    """The longest of the programs that is short enough to follow every position."""
    def length(p: Program) -> int:
        return max((p.sizes.integer(a.size) or 0 for i in p.inputs for a in i.value.axes if a.role == "sequence"), default=0)
    return max((p for p in (s.program, *s.others) if 0 < length(p) <= LONGEST), key=length, default=None)


def sources(p: Program) -> Iterator[tuple[str, Graph, Value]]:
    """Every input with a sequence: its name, the graph of evaluation with the input as vectors, and that input there."""
    graph = evaluation(p.graph, p.sizes)
    for i in p.inputs:
        if not any(a.role == "sequence" for a in i.value.axes): continue
        made = from_vectors(graph, i.value)
        if made is not None: yield i.name, *made


def of_influences(s: Subject) -> Iterator[Finding]:
    """∂ output_i / ∂ input_j ≠ 0, the union over draws, against the connections that are derived."""
    p = small(s)
    if p is None: yield skipped("influences", f"no length of {LONGEST} or less was tried: --set n=…"); return
    for name, graph, source in sources(p):
        read = path._numbers(graph, source, p.sizes, graph.outs[0])
        if read is None: yield skipped(f"influences of {name}", "the graph cannot be read by positions"); continue
        if not read.base: continue
        connected = hops(read.base, int(read.n), np.arange(int(read.n)), p.sizes.bound, "plain") < FAR
        found = np.zeros_like(connected)
        for seed in range(DRAWS): found |= _jacobian(graph, source, p.sizes, seed)
        beyond = int((found & ~connected).sum())
        if read.assumed:
            yield Finding(f"influences of {name}", "contained", int(connected.sum()), int(found.sum()), beyond == 0,
                          "pairs; data decide who is met")
            continue
        yield Finding(f"influences of {name}", "equal", int(connected.sum()), int(found.sum()), bool((found == connected).all()), "pairs")


def _jacobian(graph: Graph, source: Value, sizes: Sizes, seed: int) -> np.ndarray:
    """[input position, output position] of one draw of parameters and inputs, float64."""
    g = torch.Generator().manual_seed(seed)
    one = sizes.bind(b=1)
    def shape(v: Value) -> list[int]: return [int(one.value(a.size)) for a in v.axes]                          # type: ignore[arg-type]
    def drawn(v: Value):
        if v.kind == "mask": return torch.ones(shape(v), dtype=torch.bool)
        if v.kind == "index": return torch.randint(2 if v.axes else 2**40, shape(v), generator=g)
        return torch.randn(shape(v), generator=g, dtype=torch.float64)
    def cut(x: torch.Tensor, times: int): return x if times == 0 else tuple(cut(y, times - 1) for y in x.unbind(0))
    made = {v: drawn(v) for v in graph.ins}
    order = [source.names.index(a.name) for a in (source.role("batch"), source.role("sequence"))]
    order += [k for k in range(len(source.axes)) if k not in order]
    lowered = lower(claim(graph, Target(), BODIES), sizes, {})
    out = graph.outs[0]
    along = [out.names.index(a.name) for a in out.axes if a.role in ("batch", "sequence")]
    rest = [k for k in range(len(out.axes)) if k not in along]

    def run(x: torch.Tensor) -> torch.Tensor:
        back = [order.index(k) for k in range(len(order))]
        given = {**made, source: x.permute(back)}
        handed = [cut(given[v], sum(a.role == "copies" for a in v.axes)) if nested(v) else given[v] for v in graph.ins]
        y = lowered(*handed)[0].permute(*along, *rest)
        return y.reshape(*y.shape[:len(along)], -1) if len(along) == 2 else y.reshape(1, -1)
    return measure.influences(run, made[source].permute(order)).numpy()


def of_path(s: Subject) -> Iterator[Finding]:
    """Steps between positions, on the position graph with every node made explicit (networkx)."""
    p = small(s)
    if p is None: yield skipped("path", f"no length of {LONGEST} or less was tried: --set n=…"); return
    for i in p.inputs:
        if not any(a.role == "sequence" for a in i.value.axes): continue
        read = path._numbers(p.graph, i.value, p.sizes, p.graph.outs[0])
        if read is None or not read.base: continue
        try: true = positions.distances(p.graph, p.sizes.bound, i.value)
        except positions.DataDependent: yield skipped(f"path from {i.name}", "data decide who meets whom: assumed"); continue
        derived = hops(read.base, int(read.n), np.arange(int(read.n)), p.sizes.bound, "plain")
        far = int(derived[derived < FAR].max(initial=0))
        yield Finding(f"path from {i.name}", "equal", far, int(true[true < FAR].max(initial=0)), bool((derived == true).all()),
                      f"{true.size:,} pairs of positions")


def of_depth(s: Subject) -> Iterator[Finding]:
    """The longest chain, forward, and forward with backward, with all loops unrolled."""
    p = small(s) or s.program
    one = p.sizes.bind(b=1)
    for name, weigh in (("unit", depths.unit), ("tree", depths.tree)):
        yield equal(f"depth, {name}", one.value(depths.depth(p.graph, weigh)), unrolled.depth(p.graph, weigh, one))
    joint = derive(claim(p.loss or p.graph, Target()), p.sizes, of=(0,) if p.loss else None)
    try: derived = one.value(training_depth(joint))
    except NotImplementedError: yield skipped("depth, training", "no closed form"); return
    found = unrolled.training(joint, depths.unit, one)
    fewest = min((one.integer(n.op.axis.size) or 0 for n in joint.graph.walk() if isinstance(n.op, Loop)), default=FEW)
    if found == derived or fewest >= FEW: yield equal("depth, training", derived, found)
    else:
        note = f"a closed form may be too large for fewer than {FEW} trips"
        yield Finding("depth, training", "within", derived, found, isinstance(derived, int) and found <= derived, note)


CHECKS: tuple[Callable[[Subject], Iterator[Finding]], ...] = (
    of_parameters, of_products, of_symbols, of_saved, of_compiled, of_peak, of_influences, of_path, of_depth)


def audit(s: Subject) -> Iterator[Finding]:
    """Every check of one model, in order. What a check cannot do is a finding too."""
    for check in CHECKS: yield from check(s)
