"""A free dim stays symbolic through every column; binding it is substituting it in the symbolic result."""
from pathlib import Path

import pytest
import sympy as sp

from plait import files
from plait.api import Spec
from plait.compiler.expand import expand
from plait.compiler.file import open_file
from plait.compiler.quantities import QUANTITIES
from plait.compiler.solve import freed
from plait.compiler.step import Step
from plait.compiler.table import Row
from plait.dsl import spec as ast

ROOT = Path(__file__).parents[2]
PATHS = sorted((ROOT / "specs").glob("*.plait"))


def dims(spec: Spec) -> list[str]:
    return [d.name for i in spec.file.spec.items if isinstance(i, ast.Dims) for d in i.entries
            if isinstance(d, ast.Dim) and isinstance(d.value, ast.Number)]


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_binding_is_substituting(path):
    """For each dim in turn: left free, every cost of every model is the expression that it is when bound, and has its value."""
    spec = Spec(path, files.opened(path))
    for name in dims(spec):
        file = open_file(freed(spec.file.spec, name))
        for model in spec.models:
            bound = Row(spec.program(model), model, "model", model, spec.step(model))
            open_ = Row(expand(file, model), model, "model", model, Step(lambda file=file, model=model: expand(file, model, loss=True)))
            value = bound.sizes.integer(sp.Symbol(name, integer=True, positive=True))
            if value is None: continue
            at = open_.sizes.bind(**{name: value})
            for column, quantity in QUANTITIES.items():
                if column == "path": continue                 # a number where there is no closed form
                p, q = quantity(bound), quantity(open_)
                if q is None: assert p is None, (model, name, column); continue
                assert bound.sizes.bind(b=1).value(p) == at.bind(b=1).value(q), (model, name, column)
            p, q = bound.path, open_.path
            for key in p.written if p else ():
                if q.written[key].exact is not None and p.written[key].value is not None:
                    assert at.value(q.written[key].exact) == p.written[key].value, (model, name)
