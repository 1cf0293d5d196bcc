"""What is known of the dims of a model: values, derivations, promises of divisibility; and exact evaluation of expressions."""
from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache

import sympy as sp

Numeric = int | float | Fraction


MOST_BITS = 10**5                                             # beyond this exponent a power is as good as infinite
MOST_TERMS = 10**6                                            # of a sum that is added up term by term


class Free(Exception):
    """An expression holds a dim without a value."""


def dim(name: str) -> sp.Symbol:
    return sp.Symbol(name, integer=True, positive=True)


def evaluate(e: sp.Expr, at: Mapping[sp.Symbol, Numeric]) -> Numeric:
    """The exact value of an expression: ints and Fractions where they last, floats for logarithms and roots.

    sympy's own `subs` takes milliseconds a call and its `Max` seconds at 20 terms; this is a walk.
    Raises Free for a symbol without a value."""
    if isinstance(e, sp.Symbol):
        if e not in at: raise Free(str(e))
        return at[e]
    if isinstance(e, sp.Integer): return int(e)
    if isinstance(e, sp.Rational): return Fraction(int(e.p), int(e.q))
    if isinstance(e, sp.Float): return float(e)
    if e is sp.oo: return math.inf
    if e is -sp.oo: return -math.inf
    if isinstance(e, sp.NumberSymbol): return float(e)
    if isinstance(e, CeilLog2): return _ceil_log(evaluate(e.args[0], at), 2)
    if isinstance(e, sp.ceiling | sp.floor):
        inner = e.args[0]
        base = log_base(inner)
        if base is not None and isinstance(e, sp.ceiling):
            return _ceil_log(evaluate(base[0], at), evaluate(base[1], at))
        x = evaluate(inner, at)
        return math.ceil(x) if isinstance(e, sp.ceiling) else math.floor(x)
    args = e.args
    if isinstance(e, sp.Add): return _whole(sum((evaluate(a, at) for a in args), 0))
    if isinstance(e, sp.Mul):
        out: Numeric = 1
        for a in args: out = out * evaluate(a, at)
        return _whole(out)
    if isinstance(e, sp.Pow):
        x, y = evaluate(args[0], at), evaluate(args[1], at)
        # nobody counts as far as a power of that many bits
        if isinstance(y, int) and not -MOST_BITS <= y <= MOST_BITS and not -1 <= x <= 1: return math.inf if y > 0 else 0
        if isinstance(x, int) and isinstance(y, int) and y > 0 and x.bit_length() * y > MOST_BITS: return math.inf if x > 0 else math.nan
        if isinstance(y, int): return _whole(Fraction(x) ** y if isinstance(x, int) else x ** y)
        root = math.isqrt(x) if isinstance(x, int) and x >= 0 and y == Fraction(1, 2) else None
        return root if root is not None and root * root == x else float(x) ** float(y)
    if isinstance(e, sp.Max | Latest): return max(evaluate(a, at) for a in args)
    if isinstance(e, sp.Min): return min(evaluate(a, at) for a in args)
    if isinstance(e, sp.log): return math.log(evaluate(args[0], at))
    if isinstance(e, sp.exp): return math.exp(evaluate(args[0], at))
    if isinstance(e, sp.cos): return math.cos(evaluate(args[0], at))
    if isinstance(e, sp.Mod): return _whole(evaluate(args[0], at) % evaluate(args[1], at))
    if isinstance(e, sp.Piecewise):
        for value, condition in args:
            if holds(condition, at): return evaluate(value, at)
        raise ValueError(f"no case of {e} holds")
    if isinstance(e, sp.Sum):
        i, low, high = e.limits[-1]                                  # the outermost index; the others stay inside
        inner = sp.Sum(e.function, *e.limits[:-1]) if len(e.limits) > 1 else e.function
        first, last = evaluate(low, at), evaluate(high, at)
        if last - first >= MOST_TERMS: return _closed(e, at)
        return _whole(sum((evaluate(inner, {**at, i: t}) for t in range(int(first), int(last) + 1)), 0))
    raise TypeError(f"no value for {type(e).__name__}: {e}")


def _closed(e: sp.Sum, at: Mapping[sp.Symbol, Numeric]) -> Numeric:
    """A sum of too many terms to add one by one, by sympy's closed form. Raises Free where it has none."""
    found = e.doit()
    if found.has(sp.Sum): raise Free(str(e))
    return evaluate(found, at)


_RELATIONS = {sp.Eq: lambda x, y: x == y, sp.Ne: lambda x, y: x != y, sp.Lt: lambda x, y: x < y, sp.Le: lambda x, y: x <= y,
              sp.Gt: lambda x, y: x > y, sp.Ge: lambda x, y: x >= y}


def holds(condition, at: Mapping[sp.Symbol, Numeric]) -> bool:
    if condition in (True, sp.true): return True
    if condition in (False, sp.false): return False
    if isinstance(condition, sp.And): return all(holds(c, at) for c in condition.args)
    if isinstance(condition, sp.Or): return any(holds(c, at) for c in condition.args)
    return _RELATIONS[type(condition)](*(evaluate(a, at) for a in condition.args))


def _whole(x: Numeric) -> Numeric:
    return int(x) if isinstance(x, Fraction) and x.denominator == 1 else x


def log_base(e: sp.Expr):
    """(x, base) of log(x)/log(base), else None."""
    if isinstance(e, sp.Mul) and len(e.args) == 2:
        for p, q in (e.args, e.args[::-1]):
            if isinstance(p, sp.log) and isinstance(q, sp.Pow) and q.exp == -1 and isinstance(q.base, sp.log):
                return p.args[0], q.base.args[0]
    return None


def _ceil_log(x: Numeric, base: Numeric) -> int:
    """⌈log_base x⌉ without floating point: floats miss at exact powers."""
    if base <= 1 < x: raise ZeroDivisionError(f"no power of {base} is {x}")
    k = 0
    power: Numeric = 1
    while power < x: k, power = k + 1, power * base
    return k


class CeilLog2(sp.Function):
    """⌈log₂ x⌉ of a size, kept whole: sympy takes log(d/h) apart, and a float misses at exact powers. Prints in sympy's words."""
    is_integer = True
    is_nonnegative = True                                            # sizes are 1 or more

    @classmethod
    def eval(cls, x):
        return sp.Integer(_ceil_log(int(x), 2)) if x.is_Integer else None

    def _sympystr(self, printer) -> str:
        return f"ceiling(log({printer._print(self.args[0])})/log(2))"

    def _latex(self, printer, exp=None) -> str:
        return _raised(rf"\left\lceil \log_2 {printer.parenthesize(self.args[0], 0)} \right\rceil", exp)


class Latest(sp.Function):
    """The maximum of its arguments, kept whole: sympy's own Max compares every pair whenever it is rebuilt. Prints as Max."""
    is_real = True

    def _sympystr(self, printer) -> str:
        return f"Max({', '.join(map(printer._print, self.args))})"

    def _latex(self, printer, exp=None) -> str:
        return _raised(rf"\max\left({', '.join(map(printer._print, self.args))}\right)", exp)


def _raised(base: str, exponent: str | None) -> str:
    return base if exponent is None else f"{base}^{{{exponent}}}"


def ceil_log2(x) -> sp.Expr:
    return CeilLog2(sp.sympify(x))


@dataclass(frozen=True)
class Sizes:
    """bound: dim → value; derived: dim → expression in other dims; divides: pairs (a, c) of `require a % c == 0`;
    required: all that is required, as conditions and as written; written: the value that the file gives a dim before overrides."""
    bound: Mapping[sp.Symbol, int] = field(default_factory=dict)
    derived: Mapping[sp.Symbol, sp.Expr] = field(default_factory=dict)
    divides: tuple[tuple[sp.Expr, sp.Expr], ...] = ()
    written: Mapping[sp.Symbol, int] = field(default_factory=dict)
    required: tuple[tuple[sp.Basic, str], ...] = ()

    def value(self, e) -> Numeric | None:
        """The exact value, or None while a dim in it is free."""
        try: return evaluate(sp.sympify(e), self.bound)
        except Free: return None

    def integer(self, e) -> int | None:
        """The value where it is known and whole, else None."""
        v = self.value(e)
        return int(v) if v is not None and v == v and abs(v) != math.inf and int(v) == v else None

    def resolve(self, e) -> sp.Expr:
        """The expression with derived dims written out."""
        return _resolve(sp.sympify(e), tuple(sorted(self.derived.items(), key=lambda p: p[0].name)))

    def same(self, x, y) -> bool:
        """Equal as expressions, or, where all their dims are bound, as numbers."""
        x, y = sp.sympify(x), sp.sympify(y)
        if x == y: return True
        p, q = self.resolve(x), self.resolve(y)
        if p == q or sp.expand(p - q) == 0: return True
        u, v = self.value(x), self.value(y)
        return u is not None and u == v

    def equal(self, x, y) -> bool:
        """Equal as expressions, whatever the values: what decides the form of a graph, so that a table and its sweep have one."""
        x, y = self.resolve(x), self.resolve(y)
        return x == y or sp.expand(x - y) == 0

    def whole(self, x, y) -> bool:
        """Is x / y an integer whatever the free dims are: by a promise (`require`), or by its form?"""
        x, y = sp.sympify(x), sp.sympify(y)
        p, q = self.resolve(x), self.resolve(y)
        if any(_integer(p / self.resolve(a)) and _integer(self.resolve(c) / q) for a, c in self.divides): return True
        return _integer(p / q)

    def quotient(self, x, y) -> sp.Expr:
        """⌈x / y⌉, written x / y where that is known to be whole."""
        x, y = sp.sympify(x), sp.sympify(y)
        return x / y if self.whole(x, y) else sp.ceiling(x / y)

    def bind(self, **values: int) -> Sizes:
        """With further dims bound; derived ones follow."""
        bound = {**self.bound, **{dim(k): int(v) for k, v in values.items()}}
        follow = tuple(sorted(((s, e) for s, e in self.derived.items() if s.name not in values), key=lambda p: p[0].name))
        known = {k: v for k, v in bound.items() if k not in dict(follow)}
        for name, e in follow:
            try: bound[name] = int(evaluate(_resolve(e, follow), known))               # a derived dim of a derived dim, too
            except Free: pass
        return replace(self, bound=bound)


@lru_cache(4096)
def _integer(e: sp.Expr) -> bool:
    """A whole number by its form: 4·d, but not d/4."""
    e = sp.together(sp.expand(e))
    return bool(e.is_integer) and sp.fraction(e)[1] == 1


@lru_cache(4096)
def _resolve(e: sp.Expr, derived: tuple) -> sp.Expr:
    known = dict(derived)
    for _ in range(len(known) + 1):
        found = {s: known[s] for s in e.free_symbols if s in known}
        if not found: break
        e = e.xreplace(found)
    return e
