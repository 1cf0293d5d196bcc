"""Spec → Program: names resolved, layers expanded, one model at a time. Every mistake is found in one run where it can be."""
from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import sympy as sp

import plait.compiler.layers  # noqa: F401  (registers the layers)
from plait.compiler import constructs, losses
from plait.compiler.axis import BATCH, axis
from plait.compiler.bind import bind, convert, pair_up
from plait.compiler.builder import Builder
from plait.compiler.graph import Graph, Value
from plait.compiler.layer import LAYERS, Argument, Mistake, Stream
from plait.compiler.names import Entry, Names, resolve
from plait.compiler.program import Input, Program
from plait.compiler.sizes import dim
from plait.compiler.verify import verify
from plait.dsl import spec as ast
from plait.dsl.errors import LIMIT, Diagnostic, Note, PlaitError, Span, error
from plait.dsl.suggest import ALIASES, suggest


# ---- the file ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class File:
    """A spec with its names resolved. `written` are the values that the file gave its dims before any override."""
    spec: ast.Spec
    names: Names
    models: Mapping[str, ast.Model]
    trains: tuple[ast.Train, ...]
    compares: tuple[ast.Compare, ...]
    written: Mapping[sp.Symbol, int]

    def train(self, model: str) -> ast.Train | None:
        """The train block of a model: the one that names it, else the one that names none."""
        named = [t for t in self.trains if model in {m.name for m in t.models}]
        return (named or [t for t in self.trains if not t.models] or [None])[0]


def open_file(spec: ast.Spec, read: Callable[[str, Span], ast.Spec] | None = None, original: ast.Spec | None = None) -> File:
    """Resolve the names of a file. read: gives the Spec of a `use` path. original: the spec before overrides."""
    items = _with_imports(spec, read, ())
    found: list[Diagnostic] = []
    try: names = resolve([i for i in items if isinstance(i, ast.Dims | ast.Let)], _written(original or spec))
    except PlaitError as wrong: raise wrong from None
    shares, blocks, models = {}, {}, {}
    for kind, into in ((ast.Share, shares), (ast.Block, blocks), (ast.Model, models)):
        for i in items:
            if not isinstance(i, kind): continue
            if i.name in into: found += error("E0406", f"`{i.name}` is there twice", i.span, Note(into[i.name].span, "first here")).diagnostics
            into[i.name] = i
    for b in blocks.values():
        if b.name in LAYERS or b.name in constructs.CONSTRUCTS:
            found += error("E0406", f"`{b.name}` is a layer already: a block needs a name of its own", b.span).diagnostics
    trains = tuple(i for i in items if isinstance(i, ast.Train))
    for t in trains:
        for m in t.models:
            if m.name not in models:
                near = suggest(m.name, models, ALIASES)
                found += error("E0402", f"there is no model `{m.name}`", m.span, help=f"`{near[0]}`?" if near else f"models: {', '.join(models)}").diagnostics
    if found: raise PlaitError(*found[:LIMIT])
    names = replace(names, shares=shares, blocks=blocks)
    return File(spec, names, models, trains, tuple(i for i in items if isinstance(i, ast.Compare)), _written(original or spec))


def _with_imports(spec: ast.Spec, read, seen: tuple[str, ...]) -> list[ast.Item]:
    """The items of a file with those of the files it uses in front (their blocks, shares, lets and dims)."""
    out: list[ast.Item] = []
    for i in spec.items:
        if not isinstance(i, ast.Use): out.append(i); continue
        if i.path in seen: raise error("E0407", f"{i.path} is used by itself", i.span)
        if read is None: raise error("E0407", "`use` needs files beside this one, and this text has no place", i.span)
        other = read(i.path, i.span)
        out += [j for j in _with_imports(other, read, (*seen, i.path)) if isinstance(j, ast.Dims | ast.Let | ast.Share | ast.Block)]
    return out


def _written(spec: ast.Spec) -> dict[sp.Symbol, int]:
    """Literal values of dims as the file has them; the bound of a free one (`n <= 512`) counts."""
    out = {}
    for i in spec.items:
        groups = [i] if isinstance(i, ast.Dims) else [m for m in i.members if isinstance(m, ast.Dims)] if isinstance(i, ast.Model) else []
        for d in (e for g in groups for e in g.entries):
            if isinstance(d, ast.Dim) and isinstance(d.value, ast.Number) and isinstance(d.value.value, int): out[dim(d.name)] = d.value.value
    return out


# ---- one model ----------------------------------------------------------------------------------------------------------
class Poisoned(Exception):
    """The stream is unknown from here on: what depends on it is not looked at."""


@dataclass(frozen=True)
class Place:
    """Where an expansion stands: its names, its streams, and its path in the spec."""
    names: Names
    streams: Mapping[str, Stream]
    at: str
    blocks: tuple[str, ...] = ()                               # the blocks being expanded: one cannot contain itself

    def into(self, step: object) -> Place:
        return replace(self, at=f"{self.at}/{step}")


@dataclass
class Expander:
    """What one expansion collects."""
    found: list[Diagnostic] = field(default_factory=list)
    pins: dict[tuple[int, int], tuple[str, int]] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    def report(self, wrong: PlaitError) -> None:
        self.found += [d for d in wrong.diagnostics if d not in self.found]

    def body(self, b: Builder, x: Stream, body: ast.Body, place: Place) -> Stream:
        """A chain: each statement transforms the stream. After a mistake that hides the stream, the names of the rest are
        still checked."""
        poisoned = False
        for k, s in enumerate(body.statements):
            here = place.into(k)
            try:
                if poisoned: self.glance(s, here)
                else: x = self.statement(b, x, s, here)
            except PlaitError as wrong: self.report(wrong); poisoned = True
            except Poisoned: poisoned = True
        if poisoned: raise Poisoned
        return x

    def statement(self, b: Builder, x: Stream, s: ast.Apply | ast.Repeat, place: Place) -> Stream:
        self.places.setdefault(place.at, "repeat" if isinstance(s, ast.Repeat) else s.name)
        if isinstance(s, ast.Repeat): return constructs.repeat(self, b, x, s, place)
        if s.name in constructs.CONSTRUCTS: return self.guarded(s, place, {}, lambda: constructs.CONSTRUCTS[s.name](self, b, x, s, place))
        if s.name in place.names.blocks: return self.block(b, x, s, place)
        if s.name not in LAYERS: raise self.no_layer(s, place)
        if s.body is not None or s.parts is not None: raise error("E0203", f"{s.name} is a layer: it has no body", s.span)
        layer = LAYERS[s.name]
        arguments, written = bind(layer, s.arguments, place.names, place.streams, s.span)

        def run() -> Stream:
            with b.located(place.at, s.span):
                y = layer.expand(b, x if layer.takes_stream else x.value, **arguments)
            return y if isinstance(y, Stream) else x.to(y)

        y = self.guarded(s, place, written, run)
        for name, value in b.take_pins().items(): self.pins[s.span.start, s.span.end] = (name, value)
        return y

    def guarded(self, s: ast.Apply, place: Place, written: Mapping[str, ast.Argument], run: Callable[[], Stream]) -> Stream:
        """Run a layer; its Mistakes become diagnostics at the argument they name."""
        try: return run()
        except Mistake as m: raise self.mistaken(m, s, place, written) from None
        except ExceptionGroup as group:
            raise PlaitError(*(d for m in group.exceptions if isinstance(m, Mistake) for d in self.mistaken(m, s, place, written).diagnostics)) from None

    def mistaken(self, m: Mistake, s: ast.Apply, place: Place, written: Mapping[str, ast.Argument]) -> PlaitError:
        at = written[m.argument].value.span if m.argument in written else s.name_span or s.span
        return error(m.code, m.message, at, *place.names.notes(*m.symbols), numbers=m.numbers, help=m.help)

    def no_layer(self, s: ast.Apply, place: Place) -> PlaitError:
        near = suggest(s.name, [*LAYERS, *constructs.CONSTRUCTS, *place.names.blocks], ALIASES)
        return error("E0402", f"there is no layer `{s.name}`", s.name_span or s.span,
                     help=" or ".join(f"`{n}`" for n in near) + "?" if near else "`plait check --layers` lists them")

    def block(self, b: Builder, x: Stream, s: ast.Apply, place: Place) -> Stream:
        """A user's block, in place, with its parameters as names."""
        block = place.names.blocks[s.name]
        if block.name in place.blocks: raise error("E0405", f"block {block.name} contains itself", s.span, Note(block.span, "declared here"))
        if s.body is not None or s.parts is not None: raise error("E0203", f"{s.name} is a block: it has no body of its own here", s.span)
        signature = tuple(Argument(p.name, ("stream",) if p.type else ("number",), (), p.default if p.default is not None else inspect.Parameter.empty, True)
                          for p in block.parameters)
        one = sum(a.required for a in signature) <= 1
        written = pair_up(block.name, signature if one else tuple(replace(a, positional=False) for a in signature), s.arguments, s.span)
        names, streams = place.names, dict(place.streams)
        for p in block.parameters:
            e = written[p.name].value if p.name in written else p.default
            assert e is not None
            if p.type is None:
                names = names.with_entry(p.name, Entry("let", place.names.number(e), e.span))
                continue
            streams[p.name] = convert(block.name, Argument(p.name, ("stream",), (), inspect.Parameter.empty, True), e, place.names, place.streams)
            self.fits(streams[p.name], p, e, names)
        return self.body(b, x, block.body, replace(place, names=names, streams=streams, blocks=(*place.blocks, block.name)))

    def fits(self, x: Stream, p: ast.Parameter, e: ast.Expr, names: Names) -> None:
        """A stream given to a block has the shape that the block declares."""
        assert p.type is not None
        have, want = x.value.axes[1:], [names.size(s) for s in p.type.shape]
        have = sorted(have, key=lambda a: a.role != "sequence")
        if len(have) != len(want) or not all(names.sizes.same(a.size, w) for a, w in zip(have, want)):
            raise error("E0309", f"`{p.name}` is declared [{', '.join(map(str, want))}], and this stream is {shape(x)}", e.span, Note(p.span, "declared here"))

    def glance(self, s: ast.Apply | ast.Repeat, place: Place) -> None:
        """Check the names of a statement without its stream."""
        if isinstance(s, ast.Repeat) or s.name in constructs.CONSTRUCTS or s.name in place.names.blocks: return
        if s.name not in LAYERS: raise self.no_layer(s, place)
        bind(LAYERS[s.name], s.arguments, place.names, place.streams, s.span)


def shape(x: Stream) -> str:
    """[n, d] as sizes, without the batch."""
    axes = sorted((a for a in x.value.axes if a.role != "batch"), key=lambda a: a.role != "sequence")
    return f"[{', '.join(str(a.size) for a in axes)}]"


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
    names = resolve([i for i in m.members if isinstance(i, ast.Dims | ast.Let)], file.written, file.names)
    names = replace(names, shares={**names.shares, **{s.name: s for s in m.members if isinstance(s, ast.Share)}})
    train = file.train(model)
    call = losses.loss_call(train) if train else None
    ahead = losses.read_ahead(call) if call else set()
    graph, inputs, inits = _graph(e, m, names, ahead, None)
    program = Program(model, graph, names.sizes, inputs, tuple(o.name for o in m.members if isinstance(o, ast.Output)), inits, places=e.places, pins=e.pins)
    if call is None or not loss: return program
    graphs = [_graph(e, m, names, ahead, (call, kind))[0] for kind in ("loss", "score")]
    return replace(program, loss=graphs[0], score=graphs[1])


def _graph(e: Expander, m: ast.Model, names: Names, ahead: set[str], wanted) -> tuple[Graph, tuple[Input, ...], dict]:
    """The graph of a model's outputs, or (wanted = (call, kind)) of its loss."""
    b = Builder(names.sizes)
    outs: tuple[Value, ...] = ()
    try:
        opened = _open(b, m, names, ahead, wanted is not None)
        streams = _flows(e, b, m, names, dict(opened.streams))
        if not e.found:
            outputs = _outputs(e, b, m, names, streams)
            if wanted:
                with b.located(f"{m.name}/loss", wanted[0].span):
                    outs = losses.expand(b, wanted[0], wanted[1], {**streams, **{k: Stream(v) for k, v in outputs.items()}}, opened.targets, names)
            else: outs = tuple(outputs.values())
    except PlaitError as wrong: e.report(wrong)
    if e.found: raise PlaitError(*sorted(e.found, key=lambda d: d.span.start if d.span else -1)[:LIMIT])
    graph = b.graph(*outs)
    order = [v for i in opened.inputs for v in (i.value, i.mask) if v is not None]
    rest = [v for v in graph.ins if v not in order]
    ins = (*order, *(v for v in rest if v.kind != "param"), *(v for v in rest if v.kind == "param"))
    return verify(replace(graph, ins=ins), names.sizes), opened.inputs, b.shared.inits


def _open(b: Builder, m: ast.Model, names: Names, ahead: set[str], loss: bool) -> _Opened:
    """Declare the inputs; in a loss, cut the ones read by next() into what the model sees and what it is to predict."""
    inputs, streams, targets = [], {}, {}
    for i in (i for i in m.members if isinstance(i, ast.Input)):
        if i.name in streams: raise error("E0406", f"there are two inputs `{i.name}`", i.span)
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
        streams[i.name] = Stream(x, seen)
    if not inputs: raise error("E0408", f"model {m.name} has no input", m.name_span or m.span, help="input text: tokens[n] of V")
    return _Opened(tuple(inputs), streams, targets)


def _input_axes(i: ast.Input, names: Names, longer: bool):
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
            e.report(error("E0309", f"`{o.name}` is declared [{', '.join(map(str, want))}], and the stream is {shape(streams[o.name])}", o.span,
                           *names.notes(*have, *want), help=f"output {o.name}: {shape(streams[o.name])}"))
            continue
        with b.located(f"{m.name}/{o.name}", o.span): outs[o.name] = x if list(x.axes) == axes else b.broadcast(x, *axes)
    if not outs and not e.found: raise error("E0408", f"model {m.name} has no output", m.name_span or m.span, help="output y: [n, d]")
    return outs
