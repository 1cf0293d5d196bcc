"""How the arguments of a train block's calls are read: tables of parameters, and one reader for each kind of value. Needs no torch."""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from plait.dsl.errors import Diagnostic, PlaitError, Span, error
from plait.dsl.spec import Argument, Bytes, Call, Expr, List, Name, Quantity, Text, Tuple
from plait.dsl.suggest import ALIASES, suggest
from plait.runtime.formula import Numeric, Scope, Unbound, faults, value

Reader = Callable[[Expr, Scope], object]
REQUIRED = object()


@dataclass(frozen=True)
class Parameter:
    """One argument of a call: its reader, its default (REQUIRED where there is none), whether it may stand without its name."""
    read: Reader
    default: object = REQUIRED
    positional: bool = False


@dataclass(frozen=True)
class Waiting:
    """The value of an argument that holds a free dim: known once the dim is."""
    dim: str
    span: Span = field(compare=False, repr=False)


def arguments(call: Call | Name, parameters: Mapping[str, Parameter], scope: Scope, out: list[Diagnostic]) -> dict[str, object]:
    """The values of a call's arguments, with defaults. Everything that is wrong goes to `out`."""
    given = call.arguments if isinstance(call, Call) else ()
    places = iter([name for name, p in parameters.items() if p.positional])
    values: dict[str, object] = {}
    for a in given:
        name = a.name or next(places, None)
        if name is None or name not in parameters:
            out.append(_unknown(call.name, a, parameters))
        elif name in values:
            out.append(Diagnostic("E0633", f"`{name}` is given twice", a.span))
        else:
            values[name] = read(parameters[name].read, a.value, scope, out)
    missing = [name for name, p in parameters.items() if p.default is REQUIRED and name not in values]
    if missing:
        needed = " and ".join(f"`{m}`" for m in missing)
        out.append(Diagnostic("E0633", f"`{call.name}` needs {needed}", call.span, help=_usage(call.name, parameters)))
    return {**{name: p.default for name, p in parameters.items() if p.default is not REQUIRED}, **values}


def read(reader: Reader, e: Expr, scope: Scope, out: list[Diagnostic]) -> object:
    """The value, None where it is wrong (said in `out`), Waiting where a dim in it is free."""
    try: return reader(e, scope)
    except Unbound as missing: return Waiting(missing.name, e.span)
    except PlaitError as wrong: out.extend(wrong.diagnostics)
    return None


def _unknown(called: str, a: Argument, parameters: Mapping[str, Parameter]) -> Diagnostic:
    if a.name is None:
        return Diagnostic("E0633", f"`{called}`: this value has no name", a.span, help=_usage(called, parameters))
    close = suggest(a.name, list(parameters), ALIASES)
    help = " or ".join(f"`{n}`" for n in close) + "?" if close else _usage(called, parameters)
    return Diagnostic("E0633", f"`{called}` has no argument `{a.name}`", a.name_span or a.span, help=help)


def _usage(called: str, parameters: Mapping[str, Parameter]) -> str:
    shown = [name if p.positional else f"{name} = …" for name, p in parameters.items()]
    return f"{called}({', '.join(shown)})" if shown else f"`{called}` takes no arguments"


# ---- readers -----------------------------------------------------------------------------------------------------------
def number(e: Expr, scope: Scope) -> Numeric:
    """The exact value. Raises PlaitError, or Unbound while a dim in it is free."""
    if isinstance(e, Quantity): raise error("E0634", f"a plain number is needed here, without `{e.unit}`", e.span)
    if isinstance(e, Text | List | Tuple | Bytes): raise error("E0633", "a number is needed here", e.span)
    found = list(faults(e, scope))
    if found: raise PlaitError(*found)
    try:
        x = value(e, scope)
        float(x)                                                  # a complex number is a TypeError, one that no float holds an overflow
        return x
    except ZeroDivisionError: why = "it divides by zero"
    except OverflowError: why = "it is too large"
    except (ValueError, TypeError): why = "it is a root, a power or a logarithm that is no real number"
    raise error("E0633", f"this has no value: {why}", e.span)


def whole(low: int, high: int = 2**63 - 1) -> Reader:
    """A whole number from `low` to `high`: to what fits a computer's word, at most."""
    def reader(e: Expr, scope: Scope) -> int:
        x = number(e, scope)
        if math.isfinite(x) and x == int(x) and low <= x <= high: return int(x)
        limit = f"at least {low}" if x < low or x != x or abs(x) == math.inf or x != int(x) else f"at most {high:,}"
        raise error("E0633", f"a whole number of {limit} is needed here, not {_plain(x)}", e.span)
    return reader


def real(test: Callable[[float], bool], rule: str) -> Reader:
    """A number for which `test` holds; `rule` says so in words ("above 0")."""
    def reader(e: Expr, scope: Scope) -> float:
        x = float(number(e, scope))
        if not test(x): raise error("E0633", f"this must be {rule}, not {_plain(x)}", e.span)
        return x
    return reader


def text(e: Expr, scope: Scope) -> str:
    if isinstance(e, Text): return e.value
    raise error("E0633", "a text in double quotes is needed here", e.span, help=f'"{e.name}"' if isinstance(e, Name) else "")


def names(e: Expr, scope: Scope) -> tuple[str, str]:
    """Two files."""
    if isinstance(e, Tuple) and len(e.items) == 2: return text(e.items[0], scope), text(e.items[1], scope)
    raise error("E0633", "two texts in double quotes are needed here", e.span, help='("val.en", "val.de")')


def flag(e: Expr, scope: Scope) -> bool:
    if isinstance(e, Name) and e.name in ("true", "false"): return e.name == "true"
    raise error("E0633", "`true` or `false` is needed here", e.span)


def word(*words: str) -> Reader:
    def reader(e: Expr, scope: Scope) -> str:
        if isinstance(e, Name) and e.name in words: return e.name
        close = suggest(e.name, list(words), ALIASES) if isinstance(e, Name) else []
        known = " or ".join(f"`{w}`" for w in words)
        raise error("E0633", f"{known} is needed here", e.span, help=" or ".join(f"`{w}`" for w in close) + "?" if close else "")
    return reader


def betas(e: Expr, scope: Scope) -> tuple[float, float]:
    each = real(lambda x: 0 <= x < 1, "at least 0 and below 1")
    if not isinstance(e, Tuple) or len(e.items) != 2: raise error("E0633", "two numbers are needed here", e.span, help="(0.9, 0.999)")
    first, second = (each(item, scope) for item in e.items)
    return first, second                                                            # type: ignore[return-value]


def split(e: Expr, scope: Scope) -> tuple[Fraction, ...]:
    """Shares for training, validation and, if there are three, test. They stay exact: 0.9 of 1,115,394 is cut by whole numbers."""
    if not isinstance(e, Tuple) or len(e.items) not in (2, 3):
        raise error("E0633", "shares for training and validation (and test) are needed here", e.span,
                    help="(0.9, 0.1) or (0.9, 0.05, 0.05)")
    shares = tuple(Fraction(number(item, scope)).limit_denominator(10**9) for item in e.items)     # a `let` may be a float
    if any(s <= 0 for s in shares):
        raise error("E0633", "every share of a split must be above 0", e.span, help="leave out the part that is not wanted")
    if sum(shares) > 1:
        raise error("E0633", "the shares of a split add up to more than 1", e.span,
                    numbers=f"{' + '.join(map(_plain, shares))} = {_plain(sum(shares))}")
    return shares


def _plain(x: Numeric) -> str:
    return f"{x:,}" if isinstance(x, int) else f"{float(x):g}"
