"""A spec file: its items with those of the files it uses, its names resolved."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import sympy as sp

from plait.compiler.constructs import CONSTRUCTS
from plait.compiler.layer import LAYERS
from plait.compiler.names import Names
from plait.compiler.resolve import resolve
from plait.compiler.sizes import Numeric, dim
from plait.dsl import spec as ast
from plait.dsl.errors import LIMIT, Diagnostic, Note, PlaitError, Span, error
from plait.dsl.suggest import ALIASES, suggest

Reader = Callable[[str, Span], ast.Spec]                       # the Spec of a path in a `use`
Named = TypeVar("Named", ast.Share, ast.Block, ast.Model)


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
        return next(iter(named or [t for t in self.trains if not t.models]), None)

    def names_of(self, model: str) -> Names:
        """What is in scope in a model: the names of the file, and its own."""
        own = [m for m in self.models[model].members if isinstance(m, ast.Dims | ast.Let)]
        return resolve(own, self.written, self.names)

    def values(self, model: str) -> dict[str, Numeric]:
        """The dims and lets of a model that have a value."""
        names = self.names_of(model)
        found = {name: names.sizes.value(entry.value) for name, entry in names.entries.items()}
        return {name: value for name, value in found.items() if value is not None}


def open_file(spec: ast.Spec, read: Reader | None = None, original: ast.Spec | None = None) -> File:
    """Resolve the names of a file. read: gives the Spec of a `use` path. original: the spec before overrides."""
    items = list(inlined(spec, read).items)
    found: list[Diagnostic] = []
    names = resolve([i for i in items if isinstance(i, ast.Dims | ast.Let)], _written(original or spec))
    shares, blocks, models = _named(items, ast.Share, found), _named(items, ast.Block, found), _named(items, ast.Model, found)
    for b in blocks.values():
        if b.name in LAYERS or b.name in CONSTRUCTS:
            found += error("E0406", f"`{b.name}` is a layer already: a block needs a name of its own", b.span).diagnostics
    trains = tuple(i for i in items if isinstance(i, ast.Train))
    for t in trains:
        for m in t.models:
            if m.name not in models:
                near = suggest(m.name, models, ALIASES)
                found += error("E0402", f"there is no model `{m.name}`", m.span,
                               help=f"`{near[0]}`?" if near else f"models: {', '.join(models)}").diagnostics
    if found: raise PlaitError(*found[:LIMIT])
    names = replace(names, shares=shares, blocks=blocks)
    return File(spec, names, models, trains, tuple(i for i in items if isinstance(i, ast.Compare)), _written(original or spec))


def _named(items: list[ast.Item], kind: type[Named], found: list[Diagnostic]) -> dict[str, Named]:
    """The items of a kind by their names; two of one name are added to what is found wrong."""
    out: dict[str, Named] = {}
    for i in items:
        if not isinstance(i, kind): continue
        if i.name in out: found += error("E0406", f"`{i.name}` is there twice", i.span, Note(out[i.name].span, "first here")).diagnostics
        out[i.name] = i
    return out


def inlined(spec: ast.Spec, read: Reader | None = None) -> ast.Spec:
    """The file with what it uses in the place of each `use`: blocks, shares, lets and dims of other files, each file once."""
    return replace(spec, items=tuple(_with_imports(spec, read, (), set())))


def _with_imports(spec: ast.Spec, read: Reader | None, around: tuple[str, ...], done: set[str]) -> list[ast.Item]:
    out: list[ast.Item] = []
    for i in spec.items:
        if not isinstance(i, ast.Use): out.append(i); continue
        if i.path in around: raise error("E0407", f"{i.path} is used by itself", i.span)
        if i.path in done: continue
        if read is None: raise error("E0407", "`use` needs files beside this one, and this text has no place", i.span)
        done.add(i.path)
        other = _with_imports(read(i.path, i.span), read, (*around, i.path), done)
        out += [j for j in other if isinstance(j, ast.Dims | ast.Let | ast.Share | ast.Block)]
    return out


def _written(spec: ast.Spec) -> dict[sp.Symbol, int]:
    """Literal values of dims as the file has them; the bound of a free one (`n <= 512`) counts."""
    out = {}
    for i in spec.items:
        groups = [i] if isinstance(i, ast.Dims) else [m for m in i.members if isinstance(m, ast.Dims)] if isinstance(i, ast.Model) else []
        for d in (e for g in groups for e in g.entries):
            match d:
                case ast.Dim(name, value=ast.Number(int(value))): out[dim(name)] = value
    return out
