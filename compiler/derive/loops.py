"""The gradient of a loop, one rule for recurrences, copies and pieces: a loop the other way.

`inner` is the body once more; `back` is a scope inside it, the body of the reversed loop. Where the tape is recorded decides what is
kept: in inner (save), in back (recompute), or in back from the results of a trip (invert). What back captures of inner is what the
forward loop must hand out, a stack with an entry a trip."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from plait.compiler.derive.adjoint import Gradients
from plait.compiler.derive.gathering import Earlier, Gathering, Total
from plait.compiler.derive.inline import chosen
from plait.compiler.derive.reversible import undo
from plait.compiler.derive.scope import Scope
from plait.compiler.derive.tape import Pull, accumulate, pullback, reached, record
from plait.compiler.graph import Graph, Node, Value, live
from plait.compiler.prims import Loop


@dataclass
class Reversal:
    """A loop and its reversed one, in the making. hot: which operands need a gradient; lit: which outputs have one.
    Of the reversed body: `states` come in as gradients of the hot carried states, then sums for the hot fixed operands, then (invert) the
    states themselves; `stacks` are gradients of the stacked outputs that are lit. grads: formal → its gradient there. at_end: fixed
    operands whose gradient is summed up behind the reversed loop; earlier: states that are read there only → the stack of those after."""
    op: Loop
    inner: Scope
    back: Scope
    formals: tuple[Value, ...]
    hot: list[bool]
    lit: list[bool]
    env: dict[Value, Value]
    states: list[Value] = field(default_factory=list)
    stacks: list[Value] = field(default_factory=list)
    streams: list[Value] = field(default_factory=list)
    before: list[Value] = field(default_factory=list)
    again: dict[Value, Value] = field(default_factory=dict)
    grads: dict[Value, Value] = field(default_factory=dict)
    gathering: Gathering | None = None
    at_end: dict[int, Total] = field(default_factory=dict)
    earlier: dict[Value, int] = field(default_factory=dict)

    def which(self, role: str) -> list[int]:
        c, s = self.op.carried, self.op.sliced
        span = {"carried": range(c), "sliced": range(c, c + s), "fixed": range(c + s, len(self.formals))}[role]
        return [k for k in span if self.hot[k]]

    def gradient(self, k: int) -> Value:
        """Of operand k in one trip."""
        f = self.formals[k]
        return self.back.use(self.grads[f]) if f in self.grads else self.back.zeros(f.axes)


def looped(b: Scope, n: Node, ins: tuple[Value, ...], need: Sequence[bool]) -> tuple[tuple[Value, ...], Pull]:
    """Emit a loop that hands out what its gradient reads; its results and its pullback."""
    assert isinstance(n.op, Loop)
    r = opened(b, n.op, need)
    trip_back(r)
    if n.op.axis.role == "sequence" and n.op.keep == "save": gather(r)
    c, outs = n.op.carried, [r.env[v] for v in n.op.body.outs]
    outside = set(r.formals[c:]) | set(outs[c:]) | set(r.earlier)
    kept = [v for v in r.back.captured if v not in outside]                # a state before its trip, or made inside
    results = (*outs, *kept)
    loop = replace(n.op, body=Graph(r.formals, live(r.inner.nodes, results), results), keep="save")        # the rest is written out
    with b.located(n.at, n.span): made = b.emit(loop, *ins, name=n.op.keep)
    b.starts.update({stack: ins[r.formals.index(v)] for v, stack in zip(kept, made[len(outs):]) if v in r.formals})
    place = dict(zip((*outs[c:], *kept), made[c:])) | dict(zip(r.formals[c:], ins[c:]))

    before = {v: Earlier(ins[r.formals.index(v)], made[j], n.op.axis, n.op.reverse) for v, j in r.earlier.items()}

    def pull(scope: Scope, gs: Sequence[Value | None]) -> Gradients:
        return reversed_loop(r, scope, gs, place, made[:c], before=before)[0]
    return made[:len(outs)], pull


def opened(b: Scope, op: Loop, need: Sequence[bool]) -> Reversal:
    inner = Scope(parent=b)
    formals = tuple(inner.input(v.axes, v.kind) for v in op.body.ins)
    back = Scope(parent=inner)
    back.phase = "backward"
    hot, lit = activity(op, need)
    r = Reversal(op, inner, back, formals, hot, lit, dict(zip(op.body.ins, formals)))
    r.states = [back.fresh(formals[k].axes) for k in (*r.which("carried"), *r.which("fixed"))]
    r.stacks = [back.fresh(op.body.outs[k].axes) for k in given(r)]
    return r


def given(r: Reversal) -> list[int]:
    """The stacked outputs that bring a gradient."""
    return [k for k in range(r.op.carried, len(r.lit)) if r.lit[k]]


def activity(op: Loop, need: Sequence[bool]) -> tuple[list[bool], list[bool]]:
    """Which operands and results of a body a gradient passes through: a state does if anything does that it is made from."""
    hot, body = list(need), op.body
    while True:
        seen = reached(body.nodes, {v for v, h in zip(body.ins, hot) if h})
        now = [h or k < op.carried and body.outs[k] in seen for k, h in enumerate(hot)]
        if now == hot: return hot, [v in seen for v in body.outs]
        hot = now


def trip_back(r: Reversal) -> None:
    """Fill the reversed body: a trip's gradients, from what `keep` leaves of its forward."""
    body, active = r.op.body, {f for f, h in zip(r.formals, r.hot) if h}
    r.again = r.env
    if r.op.keep == "save":
        tape = record(r.inner, body.nodes, r.env, active)
        r.grads = pullback(r.back, tape, seeds(r))
        return
    record(r.inner, body.nodes, r.env, set())
    choices = {v: r.env[v] for p in body.nodes if chosen(p) for v in p.outs}
    r.again = {**dict(zip(body.ins, r.formals)), **choices}
    if r.op.keep == "recompute":
        with r.back.during("recompute"): tape = record(r.back, body.nodes, r.again, active, choices)
        r.grads = pullback(r.back, tape, seeds(r))
    elif r.op.keep == "invert": inverted(r, choices)
    else: raise ValueError(f"a loop keeps by save, recompute or invert, not {r.op.keep}")


def seeds(r: Reversal) -> dict[Value, Value]:
    """Gradients of a trip's results, by their values on the tape."""
    found: dict[Value, Value] = {}
    carried = r.which("carried")
    for k, g in zip((*carried, *given(r)), (*r.states[:len(carried)], *r.stacks)):
        accumulate(r.back, found, r.again[r.op.body.outs[k]], g)
    return found


def inverted(r: Reversal, choices: dict[Value, Value]) -> None:
    """The states before the trip, from those after it, and the gradients on the way."""
    body, c = r.op.body, r.op.carried
    if len(body.outs) != c or not all(r.hot[:c]): raise NotImplementedError("a reversible loop gives nothing but its streams")
    r.streams = [r.back.fresh(v.axes) for v in body.outs]
    known, grads = dict(zip(body.outs, r.streams)), dict(zip(body.outs, r.states[:c]))
    undo(r.back, body, c, known, grads, r.again, choices, {v for v, h in zip(body.ins, r.hot) if h})
    r.before = [known[v] for v in body.ins[:c]]
    r.grads = {f: grads[v] for v, f in zip(body.ins, r.formals) if v in grads}


def gather(r: Reversal) -> None:
    """Sum up behind the reversed loop what can be; find the states before a trip that only this reads, and that stand in a stack of the
    states after the trips anyway."""
    op, fixed = r.op, set(r.formals[r.op.carried + r.op.sliced:])
    r.gathering = Gathering(op.axis, r.back, {here for v, here in r.back.captured.items() if v not in fixed})
    for k in r.which("fixed"):
        total = r.gathering.total(r.gradient(k))
        if total is not None: r.at_end[k] = total
    inside = {*(r.grads[r.formals[k]] for k in range(len(r.formals)) if r.formals[k] in r.grads and k not in r.at_end), *r.gathering.handed}
    inside |= {v for n in live(r.back.nodes, inside) for v in n.ins}
    for k, v in enumerate(r.formals[:op.carried]):
        stacks = [j for j, w in enumerate(op.body.outs) if j >= op.carried and w == op.body.outs[k] and w.names == v.names]
        if stacks and v in r.back.captured and r.back.captured[v] not in inside: r.earlier[v] = stacks[0]


def reversed_loop(r: Reversal, b: Scope, gs: Sequence[Value | None], place: dict[Value, Value], last: Sequence[Value],
                  values: bool = False, before: Mapping[Value, Earlier] | None = None) -> tuple[Gradients, tuple[Value, ...]]:
    """Emit the reversed loop in b. gs: gradients of the loop's results; place, before: what a value of the body is outside of it; last: the
    states after the last trip. values: the forward loop was never run, and the reversed one gives its stacked results too.
    The gradients of the loop's operands; these results."""
    op, back, c = r.op, r.back, r.op.carried
    carried, sliced, fixed = map(r.which, ("carried", "sliced", "fixed"))
    stacked = [r.gradient(k) for k in sliced]
    at_end = r.at_end
    sums = {k: t for k, t in zip(fixed, r.states[len(carried):]) if k not in at_end}
    after = [r.gradient(k) for k in carried] + [back.add(t, r.gradient(k)) for k, t in sums.items()] + [back.use(v) for v in r.before]
    extra = [back.use(r.again[v]) for v in op.body.outs[c:]] if values else []
    further = [v for v in r.gathering.handed if v not in stacked] if r.gathering else []
    results = (*after, *stacked, *extra, *further)
    nodes = live(back.nodes, results)
    read = {v for n in nodes for v in n.ins} | set(results)
    still = set(r.formals[c + op.sliced:])
    captured = [v for v, here in back.captured.items() if here in read]                          # the others are read at the end only
    moving, resting = [v for v in captured if v not in still], [v for v in captured if v in still]

    def known(g: Value | None, axes) -> Value: return b.zeros(axes) if g is None else g
    starts = [known(gs[k], op.body.ins[k].axes) for k in carried] + [b.zeros(t.axes) for t in sums.values()] + list(last[:len(r.streams)])
    coming = [known(gs[k], (op.axis, *op.body.outs[k].axes)) for k in given(r)]
    formals = (*r.states[:len(carried)], *sums.values(), *r.streams, *r.stacks, *(back.captured[v] for v in (*moving, *resting)))
    loop = Loop(Graph(formals, nodes, results), op.axis, len(after), len(coming) + len(moving), "save", op.index, not op.reverse)
    made = b.emit(loop, *starts, *coming, *(place[v] for v in (*moving, *resting)), name=f"{op.keep} back")
    found = dict(zip((*carried, *sums), made)) | dict(zip(sliced, made[len(after):]))
    behind = len(after) + len(stacked) + len(extra)
    held: Mapping[Value, Value | Earlier] = {**place, **(before or {})}
    whole: dict[Value, Value | Earlier] = {here: held[v] for v, here in back.captured.items()} | dict(zip(r.stacks, coming))
    whole |= dict(zip((*stacked, *further), (*made[len(after):len(after) + len(stacked)], *made[behind:])))
    found |= {k: total(b, whole) for k, total in at_end.items()}
    return [found.get(k) for k in range(len(r.formals))], made[len(after) + len(stacked):behind]


def at_once(b: Scope, n: Node, ins: tuple[Value, ...], need: Sequence[bool], gs: Sequence[Value | None]
            ) -> tuple[Gradients, tuple[Value, ...]]:
    """A loop of pieces that is recomputed anyway, its gradients known: each piece is computed once, for its result and its gradient.
    The gradients of its operands; its results."""
    assert isinstance(n.op, Loop)
    r = opened(b, n.op, need)
    trip_back(r)
    place = dict(zip(r.formals, ins))
    with b.located(n.at, n.span), b.during("backward"): return reversed_loop(r, b, gs, place, (), values=True)
