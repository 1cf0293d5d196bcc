"""Models of one size: the value of a dim for which a model has so many parameters, from its derived formula."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import sympy as sp

from plait.compiler.costs.params import params
from plait.compiler.expand import expand
from plait.compiler.file import File, open_file
from plait.compiler.sizes import Numeric
from plait.compiler.solve import Asked, Search, freed
from plait.dsl import override
from plait.dsl import spec as ast
from plait.dsl.errors import PlaitError, error
from plait.dsl.parser import parse_override

BESIDE = 8                                                    # allowed values on either side of the exact one that are looked at
WIDEST = 2**40


@dataclass(frozen=True)
class Equal:
    """A model brought to a size. by: the dim and its value; None where the model has none of the dims that may change. count: its
    parameters."""
    model: str
    spec: ast.Spec
    by: tuple[str, int] | None
    count: int


def equal(file: File, model: str, target: int, by: Sequence[str]) -> Equal:
    """The model with the value of the first of these dims that its parameters depend on, for which it has as nearly `target` parameters as
    its `require`s allow. A model that has none of the dims stays as it is.

    Raises PlaitError where a dim is none, where other dims are free, and where no value comes near."""
    for name in by:
        if name not in file.names_of(model).entries: continue
        found = _counted(file, model, name)
        if found is not None: return _solved(file, model, target, name, found)
    if not any(name in file.names_of(m).entries for name in by for m in file.models):
        raise error("E0401", f"no dim is called {' or '.join(f'`{n}`' for n in by)}", help="params(2M, by = d)")
    return Equal(model, file.spec, None, _whole(file, model))


@dataclass(frozen=True)
class Counted:
    """The parameters of a model as they depend on a dim. size: value → how many, also where a size is not whole; allowed: where the dim
    may stand."""
    size: Callable[[int], Numeric]
    allowed: Search


def _counted(file: File, model: str, name: str) -> Counted | None:
    """None where the parameters do not depend on the dim."""
    opened = open_file(freed(file.spec, name), None, file.spec)
    program = expand(opened, model)
    formula = program.sizes.resolve(params(program.graph))
    if name not in map(str, formula.free_symbols): return None
    free = [str(s) for s in formula.free_symbols if str(s) != name and program.sizes.value(s) is None]
    if free: raise _free(model, sorted(free)[0])
    asked = Asked(opened, name, 1)
    asked.programs[model] = program
    asked.known |= {s: v for s, v in program.sizes.bound.items() if s != asked.unknown}
    return Counted(lambda value: program.sizes.bind(**{name: value}).value(formula) or 0, Search(asked, sp.true, ()))


def _solved(file: File, model: str, target: int, name: str, found: Counted) -> Equal:
    """Parameters grow with every dim: the crossing is found by halves; of the allowed values beside it the nearest is taken."""
    low, high = 1, 2
    while found.size(high) < target:
        low, high = high, 2 * high
        if high > WIDEST: raise error("E0642", f"{model} does not reach {target:,} parameters by `{name}`")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if found.size(middle) <= target else (low, middle)
    near = [*_allowed(found.allowed, low, up=False), *_allowed(found.allowed, low + 1, up=True)]
    why: PlaitError | None = None
    for value in sorted(near, key=lambda v: abs(float(found.size(v)) - target)):
        spec = override.apply(file.spec, (parse_override(f"{name}={value}"),))
        try: return Equal(model, spec, (name, value), _whole(open_file(spec, None, file.spec), model))
        except PlaitError as wrong: why = why or wrong
    raise why or error("E0642", f"no value of `{name}` brings {model} to {target:,} parameters")


def _allowed(search: Search, start: int, up: bool) -> Iterator[int]:
    """The first allowed values from there on."""
    for _ in range(BESIDE):
        found = search.next(start, up)
        if found is None: return
        yield found
        start = found + (1 if up else -1)


def _whole(file: File, model: str) -> int:
    program = expand(file, model, loss=True)
    found = program.sizes.integer(params(program.graph))
    if found is not None: return found
    raise _free(model, sorted(map(str, program.sizes.resolve(params(program.graph)).free_symbols))[0])


def _free(model: str, name: str) -> PlaitError:
    return error("E0638", f"`{name}` has no value, and the number of parameters of {model} depends on it", help=f"--set {name}=…")
