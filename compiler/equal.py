"""Models of one size: the value of a dim for which a model has so many parameters, from its derived formula."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from plait.compiler.costs.params import params
from plait.compiler.expand import expand
from plait.compiler.file import File, open_file
from plait.compiler.solve import freed
from plait.dsl import override
from plait.dsl import spec as ast
from plait.dsl.errors import PlaitError, error
from plait.dsl.parser import parse_override

NEAR = 512                                                    # values on either side of the exact one that are looked at
TRIES = 200                                                   # of them that are expanded, to find one that every require takes
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
        found = _counts(file, model, name)
        if found is not None: return _solved(file, model, target, name, found)
    if not any(name in file.names_of(m).entries for name in by for m in file.models):
        raise error("E0401", f"no dim is called {' or '.join(f'`{n}`' for n in by)}", help="params(2M, by = d)")
    return Equal(model, file.spec, None, _whole(file, model))


def _counts(file: File, model: str, name: str) -> Callable[[int], int | None] | None:
    """The number of parameters as a function of a dim, None where a size is not whole; None where they do not depend on it."""
    program = expand(open_file(freed(file.spec, name), None, file.spec), model)
    formula = program.sizes.resolve(params(program.graph))
    if name not in map(str, formula.free_symbols): return None
    free = [str(s) for s in formula.free_symbols if str(s) != name and program.sizes.value(s) is None]
    if free: raise _free(model, sorted(free)[0])
    return lambda value: program.sizes.bind(**{name: value}).integer(formula)


def _solved(file: File, model: str, target: int, name: str, count: Callable[[int], int | None]) -> Equal:
    """Parameters grow with every dim: the crossing is found by halves, then the nearest value is taken that the requires allow."""
    least, most = 1, 2
    while (count(most) or 0) < target:
        least, most = most, 2 * most
        if most > WIDEST: raise error("E0642", f"{model} does not reach {target:,} parameters by `{name}`")
    near = range(max(1, _crossing(count, target, least, most) - NEAR), most + NEAR)
    tried = sorted((abs(c - target), value) for value in near[:2 * NEAR] if (c := count(value)) is not None)
    why: PlaitError | None = None
    for _, value in tried[:TRIES]:
        spec = override.apply(file.spec, (parse_override(f"{name}={value}"),))
        try: return Equal(model, spec, (name, value), _whole(open_file(spec, None, file.spec), model))
        except PlaitError as wrong: why = why or wrong
    raise why or error("E0642", f"no value of `{name}` brings {model} to {target:,} parameters")


def _crossing(count: Callable[[int], int | None], target: int, low: int, high: int) -> int:
    """The greatest value with at most so many; one whose size is not whole counts as too small."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if (count(middle) or 0) <= target else (low, middle)
    return low


def _whole(file: File, model: str) -> int:
    program = expand(file, model, loss=True)
    found = program.sizes.integer(params(program.graph))
    if found is not None: return found
    raise _free(model, sorted(map(str, program.sizes.resolve(params(program.graph)).free_symbols))[0])


def _free(model: str, name: str) -> PlaitError:
    return error("E0638", f"`{name}` has no value, and the number of parameters of {model} depends on it", help=f"--set {name}=…")
