"""Chains of statements → values: layers run, constructs and blocks expanded in place."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import plait.compiler.layers  # noqa: F401  (registers the layers)
from plait.compiler.bind import bind, convert, pair_up
from plait.compiler.builder import Builder
from plait.compiler.constructs import CONSTRUCTS, repeat
from plait.compiler.layer import LAYERS, NEEDED, Argument, Mistake, Stream
from plait.compiler.names import Entry, Names
from plait.compiler.place import Place, Poisoned, shape
from plait.dsl import spec as ast
from plait.dsl.errors import Diagnostic, Note, PlaitError, error
from plait.dsl.suggest import ALIASES, suggest


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
        if isinstance(s, ast.Repeat): return repeat(self, b, x, s, place)
        if s.name in CONSTRUCTS: return self.guarded(s, place, {}, lambda: CONSTRUCTS[s.name](self, b, x, s, place))
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
            found = [self.mistaken(m, s, place, written) for m in group.exceptions if isinstance(m, Mistake)]
            raise PlaitError(*(d for wrong in found for d in wrong.diagnostics)) from None

    def mistaken(self, m: Mistake, s: ast.Apply, place: Place, written: Mapping[str, ast.Argument]) -> PlaitError:
        at = written[m.argument].value.span if m.argument is not None and m.argument in written else s.name_span or s.span
        return error(m.code, m.message, at, *place.names.notes(*m.symbols), numbers=m.numbers, help=m.help)

    def no_layer(self, s: ast.Apply, place: Place) -> PlaitError:
        near = suggest(s.name, [*LAYERS, *CONSTRUCTS, *place.names.blocks], ALIASES)
        return error("E0402", f"there is no layer `{s.name}`", s.name_span or s.span,
                     help=" or ".join(f"`{n}`" for n in near) + "?" if near else "`plait layers` lists them")

    def block(self, b: Builder, x: Stream, s: ast.Apply, place: Place) -> Stream:
        """A user's block, in place, with its parameters as names."""
        block = place.names.blocks[s.name]
        if block.name in place.blocks:
            raise error("E0405", f"block {block.name} contains itself", s.span, Note(block.span, "declared here"))
        if s.body is not None or s.parts is not None: raise error("E0203", f"{s.name} is a block: it has no body of its own here", s.span)
        signature = tuple(Argument(p.name, ("stream",) if p.type else ("number",), (), NEEDED if p.default is None else p.default, True)
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
            streams[p.name] = convert(block.name, Argument(p.name, ("stream",), (), NEEDED, True), e, place.names, place.streams)
            self.fits(streams[p.name], p, e, names)
        return self.body(b, x, block.body, replace(place, names=names, streams=streams, blocks=(*place.blocks, block.name)))

    def fits(self, x: Stream, p: ast.Parameter, e: ast.Expr, names: Names) -> None:
        """A stream given to a block has the shape that the block declares."""
        assert p.type is not None
        have = sorted(x.value.axes[1:], key=lambda a: a.role != "sequence")
        want = [names.size(s) for s in p.type.shape]
        if len(have) != len(want) or not all(names.sizes.same(a.size, w) for a, w in zip(have, want)):
            raise error("E0309", f"`{p.name}` is declared [{', '.join(map(str, want))}], and this stream is {shape(x)}", e.span,
                        Note(p.span, "declared here"))

    def glance(self, s: ast.Apply | ast.Repeat, place: Place) -> None:
        """Check the names of a statement without its stream."""
        if isinstance(s, ast.Repeat) or s.name in CONSTRUCTS or s.name in place.names.blocks: return
        if s.name not in LAYERS: raise self.no_layer(s, place)
        bind(LAYERS[s.name], s.arguments, place.names, place.streams, s.span)
