"""Questions to the derived costs: where do two of them cross, how far does a limit reach?

The answer is symbolic where both sides are quotients of polynomials in the unknown; else every value is tried, in order, up to a
bound that is told. Only values count at which every `require` holds and every size is whole."""
from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import sympy as sp

from plait.compiler.arrays import truths, values
from plait.compiler.axis import BATCH_SIZE
from plait.compiler.expand import expand
from plait.compiler.file import File, open_file
from plait.compiler.names import ARITHMETIC, Names, text
from plait.compiler.program import Program
from plait.compiler.quantities import ALSO, QUANTITIES
from plait.compiler.resolve import RELATIONS, SYMPY
from plait.compiler.sizes import CeilLog2, Latest, dim, holds
from plait.compiler.step import Step
from plait.compiler.table import Row
from plait.dsl import spec as ast
from plait.dsl.errors import Span, error
from plait.dsl.suggest import ALIASES, suggest

MOST_TRIED = 2**17                                            # values that are tried one by one
UNSMOOTH = (sp.ceiling, sp.floor, sp.Max, sp.Min, sp.Mod, sp.Sum, sp.Piecewise, sp.log, CeilLog2, Latest)


@dataclass(frozen=True)
class Root:
    """A value of the unknown at which both sides are equal: in the dims, and as a number where they are bound."""
    exact: sp.Expr
    value: float | None


@dataclass(frozen=True)
class Solution:
    """sides: both sides of each relation, in the dims. roots: None where there is no closed form. holds: the ranges of allowed
    values, first and last, at which the condition holds; a last of None: for ever; None: it hangs on other free dims. step: allowed
    values are multiples of it. tried: the greatest value that was tried, None where nothing had to be tried."""
    condition: str
    unknown: str
    sides: tuple[tuple[sp.Expr, str, sp.Expr], ...]
    roots: tuple[Root, ...] | None
    holds: tuple[tuple[int, int | None], ...] | None
    step: int
    tried: int | None

    @property
    def first(self) -> int | None:
        return self.holds[0][0] if self.holds else None

    @property
    def last(self) -> int | None:
        return self.holds[-1][1] if self.holds else None


def solve(spec: ast.Spec, condition: ast.Expr, unknown: str, batch: int = 1) -> Solution:
    """The values of a dim (or of the batch, `b`) for which a condition on costs holds.

    condition: relations of costs as in `require`: `work(lsh) < work(full)`, `peak(m) <= 16GiB`. spec: with its overrides and uses
    in place. Raises PlaitError for names that are not there, other free dims, and conditions that are none."""
    file = open_file(freed(spec, unknown))
    asked = Asked(file, unknown, batch)
    joined, relations = asked.condition(condition)
    left_over = sorted({s.name for a, _, b in relations for s in (a - b).free_symbols} - {unknown} - {s.name for s in asked.known})
    roots = _roots(relations[0][0] - relations[0][2], asked) if len(relations) == 1 else None
    if left_over and roots is not None: return Solution(text(condition), unknown, relations, roots, None, 1, None)
    if left_over: raise error("E0638", f"`{left_over[0]}` has no value", condition.span, help=f"--set {left_over[0]}=…")
    search = Search(asked, joined, relations)
    if roots is not None: found, tried = search.between([r.value for r in roots if r.value is not None]), None
    else: found, tried = search.one_by_one()
    return Solution(text(condition), unknown, relations, roots, found, search.step, tried)


def freed(spec: ast.Spec, name: str) -> ast.Spec:
    """The spec with a dim left open."""
    if name == str(BATCH_SIZE): return spec

    def opened(item):
        if isinstance(item, ast.Dims): return replace(item, entries=tuple(map(opened, item.entries)))
        if isinstance(item, ast.Dim) and item.name == name and item.relation != "<=": return replace(item, value=None, relation=None)
        if isinstance(item, ast.Model): return replace(item, members=tuple(map(opened, item.members)))
        return item
    return replace(spec, items=tuple(map(opened, spec.items)))


class Asked:
    """The costs that a condition names, in the dims that are not derived, and what is known of them."""

    def __init__(self, file: File, unknown: str, batch: int):
        self.file, self.unknown, self.names = file, dim(unknown), file.names
        self.programs: dict[str, Program] = {}
        if unknown != str(BATCH_SIZE) and not any(dim(unknown) == dim(k) and e.kind == "dim" for k, e in self._scope().items()):
            near = suggest(unknown, self._scope(), ALIASES)
            raise error("E0401", f"`{unknown}` is no dim of this file", help=f"`{near[0] if near else next(iter(self._scope()), 'n')}`?")
        self.known: dict[sp.Symbol, int] = {BATCH_SIZE: batch, **file.names.sizes.bound}
        if unknown == str(BATCH_SIZE): self.known.pop(BATCH_SIZE)

    def _scope(self) -> dict:
        return {k: e for m in self.file.models for k, e in self.file.names_of(m).entries.items()} | dict(self.names.entries)

    def condition(self, e: ast.Expr) -> tuple[sp.Basic, tuple[tuple[sp.Expr, str, sp.Expr], ...]]:
        """The condition as sympy has it, and its relations."""
        match e:
            case ast.Binary("and" | "or" as op, left, right):
                (p, some), (q, more) = self.condition(left), self.condition(right)
                return (sp.And if op == "and" else sp.Or)(p, q, evaluate=False), some + more
            case ast.Binary(op, left, right) if op in RELATIONS:
                x, y = self.number(left), self.number(right)
                return SYMPY[op](x, y, evaluate=False), ((x, op, y),)
        raise error("E0501", f"a condition belongs here, not {text(e)}", e.span, help="work(a) < work(b)")

    def number(self, e: ast.Expr) -> sp.Expr:
        match e:
            case ast.Bytes(value): return sp.Integer(value)
            case ast.Call(name, arguments) if name in QUANTITIES: return self.cost(name, arguments, e)
            case ast.Call(name) if name not in ("min", "max", "sqrt", "log", "log2", "exp", "cos", "ceil", "floor"):
                near = suggest(name, QUANTITIES, {**ALSO, **ALIASES})
                raise error("E0403", f"there is no cost `{name}`", e.name_span or e.span,
                            help=f"`{near[0]}`?" if near else f"costs: {', '.join(QUANTITIES)}")
            case ast.Unary(_, operand): return -self.number(operand)
            case ast.Binary(op, left, right) if op in ARITHMETIC: return ARITHMETIC[op](self.number(left), self.number(right))
            case ast.Name(name) if dim(name) == self.unknown: return self.unknown
            case ast.Name(name) if name in self.file.models and name not in self.names.entries:
                raise error("E0501", f"`{name}` is a model: which of its costs?", e.span, help=f"work({name})")
        return self.names.sizes.resolve(self.names.number(e))

    def cost(self, name: str, arguments: tuple[ast.Argument, ...], e: ast.Call) -> sp.Expr:
        """`work(model)`."""
        models = self.file.models
        given = [a.value for a in arguments]
        if len(given) > 1 or given and not isinstance(given[0], ast.Name):
            raise error("E0505", f"{name} takes the name of a model", e.span, help=f"{name}({next(iter(models), '')})")
        model = given[0].name if given and isinstance(given[0], ast.Name) else next(iter(models)) if len(models) == 1 else ""
        if model not in models:
            near = suggest(model, models, {})
            raise error("E0402", f"there is no model `{model}`" if model else f"{name} of which model?", given[0].span if given else e.span,
                        help=f"`{near[0]}`?" if near else f"models: {', '.join(models)}")
        return self.of(name, model, e.span)

    def of(self, name: str, model: str, span: Span | None = None) -> sp.Expr:
        """A cost of a model, in the dims that are not derived. Raises PlaitError where it has no expression."""
        if model not in self.programs: self.programs[model] = expand(self.file, model)
        program = self.programs[model]
        found = QUANTITIES[name](Row(program, model, "model", model, Step(lambda: expand(self.file, model, loss=True))))
        if found is None: raise error("E0501", f"{name}({model}) has no expression: it depends on the data, or is not derived", span)
        own = {s: v for s, v in program.sizes.bound.items() if self.names.sizes.bound.get(s) != v}
        return sp.sympify(program.sizes.resolve(found)).xreplace(own)


def _roots(difference: sp.Expr, asked: Asked) -> tuple[Root, ...] | None:
    """The positive values of the unknown at which a difference vanishes; None where it is no quotient of polynomials in it."""
    x = asked.unknown
    if difference.has(*UNSMOOTH): return None
    numerator = sp.fraction(sp.together(difference))[0]
    try: poly = sp.Poly(numerator, x)
    except sp.PolynomialError: return None
    if poly.is_zero: return ()
    low = min(m[0] for m in poly.monoms())
    poly = sp.Poly(sp.cancel(poly.as_expr() / x**low), x)     # 0 is no size
    if poly.degree() == 0: return ()
    if poly.degree() <= 2: exact: Iterable[sp.Expr] = sp.roots(poly, x)
    else:
        filled = sp.Poly(poly.as_expr().xreplace({s: sp.Integer(v) for s, v in asked.known.items()}), x)
        if filled.free_symbols_in_domain: return None
        exact = set(filled.real_roots())
    found = []
    for root in exact:
        value = sp.N(root.xreplace({s: sp.Integer(v) for s, v in asked.known.items()}), 30)
        if value.is_real is False or value.is_positive is False: continue
        found.append(Root(sp.factor(root), float(value) if value.is_number else None))
    return tuple(sorted(found, key=lambda r: (r.value or 0.0, str(r.exact))))


class Search:
    """The allowed values of the unknown, and where the condition holds among them."""

    def __init__(self, asked: Asked, condition: sp.Basic, relations: tuple):
        self.x, self.known, self.condition, self.relations = asked.unknown, asked.known, condition, relations
        names = [asked.file.names_of(m) for m in asked.programs] or [asked.names]
        self.rules = [rule for n in names for rule in self._rules(n)]
        self.rules += [p.sizes.resolve(c) for p in asked.programs.values() for c in p.demands]
        self.rules = [r for r in dict.fromkeys(self.rules) if self.x in r.free_symbols]
        self.step = math.lcm(1, *(m for n in names for m in self._moduli(n)))
        self.most = min((v for v in (self._bound(asked.file),) if v), default=None)

    def _moduli(self, names: Names) -> Iterable[int]:
        for a, c in names.sizes.divides:
            m = names.sizes.integer(c)
            if names.sizes.resolve(a) == self.x and m: yield m
        for rule in self.rules:
            mod = rule.args[0] if isinstance(rule, sp.Eq) and rule.args[1] == 0 else None
            if isinstance(mod, sp.Mod) and mod.args[0] == self.x:
                m = mod.args[1].xreplace({s: sp.Integer(v) for s, v in self.known.items()})
                if m.is_Integer and m > 0: yield int(m)

    def _rules(self, names: Names) -> Iterable[sp.Basic]:
        """What must hold of an allowed value: requirements, and whole derived sizes of 1 or more."""
        yield from (names.sizes.resolve(c) for c, _ in names.sizes.required)
        for e in names.sizes.derived.values():
            e = names.sizes.resolve(e)
            if self.x in e.free_symbols: yield sp.And(sp.Eq(sp.Mod(e, 1), 0), sp.Ge(e, 1))

    def _bound(self, file: File) -> int | None:
        """`n <= 64Ki` among the dims."""
        for item in file.spec.items:
            for d in item.entries if isinstance(item, ast.Dims) else ():
                if isinstance(d, ast.Dim) and dim(d.name) == self.x and d.relation == "<=" and d.value is not None:
                    return file.names.sizes.integer(file.names.number(d.value))
        return None

    def allowed(self, n: int) -> bool:
        return all(holds(rule, {**self.known, self.x: n}) for rule in self.rules)

    def true(self, n: int) -> bool:
        """Does the condition hold at n? Where a side has no value there (a window of 1 never reaches), it does not."""
        try: return holds(self.condition, {**self.known, self.x: n})
        except ArithmeticError: return False

    def next(self, n: float, up: bool = True) -> int | None:
        """The allowed value nearest to n, not below it (up) or not above it."""
        k = (math.ceil(n / self.step) if up else math.floor(n / self.step)) * self.step
        for _ in range(MOST_TRIED):
            if k < 1 and not up or self.most is not None and k > self.most and up: return None
            if k >= 1 and self.allowed(k): return k
            k += self.step if up else -self.step
        return None

    def turn(self, low: int, high: int) -> int:
        """The first allowed value in (low, high] at which the condition is other than at low; it is at high."""
        before = self.true(low)
        while (middle := self.next((low + high) // 2 + 1)) is not None and middle < high:
            if self.true(middle) == before: low = middle
            else: high = middle
        for n in range(low + 1, high):
            if self.allowed(n) and self.true(n) != before: return n
        return high

    def between(self, roots: list[float]) -> tuple[tuple[int, int | None], ...]:
        """Between two roots nothing changes: one value of each range answers for all; the roots themselves apart."""
        ends = [0.0, *roots, math.inf]
        ranges: list[tuple[int, int | None]] = []
        for low, high in zip(ends, ends[1:]):
            at = round(low)
            if low and at == round(low, 9) and self.allowed(at) and self.true(at): ranges.append((at, at))
            first = self.next(math.floor(low + 1e-9) + 1)
            last = self.next(math.ceil(high - 1e-9) - 1, up=False) if high < math.inf else None
            if high == math.inf and self.most is not None: last = self.next(self.most, up=False)
            if first is None or last is not None and last < first or not self.true(first): continue
            ranges.append((first, last))
        return _merged(ranges, lambda n: self.next(n + 1))

    def one_by_one(self) -> tuple[tuple[tuple[int, int | None], ...], int]:
        """Every allowed value in order, in float64; ends of ranges are settled exactly."""
        top = MOST_TRIED * self.step if self.most is None else min(self.most, MOST_TRIED * self.step)
        with np.errstate(all="ignore"): return self._tried(top)

    def _tried(self, top: int) -> tuple[tuple[tuple[int, int | None], ...], int]:
        n = np.arange(self.step, top + 1, self.step, dtype=np.float64)
        at: dict[sp.Symbol, np.ndarray | float] = {**{s: float(v) for s, v in self.known.items()}, self.x: n}
        for rule in self.rules:
            keep = np.broadcast_to(truths(rule, at), n.shape)
            n, at = n[keep], {**at, self.x: n[keep]}
        true = np.broadcast_to(truths(self.condition, at), n.shape).copy()
        turns = {int(j) for k in np.flatnonzero(np.diff(true)) for j in (k, k + 1)}
        for k in turns | self._near(at, len(n)): true[k] = self.true(int(n[k]))
        edges = np.flatnonzero(np.diff(np.concatenate([[False], true, [False]])))
        ranges = [(int(n[a]), int(n[b - 1]) if b < len(n) or self.most is not None and top == self.most else None)
                  for a, b in zip(edges[::2], edges[1::2])]
        return tuple(ranges), int(top)

    def _near(self, at: Mapping, count: int) -> set[int]:
        """Places where two sides nearly agree: floats may miss an equality."""
        out: set[int] = set()
        for x, _, y in self.relations:
            p, q = (np.broadcast_to(values(sp.sympify(e), at), (count,)) for e in (x, y))
            out |= set(np.flatnonzero(np.abs(p - q) <= 1e-12 * np.maximum(np.abs(p), np.abs(q))).tolist()[:10_000])
        return out


def _merged(ranges: list[tuple[int, int | None]], following) -> tuple[tuple[int, int | None], ...]:
    """Ranges that touch are one."""
    out: list[tuple[int, int | None]] = []
    for first, last in ranges:
        if out and out[-1][1] is not None and following(out[-1][1]) == first: out[-1] = (out[-1][0], last)
        else: out.append((first, last))
    return tuple(out)

