"""Memory of one training step, by a last-use walk over the joint schedule: what is saved for backward, and the most that is alive at once.

Bytes: reals by the target's dtype, indices 8, truth values 1; views have no storage of their own. Loops are not unrolled: a trip is
walked once, and what it hands on grows, or is used up, trip by trip, so that the first or the last trip is the fullest."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import sympy as sp

from plait.compiler.costs.maxplus import Late, Sum, expression, late, plus, pruned, written
from plait.compiler.costs.order import over_trips
from plait.compiler.costs.scratch import SCALES, bound, of_kernels, special, sure, surely
from plait.compiler.derive import Joint
from plait.compiler.graph import Graph, Node, Value
from plait.compiler.kernels import Target
from plait.compiler.prims import VIEWS, Gather, Loop, Map, Reduce, Region

WIDTHS = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
NOTHING: Sum = {}


def width(v: Value, target: Target) -> int:
    """Bytes of one element."""
    return {"index": 8, "mask": 1}.get(v.kind, WIDTHS[target.dtype])


@dataclass(frozen=True)
class Kept:
    """Something that stays from forward to backward: who makes it (inside a loop: who makes it in a trip), how many bytes it has."""
    node: Node
    bytes: sp.Expr


def kept(joint: Joint, target: Target) -> Iterator[Kept]:
    """What forward makes and a later phase reads, each storage once, and what kernels and loops keep beside it."""
    saved, lying = set(joint.saved), _elsewhere(joint)
    coded = {k.node.at for k in _beside(joint.graph, ())}         # their kernel keeps what it chose in a form of its own
    choices, decided = _choices(joint), set[str]()
    for n in joint.graph.nodes:
        within = {k for k, j in _last(n).items() if n.outs[j] in saved}
        for k, v in enumerate(n.outs):
            if v not in saved or k in within: continue
            (maker, out), again = _maker(n, k), lying.get(v, sp.S.Zero) * v.size / v.axes[0].size if v in lying else sp.S.Zero
            each: sp.Expr = sp.Integer(4 if _sum_of_row(maker, out) else width(v, target))
            if v in choices: each = choices[v]
            elif _chooses(maker) and isinstance(n.op, Loop | Reduce):
                if maker.at in coded | decided: each = sp.Integer(0)
                decided.add(maker.at)
            yield Kept(maker, (joint.elements(v) - again) * each)
    yield from _beside(joint.graph, ())
    yield from _operands(joint, saved)


def _chooses(n: Node) -> bool: return n.op == Reduce("argmax", getattr(n.op, "over", ()))


def _small(choice: Node) -> sp.Expr:
    """Bytes of a number below so many, where a reversible loop keeps it: the fewest of 2 and 4."""
    over = choice.op.over[0]                                                                           # type: ignore[union-attr]
    below = choice.ins[0].axis(over).size
    if below.is_number: return sp.Integer(2 if below <= 2**15 else 4)
    return sp.Piecewise((2, below <= 2**15), (4, True), evaluate=False)


def _choices(joint: Joint) -> dict[Value, sp.Expr]:
    """Stacks of what was chosen in the trips of reversible loops, inside loops too → bytes of an element; 0, where another stack has the
    same."""
    found: dict[Value, sp.Expr] = {}

    def look(g: Graph, kept: set[Value]) -> None:
        decided: set[str] = set()
        for n in g.nodes:
            if not isinstance(n.op, Loop) or n.phase == "backward": continue
            for k, v in enumerate(n.outs):
                maker, _ = _maker(n, k)
                if v not in kept or not _inverts(n, k) or not _chooses(maker): continue
                found[v] = sp.Integer(0) if maker.at in decided else _small(maker)
                decided.add(maker.at)
            look(n.op.body, set(n.op.body.outs))

    look(joint.graph, set(joint.saved))
    return found


def _elsewhere(joint: Joint) -> dict[Value, sp.Expr]:
    """Stack of the states before each trip → how many of its entries lie elsewhere: the first, where somebody else holds it, and all
    others, where the states after each trip are stacked, too."""
    held = set(joint.saved) | set(joint.graph.ins)
    found: dict[Value, sp.Expr] = {stack: sp.S.One for stack, first in joint.starts.items() if first in held}
    for n in joint.graph.nodes:
        for k, j in _last(n).items():
            op = n.op
            assert isinstance(op, Loop)
            for v, o in zip(n.outs[op.carried:], op.body.outs[op.carried:]):
                if o == op.body.ins[k] and n.outs[j] in joint.saved: found[v] = found.get(v, sp.S.Zero) + op.axis.size - 1
    return found


def _maker(n: Node, k: int) -> tuple[Node, int]:
    """The node that makes result k, inside loops, and the number of the result there."""
    if n.body is None or isinstance(n.op, Region): return n, k
    out = n.body.outs[k]
    return next((_maker(m, j) for m in n.body.nodes for j, v in enumerate(m.outs) if v == out), (n, k))


def _inverts(n: Node, k: int) -> bool:
    """Does result k come out of a reversible loop, this one or one inside it?"""
    if n.body is None or isinstance(n.op, Region): return False
    if n.name == "invert": return True
    out = n.body.outs[k]
    return next((_inverts(m, j) for m in n.body.nodes for j, v in enumerate(m.outs) if v == out), False)


def _sum_of_row(n: Node, k: int) -> bool:
    """The log-sum-exp of a row of scores is float32 whatever the rest is."""
    return isinstance(n.op, Region) and "attention" in n.op.kernel and k == 1


def _beside(graph: Graph, loops: tuple[Loop, ...]) -> Iterator[Kept]:
    """Where a backward reads what a kernel keeps; a kernel that runs again in backward keeps nothing that long."""
    from plait.compiler.derive.kernels import RULES
    read = {v for m in graph.nodes for v in m.ins} | set(graph.outs)
    for n in graph.nodes:
        if isinstance(n.op, Loop) and n.phase == "forward": yield from _beside(n.op.body, (*loops, n.op))
        elif isinstance(n.op, Region) and n.op.kernel in RULES and n.phase == "forward" and any(v in read for v in n.outs[1:]):
            size = RULES[n.op.kernel].beside(n.op)
            if size != 0: yield Kept(n, over_trips(size, loops))


def _operands(joint: Joint, saved: set[Value]) -> Iterator[Kept]:
    """A loop that runs again in backward keeps what it was given: the numbers of its trips, the key, besides what is saved anyway."""
    seen: set[Value] = set()
    for n in joint.graph.nodes:
        if not isinstance(n.op, Loop) or n.phase != "forward" or n.name not in ("invert", "recompute"): continue
        for v in n.ins:
            made = v not in joint.graph.ins or v.name == "seed"
            if v.kind != "index" or v in saved or v in seen or not made or v.has("b"): continue
            seen.add(v)
            yield Kept(n, 8 * v.size)


def peak(joint: Joint, target: Target, slack: bool = False, kernels: bool = False, gradients: bool = True) -> sp.Expr:
    """The most bytes alive at once in forward and backward, without the parameters, the inputs and what the optimiser remembers;
    gradients stay until the update. slack: with what each node may need besides while it runs; kernels: with what kernels may need that
    have buffers of their own. gradients = False: without those of parameters, for who counts them otherwise."""
    made = joint.graph.outs[:joint.count]
    scalars = [made[k] for k in joint.seeds if not made[k].axes]                 # the loss stays in the caller's hand
    graph = replace(joint.graph, outs=(*scalars, *joint.graph.outs[joint.count:]))
    shared = _elsewhere(joint)
    seeds = {sp.S.One: 4 * len(joint.seeds)}                                     # a sum's gradient is one number, spread
    return written(_Walk(target, shared, _choices(joint), sure(graph), special(graph) if slack or kernels else None,
                         bound if slack else of_kernels, frozenset() if gradients else frozenset(_gradients(joint)),
                         {n.op.index: n.op for n in graph.walk() if isinstance(n.op, Loop) and n.op.index is not None}
                         ).graph(graph, seeds, set()))


def _gradients(joint: Joint) -> set[Value]:
    """The values that hold gradients of parameters, inside loops too."""
    weights = {v.name for v in joint.graph.ins if v.kind == "param"}
    return _holding(joint.graph, {v for name, v in joint.gradients.items() if name in weights})


def _holding(g: Graph, wanted: set[Value]) -> set[Value]:
    """These outputs of a graph, what they are views of, and what loops gather them in."""
    found = set(wanted)
    for n in reversed(g.nodes):
        mine = [k for k, v in enumerate(n.outs) if v in found]
        if mine and _view(n): found.add(n.ins[0])
        if not mine or n.body is None: continue
        found |= _holding(n.body, {n.body.outs[k] for k in mine})
        if isinstance(n.op, Loop):
            for k in mine:
                if k < n.op.carried: found |= {n.ins[k], n.body.ins[k]}
    return found


@dataclass
class _Walk:
    """shared: stacks → how many of their entries lie elsewhere and are counted there. choices: stacks → bytes of an element. sure: what
    kernels certainly take while they run; scratch: what they may take, where that is asked for, and `more`: what of it counts. without:
    what others count. loops: by the numbers of their trips."""
    target: Target
    shared: Mapping[Value, sp.Expr] = field(default_factory=dict)
    choices: Mapping[Value, sp.Expr] = field(default_factory=dict)
    sure: Mapping[tuple[str, str], sp.Expr] = field(default_factory=dict)
    scratch: Mapping[tuple[str, str], sp.Expr] | None = None
    more: Callable[[Node, Mapping[tuple[str, str], sp.Expr]], sp.Expr] = bound
    without: frozenset[Value] = frozenset()
    loops: Mapping[sp.Symbol, Loop] = field(default_factory=dict)
    sizes: dict[tuple, Sum] = field(default_factory=dict)

    def bytes(self, v: Value) -> Sum:
        if v.kind == "const" or v in self.without: return NOTHING
        key: tuple = (v.axes, v.kind)
        if v in self.shared: key = (*key, self.shared[v])
        if v in self.choices: key = (*key, "chosen", self.choices[v])
        if key not in self.sizes:
            size = v.size / v.axes[0].size * (v.axes[0].size - self.shared[v]) if v in self.shared else v.size
            for i in size.free_symbols & self.loops.keys():
                op = self.loops[i]
                if v.axes[0].name == op.axis.name: size = over_trips(size / op.axis.size, [op])      # a stack of what differs by trip
            self.sizes[key] = late(size * self.choices.get(v, width(v, self.target)))[0]
        return self.sizes[key]

    def entry(self, stack: Value, v: Value) -> Sum:
        """What a trip hands on, as it lies in its stack."""
        return late(v.size * self.choices[stack])[0] if stack in self.choices else self.bytes(v)

    def graph(self, g: Graph, before: Sum, mine: set[Value]) -> Late:
        """The moments of a schedule that count. before: what is alive around it; mine: inputs that nobody else holds."""
        root = _storages(g)
        last: dict[Value, int] = {}
        for k, n in enumerate(g.nodes):
            for v in (*n.ins, *n.outs): last[root[v]] = k
        for n in reversed(g.nodes):
            if not _inside(n): continue
            for v in n.ins: last[root[v]] = max(last[root[v]], last[root[n.outs[0]]])          # it is read where the slope is used
        for k, n in enumerate(g.nodes):
            for j in (j for j in range(k + 1, min(k + 4, len(g.nodes))) if _together(n, g.nodes[j])):
                for v in n.ins: last[root[v]] = max(last[root[v]], j)            # one function of autograd holds both factors to its end
            if isinstance(n.op, Loop) and n.op.axis.role == "sequence" and n.phase == "backward":
                end = max(j for j, m in enumerate(g.nodes) if m.at == n.at and m.phase == "backward")
                for v in n.ins: last[root[v]] = max(last[root[v]], end)          # so does that of a scan, with what it gathers at last
        stays = {root[v] for v in g.outs} | (set(g.ins) - mine)
        for v in stays: last[v] = len(g.nodes)
        ends: dict[int, list[Value]] = {}
        for v, k in last.items(): ends.setdefault(k, []).append(v)
        live = _plus(before, *(self.bytes(v) for v in mine))
        moments: list[Sum] = [live]
        hidden = self.deciding(g)
        scanned = {n.at for n in g.nodes if isinstance(n.op, Loop) and n.op.axis.role == "sequence" and n.phase == "backward"}
        for k, n in enumerate(g.nodes):
            dying = ends.get(k, [])
            if isinstance(n.op, Loop): moments += self.loop(n, n.op, _plus(live, *self.copied(n, n.op, root)), dying)
            absent = _view(n) or _inside(n) or n.outs[0] in hidden or self.reused(n, dying, root, scanned)
            if not absent: live = _plus(live, *(self.bytes(v) for v in n.outs if root[v] == v))
            if not isinstance(n.op, Loop): moments += self.during(n, live)
            if self.reused(n, dying, root, scanned): live = _plus(live, *(self.bytes(v) for v in n.outs))
            live = _minus(live, *(self.bytes(v) for v in dying if v not in hidden))
            if _inside(n): hidden.update(n.outs)
            if len(moments) > 64: moments = list(pruned(moments))
        return pruned(moments)

    def differing(self, n: Node, op: Loop, inside: Late, slices: list[tuple[Value, Value]]) -> list[Sum]:
        """Trips whose sizes hang on their number: the first and the last, and what has gathered, or gone, on the way there."""
        i, c, end = op.index, op.carried, op.axis.size - 1
        made = _plus(*(self.entry(v, o) for v, o in zip(n.outs[c:], op.body.outs[c:])))
        gathered = expression(_minus(made, *(self.bytes(v) for _, v in slices)))
        first, last = (end, sp.Integer(0)) if op.reverse else (sp.Integer(0), end)
        change = sp.expand(over_trips(gathered, [op])) - gathered.subs(i, last)
        def at(x: Sum, t) -> Late: return late(expression(x).subs(i, t))
        return [*(f for x in inside for f in at(x, first)), *(f for x in inside for f in plus(at(x, last), late(change)))]

    def during(self, n: Node, live: Sum) -> Iterator[Sum]:
        """What is alive while a node runs."""
        kernel = n.op.kernel if isinstance(n.op, Region) else getattr(n.op, "fn", "")
        more = self.sure.get((n.at, kernel), sp.Integer(0)) + surely(n)
        if self.scratch is not None: more += self.more(n, self.scratch)
        yield from plus((live,), late(more)) if more != 0 else (live,)

    def deciding(self, g: Graph) -> set[Value]:
        """What only leads to what a kernel decides (the products that LSH hashes by): it never leaves the kernel."""
        found: set[Value] = set()
        read: dict[Value, list[Node]] = {}
        for n in g.nodes:
            for v in n.ins: read.setdefault(v, []).append(n)
        for n in reversed(g.nodes):
            if (n.at, "argmax") not in self.sure or _chooses(n) or n.outs[0] in g.outs: continue
            users = read.get(n.outs[0], [])
            if users and all(isinstance(m.op, Reduce) and m.op.fn == "argmax" or m.outs[0] in found for m in users): found.update(n.outs)
        return found

    def reused(self, n: Node, dying: list[Value], root: dict[Value, Value], scanned: set[str]) -> bool:
        """A gradient is added to another in place, where nobody else holds one of them (not by the code of a scan); a kernel that only
        scales does so in place."""
        if isinstance(n.op, Region) and n.op.kernel in SCALES: return all(
            any(root[v] in dying and set(v.axes) == set(o.axes) for v in n.ins) for o in n.outs)
        return n.phase == "backward" and n.op == Map("add") and n.at not in scanned and any(
            root[v] in dying and set(v.axes) == set(n.outs[0].axes) and v.kind == "real" for v in n.ins)

    def copied(self, n: Node, op: Loop, root: Mapping[Value, Value]) -> list[Sum]:
        """What a recurrence takes in every trip and does not lie in the order of the trips: it is brought into that order first."""
        if op.axis.role != "sequence": return []
        return [self.bytes(v) for v in n.ins[op.carried:op.carried + op.sliced] if root[v].axes[0].name != op.axis.name]

    def lent(self, v: Value) -> bool:
        """Is it a stack whose entries lie in another?"""
        return v in self.shared and self.shared[v] != 1

    def loop(self, n: Node, op: Loop, live: Sum, dying: list[Value]) -> list[Sum]:
        """The fullest trip: the first, or the last. What dies here is handed in: a state lives as long as its trip needs it, a slice of
        what forward kept until its own use in its trip."""
        body, c = op.body, op.carried
        pairs = [(v, i) for v, i in zip(n.ins, body.ins) if v in dying and v.kind != "param" and not _at_once(n, op) and not self.lent(v)]
        states = [(v, i) for v, i in pairs if i in body.ins[:c]]
        slices = [(v, i) for v, i in pairs if i in body.ins[c:c + op.sliced]]
        freed = _plus(*(self.bytes(i) for _, i in slices))
        mine = [] if n.phase == "forward" else [v for v, _ in states]             # who calls a loop holds what it starts from
        around = _minus(live, *(self.bytes(v) for v in dict.fromkeys(mine)), freed)                          # both streams may start as one
        used = {i for _, i in slices}
        first = self.graph(body, around, {i for v, i in states if v in mine} | used)          # a first state may be somebody else's
        if op.index is not None: return self.differing(n, op, first, slices)
        if op.axis.size == 1: return list(first)
        later = self.graph(body, around, {*body.ins[:c], *used}) if len(mine) < c else first
        stacks = _plus(*(self.entry(v, o) for v, o in zip(n.outs[c:], body.outs[c:]) if not self.lent(v)))
        twice = _plus(*(self.bytes(o) for v, o in zip(n.outs[c:], body.outs[c:]) if v in self.shared and not self.lent(v)))
        grown = _minus(stacks, freed)
        end = late(expression(grown) * (op.axis.size - 1) - expression(twice))
        if _grows(grown): return [*first, *plus(later, end)]                         # the last trip is the fullest
        second = late(expression(grown) * sp.Min(1, op.axis.size - 1, evaluate=False))       # where there is one
        return [*first, *plus(later, second), *plus(later, end)]


def _grows(x: Sum) -> bool:
    """Is it at least 0, dims being at least 1?"""
    return sum(x.values()) >= 0 and all(v >= 0 for k, v in x.items() if k != 1)


def _together(n: Node, m: Node) -> bool:
    """Are these the gradients of both factors of one product of numbers?"""
    return (n.phase == m.phase == "backward" and n.op == m.op == Map("mul") and n.at == m.at and bool(set(n.ins) & set(m.ins))
            and m.outs[0] not in n.ins and n.outs[0] not in m.ins)


def _at_once(n: Node, op: Loop) -> bool:
    """Does the way back of a whole loop run as one function? What it was given is held by its caller until it is done: nothing goes
    trip by trip."""
    return n.phase == "backward" and (op.axis.role == "sequence" or n.name == "invert back")


def _inside(n: Node) -> bool:
    """A slope that the library's backward of a function computes and multiplies in one step."""
    return isinstance(n.op, Map) and n.op.fn in ("gelu_slope", "silu_slope", "tanh_slope", "sigmoid_slope", "step")


def _storages(g: Graph) -> dict[Value, Value]:
    """Value → the one whose storage it lies in. The last state of a loop over copies lies in the stack of what its trips keep."""
    root: dict[Value, Value] = {v: v for v in g.ins}
    for n in g.nodes:
        root |= {v: root[n.ins[0]] if _view(n) else v for v in n.outs}
        root |= {n.outs[k]: n.outs[j] for k, j in _last(n).items()}
    return root


def _last(n: Node) -> dict[int, int]:
    """The results of a loop that lie in the last entry of a stack: number of a state → number of the stack."""
    op = n.op
    if not isinstance(op, Loop) or op.axis.role != "copies" or n.phase != "forward" or op.keep != "save": return {}
    root, c = _storages(op.body), op.carried
    stacks = {root[v]: c + j for j, v in enumerate(op.body.outs[c:])}
    return {k: stacks[root[v]] for k, v in enumerate(op.body.outs[:c]) if root[v] in stacks and root[v] not in op.body.ins}


def _view(n: Node) -> bool:
    return isinstance(n.op, VIEWS) or isinstance(n.op, Gather) and n.ins[1].kind == "const"


def _plus(*xs: Sum) -> Sum:
    out: Sum = {}
    for x in xs:
        for k, v in x.items():
            out[k] = out.get(k, 0) + v
    return {k: v for k, v in out.items() if v}


def _minus(x: Sum, *ys: Sum) -> Sum:
    return _plus(x, *({k: -v for k, v in y.items()} for y in ys))

