"""What the names of a file mean: dims and their derivations, lets, shares, blocks; and expressions evaluated against them."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

import sympy as sp

from plait.compiler.layer import Table
from plait.compiler.sizes import Free, Sizes, dim, evaluate
from plait.dsl import spec as ast
from plait.dsl.errors import LIMIT, Diagnostic, Note, PlaitError, Span, error
from plait.dsl.suggest import ALIASES, suggest

RESERVED = ("b",)                                             # the batch


@dataclass(frozen=True)
class Entry:
    """A name bound to a size or a number. `value` is its expression: a symbol for dims and indices, the number of a let."""
    kind: str                                                 # dim, let, index
    value: sp.Expr
    span: Span


@dataclass(frozen=True)
class Names:
    """Everything in scope at one place."""
    entries: Mapping[str, Entry]
    sizes: Sizes
    shares: Mapping[str, ast.Share] = field(default_factory=dict)
    blocks: Mapping[str, ast.Block] = field(default_factory=dict)

    def with_entry(self, name: str, entry: Entry) -> Names:
        return replace(self, entries={**self.entries, name: entry})

    def notes(self, *expressions) -> tuple[Note, ...]:
        """Where the dims of these expressions were bound, each once."""
        names = sorted({s.name for e in expressions for s in sp.sympify(e).free_symbols})
        return tuple(Note(self.entries[n].span) for n in names if n in self.entries)

    def shown(self, names=None) -> str:
        """`d = 512, n free`: the dims in scope."""
        def one(name, e):
            v = self.sizes.value(e.value)
            return f"{name} = {v:,}".replace(",", "") if isinstance(v, int) else f"{name} free" if v is None else f"{name} = {float(v):g}"
        return ", ".join(one(k, e) for k, e in self.entries.items() if names is None or k in names)

    def table(self, name: str) -> Table:
        """The table that `share name = embedding(V, d)` declares."""
        call = self.shares[name].value
        if call.name != "embedding": raise error("E0506", f"a share is an embedding here, not {call.name}", call.span, help=f"share {name} = embedding(V, d)")
        positional = [a.value for a in call.arguments if a.name is None]
        if len(positional) != 2 or len(call.arguments) != 2:
            raise error("E0506", "embedding takes two sizes: how many symbols, and how wide", call.span, help=f"share {name} = embedding(V, d)")
        return Table(name, *(self.size(e) for e in positional))

    # -- expressions ---------------------------------------------------------------------------------------------------
    def size(self, e: ast.Expr) -> sp.Expr:
        """A size: a positive integer wherever its dims are known."""
        found = self.number(e)
        value = self.sizes.value(found)
        if value is not None and int(value) != value:
            raise error("E0302", "a size is a whole number", e.span, *self.notes(found), numbers=f"{text(e)} = {float(value):g}",
                        help="choose dims that divide exactly, or ceil(…)")
        if value is not None and value < 1:
            raise error("E0303", "a size is at least 1", e.span, *self.notes(found), numbers=f"{text(e)} = {value}")
        return found

    def number(self, e: ast.Expr) -> sp.Expr:
        """Any real number as an exact expression in the dims."""
        match e:
            case ast.Number(value): return sp.Rational(value.numerator, value.denominator) if isinstance(value, Fraction) else sp.Integer(value)
            case ast.Name("pi") if "pi" not in self.entries: return sp.pi
            case ast.Name(name): return self._name(name, e.span)
            case ast.Unary("-", operand): return -self.number(operand)
            case ast.Binary(op, left, right) if op in ARITHMETIC:
                x, y = self.number(left), self.number(right)
                if op in "/%" and self.sizes.value(y) == 0: raise error("E0303", "division by zero", e.span)
                if op == "^" and max(abs(self.sizes.value(x) or 0), 2) > 1 and abs(self.sizes.value(y) or 0) > 4096:
                    raise error("E0303", "this power is too large for any size", e.span)
                return ARITHMETIC[op](x, y)
            case ast.Call(name, arguments): return self._call(name, arguments, e)
        raise error("E0501", f"a number belongs here, not {text(e)}", e.span)

    def _call(self, name: str, arguments, e: ast.Call) -> sp.Expr:
        if name not in FUNCTIONS:
            near = suggest(name, FUNCTIONS, ALIASES)
            raise error("E0403", f"there is no function `{name}` in sizes and numbers", e.name_span or e.span,
                        help=f"`{near[0]}`?" if near else f"there are {', '.join(FUNCTIONS)}")
        if any(a.name for a in arguments): raise error("E0505", f"{name} takes its arguments without names", e.span)
        count, fn = FUNCTIONS[name]
        if len(arguments) != count if count else not arguments:
            raise error("E0505", f"{name} takes {count or 'one or more'} argument{'' if count == 1 else 's'}, here {len(arguments)}", e.span)
        return fn(*(self.number(a.value) for a in arguments))

    def _name(self, name: str, span: Span) -> sp.Expr:
        if name in self.entries: return self.entries[name].value
        near = suggest(name, self.entries, ALIASES)
        asked = " or ".join(f"`{n}`" + (f" ({v})" if (v := self.sizes.value(self.entries[n].value)) is not None else "") for n in near)
        shown = self.shown()
        raise error("E0401", f"`{name}` is not defined", span, numbers=f"in scope: {shown}" if shown else "",
                    help=f"{asked}?" if asked else f"dims {{ {name} = … }} defines it")


ARITHMETIC: dict[str, Callable] = {"+": lambda x, y: x + y, "-": lambda x, y: x - y, "*": lambda x, y: x * y, "/": lambda x, y: x / y,
                                   "^": lambda x, y: x**y, "%": sp.Mod}
FUNCTIONS: dict[str, tuple[int, Callable]] = {
    "sqrt": (1, sp.sqrt), "exp": (1, sp.exp), "log": (1, sp.log), "log2": (1, lambda x: sp.log(x, 2)), "cos": (1, sp.cos),
    "min": (0, sp.Min), "max": (0, sp.Max), "ceil": (1, sp.ceiling), "floor": (1, sp.floor),
}


def text(e: ast.Expr) -> str:
    """An expression as the user wrote it."""
    return " ".join(e.span.source.text[e.span.start:e.span.end].split())


# ---- dims -----------------------------------------------------------------------------------------------------------------
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
                found += error("E0406", f"`{item.name}` is bound twice", item.span, Note(declared[item.name].span, "first here")).diagnostics
            elif item.name in RESERVED:
                found += error("E0406", "`b` is the batch: it cannot be bound", item.span, help="choose another name").diagnostics
            else: declared[item.name] = item
    for name, item in declared.items(): entries[name] = Entry("dim" if isinstance(item, ast.Dim) else "let", dim(name), item.span)
    base = outer.sizes if outer else Sizes()
    hidden = {dim(n) for n in declared}
    sizes = Sizes({k: v for k, v in base.bound.items() if k not in hidden}, {k: v for k, v in base.derived.items() if k not in hidden},
                  base.divides, written or base.written)
    names = Names(entries, sizes, outer.shares if outer else {}, outer.blocks if outer else {})
    names, wrong = _bind(names, declared)
    names, broken = _promise(names, requires) if not (found or wrong) else (names, [])
    found += [*wrong, *broken]
    if found: raise PlaitError(*found[:LIMIT])
    return names


def _bind(names: Names, declared) -> tuple[Names, list[Diagnostic]]:
    """Evaluate what was declared, in order of dependence."""
    bound, derived, entries = dict(names.sizes.bound), dict(names.sizes.derived), dict(names.entries)
    found: list[Diagnostic] = []
    waiting = {n: item for n, item in declared.items() if item.value is not None and not (isinstance(item, ast.Dim) and item.relation == "<=")}
    while waiting:
        ready = [n for n, item in waiting.items() if not (mentioned(item.value) & waiting.keys())]
        if not ready:
            first = waiting[next(iter(waiting))]
            knot = [n for n in waiting if mentioned(waiting[n].value) & waiting.keys()]
            notes = [Note(waiting[n].span, "and here") for n in knot[1:4]]
            return names, [*found, *error("E0404", "these dims define each other: " + ", ".join(f"`{n}`" for n in knot), first.span, *notes,
                                          help=f"give one of them a number: {knot[0]} = 64").diagnostics]
        for n in ready:
            item = waiting.pop(n)
            here = replace(names, sizes=replace(names.sizes, bound=bound, derived=derived), entries=entries)
            try: e = here.size(item.value) if isinstance(item, ast.Dim) else here.number(item.value)
            except PlaitError as wrong: found += wrong.diagnostics; entries.pop(n); continue
            if isinstance(item, ast.Let): entries[n] = Entry("let", e, item.span); continue
            value = here.sizes.integer(e)
            if value is not None: bound[dim(n)] = value
            if e.free_symbols: derived[dim(n)] = e
    return replace(names, sizes=replace(names.sizes, bound=bound, derived=derived), entries=entries), found


def _promise(names: Names, requires) -> tuple[Names, list[Diagnostic]]:
    """Check what is required as far as it is known, and keep what it promises about divisibility."""
    divides, found = list(names.sizes.divides), []
    for r in requires:
        c = r.condition
        try:
            for a, m in divisions(names, c): divides.append((a, m))
            verdict = truth(names, c)
        except PlaitError as wrong: found += wrong.diagnostics; continue
        if verdict is False:
            sides = (names.number(c.left), names.number(c.right)) if isinstance(c, ast.Binary) and c.op in RELATIONS else ()
            shown = " against ".join(str(names.sizes.value(s)) for s in sides)
            found += error("E0304", f"required: {text(c)}", r.span, *names.notes(*sides), numbers=f"{text(c)}: {shown}" if shown else "").diagnostics
    return replace(names, sizes=replace(names.sizes, divides=tuple(divides))), found


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
            try: return RELATIONS[op](*(evaluate(names.number(e), names.sizes.bound) for e in (left, right)))
            except Free: return None
    raise error("E0501", f"a condition belongs here, not {text(c)}", c.span, help="require n % c == 0")


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
