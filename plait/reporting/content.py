"""What a report says of a spec, as JSON and as JavaScript: its dims, what they must meet, and its rows of costs as functions of them."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import sympy as sp

from plait.compiler.costs.work import LEDGERS
from plait.compiler.expand import File, expand, open_file
from plait.compiler.graph import Graph
from plait.compiler.names import Names
from plait.compiler.prims import Loop
from plait.compiler.program import Program
from plait.compiler.sizes import Free, dim, holds
from plait.compiler.solve import freed
from plait.compiler.table import PathCell, Row, number
from plait.dsl import spec as ast
from plait.dsl.errors import PlaitError, error
from plait.pretty import pretty
from plait.render import CELLS, COLUMNS, TITLES, Table, note
from plait.reporting.javascript import Unprintable, condition, expression

FREE = (128, 256, 512, 1024, 4096, 120, 720, 5040, *range(127, 0, -1))     # values that a dim without one is tried with
ADDED = (*("work" if name == "contraction" else name for name in LEDGERS), "params", "training", "recompute", "backward", "saved")
SHOWN = (*COLUMNS, "training", "peak")                       # columns at first sight
MEANINGS = {
    "work": "multiply-adds", "ideal": "multiply-adds that masks leave", "executed": "multiply-adds that the kernels do",
    "pointwise": "elements", "transcendental": "elements", "comparisons": "comparisons", "movement": "elements addressed",
    "sequential": "operations that wait for each other", "tree": "operations that wait, sums as trees", "path": "steps",
    "params": "numbers", "reuse": "multiply-adds for each number fetched", "saved": "bytes kept for backward",
    "peak": "bytes alive at once", "training": "multiply-adds of a step", "recompute": "multiply-adds done again",
    "backward": "multiply-adds of gradients", "training_depth": "operations of a step that wait", "order": "leading order of work"}


@dataclass
class Code:
    """The functions of the page: each text once."""
    texts: dict[str, int] = field(default_factory=dict)

    def of(self, e: sp.Expr) -> int | None:
        """The number of an expression; None where JavaScript has no word for something in it."""
        try: return self._number(expression(sp.sympify(e)))
        except Unprintable: return None

    def condition(self, c: sp.Basic) -> int:
        """The number of a condition. Raises PlaitError: a promise that the page cannot hold is not left out in silence."""
        try: return self._number(condition(c))
        except Unprintable as why: raise error("E0640", f"a report cannot hold what is required: {c} has {why}") from None

    def _number(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))

    def __str__(self) -> str:
        return "const EXPRESSIONS = [\n" + "".join(f"s => {t},\n" for t in self.texts) + "];\n"


@dataclass(frozen=True)
class Slider:
    """A dim that can be moved. key: its name, with the model in front where the dim is a model's own; value: where it stands at first;
    free: the spec gives it none; most: of `n <= 512`; fixed: why it cannot be moved, if it cannot."""
    key: str
    name: str
    value: int
    free: bool = False
    most: int | None = None
    fixed: str = ""

    def json(self) -> dict[str, Any]:
        return {"key": self.key, "name": self.name, "value": str(self.value), "free": self.free,
                "most": None if self.most is None else str(self.most), "fixed": self.fixed}


# ---- the dims ------------------------------------------------------------------------------------------------------------------
def plain(names: Names) -> list[str]:
    """The dims of a scope that are not made of others."""
    return [k for k, e in names.entries.items() if e.kind == "dim" and dim(k) not in names.sizes.derived]


def key_of(file: File, model: str, name: str) -> str:
    """The name of a dim in the whole file."""
    own = {d.name for g in file.models[model].members if isinstance(g, ast.Dims) for d in g.entries if isinstance(d, ast.Dim)}
    return f"{model}.{name}" if name in own else name


def opened_up(file: File, names: Iterable[str]) -> File:
    """The file with these dims left open. What the file gave a dim before an override stays known where it is another value."""
    spec = file.spec
    for name in names: spec = freed(spec, name)
    found = open_file(spec)
    kept = {s: v for s, v in file.written.items() if file.names.sizes.bound.get(s, v) != v}
    sizes = replace(found.names.sizes, written=kept)
    return replace(found, written=kept, names=replace(found.names, sizes=sizes))


def moving(file: File, models: Iterable[str]) -> tuple[dict[str, Program], dict[str, str]]:
    """The models with every dim left open that can be, and the dims that cannot, with the reason: a width that is also written as a
    number elsewhere, say."""
    models, fixed = list(models), dict[str, str]()
    wanted = list(dict.fromkeys(d for m in models for d in plain(file.names_of(m))))
    def opened(names: list[str]) -> dict[str, Program]:
        whole = opened_up(file, names)
        return {m: expand(whole, m, loss=True) for m in models}
    try: return opened(wanted), fixed
    except PlaitError: pass
    kept: list[str] = []
    for d in wanted:
        try: opened([*kept, d])
        except PlaitError as why: fixed[d] = why.diagnostics[0].message
        else: kept.append(d)
    return opened(kept), fixed


def sliders(file: File, programs: Mapping[str, Program], fixed: Mapping[str, str]) -> list[Slider]:
    """Every dim of the models, and the batch at the end."""
    found: dict[str, Slider] = {}
    for model in programs:
        names = file.names_of(model)
        for name in plain(names):
            key, value, most = key_of(file, model, name), names.sizes.integer(dim(name)), _most(file, name)
            start = value if value is not None else most or FREE[0]
            found.setdefault(key, Slider(key, name, start, value is None, most, fixed.get(name, "")))
    return [*_settled(file, programs, list(found.values())), Slider("b", "b", 1)]


def _most(file: File, name: str) -> int | None:
    """`n <= 512` among the dims."""
    groups = [i for i in file.spec.items if isinstance(i, ast.Dims)]
    for d in (d for g in groups for d in g.entries if isinstance(d, ast.Dim)):
        if d.name == name and d.relation == "<=" and d.value is not None: return file.names.sizes.integer(file.names.number(d.value))
    return None


def _settled(file: File, programs: Mapping[str, Program], found: list[Slider]) -> list[Slider]:
    """Dims without a value get one that the models allow, each in its turn, where there is one."""
    for k, s in enumerate(found):
        for value in (s.value, *FREE) if s.free and (s.most is None or s.value == s.most) else ():
            tried = [*found[:k], replace(s, value=value), *found[k + 1:]]
            if (s.most is None or value <= s.most) and not any(broken(p, values(file, m, tried)) for m, p in programs.items()):
                found = tried
                break
    return found


def values(file: File, model: str, found: Iterable[Slider]) -> dict[sp.Symbol, int]:
    """The values of a model's dims where the sliders stand, derived ones too."""
    by_key = {s.key: s.value for s in found}
    names = file.names_of(model)
    bound = {name: by_key[key_of(file, model, name)] for name in plain(names)}
    return dict(replace(names.sizes, bound={}).bind(**bound, b=by_key.get("b", 1)).bound)


# ---- what they must meet -----------------------------------------------------------------------------------------------------------
def rules(program: Program) -> Iterator[tuple[sp.Basic, str]]:
    """What must hold of the dims of an opened model, with the words to say where it does not. What holds by its form is left out."""
    sizes = program.sizes
    for s, e in sizes.derived.items():
        if not _sized(e, program): yield whole(e), f"{s.name} = {pretty(e)} is not a whole number of 1 or more"
    for c, written in sizes.required: yield c, f"the spec requires {written}"
    for c, words in program.demands.items():
        if c.free_symbols and not (isinstance(c, sp.Le) and c.args[0] == c.args[1]): yield c, words
    indices = {n.op.index for g in _graphs(program) for n in g.walk() if isinstance(n.op, Loop)}
    found = (sp.sympify(a.size) for g in _graphs(program) for n in g.walk() for v in (*n.ins, *n.outs) for a in v.axes)
    for e in dict.fromkeys(found):
        if not _sized(e, program) and not e.free_symbols & indices: yield whole(e), f"{pretty(e)} is not a whole number of 1 or more"


def whole(e: sp.Expr) -> sp.Basic:
    return sp.And(sp.Eq(sp.Mod(e, 1, evaluate=False), 0, evaluate=False), sp.Ge(e, 1, evaluate=False), evaluate=False)


def _graphs(program: Program) -> list[Graph]:
    return [program.graph] + ([program.loss] if program.loss is not None else [])


def _sized(e: sp.Expr, program: Program) -> bool:
    """Is it a size by its form, or by what is required anyway?"""
    mods = {c.args[0] for c in program.demands if isinstance(c, sp.Eq)}
    def one(term: sp.Expr) -> bool:
        over, under = sp.fraction(term)
        promised = program.sizes.whole(over, under) or sp.Mod(over, under, evaluate=False) in mods
        return bool(term.is_positive) and (bool(term.is_integer) or promised)
    return all(map(one, sp.Add.make_args(e)))


def broken(program: Program, at: Mapping[sp.Symbol, int]) -> str | None:
    """The first rule that these values break."""
    for c, words in rules(program):
        try:
            if not holds(c, at): return words
        except (ArithmeticError, Free): return words
    return None


# ---- the rows --------------------------------------------------------------------------------------------------------------------
def cell(r: Row, name: str, code: Code, known: set[str]) -> dict[str, Any] | None:
    """One cost of one row. text: as a table shows it; full: in full; e: the number of its function; value: the number at first, where
    there is no function; None where at first there is none."""
    found = CELLS[name](r)
    out: dict[str, Any] = {"text": found.texts()[0]}
    first = None if found.value is None else str(number(found.value))
    if name == "path":
        return {**out, **_path(r, code, known), "value": first} if isinstance(r.path, PathCell) and r.path.written else None
    if found.exact is None: return None
    if found.growth: return out
    if {s.name for s in found.exact.free_symbols} - known or (at := code.of(found.exact)) is None:
        return out if first is None else {**out, "value": first}
    if out["text"].startswith("O("): out["full"] = pretty(found.exact)
    return {**out, "e": at}


def _path(r: Row, code: Code, known: set[str]) -> dict[str, Any]:
    """The longest of some closed forms, each with what it needs; nothing where one of them has none."""
    if not isinstance(r.path, PathCell): return {}
    read = [r.path.stacked] if r.path.stacked is not None else list(r.path.written.values())
    forms = []
    for p in read:
        if p.exact is None or {s.name for s in p.exact.free_symbols} - known: return {}
        needs = [e for e in p.needs if {s.name for s in e.free_symbols} <= known]              # a trip's index has no value of its own
        numbers = [code.of(e) for e in (p.exact, *needs)]
        if None in numbers: return {}
        forms.append({"e": numbers[0], "needs": numbers[1:]})
    return {"forms": forms}


def row(r: Row, table: Table, code: Code) -> dict[str, Any]:
    """A row as the page has it. Operations have the ledgers of work alone."""
    names = [c for c in CELLS if r.kind != "op" or c in ADDED[:len(LEDGERS)]]
    known = {s.name for s in (*r.sizes.derived, *r.sizes.bound)} | {k for k in table.dims} | {"b"} | _names(r)
    cells = {c: found for c in names if (found := cell(r, c, code, known)) is not None}
    return {"model": r.model, "at": r.at, "kind": r.kind, "label": table._label(r).strip(), "cells": cells,
            **({"note": said} if r.kind != "op" and (said := note(r)) else {})}


def _names(r: Row) -> set[str]:
    return {s.name for i in r.program.inputs for a in i.value.axes for s in sp.sympify(a.size).free_symbols}


def model(name: str, file: File, program: Program, code: Code) -> dict[str, Any]:
    """A model: its dims by the sliders they follow, those that follow from others, and what must hold."""
    names = file.names_of(name)
    derived = [{"name": s.name, "e": code.of(e), "text": pretty(e)} for s, e in _ordered(names.sizes.derived)]
    return {"name": name, "dims": {d: key_of(file, name, d) for d in plain(names)}, "derived": derived,
            "rules": [{"e": code.condition(c), "words": words} for c, words in dict(rules(program)).items()],
            "steps": _steps(program, code), "along": _along(program)}


def _ordered(derived: Mapping[sp.Symbol, sp.Expr]) -> list[tuple[sp.Symbol, sp.Expr]]:
    """Each behind those that it is made of."""
    left, out = dict(derived), list[tuple[sp.Symbol, sp.Expr]]()
    while left:
        ready = [s for s, e in left.items() if not e.free_symbols & (left.keys() - {s})]
        out += [(s, left.pop(s)) for s in ready]
    return out


def _steps(program: Program, code: Code) -> dict[str, list[int]]:
    """Of what allowed values of a dim must be multiples: for whoever looks for the next."""
    out: dict[str, list[int]] = {}
    conditions = [*program.demands, *(c for c, _ in program.sizes.required)]
    for c in conditions:
        mod = c.args[0] if isinstance(c, sp.Eq) and c.args[1] == 0 else None
        if not isinstance(mod, sp.Mod) or not isinstance(mod.args[0], sp.Symbol) or mod.args[0] in mod.args[1].free_symbols: continue
        at = code.of(mod.args[1])
        if at is not None: out.setdefault(mod.args[0].name, []).append(at)
    return out


def _along(program: Program) -> str:
    """The dim of the first sequence: what costs are drawn against at first."""
    lengths = [a.size for i in program.inputs for a in i.value.axes if a.role == "sequence"]
    found = [s.name for e in lengths for s in sorted(program.sizes.resolve(e).free_symbols, key=str)]
    return found[0] if found else ""


def content(table: Table, file: File, code: Code) -> dict[str, Any]:
    """All that the page needs of a spec."""
    names = list(dict.fromkeys(r.model for r in table.rows))
    programs, fixed = moving(file, names)
    columns = [{"name": c, "title": TITLES.get(c, c).split(" (")[0].replace("_", " "), "meaning": MEANINGS.get(c, ""), "shown": c in SHOWN,
                "added": c in ADDED} for c in CELLS]
    return {"sliders": [s.json() for s in sliders(file, programs, fixed)], "columns": columns,
            "models": [model(m, file, programs[m], code) for m in names], "rows": [row(r, table, code) for r in table.rows]}
