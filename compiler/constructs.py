"""The constructs of the language: repeat, residual, reversible, chunked, parallel. Each takes bodies, not only arguments."""
from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import sympy as sp

from plait.compiler.axis import axis
from plait.compiler.bind import convert, pair_up
from plait.compiler.builder import Builder
from plait.compiler.graph import Graph, Value
from plait.compiler.layer import LAYERS, NEEDED, NUMBER_0, SIZE_1, Argument, Stream, feature, sequence
from plait.compiler.layers.dropout import dropout
from plait.compiler.names import Entry
from plait.compiler.pieces import pieces_of
from plait.compiler.place import Place, Poisoned, shape
from plait.dsl import spec as ast
from plait.dsl.errors import Note, error

if TYPE_CHECKING:
    from plait.compiler.expander import Expander


def _arguments(s: ast.Apply, place: Place, *signature: Argument) -> dict:
    """The arguments of a construct, by its signature."""
    written = pair_up(s.name, signature, s.arguments, s.name_span or s.span)
    return {a.name: convert(s.name, a, written[a.name].value, place.names, place.streams) if a.name in written else a.default
            for a in signature}


def _option(name: str, *choices: str) -> Argument:
    return Argument(name, (), choices, choices[0], False)


def same_shape(b: Builder, x: Value, y: Value) -> bool:
    return {a.name for a in x.axes} == {a.name for a in y.axes} and all(b.sizes.same(a.size, y.axis(a.name).size) for a in x.axes)


def _only_body(s: ast.Apply) -> ast.Body:
    if s.parts is not None: raise error("E0203", f"{s.name} has one body, not named parts", s.span, help=f"{s.name} {{ … }}")
    if s.body is None: raise error("E0203", f"{s.name} needs a body", s.span, help=f"{s.name} {{ layer_norm }}")
    return s.body


def _only_parts(s: ast.Apply, least: int) -> tuple[ast.Part, ...]:
    parts = s.parts or ()
    if s.body is not None and s.body.statements:
        raise error("E0203", f"the parts of {s.name} have names", s.span, help=f"{s.name}(…) {{ one: {{ … }}; two: {{ … }} }}")
    if len(parts) < least:
        raise error("E0310", f"{s.name} takes at least {'two named parts' if least == 2 else 'one named part'}, here {len(parts)}",
                    s.name_span or s.span, help=f"{s.name}(…) {{ one: {{ … }}; two: {{ … }} }}")
    seen: dict[str, ast.Part] = {}
    for p in parts:
        if p.name in seen: raise error("E0406", f"there are two parts `{p.name}`", p.span, Note(seen[p.name].span, "first here"))
        seen[p.name] = p
    return parts


def repeat(e: Expander, b: Builder, x: Stream, s: ast.Repeat, place: Place) -> Stream:
    """`repeat L as i shared { … }`: a loop over the axis of copies, along which the parameters are sliced."""
    count = place.names.size(s.count)
    index = sp.Symbol(s.index, integer=True, nonnegative=True) if s.index else None
    inner_place = place
    if s.index is not None and index is not None:
        if s.index in place.names.entries:
            raise error("E0406", f"`{s.index}` is bound already", s.span, *place.names.notes(place.names.entries[s.index].value))
        inner_place = replace(place, names=place.names.with_entry(s.index, Entry("index", index, s.span, count)))
    if x.value.kind != "real":
        raise error("E0313", "a repeat works on vectors, and this stream holds symbols", s.span, help="embed(V) turns symbols into vectors")
    over = axis(place.at.split("/", 1)[1], count, "copies")
    with b.located(place.at, s.span):
        inner, (state,), _ = b.scope(over, [x.value], [], own_params=not s.shared)
        y = e.body(inner, x.to(state), s.body, inner_place)
        if not same_shape(b, state, y.value):
            raise error("E0306", f"a repeated body gives back the shape it takes: it takes {shape(x)} and gives {shape(y)}", s.span,
                        *place.names.notes(*(a.size for a in (*x.value.axes, *y.value.axes) if a.role != "batch")))
        value = y.value if y.value.axes == state.axes else inner.broadcast(y.value, *state.axes)
        used = index if index is not None and _reads(inner, index, s) else None
        return x.to(b.close(inner, over, [x.value], [], [value], index=used)[0])


def _reads(b: Builder, index: sp.Symbol, s: ast.Repeat) -> bool:
    """Whether an attribute of the body holds the index; if a parameter's size does, that is a mistake."""
    for v in (*b.cut.values(), *b.captured.values()):
        if v.kind == "param" and any(index in a.size.free_symbols for a in v.axes):
            raise error("E0307", f"`{index}` cannot be in the shape of a parameter: all copies have parameters of one shape", s.span)
    return any(index in n.symbols for n in Graph((), tuple(b.nodes), ()).walk())


def residual(e: Expander, b: Builder, x: Stream, s: ast.Apply, place: Place) -> Stream:
    """x + dropout(body(norm(x))), or norm(x + …): pre- and post-norm."""
    a = _arguments(s, place, _option("norm", "pre", "post", "none"), Argument("dropout", ("probability",), (), NUMBER_0, False))
    norm = LAYERS["layer_norm"].expand

    def normed(v: Value) -> Value:
        with b.located(place.at, s.span), b.named("norm"): return norm(b, v)

    branch = x.to(normed(x.value)) if a["norm"] == "pre" else x
    y = e.body(b, branch, _only_body(s), place)
    if not same_shape(b, x.value, y.value):
        raise error("E0310", f"the branch returns {shape(y)}, its input is {shape(x)}: their sum needs one shape", s.name_span or s.span,
                    *place.names.notes(*(p.size for v in (x, y) for p in v.value.axes if p.role != "batch")),
                    help=f"end the branch with linear({feature(x.value).size})" if x.value.has("d") else "")
    with b.located(place.at, s.span): out = b.add(x.value, dropout(b, y.value, a["dropout"]))
    return x.to(normed(out) if a["norm"] == "post" else out)


def reversible(e: Expander, b: Builder, x: Stream, s: ast.Apply, place: Place) -> Stream:
    """Two streams, both the input at first; every part adds to the stream that the part before it read, and the alternation
    runs on across copies. Gomez et al. 2017; Kitaev et al. 2020, section 3."""
    a = _arguments(s, place, Argument("repeat", ("size",), (), SIZE_1, False), _option("merge", "mean", "concat", "sum"))
    parts = _only_parts(s, 2)
    feature(x.value)
    over = axis(place.at.split("/", 1)[1], a["repeat"], "copies")
    with b.located(place.at, s.span):
        inner, (target, read), _ = b.scope(over, [x.value, x.value], [], own_params=True)
        hidden = False
        for p in parts:
            here = replace(place, at=f"{place.at}/{p.name}")

            def part(region, v, p=p, here=here):
                y = e.body(region, x.to(v), p.body, here)
                if not same_shape(b, v, y.value):
                    raise error("E0310", f"part {p.name} returns {shape(y)}, and it is added to a stream of {shape(x)}", p.span,
                                *place.names.notes(*(q.size for t in (x, y) for q in t.value.axes if q.role != "batch")))
                return y.value if y.value.axes == v.axes else region.broadcast(y.value, *v.axes)

            try:
                with inner.located(here.at, p.span): out = inner.region("part", part, read, closed=False)
                target, read = read, inner.add(target, out)
            except Poisoned: hidden = True
        if hidden: raise Poisoned
        first, second = b.close(inner, over, [x.value, x.value], [], [target, read], keep="invert")
        if a["merge"] == "concat": return x.to(b.concat("d", first, second))
        both = b.add(first, second)
        return x.to(b.mul(both, sp.Rational(1, 2)) if a["merge"] == "mean" else both)


def parallel(e: Expander, b: Builder, x: Stream, s: ast.Apply, place: Place) -> Stream:
    """Every part reads the input; their results are added, multiplied, or put side by side."""
    a = _arguments(s, place, _option("merge", "add", "concat", "multiply"))
    parts = _only_parts(s, 1)
    outs = [e.body(b, x, p.body, replace(place, at=f"{place.at}/{p.name}")) for p in parts]
    with b.located(place.at, s.span):
        if a["merge"] == "concat":
            for o, p in zip(outs[1:], parts[1:]):
                if set(o.value.names) != set(outs[0].value.names):
                    both = f"part {p.name} returns {shape(o)}, part {parts[0].name} {shape(outs[0])}"
                    raise error("E0310", f"{both}: they cannot stand side by side", p.span)
            return x.to(outs[0].value if len(outs) == 1 else b.concat("d", *(o.value for o in outs)))
        y = outs[0].value
        for o, p in zip(outs[1:], parts[1:]):
            if not same_shape(b, y, o.value):
                raise error("E0310", f"part {p.name} returns {shape(o)}, part {parts[0].name} {shape(outs[0])}: "
                                     f"to {a['merge']} them needs one shape", p.span)
            y = b.map({"add": "add", "multiply": "mul"}[a["merge"]], y, o.value)
        return x.to(y)


def chunked(e: Expander, b: Builder, x: Stream, s: ast.Apply, place: Place) -> Stream:
    """The sequence in pieces, one after another: the same work, a buffer divided by the pieces, a depth multiplied by them.
    Kitaev et al. 2020, section 3, "Chunking". A ragged last piece is padded inside."""
    a = _arguments(s, place, Argument("over", ("size",), (), NEEDED, False), Argument("pieces", ("size",), (), NEEDED, False))
    n, body = sequence(x.value), _only_body(s)
    if not b.sizes.same(a["over"], n.size):
        raise error("E0308", f"the sequence of this stream is {n.size} long: chunked goes over that, not over {a['over']}", s.span,
                    *place.names.notes(n.size, a["over"]), help=f"chunked(over = {n.size}, …)")
    with b.located(place.at, s.span):
        def run(inner: Builder, v: Value) -> Value:
            y = e.body(inner, Stream(v, None, x.rotary), body, place)
            if y.rotary != x.rotary:
                raise error("E0308", "positions are for the layers that follow, and a piece knows only its own", s.span,
                            help="move positions(rotary) out of chunked")
            return y.value
        value = pieces_of(b, x.value, a["pieces"], run)
    return x.to(value)


CONSTRUCTS = {"residual": residual, "reversible": reversible, "chunked": chunked, "parallel": parallel}
