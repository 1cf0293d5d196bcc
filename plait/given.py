"""What a script gives to the Python entry points, checked before anything is done with it. Knows no torch."""
from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path

from plait.dsl.errors import PlaitError, error
from plait.dsl.spec import Override


def path(value: object, what: str) -> Path:
    """what: the thing that lies there, "a spec". Raises PlaitError."""
    if isinstance(value, str | os.PathLike) and isinstance(found := os.fspath(value), str): return Path(found)
    raise _other(f"{what} is named by its path, a text", value, '"NAME"')


def settings(value: object) -> dict[str, object]:
    """Overrides by their names. Raises PlaitError."""
    if value is None: return {}
    if not isinstance(value, Mapping): raise _other("overrides are given by their names", value, 'set={"V": 65}')
    strange = [k for k in value if not isinstance(k, str)]
    if strange: raise _other("an override has a text for its name", strange[0], 'set={"V": 65}')
    return dict(value)


def single(value: object) -> tuple[Override, ...]:
    """The same as overrides of one value each. Raises PlaitError."""
    from plait import files
    return files.single(files.overrides(settings(value)))


def count(value: object, name: str, least: int) -> int:
    """A whole number of at least `least`, numpy's too. Raises PlaitError."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        if int(value) >= least: return int(value)
        raise error("E0505", f"`{name}` is a whole number of at least {least}, and this is {int(value):,}", help=f"{name}={max(1, least)}")
    raise _other(f"`{name}` is a whole number of at least {least}", value, f"{name}=100")


def counts(text: str, help: str) -> tuple[int, ...]:
    """`16,32,1Ki` → 16, 32, 1024. Raises PlaitError."""
    from plait.dsl.numerals import BadNumber, read
    found = []
    for part in (t.strip() for t in text.split(",")):
        try: value, bytes_ = read(part)
        except BadNumber as wrong: raise error("E0505", str(wrong), help=str(wrong.help or help)) from None
        if bytes_ or not isinstance(value, int) or value < 1: raise error("E0505", f"`{part}` is no count", help=help)
        if value not in found: found.append(value)
    return tuple(found)


def count_of(text: str, help: str) -> int:
    """`32Ki` → 32,768. Raises PlaitError."""
    found = counts(text, help)
    if len(found) == 1: return found[0]
    raise error("E0505", f"`{text}` is a list, and one number is wanted", help=help)


def texts(value: object, what: str) -> tuple[str, ...]:
    """Names, or one by itself. what: "a model". Raises PlaitError."""
    if isinstance(value, str): return (value,)
    if value is None: return ()
    found = tuple(value) if isinstance(value, Iterable) else (None,)
    if all(isinstance(v, str) for v in found): return found
    raise _other(f"{what} is told by its name, a text", value, '["NAME"]')


def numbers(value: object, what: str) -> tuple:
    """Numbers, or one by itself. Raises PlaitError."""
    found = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
    if all(isinstance(v, Real) and not isinstance(v, bool) for v in found): return found
    raise _other(f"{what} is a number", value, "[1, 2]")


def told(value: object) -> Callable[[str], object]:
    """What is called with a line. Raises PlaitError."""
    if value is None: return lambda line: None
    if callable(value): return value
    raise _other("`say` is called with a line", value, "say=print")


def console(value: object) -> object:
    """What is told to: None, or a rich.console.Console. Raises PlaitError."""
    if value is None or callable(getattr(value, "print", None)): return value
    raise _other("a console is one of the package rich", value, "console=rich.console.Console()")


def _other(wanted: str, value: object, help: str) -> PlaitError:
    shown = "None" if value is None else f"a {type(value).__name__}"
    return error("E0505", f"{wanted}, and this is {shown}", help=help)
