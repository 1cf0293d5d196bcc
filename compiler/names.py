"""What the names of a file mean: dims and their derivations, lets, shares, blocks; and expressions evaluated against them."""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import islice, product

import sympy as sp

from plait.compiler.layer import Table
from plait.compiler.sizes import Free, Sizes, evaluate
from plait.dsl import spec as ast
from plait.dsl.errors import Note, Span, error
from plait.dsl.suggest import ALIASES, suggest

LARGEST = 10**60
RESERVED = {"b": "the batch", "pi": "3.14159…"}
MOST_TRIPS = 256                                              # of an index that are looked at one by one


@dataclass(frozen=True)
class Entry:
    """A name bound to a size or a number. `value` is its expression: a symbol for dims and indices, the number of a let."""
    kind: str                                                 # dim, let, index
    value: sp.Expr
    span: Span
    trips: sp.Expr | None = None                              # of an index: it runs from 0 to trips − 1


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
        right = f"share {name} = embedding(V, d)"
        if call.name != "embedding": raise error("E0506", f"a share is an embedding here, not {call.name}", call.span, help=right)
        positional = [a.value for a in call.arguments if a.name is None]
        if len(positional) != 2 or len(call.arguments) != 2:
            raise error("E0506", "embedding takes two sizes: how many symbols, and how wide", call.span, help=right)
        return Table(name, *(self.size(e) for e in positional))

    # -- expressions ---------------------------------------------------------------------------------------------------
    def size(self, e: ast.Expr) -> sp.Expr:
        """A size: a positive integer wherever its dims are known."""
        found = self.number(e)
        for at, where in self._trips(found):
            try: value = evaluate(found, at)
            except Free: continue
            if value == math.inf: continue                                        # a power of an index that nobody counts to
            if int(value) != value:
                raise error("E0302", "a size is a whole number", e.span, *self.notes(found), numbers=worked(e, f"{float(value):g}") + where,
                            help="choose dims that divide exactly, or ceil(…)")
            if value < 1: raise error("E0303", "a size is at least 1", e.span, *self.notes(found), numbers=worked(e, str(value)) + where)
        return found

    def _trips(self, e: sp.Expr) -> Iterator[tuple[Mapping[sp.Symbol, int], str]]:
        """The values of the dims; with an index in the expression, once for each of its first and for its last trip, and in words."""
        indices = [entry for entry in self.entries.values() if entry.kind == "index" and entry.value in e.free_symbols]
        ranges = [_looked_at(self.sizes.integer(entry.trips) or 1) for entry in indices]
        for values in islice(product(*ranges), MOST_TRIPS):
            said = ", ".join(f"{entry.value} = {v}" for entry, v in zip(indices, values))
            yield {**self.sizes.bound, **{entry.value: v for entry, v in zip(indices, values)}}, f" where {said}" if said else ""

    def number(self, e: ast.Expr) -> sp.Expr:
        """Any real number as an exact expression in the dims."""
        found = self._number(e)
        fine, where = not found.has(sp.zoo, sp.nan, sp.I, sp.oo, -sp.oo), ""
        for at, where in self._trips(found) if fine else ():
            try: value = evaluate(found, at)
            except Free: continue
            except (ArithmeticError, ValueError, TypeError): fine = False; break  # log of 0, a root of something negative
            if not where and not -LARGEST <= value <= LARGEST:
                raise error("E0303", "a number is at most 10^60 here", e.span, *self.notes(found))
        if not fine: raise error("E0303", f"{text(e)} is no number{where}", e.span, *self.notes(found))
        return found

    def _number(self, e: ast.Expr) -> sp.Expr:
        match e:
            case ast.Number(Fraction() as value): return sp.Rational(value.numerator, value.denominator)
            case ast.Number(value): return sp.Integer(value)
            case ast.Name("pi") if "pi" not in self.entries: return sp.pi
            case ast.Name(name): return self._name(name, e.span)
            case ast.Unary("-", operand): return -self.number(operand)
            case ast.Binary(op, left, right) if op in ARITHMETIC:
                x, y = self.number(left), self.number(right)
                if op in "/%" and self.sizes.value(y) == 0: raise error("E0303", "division by zero", e.span)
                if op == "^" and not -4096 <= (self.sizes.value(y) or 0) <= 4096:
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
            wanted = f"{count or 'one or more'} argument{'' if count == 1 else 's'}"
            raise error("E0505", f"{name} takes {wanted}, here {len(arguments)}", e.span)
        return fn(*(self.number(a.value) for a in arguments))

    def _name(self, name: str, span: Span) -> sp.Expr:
        if name in self.entries: return self.entries[name].value
        if name in ("true", "false"): raise error("E0501", f"a number belongs here, not `{name}`", span)
        near = suggest(name, self.entries, ALIASES)
        asked = " or ".join(f"`{n}`" + (f" ({v})" if (v := self.sizes.value(self.entries[n].value)) is not None else "") for n in near)
        shown = self.shown()
        raise error("E0401", f"`{name}` is not defined", span, numbers=f"in scope: {shown}" if shown else "",
                    help=f"{asked}?" if asked else "" if name in RESERVED else f"dims {{ {name} = … }} defines it")


ARITHMETIC: dict[str, Callable] = {"+": lambda x, y: x + y, "-": lambda x, y: x - y, "*": lambda x, y: x * y, "/": lambda x, y: x / y,
                                   "^": lambda x, y: x**y, "%": sp.Mod}
FUNCTIONS: dict[str, tuple[int, Callable]] = {
    "sqrt": (1, sp.sqrt), "exp": (1, sp.exp), "log": (1, sp.log), "log2": (1, lambda x: sp.log(x, 2)), "cos": (1, sp.cos),
    "min": (0, sp.Min), "max": (0, sp.Max), "ceil": (1, sp.ceiling), "floor": (1, sp.floor),
}


def _looked_at(trips: int) -> Sequence[int]:
    return range(trips) if trips < MOST_TRIPS else (*range(MOST_TRIPS - 1), trips - 1)


def worked(e: ast.Expr, value: str) -> str:
    """`d / 3 = 5.33`; nothing where the number stands there already."""
    return "" if isinstance(e, ast.Number) else f"{text(e)} = {value}"


def text(e: ast.Expr) -> str:
    """An expression as the user wrote it."""
    return " ".join(e.span.source.text[e.span.start:e.span.end].split())
