"""A Program as a torch.nn.Module: owns the parameters under the spec's names, checks inputs, lowers on first use."""
from __future__ import annotations

import copy
import os
from collections.abc import Mapping

import sympy as sp
import torch
from torch import Tensor, nn

from plait.compiler.axis import Axis
from plait.compiler.builder import Init
from plait.compiler.costs.params import params
from plait.compiler.graph import Graph, Value
from plait.compiler.kernels import Target
from plait.compiler.lower import lower
from plait.compiler.lowering.units import Later, Unit
from plait.compiler.passes.evaluation import evaluation
from plait.compiler.plan import plan
from plait.compiler.prims import Loop
from plait.compiler.program import Input, Program, broken
from plait.compiler.sizes import Sizes
from plait.dsl.errors import error
from plait.runtime.kernels import EMISSIONS

EVALUATION_KEY = 0x5EED                       # the key of what is random in evaluation (LSH's rotations): always the same
KEYS = 2**62
MOST_COPIES = 100_000


class Module(nn.Module):
    """A model of a spec as an ordinary module.

    Inputs come in the program's order or by name: symbols [b, n] and classes [b] as integers, streams [b, n, d] as reals, and for
    inputs that may be padded `<name>_mask` [b, n], true where a symbol is (default: everywhere, and a negative symbol is padding).
    While training, the key of all randomness is drawn from torch's global CPU generator once a call; in evaluation it is fixed and
    dropout is off. Parameters are named by their places in the spec (`logits.2.3.attend.1.weight`), drawn in order from torch's
    global generator. kernels: region → kernel or `body`, against the plan's choice. loops: recurrences that no kernel takes are plain
    loops in Python, not scans. Raises PlaitError for inputs that do not fit."""

    def __init__(self, program: Program, device: str | torch.device = "cpu", compile: bool = True,
                 kernels: Mapping[str, str] | None = None, dtype: torch.dtype = torch.float32, loops: bool = False):
        super().__init__()
        self._loops = loops
        self.program, self._compiles, self.forced = program, compile, dict(kernels or {})
        self.autocast: torch.dtype | None = None           # products in this dtype, whatever the caller's own autocast
        self._lowered: dict[tuple[str, bool, str], nn.Module] = {}
        self._places: dict[str, object] = {}
        self._copies: dict[tuple[str, ...], None] = {}     # the places of copies of repeated bodies
        self.sharded = False                               # over processes, copy by copy (`ranks`)
        self._sound: set[frozenset] = set()                # free dims that have been looked at
        self._home = torch.empty(0, device=device).device  # of a model without parameters
        _affordable(program, torch.device(device), dtype)
        for v in program.graph.ins:
            if v.kind != "param": continue
            copies = tuple(a for a in v.axes if a.role == "copies")
            self._places[v.name] = self._own(v, copies, v.name.split("/"), dtype, device)
        self._shared_parameters()

    # -- parameters ----------------------------------------------------------------------------------------------------------
    def _own(self, v: Value, copies: tuple[Axis, ...], path: list[str], dtype, device):
        """Registers the parameter, or one a copy; gives its path, or a list of paths, nested where copies are."""
        if copies:
            outer, inner = copies[0], copies[1:]
            made = []
            for i in range(_bound(self.program.sizes, outer.size, v)):
                self._copies[_copy(path, outer.name.split("/"), i)] = None
                made.append(self._own(v, tuple(_below(a, outer, i) for a in inner), _placed(path, outer.name.split("/"), i), dtype, device))
            return made
        shape = [_bound(self.program.sizes, a.size, v) for a in v.axes if a.role != "copies"]
        start = started(self.program.inits[v.name], shape, self.program.sizes)
        owner: nn.Module = self
        for name in path[:-1]: owner = owner._modules.setdefault(name, Unit())                  # type: ignore[assignment]
        # Straight into the tables: a stream may be called `loss` or `train`, which `register_parameter` would refuse.
        owner._parameters[path[-1]] = nn.Parameter(start.to(device=device, dtype=dtype))
        return tuple(path)

    def _shared_parameters(self) -> None:
        """Other graphs of the program use the same parameters; none has its own."""
        for g in (self.program.loss, self.program.score):
            unknown = [v.name for v in (g.ins if g else ()) if v.kind == "param" and v.name not in self._places]
            if unknown: raise KeyError(f"the loss has parameters that the model has not: {unknown}")

    def _parameter(self, place):
        if isinstance(place, list): return tuple(map(self._parameter, place))
        owner = self._at(place[:-1])
        if self.sharded:
            unit = next((place[:k] for k in range(len(place) - 1, 0, -1) if place[:k] in self._copies), None)
            if unit is not None: return Later(owner, place[-1], self._at(unit))
        return owner._parameters[place[-1]]

    def _at(self, place: tuple[str, ...]):
        owner: nn.Module = self
        for name in place: owner = owner._modules[name]                                                # type: ignore[assignment]
        return owner

    def units(self) -> list[Unit]:
        """The owners of the parameters of each copy of a repeated body, inner ones first: what is gathered and freed as one when the
        model is sharded over processes."""
        return [self._at(place) for place in sorted(self._copies, key=len, reverse=True)]

    # -- calls ---------------------------------------------------------------------------------------------------------------
    def forward(self, *inputs: Tensor, **by_name: Tensor):
        """The model's output, or a tuple of its outputs in declared order."""
        outs = self._run("graph", inputs, by_name)
        return outs[0] if len(outs) == 1 else outs

    def losses(self, *inputs: Tensor, **by_name: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(mean, total, count): the mean loss, the sum over the targets that count, how many they are."""
        return self._run("loss", inputs, by_name)

    def loss(self, *inputs: Tensor, **by_name: Tensor) -> Tensor:
        """The mean loss over the targets that count."""
        return self.losses(*inputs, **by_name)[0]

    def score(self, *inputs: Tensor, **by_name: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(total, count, correct): the summed loss without smoothing, how many targets count, how many are guessed."""
        return self._run("score", inputs, by_name)

    def _run(self, which: str, inputs: tuple, by_name: dict) -> tuple:
        graph: Graph | None = getattr(self.program, which)
        if graph is None:
            raise error("E0601", f"no train block names the model {self.program.model}, so it has no loss",
                        help=f"train {self.program.model} {{ loss = … }}")
        given = self._given(graph, inputs, by_name)
        operands = []
        for v in graph.ins:
            if v.name in given: operands.append(given[v.name])
            elif v.kind == "param": operands.append(self._parameter(self._places[v.name]))
            else: operands.append(self._key())
        if self.autocast is None: return self._module(which, graph)(*operands)
        with torch.autocast(self._device().type, self.autocast): return self._module(which, graph)(*operands)

    def _key(self) -> Tensor:
        key = torch.randint(KEYS, ()) if self.training else torch.tensor(EVALUATION_KEY)
        return key.to(self._device(), non_blocking=True)

    def _device(self) -> torch.device:
        first = next(self.parameters(), None)
        return self._home if first is None or self.sharded else first.device

    def _module(self, which: str, graph: Graph) -> nn.Module:
        device = self._device().type
        at = which, self.training, device
        if at not in self._lowered:
            first = next(self.parameters(), None)
            # products joined as one would keep their weights side by side, whole, until backward
            target = target_of(device, torch.float32 if first is None else first.dtype, self._compiles and not self.sharded)
            made = plan(graph if self.training else evaluation(graph, self.program.sizes), self.program.sizes, target, self.forced)
            self._lowered[at] = lower(made.graph, self.program.sizes, EMISSIONS, compile=self._compiles, recorded=self._loops)
        return self._lowered[at]

    # -- inputs --------------------------------------------------------------------------------------------------------------
    def _given(self, graph: Graph, inputs: tuple, by_name: dict) -> dict[str, Tensor]:
        """Every input and mask of the graph by its name there, checked."""
        declared = self.program.inputs
        if len(inputs) > len(declared):
            raise error("E0602", f"{self.program.model} takes {_list(declared)}, and was given {len(inputs)} inputs")
        named = {i.name: x for i, x in zip(declared, inputs)}
        known = {i.name for i in declared} | {f"{i.name}_mask" for i in declared if i.mask is not None}
        for name, x in by_name.items():
            if name in named: raise error("E0602", f"input {name} is given twice, by place and by name")
            if name not in known:
                raise error("E0602", f"{self.program.model} has no input {name}", help=f"it takes {', '.join(sorted(known))}")
            named[name] = x
        values, read = {v.name: v for v in graph.ins}, {v.name for v in (*graph.outs, *(u for n in graph.nodes for u in n.ins))}
        found: dict[str, Tensor] = {}
        sizes: dict[sp.Symbol, tuple[int, str]] = {}
        for i in declared:
            if i.value.name not in values: continue
            if i.name not in named and i.value.name not in read:
                found |= {v.name: torch.empty(0) for v in (i.value, i.mask) if v is not None}      # a target, which only the loss needs
                continue
            if i.name not in named:
                raise error("E0602", f"input {i.name} is missing", i.span, help=f"{self.program.model} takes {_list(declared)}")
            v = values[i.value.name]
            x, mask = self._symbols(i, v, named[i.name], named.get(f"{i.name}_mask"), graph is not self.program.graph)
            self._fits(i.name, v, x, sizes)
            found[v.name] = x
            if i.mask is None or i.mask.name not in values: continue
            m = values[i.mask.name]
            if mask is None: mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
            self._fits(f"{i.name}_mask", m, mask, sizes)
            found[m.name] = mask
        self._promised(sizes)
        return found

    def _promised(self, sizes: Mapping[sp.Symbol, tuple[int, str]]) -> None:
        """What the spec requires of its free dims holds of these sizes."""
        free = {s: v for s, (v, _) in sizes.items()}
        if not free or (key := frozenset(free.items())) in self._sound: return
        if wrong := broken(self.program, free): raise error("E0605", wrong, numbers=", ".join(f"{s} = {v}" for s, v in free.items()))
        self._sound.add(key)

    def _symbols(self, i: Input, v: Value, x: Tensor, mask: Tensor | None, counted: bool) -> tuple[Tensor, Tensor | None]:
        """The input in the dtype of the graph, and its mask."""
        if not isinstance(x, Tensor): raise error("E0603", f"input {i.name} is a {type(x).__name__}, not a tensor", i.span)
        if x.layout != torch.strided: raise error("E0603", f"input {i.name} is a sparse tensor", i.span, help=f"{i.name}.to_dense()")
        for name, t in ((i.name, x), (f"{i.name}_mask", mask)):
            if t is not None and t.device != (here := self._device()):
                raise error("E0603", f"input {name} lies on {t.device}, the model on {here}", i.span, help=f'{name}.to("{here}")')
        if mask is not None and mask.dtype != torch.bool:
            raise error("E0603", f"{i.name}_mask holds {_kind(mask)}, not truth values", i.span,
                        help="mask = lengths[:, None] > torch.arange(n)")
        if v.kind == "real":
            if not x.is_floating_point(): raise error("E0603", f"input {i.name} is a stream of reals, and was given {_kind(x)}", i.span)
            first = next(self.parameters(), None)
            return (x if first is None else x.to(first.dtype)), mask
        if x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
            raise error("E0603", f"input {i.name} holds symbols, which are integers, and was given {_kind(x)}", i.span,
                        help=f"{i.name}.long()")
        x = x.long()
        if i.mask is not None and mask is None: mask = x >= 0
        # A loss reads a negative symbol as its complement, one that is no target; the model itself knows them as padding only.
        if i.mask is not None and not counted: x = x.clamp(min=0)
        if x.device.type == "cpu" and x.numel(): self._known_symbols(i, torch.where(x < 0, ~x, x) if counted else x)
        return x, mask

    def _known_symbols(self, i: Input, x: Tensor) -> None:
        """On a GPU this would wait for the device; there an unknown symbol fails inside the lookup."""
        classes = self.program.sizes.integer(i.classes) if i.classes is not None else None
        low, high = (int(t) for t in torch.aminmax(x))
        if low < 0 or classes is not None and high >= classes:
            wrong = low if low < 0 else high
            last = "…" if classes is None else classes - 1
            raise error("E0604", f"input {i.name} holds the symbol {wrong}, and its symbols are 0 to {last}", i.span)

    def _fits(self, name: str, v: Value, x: Tensor, sizes: dict[sp.Symbol, tuple[int, str]]) -> None:
        """The shape against the axes; free dims get their value from the first input that has them."""
        wrong = f"input {name} has shape {tuple(x.shape)}, and should be [{', '.join(str(a.size) for a in v.axes)}]"
        if x.dim() != len(v.axes): raise error("E0605", wrong)
        for a, have in zip(v.axes, x.shape):
            want = self.program.sizes.integer(a.size)
            if want is not None:
                if want != have: raise error("E0605", wrong, numbers=f"{a.size} = {want}, given {have}")
                continue
            for s in self.program.sizes.resolve(a.size).free_symbols:
                more = a.size - s
                if not more.is_Integer: continue
                value = have - int(more)
                if value < 1: raise error("E0605", wrong, numbers=f"{s} = {value}")
                before, where = sizes.setdefault(s, (value, name))
                if before != value:
                    raise error("E0605", f"inputs {where} and {name} do not fit together", numbers=f"{s} = {before} there, {value} here")

    # -- copying -------------------------------------------------------------------------------------------------------------
    def __getstate__(self):
        return {**self.__dict__, "_lowered": {}}           # made again on first use

    def __deepcopy__(self, memo):
        memo[id(self.program)] = self.program              # frozen
        made = self.__class__.__new__(self.__class__)
        memo[id(self)] = made
        made.__dict__.update(copy.deepcopy(self.__getstate__(), memo))
        return made


def target_of(device: str, dtype: torch.dtype = torch.float32, compiled: bool = False) -> Target:
    """What a plan is made for: this torch, on a device (`cpu`, `cuda`)."""
    version = torch.__version__.split(".")
    return Target(device, str(dtype).removeprefix("torch."), (int(version[0]), int(version[1])), compiled)


def _affordable(program: Program, device: torch.device, dtype: torch.dtype) -> None:
    """Refuses what could never be built, before anything is: too many copies, or more parameters than there is memory."""
    loops = [n.op.axis for n in program.graph.walk() if isinstance(n.op, Loop)]
    copies = max((program.sizes.integer(a.size) or 0 for a in loops if a.role == "copies"), default=0)
    if copies > MOST_COPIES:
        raise error("E0606", f"{program.model} repeats a body {copies:,} times: a module has at most {MOST_COPIES:,} copies",
                    help="plait table counts any number of copies; to build the model choose fewer")
    bytes_ = (program.sizes.integer(params(program.graph)) or 0) * dtype.itemsize
    there = (torch.cuda.get_device_properties(device).total_memory if device.type == "cuda"
             else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    if bytes_ > there:
        raise error("E0606", f"the parameters of {program.model} alone take {bytes_ / 2**30:,.1f} GiB, "
                             f"and {device.type} has {there / 2**30:,.1f} GiB", help="--set makes its dims smaller")


def started(init: Init, shape: list[int], sizes: Sizes) -> Tensor:
    """A parameter's first value, float32, from torch's global generator."""
    scale = float(sizes.value(init.scale))                                                             # type: ignore[arg-type]
    match init.kind:
        case "uniform": return torch.empty(shape, dtype=torch.float32).uniform_(-scale, scale)
        case "normal": return torch.empty(shape, dtype=torch.float32).normal_(0.0, scale)
        case "constant": return torch.full(shape, scale, dtype=torch.float32)
        case _: raise ValueError(f"no way to start called {init.kind}")


def _bound(sizes: Sizes, size: sp.Expr, v: Value) -> int:
    n = sizes.integer(size)
    if n is None: raise error("E0606", f"parameter {v.name} needs a value for {size}", help=f"--set {size}=…")
    return n


def _placed(path: list[str], repeat: list[str], i: int) -> list[str]:
    """The name of copy i: the number goes behind the place of the repeat."""
    at = len(repeat) if path[:len(repeat)] == repeat else len(path) - 1
    return [*path[:at], str(i), *path[at:]]


def _copy(path: list[str], repeat: list[str], i: int) -> tuple[str, ...]:
    """The place of copy i: where `_placed` puts its number."""
    at = len(repeat) if path[:len(repeat)] == repeat else len(path) - 1
    return *path[:at], str(i)


def _below(inner: Axis, outer: Axis, i: int) -> Axis:
    """The axis of an inner repeat, named by its place under copy i of the outer one."""
    if not inner.name.startswith(outer.name + "/"): return inner
    return Axis("/".join(_placed(inner.name.split("/"), outer.name.split("/"), i)), inner.size, inner.role)


def _kind(x: Tensor) -> str: return str(x.dtype).removeprefix("torch.")


def _list(inputs: tuple[Input, ...]) -> str: return ", ".join(i.name for i in inputs)


