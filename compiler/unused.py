"""A warning about meaning: a stream that nothing reads."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from plait.compiler.file import File
from plait.dsl import spec as ast
from plait.dsl.errors import Diagnostic


def unused(file: File, model: str) -> list[Diagnostic]:
    """W0402, where a stream is no output and no stream, argument or output is made from it: its layers have parameters, which are
    counted and never trained."""
    m = file.models[model]
    read = {o.name for o in m.members if isinstance(o, ast.Output)} | set(_names(m.members))
    return [Diagnostic("W0402", f"the stream `{f.name}` is used by nothing: its parameters are counted, and never trained", f.span,
                       help=f"output {f.name}: [n, d], or leave it out")
            for f in m.members if isinstance(f, ast.Flow) and f.name not in read]


def _names(tree: object) -> Iterator[str]:
    """The names of an expression, and the sources of streams."""
    if isinstance(tree, ast.Name): yield tree.name
    if isinstance(tree, ast.Flow): yield tree.source
    if isinstance(tree, tuple):
        for t in tree: yield from _names(t)
    elif is_dataclass(tree):
        for f in fields(tree):
            if f.compare: yield from _names(getattr(tree, f.name))                 # spans do not compare
