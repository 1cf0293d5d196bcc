"""Numbers of a train block: exact values of expressions, and the learning rate as a formula in `step`. Needs no torch."""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from plait.dsl.errors import Diagnostic
from plait.dsl.spec import Argument, Binary, Call, Expr, Name, Number, Unary
from plait.dsl.suggest import ALIASES, suggest

Numeric = int | float | Fraction

FUNCTIONS: dict[str, Callable[..., Numeric]] = {
    "sqrt": math.sqrt, "exp": math.exp, "log": math.log, "log2": math.log2, "cos": math.cos, "min": min, "max": max,
    "ceil": math.ceil, "floor": math.floor,
}
COSINE = ("peak", "floor", "warmup")
MOST = 10_000                                                 # steps at which a formula is looked at
ARITHMETIC = ("+", "-", "*", "/", "%", "^")


class Unbound(Exception):
    """An expression holds a dim that has no value yet."""

    def __init__(self, name: str):
        super().__init__(name)
        self.name = name


@dataclass(frozen=True)
class Scope:
    """What a name means in a train block: the values of dims and lets, and the dims that are still free."""
    names: Mapping[str, Numeric]
    free: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Formula:
    """A learning rate: a function of the step (1 at the first update) and of the last step of the whole schedule."""
    expression: Expr
    scope: Scope = field(compare=False, repr=False)

    def __call__(self, step: int, last: int) -> float:
        """The value at a step; nan where it is not defined there (a division by zero, a root of a negative number).
        Raises Unbound while a dim in it is free."""
        try: return float(value(self.expression, self.scope, step, last))
        except OverflowError: return math.inf
        except (ValueError, ZeroDivisionError, TypeError): return math.nan

    @property
    def constant(self) -> bool:
        """Is it the same at every step?"""
        return not any(isinstance(x, Name) and x.name == "step" or isinstance(x, Call) and x.name == "cosine"
                       for x in _within(self.expression))

    def highest(self, last: int) -> float:
        """The highest rate of a schedule of so many steps; 0 where it has none. Of more than 10,000 steps some are looked at, then those
        about the highest of them."""
        def rate(step: int) -> float:
            found = self(step, last)
            return found if math.isfinite(found) else -math.inf
        first, end = 1, last
        while (apart := -(-(end - first + 1) // MOST)) > 1:
            top = max((*range(first, end, apart), end), key=rate)
            first, end = max(first, top - apart), min(end, top + apart)
        return max(0.0, *map(rate, range(first, end + 1)))

    def with_numbers(self) -> Expr:
        """The expression with the values of its dims and lets in place of their names."""
        return _valued(self.expression, self.scope)


def _valued(e: Expr, scope: Scope) -> Expr:
    if isinstance(e, Name) and e.name in scope.names:
        found = Fraction(scope.names[e.name])                 # what a float is, exactly
        top, bottom = (Number(x, str(x), e.span) for x in (found.numerator, found.denominator))
        if isinstance(scope.names[e.name], float): return Number(found, repr(scope.names[e.name]), e.span)
        return top if found.denominator == 1 else Binary("/", top, bottom, e.span)
    if isinstance(e, Unary): return replace(e, operand=_valued(e.operand, scope))
    if isinstance(e, Binary): return replace(e, left=_valued(e.left, scope), right=_valued(e.right, scope))
    if isinstance(e, Call): return replace(e, arguments=tuple(replace(a, value=_valued(a.value, scope)) for a in e.arguments))
    return e


def _within(e: Expr) -> Iterator[Expr]:
    """An expression and all in it."""
    yield e
    parts = [e.operand] if isinstance(e, Unary) else [e.left, e.right] if isinstance(e, Binary) else [
        a.value for a in e.arguments] if isinstance(e, Call) else []
    for part in parts: yield from _within(part)


def value(e: Expr, scope: Scope, step: int | None = None, last: int | None = None) -> Numeric:
    """The value of an expression that `faults` has passed: exact while it is made of whole numbers and fractions.

    Raises Unbound, and what Python raises for arithmetic that has no result."""
    def of(x: Expr) -> Numeric: return value(x, scope, step, last)

    if isinstance(e, Number): return e.value                                        # type: ignore[return-value]
    if isinstance(e, Unary): return -of(e.operand)
    if isinstance(e, Binary): return _arithmetic(e.op, of(e.left), of(e.right))
    if isinstance(e, Call):
        if e.name == "cosine":
            assert step is not None and last is not None
            bound = _cosine_arguments(e)
            return cosine(step, last, *(float(of(bound[name])) for name in COSINE))
        return FUNCTIONS[e.name](*(of(a.value) for a in e.arguments))
    assert isinstance(e, Name)
    if e.name == "step" and step is not None: return step
    if e.name in scope.names: return scope.names[e.name]
    if e.name == "pi": return math.pi
    raise Unbound(e.name)


def _arithmetic(op: str, x: Numeric, y: Numeric) -> Numeric:
    if op == "+": return x + y
    if op == "-": return x - y
    if op == "*": return x * y
    if op == "/": return _whole(Fraction(x) / Fraction(y)) if _exact(x, y) else x / y
    if op == "%": return x % y
    if isinstance(y, int) and abs(y) <= 64 and _exact(x): return _whole(Fraction(x) ** y)      # beyond, exact powers grow without bound
    return float(x) ** float(y)


def _exact(*xs: Numeric) -> bool:
    return all(isinstance(x, int | Fraction) for x in xs)


def _whole(x: Fraction) -> int | Fraction:
    return x.numerator if x.denominator == 1 else x


def cosine(step: float, last: float, peak: float, floor: float, warmup: float) -> float:
    """A straight line from 0 to `peak` at step `warmup`, then half a cosine down to `floor` at the last step, and `floor` after it."""
    if step <= warmup: return peak * step / warmup
    if step >= last: return floor
    return floor + (peak - floor) * (1 + math.cos(math.pi * (step - warmup) / (last - warmup))) / 2


def _cosine_arguments(call: Call) -> dict[str, Expr]:
    places = iter(COSINE)
    return {a.name or next(places): a.value for a in call.arguments}


def faults(e: Expr, scope: Scope, schedule: bool = False) -> Iterator[Diagnostic]:
    """What keeps an expression from being a number: unknown names and functions, comparisons, a wrong number of arguments.
    `schedule`: `step` and `cosine` are known."""
    if isinstance(e, Number): return
    if isinstance(e, Unary): yield from faults(e.operand, scope, schedule)
    elif isinstance(e, Binary):
        if e.op not in ARITHMETIC:
            yield Diagnostic("E0635", f"`{e.op}` gives no number", e.span, help="min and max choose between two values")
        yield from faults(e.left, scope, schedule)
        yield from faults(e.right, scope, schedule)
    elif isinstance(e, Name): yield from _name_faults(e, scope, schedule)
    elif isinstance(e, Call): yield from _call_faults(e, scope, schedule)
    else: yield Diagnostic("E0635", "a number is needed here", e.span)


def _name_faults(e: Name, scope: Scope, schedule: bool) -> Iterator[Diagnostic]:
    known = {*scope.names, *scope.free, "pi", *(("step",) if schedule else ())}
    if e.name in known: return
    if e.name == "step":
        yield Diagnostic("E0635", "`step` has a value only in the learning rate", e.span)
    else:
        yield Diagnostic("E0635", f"`{e.name}` is not defined", e.span, help=_or(suggest(e.name, sorted(known), ALIASES)))


def _call_faults(e: Call, scope: Scope, schedule: bool) -> Iterator[Diagnostic]:
    known = [*FUNCTIONS, *(("cosine",) if schedule else ())]
    if e.name not in known:
        place = e.name_span or e.span
        help = _or(suggest(e.name, known, ALIASES)) or f"known: {', '.join(known)}"
        if e.name == "cosine": yield Diagnostic("E0635", "`cosine` is a schedule: it stands only in the learning rate", place)
        else: yield Diagnostic("E0635", f"there is no function `{e.name}`", place, help=help)
    elif e.name == "cosine": yield from _cosine_faults(e)
    else:
        named = next((a for a in e.arguments if a.name), None)
        few, many = (1, math.inf) if e.name in ("min", "max") else (1, 1)
        if named:
            place = named.name_span or named.span
            yield Diagnostic("E0635", f"`{e.name}` takes values, not names", place, help=f"leave out `{named.name} =`")
        if not few <= len(e.arguments) <= many:
            yield Diagnostic("E0635", f"`{e.name}` takes {'values' if many > 1 else 'one value'}, not {len(e.arguments)}", e.span)
        if e.name in ("min", "max") and len(e.arguments) == 1:
            yield Diagnostic("E0635", f"`{e.name}` of one value is that value", e.span, help=f"{e.name}(a, b)")
    for a in e.arguments: yield from faults(a.value, scope, schedule)


def _cosine_faults(e: Call) -> Iterator[Diagnostic]:
    help = "cosine(peak = 1e-3, floor = 1e-4, warmup = 100)"
    given: set[str] = set()
    places = iter(COSINE)
    for a in e.arguments:
        name = a.name or next(places, None)
        if name not in COSINE: yield Diagnostic("E0635", _no_argument(a), a.name_span or a.span, help=help)
        elif name in given: yield Diagnostic("E0635", f"`{name}` is given twice", a.span, help=help)
        given.add(name or "")
        if isinstance(a.value, Unary): yield Diagnostic("E0635", f"`{name}` of a cosine is at least 0", a.value.span, help=help)
    missing = [f"`{name}`" for name in COSINE if name not in given]
    if missing: yield Diagnostic("E0635", f"`cosine` needs {' and '.join(missing)}", e.span, help=help)


def _no_argument(a: Argument) -> str:
    return f"`cosine` has no argument `{a.name}`" if a.name else "`cosine` takes three values"


def _or(names: list[str]) -> str:
    return " or ".join(f"`{n}`" for n in names) + "?" if names else ""
