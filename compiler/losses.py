"""What a train block minimises, as a graph: from the model's streams to one number."""
from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from plait.compiler.builder import Builder
from plait.compiler.graph import Node, Value
from plait.compiler.layer import Stream
from plait.compiler.names import Names, text
from plait.compiler.pieces import pieces_of_many
from plait.compiler.prims import Broadcast, Contract, Map, Rename
from plait.dsl import spec as ast
from plait.dsl.errors import error
from plait.dsl.suggest import ALIASES, suggest

LOSSES = ("cross_entropy",)


def loss_call(train: ast.Train) -> ast.Call | None:
    """The `loss = …` of a train block."""
    for s in train.entries:
        if isinstance(s, ast.Setting) and s.name == "loss":
            if isinstance(s.value, ast.Call) and s.value.name in LOSSES: return s.value
            near = suggest(s.value.name, LOSSES, ALIASES) if isinstance(s.value, ast.Call | ast.Name) else []
            raise error("E0402", f"there is no loss {text(s.value)}", s.value.span,
                        help=f"`{near[0]}`?" if near else "loss = cross_entropy(logits, next(text))")
    return None


def read_ahead(call: ast.Call) -> set[str]:
    """The inputs that the loss reads by next()."""
    return {e.name for a in call.arguments if isinstance(a.value, ast.Call) and a.value.name == "next"
            for e in [g.value for g in a.value.arguments[:1]] if isinstance(e, ast.Name)}


def expand(b: Builder, call: ast.Call, kind: str, streams: dict[str, Stream], targets, names: Names) -> tuple[Value, ...]:
    """`cross_entropy(logits, target, smoothing = 0, pieces = 1)`. kind loss: (mean, total, count); score: (total, count, correct), where
    the total is plain: smoothing is a way to train. The mean is over the targets that count; none at all gives 0."""
    logits, (target, counts), smoothing, pieces = _arguments(call, streams, targets, names)
    if kind == "score": smoothing = sp.Integer(0)
    value = streams[logits].value
    if {a.name for a in target.axes} != {a.name for a in value.axes} - {"d"}:
        raise error("E0309", "the loss needs one target for every row of logits", call.span,
                    help="cross_entropy(logits, next(text)), or a class for a pooled stream")
    if pieces == 1: sums = (_measured if kind == "score" else _loss_only)(b, value, target, counts, smoothing)
    else: sums = in_pieces(b, value, target, counts, smoothing, pieces, kind)
    everything = target.names
    total, *rest = (b.sum(s, *s.names) for s in sums)
    count = b.sum(b.where(counts, 1, 0), *everything, name="count")
    if kind == "score": return total, count, rest[0]
    return b.div(total, b.map("maximum", count, 1)), total, count


def _arguments(call: ast.Call, streams, targets, names: Names):
    given = [a for a in call.arguments if a.name is None]
    options = {a.name: a for a in call.arguments if a.name is not None}
    if len(given) != 2: raise error("E0505", "cross_entropy takes logits and a target", call.span, help="cross_entropy(logits, next(text))")
    for name, a in options.items():
        if name not in ("smoothing", "pieces"):
            near = suggest(name, ("smoothing", "pieces"), ALIASES)
            raise error("E0501", f"cross_entropy has no argument `{name}`", a.name_span or a.span, help=f"`{near[0]}`?" if near else "")
    logits, target = given[0].value, given[1].value
    if not isinstance(logits, ast.Name) or logits.name not in streams:
        raise error("E0402", f"`{text(logits)}` is no stream of this model", logits.span, help=f"streams: {', '.join(streams)}")
    if streams[logits.name].value.kind != "real" or not streams[logits.name].value.has("d"):
        raise error("E0309", f"the loss needs a score for every symbol, and `{logits.name}` holds symbols", logits.span,
                    help="logits = … { …; unembed(V) }")
    inner = target.arguments[0].value if isinstance(target, ast.Call) and target.name == "next" and len(target.arguments) == 1 else target
    if not isinstance(inner, ast.Name) or inner.name not in targets:
        raise error("E0402", f"`{text(inner)}` is no input of symbols", inner.span, help=f"inputs: {', '.join(targets)}")
    smoothing = names.number(options["smoothing"].value) if "smoothing" in options else sp.Integer(0)
    if not 0 <= float(names.sizes.value(smoothing) or 0) < 1:
        raise error("E0503", "smoothing is at least 0 and below 1", options["smoothing"].span)
    pieces = names.size(options["pieces"].value) if "pieces" in options else sp.Integer(1)
    if pieces != 1 and not streams[logits.name].value.has("n"):
        raise error("E0504", "pieces are of a sequence, and this loss has one target for a whole one", options["pieces"].span,
                    help=f"cross_entropy({logits.name}, {inner.name})")
    return logits.name, targets[inner.name], smoothing, pieces


def each(b: Builder, logits: Value, target: Value, counts: Value, smoothing) -> Value:
    """The loss of every target: log Σ e^logits − the logit of the target; 0 where it does not count."""
    def body(b, logits, target, counts):
        top = b.max(logits, "d", name="max")
        lse = b.add(top, b.map("log", b.sum(b.map("exp", b.sub(logits, top)), "d", name="sum")))
        loss = b.sub(lse, _scaled(b, b.gather(logits, b.map("maximum", target, 0), "d", name="target"), 1 - smoothing))
        if smoothing != 0:
            loss = b.sub(loss, b.mul(b.sum(logits, "d", name="smoothing"), smoothing / logits.axis("d").size))
        return b.where(counts, loss, 0)
    return b.region("cross_entropy", body, logits, target, counts, over="d", smoothing=smoothing)


def _scaled(b: Builder, x: Value, by) -> Value:
    return x if by == 1 else b.mul(x, by)


def _loss_only(b: Builder, logits, target, counts, smoothing) -> tuple[Value, ...]:
    return (each(b, logits, target, counts, smoothing),)


def _measured(b: Builder, logits, target, counts, smoothing) -> tuple[Value, ...]:
    right = b.map("eq", b.argmax(logits, "d", name="best"), target)
    return each(b, logits, target, counts, smoothing), b.where(b.map("and", counts, right), 1, 0)


def in_pieces(b: Builder, logits: Value, target: Value, counts: Value, smoothing, pieces, kind: str) -> tuple[Value, ...]:
    """The output layer and the loss together, piece by piece: the logits are never whole. Kitaev et al. 2020, section 3."""
    measure = _measured if kind == "score" else _loss_only
    x, last = output_layer(b, logits)
    weights = [n.ins[1] for n in reversed(last) if len(n.ins) > 1]

    def body(b: Builder, x: Value, target: Value, counts: Value, *weights: Value) -> tuple[Value, ...]:
        def piece(inner: Builder, parts) -> tuple[Value, ...]:
            x, target, counts = parts
            return measure(inner, again(inner, last, x, weights), target, counts, smoothing)

        return tuple(b.sum(s, *s.names) for s in pieces_of_many(b, (x, target, counts), pieces, piece))

    if kind == "score" or not weights: return body(b, x, target, counts, *weights)
    return (b.region("linear_cross_entropy", body, x, target, counts, *weights, over="d", smoothing=smoothing, pieces=pieces),)


def output_layer(b: Builder, logits: Value) -> tuple[Value, list[Node]]:
    """The nodes that made the logits of a position from its vector, last first: a product with a parameter, a bias, names."""
    made = {v: n for n in b.nodes for v in n.outs}
    tail: list[Node] = []
    v = logits
    while v in made:
        n = made[v]
        if isinstance(n.op, Broadcast) and len(n.op.axes) == len(n.ins[0].axes):          # another order of the axes: a layout
            v = n.ins[0]
            continue
        if isinstance(n.op, Rename) or isinstance(n.op, Map) and n.op.fn == "add" and n.ins[1].kind == "param": pass
        elif isinstance(n.op, Contract) and n.ins[1].kind == "param" and n.op.over == ("d",): return n.ins[0], [*tail, n]
        else: break
        tail.append(n)
        v = n.ins[0]
    return logits, []


def again(b: Builder, tail: list[Node], x: Value, weights: Sequence[Value]) -> Value:
    """Emit these nodes once more on another vector, with their parameters as they are here."""
    mine = iter(weights)
    for n in reversed(tail): x = b.emit(n.op, x, *(next(mine) for _ in n.ins[1:]), name=n.name)
    return x
