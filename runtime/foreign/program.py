"""A model as a program that other runtimes read: torch.export (.pt2), and ONNX.

What is exported is the graph of evaluation: without dropout, by library calls and the bodies of regions, with every loop unrolled."""
from __future__ import annotations

import io
import itertools
import keyword
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec

import sympy as sp
import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram

from plait.compiler.axis import Axis
from plait.compiler.graph import Graph, Value
from plait.compiler.lower import lower
from plait.compiler.lowering import tensors
from plait.compiler.passes.evaluation import evaluation
from plait.compiler.plan import plan
from plait.compiler.prims import Loop
from plait.compiler.program import broken
from plait.dsl.errors import PlaitError, error
from plait.runtime.kernels import EMISSIONS
from plait.runtime.module import EVALUATION_KEY, Module, target_of

LIBRARY = {"attention": "scaled_dot_product_attention", "windowed_attention": "body", "lsh_attention": "body",
           "rnn": "rnn", "lstm": "lstm", "gru": "gru"}     # kernels that are calls of torch, or the definition; no code of plait's own
TRIPS = 1024                                               # a loop has at most as many: each becomes nodes of its own


class Evaluation(nn.Module):
    """The model in evaluation, on the CPU: takes its inputs in order, a padded one's mask right behind it, and gives its output or a
    tuple of them. Its parameters have the names of the spec, with a `_` behind those that are words of Python (`in_`)."""

    def __init__(self, module: Module, kernels: dict[str, str]):
        super().__init__()
        sizes = module.program.sizes
        self.places = {name: self._taken(module, place) for name, place in module._places.items()}
        made = plan(unrolled(evaluation(module.program.graph, sizes)), sizes, target_of("cpu"), kernels)
        self.lowered = (lower(made.graph, sizes, EMISSIONS),)              # in a tuple: it has no state of ours
        self.drawn: Drawn | None = None
        self.inputs: tuple[Value, ...] = tuple(v for v in made.graph.ins if v.kind != "param" and v.name != "seed")
        self.order = tuple((v.name, v.kind) for v in made.graph.ins)

    def _taken(self, module: Module, place):
        """The parameter at a place of the module, registered here; gives its path, or a list of paths."""
        if isinstance(place, list): return [self._taken(module, p) for p in place]
        path = [word + "_" if keyword.iskeyword(word) else word for word in place]
        owner: nn.Module = self
        for word in path[:-1]: owner = owner._modules.setdefault(word, nn.Module())              # type: ignore[assignment]
        owner._parameters[path[-1]] = module._parameter(place)
        return tuple(path)

    def _parameter(self, path):
        if isinstance(path, list): return tuple(map(self._parameter, path))
        owner: nn.Module = self
        for word in path[:-1]: owner = owner._modules[word]                                      # type: ignore[assignment]
        return owner._parameters[path[-1]]

    def forward(self, *inputs: Tensor):
        if self.drawn: self.drawn.count = 0
        given = iter(inputs)
        key = torch.tensor(EVALUATION_KEY)
        operands = [self._parameter(self.places[name]) if kind == "param" else key if name == "seed" else next(given)
                    for name, kind in self.order]
        outs = self.lowered[0](*operands)
        return outs[0] if len(outs) == 1 else outs


def unrolled(graph: Graph) -> Graph:
    """The graph with loops that run trip by trip and keep nothing of their own: autograd functions and scans cannot be exported."""
    graph = graph.map_bodies(unrolled)
    def plain(op: Loop) -> Loop: return replace(op, keep="recompute" if op.axis.role == "sequence" else "save")
    return replace(graph, nodes=tuple(replace(n, op=plain(n.op)) if isinstance(n.op, Loop) else n for n in graph.nodes))


# ---- torch.export ----------------------------------------------------------------------------------------------------------------
def exported(module: Module, kernels: dict[str, str] | None = None, portable: bool = False) -> ExportedProgram:
    """The program, with any batch, and any size of the dims that are free. portable: in operators that ONNX has.
    Raises PlaitError for what torch.export cannot write, and where the program would not give what the module gives."""
    made = Evaluation(module, kernels or LIBRARY).eval()
    _affordable(made, module)
    free = _free(made, module)
    example = [_example(v, module, {s: (size, 3)[s == BATCH] for s, size in free.items()}, 0) for v in made.inputs]
    if portable: spelled(made, example, bool(free.keys() - {BATCH}))
    with _quiet(), torch.no_grad():
        try: found = torch.export.export(made, tuple(example), dynamic_shapes=(tuple(_shapes(v, free) for v in made.inputs),))
        except Exception as why: raise _refused(module, str(why)) from None       # torch raises a dozen kinds
    _holds(found, made, module, free)
    return found


BATCH = sp.Symbol("b", integer=True, positive=True)
SAMPLE = 23                                                # a size that is tried for a free dim; of no chunk a multiple


def _affordable(made: Evaluation, module: Module) -> None:
    """Refuses loops that are too long to be unrolled."""
    loops: list[Loop] = [m.op for m in made.lowered[0].modules() if isinstance(getattr(m, "op", None), Loop)]    # type: ignore[misc]
    for op in loops:
        trips = module.program.sizes.integer(op.axis.size)
        if trips is not None and trips > TRIPS:
            raise error("E0660", f"a loop of {trips:,} trips is unrolled when it is exported, and {TRIPS:,} are the most",
                        help="an input without `padded`: then torch has one call for a recurrence; or --set n=…")


def _free(made: Evaluation, module: Module) -> dict[sp.Symbol, int]:
    """The dims of the inputs without a value, the batch among them, each with a size to try: as large as its bound allows."""
    found: dict[sp.Symbol, int] = {}
    for v in made.inputs:
        for a in v.axes:
            for s in module.program.sizes.resolve(a.size).free_symbols:
                if module.program.sizes.integer(s) is None: found[s] = SAMPLE
    for s in found:
        if s != BATCH: found[s] = next((k for k in range(SAMPLE, 1, -1) if not broken(module.program, {s: k})), SAMPLE)
    return found


def _example(v: Value, module: Module, sizes: dict[sp.Symbol, int], seed: int) -> Tensor:
    """Some input of the right shape and kind."""
    shape = [module.program.sizes.integer(module.program.sizes.resolve(a.size).subs(sizes)) or 1 for a in v.axes]
    g = torch.Generator().manual_seed(seed)
    if v.kind == "mask":                                   # the first symbol is always there
        return torch.arange(shape[1]) < torch.randint(1, shape[1] + 1, (shape[0], 1), generator=g)
    if v.kind != "index": return torch.randn(shape, generator=g)
    given = next(i for i in module.program.inputs if i.value.name == v.name)
    return torch.randint(0, module.program.sizes.integer(given.classes) or 2, shape, generator=g)


def _shapes(v: Value, free: dict[sp.Symbol, int]) -> dict[int, object]:
    """The batch may be anything. Of other free sizes torch finds the range by itself."""
    def open_to(a: Axis) -> object: return Dim("batch", min=1) if a.size == BATCH else Dim.AUTO(min=2)
    return {k: open_to(a) for k, a in enumerate(v.axes) if a.size.free_symbols & free.keys()}


def _holds(found: ExportedProgram, made: Evaluation, module: Module, free: dict[sp.Symbol, int]) -> None:
    """Tries the program on other sizes than it was made with, against what it was made from."""
    for k, batch in enumerate((1, 2)):
        sizes = {s: batch if s == BATCH else _other(module, s, size, k) for s, size in free.items()}
        given = [_example(v, module, sizes, 1) for v in made.inputs]
        with torch.no_grad():
            want = made(*given)
            try: got = found.module()(*given)
            except Exception:
                dims = ", ".join(f"{s} = {size}" for s, size in sizes.items())
                raise error("E0660", f"the exported program would not take {dims}: loops are unrolled, and hashing pads, for one length",
                            help=" ".join(f"--set {s}={free[s]}" for s in free if s != BATCH)) from None
        for x, y in zip(_tuple(got), _tuple(want)):
            if x.shape != y.shape or not torch.allclose(x, y, rtol=1e-4, atol=1e-5, equal_nan=True):
                raise error("E0660", f"the exported program gives other numbers than the module: {float((x - y).abs().max()):g} apart")


def _other(module: Module, s: sp.Symbol, size: int, k: int) -> int:
    """Another size of a free dim, that the spec allows."""
    tries = itertools.chain(range(size // 2 + 1 + k, size), range(size // 2 + 1 + k, 1, -1))
    return next((t for t in tries if not broken(module.program, {s: t})), size)


def _tuple(x) -> tuple: return x if isinstance(x, tuple) else (x,)


def _refused(module: Module, why: str) -> PlaitError:
    said = next((line.strip() for line in why.splitlines() if line.strip()), "no reason given")
    return error("E0660", f"torch.export cannot write {module.program.model}: {said[:200]}",
                 help="--set n=… gives a free dim a value; plait export --to safetensors writes the weights of any model")


@contextmanager
def _quiet() -> Iterator[None]:
    """Exporters warn of their own insides."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally: logging.disable(before)


def pt2(module: Module) -> bytes:
    """The content of a `.pt2` file."""
    out = io.BytesIO()
    with _quiet(): torch.export.save(exported(module), out)
    return out.getvalue()


# ---- in operators that ONNX has --------------------------------------------------------------------------------------------------
def spelled(made: Evaluation, example: list[Tensor], loose: bool) -> None:
    """Puts constants in place of random numbers, and a plain sort in place of a stable one. Raises PlaitError where how many numbers there
    are depends on a free size."""
    drawn, found = Drawn(made), False
    for m in made.lowered[0].modules():
        if not isinstance(m, fx.GraphModule): continue
        for n in m.graph.nodes:
            if n.target is tensors.random: n.target, found = drawn, True
            if n.target is tensors.stable_order: n.target = distinct_order
        m.recompile()
    if not found: return
    if loose: raise error("E0660", "ONNX has no random rotations, and as constants they need a length", help="--set n=…")
    made.drawn = drawn
    with torch.no_grad(): made(*example)
    drawn.keeps = False


def distinct_order(x: Tensor, dim: int) -> Tensor:
    """The stable order of integers, by keys of which no two are the same."""
    place = torch.arange(x.shape[dim]).view(-1, *[1] * (x.dim() - 1 - dim))
    return torch.sort(x * x.shape[dim] + place, dim=dim)[1]


class Drawn:
    """Stands where numbers are drawn. In the first forward they are drawn and kept, in later ones handed out in the same order. (In
    evaluation the key is always the same, so they are constants.)"""

    def __init__(self, owner: nn.Module):
        self.owner, self.keeps, self.count = owner, True, 0
        self.__name__ = "drawn"

    def __call__(self, *args) -> Tensor:
        name, self.count = f"drawn{self.count}", self.count + 1
        if self.keeps: self.owner.register_buffer(name, tensors.random(*args))
        return self.owner._buffers[name]                                                         # type: ignore[return-value]


# ---- ONNX ------------------------------------------------------------------------------------------------------------------------
def onnx(module: Module) -> bytes:
    """The content of an `.onnx` file. Raises PlaitError where the packages are missing, and where an operator has no form there."""
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing: raise error("E0660", f"to write ONNX needs {' and '.join(missing)}", help='pip install "plait[onnx]"')
    unrolled_cells = {**LIBRARY, "rnn": "body", "lstm": "body", "gru": "body"}
    program = exported(module, unrolled_cells, portable=True)
    names = _named(module, program)
    with _quiet():
        try: made = torch.onnx.export(program, dynamo=True, verbose=False, **names)   # type: ignore[arg-type]
        except Exception as why: raise _no_form(module, why) from None            # the exporter raises a dozen kinds
    assert made is not None
    return made.model_proto.SerializeToString()


def _named(module: Module, program: ExportedProgram) -> dict[str, list[str]]:
    inputs = [n for i in module.program.inputs for n in (i.name, *([f"{i.name}_mask"] if i.mask is not None else []))]
    return {"input_names": inputs, "output_names": list(module.program.outputs)}


def _no_form(module: Module, why: Exception) -> PlaitError:
    said = next((line.strip() for line in reversed(str(why).splitlines()) if "No ONNX function" in line), "")
    operator = said.split("op='")[1].split("'")[0] if "op='" in said else ""
    what = f"the operator {operator} has no form in ONNX" if operator else f"torch's exporter fails: {type(why).__name__}"
    return error("E0660", f"{module.program.model} cannot be written as ONNX: {what}", help="plait export RUN --to torch.export")


WRITERS: dict[str, Callable[[Module], bytes]] = {"torch.export": pt2, "onnx": onnx}
