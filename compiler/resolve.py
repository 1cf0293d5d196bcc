"""Dims, lets and requirements of a file or a model → Names."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import sympy as sp

from plait.compiler.names import RESERVED, Entry, Names, text
from plait.compiler.sizes import Free, Sizes, dim, evaluate
from plait.dsl import spec as ast
from plait.dsl.errors import LIMIT, Diagnostic, Note, PlaitError, Span, error


def resolve(groups, written: Mapping[sp.Symbol, int] | None = None, outer: Names | None = None) -> Names:
    """Dims and lets of a file, or of a model inside `outer`, as Names. `groups` are Dims and Let nodes in order; later
    bindings of a name in the same place are an error, of an outer name they win. Raises PlaitError with all that is wrong."""
    found: list[Diagnostic] = []
    entries = dict(outer.entries) if outer else {}
    declared: dict[str, ast.Dim | ast.Let] = {}
    requires: list[ast.Require] = []
    for g in groups:
        for item in (g.entries if isinstance(g, ast.Dims) else (g,)):
            if isinstance(item, ast.Require): requires.append(item); continue
            if item.name in declared:
                first = Note(declared[item.name].span, "first here")
                found += error("E0406", f"`{item.name}` is bound twice", item.span, first).diagnostics
            elif item.name in RESERVED:
                taken = f"`{item.name}` is {RESERVED[item.name]}: it cannot be bound"
                found += error("E0406", taken, item.span, help="choose another name").diagnostics
            else: declared[item.name] = item
    for name, item in declared.items(): entries[name] = Entry("dim" if isinstance(item, ast.Dim) else "let", dim(name), place(item))
    base = outer.sizes if outer else Sizes()
    hidden = {dim(n) for n in declared}
    sizes = Sizes({k: v for k, v in base.bound.items() if k not in hidden}, {k: v for k, v in base.derived.items() if k not in hidden},
                  base.divides, written or base.written, base.required)
    names = Names(entries, sizes, outer.shares if outer else {}, outer.blocks if outer else {})
    names, wrong = _bind(names, declared)
    names, broken = _promise(names, requires) if not (found or wrong) else (names, [])
    found += [*wrong, *broken]
    if found: raise PlaitError(*found[:LIMIT])
    return names


def place(item: ast.Dim | ast.Let) -> Span:
    """Where a name got its value: in the file, or in an override."""
    value = item.value
    return value.span if value is not None and value.span.source is not item.span.source else item.span


def _bind(names: Names, declared: Mapping[str, ast.Dim | ast.Let]) -> tuple[Names, list[Diagnostic]]:
    """Evaluate what was declared, in order of dependence."""
    bound, derived, entries = dict(names.sizes.bound), dict(names.sizes.derived), dict(names.entries)
    found: list[Diagnostic] = []
    waiting = {n: item.value for n, item in declared.items()
               if item.value is not None and not (isinstance(item, ast.Dim) and item.relation == "<=")}
    while waiting:
        ready = [n for n, given in waiting.items() if not (mentioned(given) & waiting.keys())]
        if not ready:
            first = declared[next(iter(waiting))]
            knot = [n for n in waiting if mentioned(waiting[n]) & waiting.keys()]
            notes = [Note(declared[n].span, "and here") for n in knot[1:4]]
            return names, [*found, *error("E0404", "these dims define each other: " + ", ".join(f"`{n}`" for n in knot), first.span, *notes,
                                          help=f"give one of them a number: {knot[0]} = 64").diagnostics]
        for n in ready:
            item, given = declared[n], waiting.pop(n)
            here = replace(names, sizes=replace(names.sizes, bound=bound, derived=derived), entries=entries)
            try: e = here.size(given) if isinstance(item, ast.Dim) else here.number(given)
            except PlaitError as wrong: found += wrong.diagnostics; continue                      # what uses it is not wrong for that
            if isinstance(item, ast.Let): entries[n] = Entry("let", e, place(item)); continue
            value = here.sizes.integer(e)
            if value is not None: bound[dim(n)] = value
            if e.free_symbols: derived[dim(n)] = e
    return replace(names, sizes=replace(names.sizes, bound=bound, derived=derived), entries=entries), found


def _promise(names: Names, requires) -> tuple[Names, list[Diagnostic]]:
    """Check what is required as far as it is known, and keep what it promises about divisibility."""
    divides, required = list(names.sizes.divides), list(names.sizes.required)
    found: list[Diagnostic] = []
    for r in requires:
        c = r.condition
        try:
            for a, m in divisions(names, c): divides.append((a, m))
            required.append((statement(names, c), text(c)))
            verdict = truth(names, c)
        except PlaitError as wrong: found += wrong.diagnostics; continue
        if verdict is False:
            sides = (names.number(c.left), names.number(c.right)) if isinstance(c, ast.Binary) and c.op in RELATIONS else ()
            known = [names.sizes.value(s) for s in sides]
            shown = "" if None in known else " against ".join(map(str, known))
            found += error("E0304", f"required: {text(c)}", r.span, *names.notes(*sides),
                           numbers=f"{text(c)}: {shown}" if shown else "").diagnostics
    return replace(names, sizes=replace(names.sizes, divides=tuple(divides), required=tuple(required))), found


SYMPY: dict[str, type[sp.Basic]] = {"==": sp.Eq, "!=": sp.Ne, "<": sp.Lt, "<=": sp.Le, ">": sp.Gt, ">=": sp.Ge}


def statement(names: Names, c: ast.Expr) -> sp.Basic:
    """A condition as sympy has it, in the dims."""
    match c:
        case ast.Binary("and", left, right): return sp.And(statement(names, left), statement(names, right), evaluate=False)
        case ast.Binary("or", left, right): return sp.Or(statement(names, left), statement(names, right), evaluate=False)
        case ast.Binary(op, left, right) if op in SYMPY: return SYMPY[op](names.number(left), names.number(right), evaluate=False)
    raise error("E0501", f"a condition belongs here, not {text(c)}", c.span, help="require n % c == 0")


RELATIONS = {"==": lambda x, y: x == y, "!=": lambda x, y: x != y, "<": lambda x, y: x < y, "<=": lambda x, y: x <= y,
             ">": lambda x, y: x > y, ">=": lambda x, y: x >= y}


def truth(names: Names, c: ast.Expr) -> bool | None:
    """Whether a condition holds; None while a dim in it is free."""
    match c:
        case ast.Binary("and", left, right):
            x, y = truth(names, left), truth(names, right)
            return False if False in (x, y) else None if None in (x, y) else True
        case ast.Binary("or", left, right):
            x, y = truth(names, left), truth(names, right)
            return True if True in (x, y) else None if None in (x, y) else False
        case ast.Binary(op, left, right) if op in RELATIONS:
            x, y = names.number(left), names.number(right)
            try: return RELATIONS[op](evaluate(x, names.sizes.bound), evaluate(y, names.sizes.bound))
            except Free: return _decided(op, sp.expand(names.sizes.resolve(x) - names.sizes.resolve(y)))
    raise error("E0501", f"a condition belongs here, not {text(c)}", c.span, help="require n % c == 0")


def _decided(op: str, difference: sp.Expr) -> bool | None:
    """What holds whatever the free dims are: `n < n`, `n <= 0` (dims are positive)."""
    if difference.is_zero: return RELATIONS[op](0, 0)
    if difference.is_positive: return RELATIONS[op](1, 0)
    return RELATIONS[op](-1, 0) if difference.is_negative else None


def divisions(names: Names, c: ast.Expr) -> list[tuple[sp.Expr, sp.Expr]]:
    """The pairs (a, m) for which the condition says a % m == 0."""
    match c:
        case ast.Binary("and", left, right): return divisions(names, left) + divisions(names, right)
        case ast.Binary("==", ast.Binary("%", a, m), ast.Number(0)): return [(names.number(a), names.number(m))]
    return []


def mentioned(e) -> set[str]:
    """The names that occur in an expression."""
    match e:
        case ast.Name(name): return {name}
        case ast.Unary(_, x): return mentioned(x)
        case ast.Binary(_, x, y): return mentioned(x) | mentioned(y)
        case ast.Call(_, arguments): return set().union(*(mentioned(a.value) for a in arguments)) if arguments else set()
        case ast.Quantity(x): return mentioned(x)
        case ast.Tuple(items) | ast.List(items): return set().union(*map(mentioned, items)) if items else set()
    return set()
