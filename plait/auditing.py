"""`plait audit`: a model at its own sizes and at others, every derived number beside the measured one. Imports torch."""
from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plait import files
from plait.compiler.costs.work import macs
from plait.compiler.expand import expand
from plait.compiler.file import File, open_file
from plait.compiler.program import Program
from plait.compiler.solve import freed
from plait.dsl import spec as ast
from plait.dsl.errors import PlaitError, error
from plait.dsl.spec import Override
from plait.pretty import whole
from plait.runtime.audit.checks import Finding, Subject, audit

SIZES = 5                                                     # at which products are counted
MOST = 2**33                                                  # multiply-adds of a sequence: more takes minutes on a CPU
FREE = 16                                                     # what a free dim is audited at
DRAWN = 200                                                   # sizes that are tried to find some that fit


@dataclass(frozen=True)
class Audited:
    """The findings of one model, and the sizes at which it was audited."""
    model: str
    sizes: dict[str, int]
    findings: tuple[Finding, ...]

    @property
    def holds(self) -> bool:
        return all(f.holds is not False for f in self.findings)


def audited(path: Path, settings: tuple[Override, ...], models: list[str] | None = None, compiled: bool = False) -> Iterator[Audited]:
    """Audits the models of a spec, one after another. Free dims are given a value.
    Raises PlaitError for what cannot be opened, and for sizes that would take too long."""
    file = _bound(path, settings)
    for model in models or list(file.models):
        program = expand(file, model, loss=True)
        work = program.sizes.integer(macs(program.graph))
        if work is None or work > MOST:
            raise error("E0641", f"{model} takes {whole(work) or 'any number of'} multiply-adds a sequence: too much for an audit",
                        file.models[model].name_span, help="--set n=64, and other dims smaller")
        others = _others(path, settings, file, model)
        sizes = {k: v for k, e in file.names_of(model).entries.items() if (v := program.sizes.integer(e.value)) is not None}
        yield Audited(model, sizes, tuple(audit(Subject(program, others, with_free_length(file, program), compiled))))


def _bound(path: Path, settings: tuple[Override, ...]) -> File:
    file = files.opened(path, settings)
    given = {o.path[-1] for o in settings}
    free = {k for m in file.models for k, e in file.names_of(m).entries.items()
            if e.kind == "dim" and file.names_of(m).sizes.value(e.value) is None and k not in given}
    more = files.overrides({k: FREE for k in sorted(free)})
    return files.opened(path, (*settings, *more)) if more else file


def with_free_length(file: File, program: Program) -> Program | None:
    """The model with the dim of its length left open; None where the length is no dim of its own, or a layer needs its value."""
    size = next((a.size for i in program.inputs for a in i.value.axes if a.role == "sequence"), None)
    if size is None or not size.is_Symbol or size in program.sizes.derived: return None
    try: return expand(open_file(freed(file.spec, size.name)), program.model)
    except PlaitError: return None


def _others(path: Path, settings: tuple[Override, ...], file: File, model: str) -> tuple[Program, ...]:
    """The same model at random sizes, none of them 1, small ones among them: as many as fit what the spec requires."""
    own = {d.name: file.names_of(model).sizes.integer(file.names_of(model).entries[d.name].value) for d in _literal(file, model)}
    draw = random.Random(model)
    found: dict[tuple[int, ...], Program] = {}
    for k in range(DRAWN):
        if len(found) == SIZES - 1: break
        scale = (0.02, 0.1, 0.5, 1)[k % 4]
        sizes = {name: max(2, draw.choice([round(v * scale), round(v * scale) * 2, round(v * scale) + 2, min(v, 8)]))
                 for name, v in own.items() if v is not None and v > 1}
        try:
            opened = files.opened(path, (*settings, *files.overrides(dict(sizes))))
            program = expand(opened, model, loss=True)
        except PlaitError: continue
        work = program.sizes.integer(macs(program.graph))
        if work is not None and work <= MOST // 64: found.setdefault(tuple(sizes.values()), program)
    return tuple(found.values())


def _literal(file: File, model: str) -> list[ast.Dim]:
    """The dims with a number of their own."""
    groups = [i for i in (*file.spec.items, *file.models[model].members) if isinstance(i, ast.Dims)]
    return [d for g in groups for d in g.entries if isinstance(d, ast.Dim) and isinstance(d.value, ast.Number)]


def told(a: Audited) -> str:
    """A line a finding: what, derived, measured, how they must stand to each other, and whether they do."""
    head = f"{a.model} at {', '.join(f'{k} = {v:,}' for k, v in a.sizes.items())}"
    rows = [(f.what, _shown(f.derived), _shown(f.measured), _verdict(f), f.note) for f in a.findings]
    widths = [max(len(r[k]) for r in rows) for k in range(4)]
    def line(r: tuple[str, ...]) -> str:
        return f"  {r[0]:<{widths[0]}}  {r[1]:>{widths[1]}}  {r[2]:>{widths[2]}}  {r[3]:<{widths[3]}}  {r[4]}".rstrip()
    return "\n".join([head, *map(line, rows)])


def _shown(v: object) -> str:
    return f"{v:,}" if isinstance(v, int) else "" if v is None else str(v)


def _verdict(f: Finding) -> str:
    return f.kind if f.holds is not False else f"NOT {f.kind}"


def as_json(found: list[Audited], file: str) -> dict[str, Any]:
    def number(v: object) -> object: return v if isinstance(v, int | float | None) else str(v)
    return {"plait": 1, "file": file, "holds": all(a.holds for a in found), "models": [
        {"model": a.model, "sizes": a.sizes, "holds": a.holds, "findings": [
            {"what": f.what, "kind": f.kind, "derived": number(f.derived), "measured": number(f.measured), "holds": f.holds, "note": f.note}
            for f in a.findings]} for a in found]}
