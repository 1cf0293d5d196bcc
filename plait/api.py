"""The Python entry points: load, compile, train. torch is imported where it is needed, and not before."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from plait import files, given
from plait.compiler.expand import File, expand
from plait.compiler.program import Program
from plait.compiler.table import LEVELS, rows
from plait.dsl.errors import error
from plait.dsl.suggest import suggest
from plait.render import Table, shown_dims

if TYPE_CHECKING:
    import torch

    from plait.compiler.step import Step
    from plait.predicting import Predictions
    from plait.runtime.laboratory.machines import Measured
    from plait.runtime.train import Run


class Spec:
    """A spec file, resolved: its models, their graphs and their costs. Knows no torch."""

    def __init__(self, path: str | Path, file: File, settings: Mapping[str, object] | None = None):
        self.path, self.file, self.settings = Path(path), file, dict(settings or {})

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(self.file.models)

    def program(self, model: str | None = None, loss: bool = False) -> Program:
        """One model, expanded. Raises PlaitError with all that is wrong in it."""
        return expand(self.file, chosen(self.file, model), loss)

    def table(self, by: str = "model", model: str | None = None) -> Table:
        """The derived costs: a row per model, layer or op. Raises PlaitError for another level, or a model that is not there."""
        if by not in LEVELS: raise error("E0505", f"a table goes by {', '.join(LEVELS)}, not by {by}", help="by = layer")
        names = (chosen(self.file, model),) if model else self.models
        found = tuple(r for m in names for r in rows(expand(self.file, m), by, self.step(m)))
        return Table(str(self.path), by, found, shown_dims(self.file.names))

    def step(self, model: str | None = None) -> Step:
        """One training step of a model, as the costs see it; nothing is derived before it is asked for."""
        from plait.compiler.step import Step
        name = chosen(self.file, model)
        return Step(lambda: expand(self.file, name, loss=True))

    def __repr__(self) -> str:
        return f"Spec({str(self.path)!r}: {', '.join(self.models)})"


def chosen(file: File, model: str | None) -> str:
    """The model asked for, or the only one."""
    if model is None:
        if len(file.models) == 1: return next(iter(file.models))
        if not file.models:
            raise error("E0408", "this file has no model", help="model m { input x: stream[n, d]; y = x { layer_norm }; output y: [n, d] }")
        raise error("E0637", f"this file has {len(file.models)} models", help="--model " + " or --model ".join(file.models))
    if not isinstance(model, str):
        raise error("E0505", f"a model is asked for by its name, and this is a {type(model).__name__}", help='model="NAME"')
    if model not in file.models:
        near = suggest(model, file.models, {})
        raise error("E0402", f"there is no model `{model}`", help=f"`{near[0]}`?" if near else f"models: {', '.join(file.models)}")
    return model


def load(path: str | Path, set: Mapping[str, object] | None = None) -> Spec:
    """Read a spec. set: overrides, `{"d": 256}`, in the same syntax as `--set`. Raises PlaitError."""
    path, settings = given.path(path, "a spec"), given.single(set)
    return Spec(path, files.opened(path, settings), set)


def compile(spec_or_path: Spec | str | Path, model: str | None = None, set: Mapping[str, object] | None = None, device: str = "cpu",
            compile: bool = True, kernels: Mapping[str, str] | None = None, memory: int | str | None = None, batch: int = 1
            ) -> torch.nn.Module:
    """One model as a torch.nn.Module: `module(*inputs)` takes the model's inputs in order, or by name, and gives its outputs;
    `module.loss(*inputs)` the scalar loss of the spec's train block. compile = False runs it eagerly. kernels: region → kernel or `body`,
    against the plan. memory: bytes, or "4GiB", that a step of `batch` sequences is fitted into. Raises PlaitError."""
    more, batch = given.settings(set), given.count(batch, "batch", 1)
    spec = spec_or_path if isinstance(spec_or_path, Spec) else load(spec_or_path, more)
    if isinstance(spec_or_path, Spec) and more: spec = load(spec.path, {**spec.settings, **more})
    from plait.compiler.fit import bytes_of, fit
    from plait.runtime.device import device_of
    from plait.runtime.module import Module, target_of
    name, where = chosen(spec.file, model), device_of(device)
    wanted = kernels_asked(kernels)
    program = expand(spec.file, name, loss=True)
    if memory is not None:
        found = fit(program, bytes_of(memory), batch, target_of(where.type), wanted)
        program, wanted = found.program, dict(found.kernels)
    return Module(program, device=where, compile=compile, kernels=wanted)


def kernels_asked(kernels: Mapping[str, str] | None) -> dict[str, str]:
    """Checked. Raises PlaitError."""
    from plait.compiler.plan import kernels_of
    if kernels is not None and not isinstance(kernels, Mapping):
        raise error("E0505", f"kernels are given by their regions, and this is a {type(kernels).__name__}", help='kernels={"lstm": "body"}')
    return kernels_of(f"{region}={kernel}" for region, kernel in (kernels or {}).items())


def train(path: str | Path, model: str | None = None, set: Mapping[str, object] | None = None, device: str = "auto",
          steps: int | None = None, out: str | Path | None = None, compile: bool = True, console=None,
          kernels: Mapping[str, str] | None = None, memory: int | str | None = None, shard: str = "ddp", offload: bool = False) -> Run:
    """Train a model by its spec's train block; gives the run (its folder, last step, loss and metrics). kernels, memory: as `compile`.
    shard: of several processes, ddp or fsdp; offload: the parts of parameters lie on the host."""
    from plait.compiler.fit import bytes_of
    from plait.training import start
    most = bytes_of(memory) if memory is not None else None
    steps = given.count(steps, "steps", 1) if steps is not None else None
    out = given.path(out, "a run") if out is not None else None
    return start(given.path(path, "a spec"), model, given.single(set), device, steps, out, compile, given.console(console),
                 kernels_asked(kernels), most, shard, offload)


def calibrate(device: str = "cpu", dtype: str = "float32", told: Callable[[str], None] = lambda what: None) -> Measured:
    """Measure the rates of this machine, once for a device, a dtype and a number of threads, and keep them in the user's cache, where
    `predict` finds them. Takes about a minute. told: is called with what is measured. Raises PlaitError on a machine that is too noisy."""
    import torch

    from plait.compiler.costs.memory import WIDTHS
    from plait.runtime.device import device_of
    from plait.runtime.laboratory import machines
    from plait.runtime.laboratory.calibrate import calibrate as measured
    if dtype not in WIDTHS: raise error("E0505", f"there is no dtype `{dtype}`", help=f"one of {', '.join(WIDTHS)}")
    found = measured(device_of(device), getattr(torch, dtype), told=told)
    machines.write(found)
    return found


def predict(path: str | Path, model: str | None = None, set: Mapping[str, object] | None = None, batch: int | None = None,
            steps: int | None = None, machine: str | Path | None = None, measure: bool = False, kernels: Mapping[str, str] | None = None
            ) -> Predictions:
    """The time of a training step, predicted from derived costs and the rates of this machine (or of those in a file), for every model, or
    one, and every value in set: `{"n": "16,32,64"}`. It prints as a table. measure: each is measured, too. Raises PlaitError."""
    from plait.predicting import predicted
    batch = given.count(batch, "batch", 1) if batch is not None else None
    steps = given.count(steps, "steps", 1) if steps is not None else None
    where = given.path(machine, "a machine") if machine is not None else None
    settings = files.overrides(given.settings(set))
    return predicted(given.path(path, "a spec"), model, settings, batch, steps, where, measure, kernels_asked(kernels))
