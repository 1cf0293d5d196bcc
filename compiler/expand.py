"""Spec → Program: names resolved, layers expanded, one model at a time. Every mistake is found in one run where it can be."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import sympy as sp

from plait.compiler import losses
from plait.compiler.axis import BATCH, Axis, axis
from plait.compiler.builder import Builder, Shared
from plait.compiler.expander import Expander
from plait.compiler.file import File, open_file
from plait.compiler.graph import Graph, Value
from plait.compiler.layer import Stream
from plait.compiler.names import Names
from plait.compiler.place import Place, Poisoned, shape
from plait.compiler.program import Input, Program
from plait.compiler.verify import verify
from plait.dsl import spec as ast
from plait.dsl.errors import LIMIT, PlaitError, Span, error
from plait.dsl.suggest import ALIASES, suggest

__all__ = ["File", "expand", "open_file"]


@dataclass(frozen=True)
class _Opened:
    """A model's inputs in a builder."""
    inputs: tuple[Input, ...]
    streams: Mapping[str, Stream]
    targets: Mapping[str, tuple[Value, Value]]                 # name → (what is to be predicted, where it counts)


def expand(file: File, model: str, loss: bool = False) -> Program:
    """One model of a file as a Program. loss: also the graphs of its train block's loss and score.
    Raises PlaitError with every diagnostic of the model."""
    m, e = file.models[model], Expander()
    names = file.names_of(model)
    names = replace(names, shares={**names.shares, **{s.name: s for s in m.members if isinstance(s, ast.Share)}})
    train = file.train(model)
    call = losses.loss_call(train) if train else None
    ahead = losses.read_ahead(call) if call else set()
    graph, inputs, made = _graph(e, m, names, ahead, None)
    outputs = tuple(o.name for o in m.members if isinstance(o, ast.Output))
    program = Program(model, graph, names.sizes, inputs, outputs, made.inits, places=e.places, demands=made.demands, pins=e.pins)
    if call is None or not loss: return program
    graphs = [_graph(e, m, names, ahead, (call, kind))[0] for kind in ("loss", "score")]
    return replace(program, loss=graphs[0], score=graphs[1])


def _graph(e: Expander, m: ast.Model, names: Names, ahead: set[str],
           wanted: tuple[ast.Call, str] | None) -> tuple[Graph, tuple[Input, ...], Shared]:
    """The graph of a model's outputs, or (wanted = (call, kind)) of its loss."""
    b = Builder(names.sizes)
    outs: tuple[Value, ...] = ()
    try:
        opened = _open(b, m, names, ahead, wanted is not None)
        streams = _flows(e, b, m, names, dict(opened.streams))
        if not e.found:
            outputs = _outputs(e, b, m, names, streams)
            if wanted:
                call, kind = wanted
                streams |= {k: Stream(v) for k, v in outputs.items()}
                with b.located(f"{m.name}/loss", call.span): outs = losses.expand(b, call, kind, streams, opened.targets, names)
            else: outs = tuple(outputs.values())
    except PlaitError as wrong: e.report(wrong)
    if e.found: raise PlaitError(*sorted(e.found, key=lambda d: d.span.start if d.span else -1)[:LIMIT])
    graph = b.graph(*outs)
    order = [v for i in opened.inputs for v in (i.value, i.mask) if v is not None]
    rest = [v for v in graph.ins if v not in order]
    ins = (*order, *(v for v in rest if v.kind != "param"), *(v for v in rest if v.kind == "param"))
    return verify(replace(graph, ins=ins), names.sizes), opened.inputs, b.shared


def _open(b: Builder, m: ast.Model, names: Names, ahead: set[str], loss: bool) -> _Opened:
    """Declare the inputs; in a loss, cut the ones read by next() into what the model sees and what it is to predict."""
    inputs, streams, targets = [], {}, {}
    for i in (i for i in m.members if isinstance(i, ast.Input)):
        if i.name in streams: raise error("E0406", f"there are two inputs `{i.name}`", i.span)
        _free_name(i.name, i.span)
        longer = loss and i.name in ahead
        with b.located(f"{m.name}/{i.name}", i.span):
            axes, kind, classes = _input_axes(i, names, longer)
            value = b.input(axes, "real" if kind == "stream" else "index", i.name)
            mask = b.input(axes[:2], "mask", f"{i.name}.mask") if i.padded else None
            inputs.append(Input(i.name, kind, value, mask, classes, i.name in ahead, i.span))
            x, seen = value, mask
            if loss and kind != "stream":
                # a negative symbol is read as its complement and does not count as a target
                counts = b.map("le", 0, value)
                x = b.where(counts, value, b.sub(-1, value))
                if mask is not None: counts = b.map("and", counts, mask)
                if longer:
                    n = axes[1].size - 1
                    targets[i.name] = b.slice(x, "n", 1, n), b.slice(counts, "n", 1, n)
                    x, seen = b.slice(x, "n", 0, n), None if mask is None else b.slice(mask, "n", 0, n)
                else: targets[i.name] = x, counts
        streams[i.name] = Stream(x, seen, symbols=classes)
    if not inputs: raise error("E0408", f"model {m.name} has no input", m.name_span or m.span, help="input text: tokens[n] of V")
    return _Opened(tuple(inputs), streams, targets)


RESERVED = ("training",)                                     # what PyTorch calls an attribute of every module


def _taken(name: str, span: Span) -> PlaitError:
    return error("E0406", f"`{name}` is an attribute of every PyTorch module", span, help="choose another name")


def _free_name(name: str, span: Span) -> None:
    if name in RESERVED: raise _taken(name, span)


def _input_axes(i: ast.Input, names: Names, longer: bool) -> tuple[tuple[Axis, ...], str, sp.Expr | None]:
    match i.type:
        case ast.ClassType(of):
            if i.padded: raise error("E0504", "one label a sequence has no padding", i.span)
            return (BATCH,), "class", names.size(of)
        case ast.TokensType(shape, of):
            if len(shape) != 1: raise error("E0309", "tokens stand in one row: tokens[n] of V", i.span)
            n = names.size(shape[0])
            return (BATCH, axis("n", n + 1 if longer else n, "sequence")), "tokens", names.size(of)
        case ast.StreamType(shape):
            if len(shape) not in (1, 2): raise error("E0309", "a stream is [n, d], or [d] without a sequence", i.span)
            sizes = [names.size(s) for s in shape]
            if i.padded and len(sizes) == 1: raise error("E0504", "a stream without a sequence has no padding", i.span)
            roles = (axis("n", sizes[0], "sequence"),) if len(sizes) == 2 else ()
            return (BATCH, *roles, axis("d", sizes[-1])), "stream", None


def _flows(e: Expander, b: Builder, m: ast.Model, names: Names, streams: dict[str, Stream]) -> dict[str, Stream]:
    """The named streams, in order. One that failed is left out, and so is what reads it."""
    failed: set[str] = set()
    for f in (f for f in m.members if isinstance(f, ast.Flow)):
        if f.name in RESERVED: e.report(_taken(f.name, f.span)); continue
        if f.name in streams or f.name in failed: e.report(error("E0406", f"there are two streams `{f.name}`", f.span)); continue
        if f.source in failed: failed.add(f.name); continue
        if f.source not in streams:
            near = suggest(f.source, streams, ALIASES)
            e.report(error("E0402", f"`{f.source}` is no stream above this line", f.source_span or f.span,
                           help=f"`{near[0]}`?" if near else f"streams: {', '.join(streams)}"))
            failed.add(f.name); continue
        try: streams[f.name] = e.body(b, streams[f.source], f.body, Place(names, streams, f"{m.name}/{f.name}"))
        except Poisoned: failed.add(f.name)
    return streams


def _outputs(e: Expander, b: Builder, m: ast.Model, names: Names, streams: Mapping[str, Stream]) -> dict[str, Value]:
    """The outputs, checked against their declared shape and laid out in its order."""
    outs: dict[str, Value] = {}
    for o in (o for o in m.members if isinstance(o, ast.Output)):
        if o.name in outs: e.report(error("E0406", f"there are two outputs `{o.name}`", o.span)); continue
        if o.name not in streams:
            near = suggest(o.name, streams, ALIASES)
            e.report(error("E0402", f"`{o.name}` is no stream of this model", o.span, help=f"`{near[0]}`?" if near else ""))
            continue
        x = streams[o.name].value
        axes = [BATCH] if x.has("b") else []
        axes += sorted((a for a in x.axes if a.role != "batch"), key=lambda a: a.role != "sequence")
        want = [names.size(s) for s in o.shape]
        have = [a.size for a in axes if a.role != "batch"]
        if len(have) != len(want) or not all(names.sizes.same(p, q) for p, q in zip(have, want)):
            is_ = shape(streams[o.name])
            e.report(error("E0309", f"`{o.name}` is declared [{', '.join(map(str, want))}], and the stream is {is_}", o.span,
                           *names.notes(*have, *want), help=f"output {o.name}: {is_}"))
            continue
        with b.located(f"{m.name}/{o.name}", o.span): outs[o.name] = x if list(x.axes) == axes else b.broadcast(x, *axes)
    if not outs and not e.found: raise error("E0408", f"model {m.name} has no output", m.name_span or m.span, help="output y: [n, d]")
    return outs
