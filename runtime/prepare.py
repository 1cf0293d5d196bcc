"""From a spec to all that training needs, and from the folder of a run back to it."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from plait.compiler.expand import File, expand, open_file
from plait.compiler.fit import Choice, applied, fit
from plait.dsl import override
from plait.dsl.errors import Span, error
from plait.dsl.parser import parse
from plait.dsl.printer import render
from plait.dsl.spec import Number, Override, Spec
from plait.runtime import data, record
from plait.runtime.batch import part
from plait.runtime.codec import Codec
from plait.runtime.data import Dataset
from plait.runtime.module import Module, target_of
from plait.runtime.recipe import Recipe, recipe, trainable

PRECISIONS: dict[str, torch.dtype | None] = {"fp32": None, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class How:
    """kernels: region → kernel or `body`; choice: what is recomputed, and in how many pieces the loss goes."""
    kernels: Mapping[str, str] = field(default_factory=dict)
    choice: Choice = Choice()

    def as_json(self) -> dict:
        return {"kernels": dict(self.kernels), "pieces": self.choice.pieces, "recomputed": list(self.choice.recomputed)}


@dataclass(frozen=True)
class Prepared:
    """A model ready to train, evaluate or sample. spec_text: the resolved spec, with a vocabulary that the data knew written into it.
    how: what was asked of its plan."""
    module: Module
    recipe: Recipe
    dataset: Dataset
    spec_text: str
    how: How


def prepare(spec: Spec, model: str | None, folder: Path, *, device: torch.device | str = "cpu", compile: bool = True,
            codec: Codec | None = None, how: How | None = None, memory: int | None = None, whole: bool = True) -> Prepared:
    """Reads the train block, opens the data, binds a free vocabulary by it, and makes the module, its first weights drawn from the
    recipe's seed. `folder`: where the spec's paths start. `model`: None where the spec has only one. `codec`: that of
    a run, for the same symbols as then; `how`: that of a run, or the kernels to take. `memory`: bytes that a step is fitted into.
    whole: the module goes to the device as a whole; else it is made on the host, from where its parts are brought.

    Raises PlaitError for whatever keeps the model from being trained; the data is looked at before anything is built."""
    file = open_file(spec)
    model = _known(file, model) if model is not None else _only(file)
    program = expand(file, model, loss=True)
    found = recipe(file.spec, model, file.values(model))
    if found is None:
        raise error("E0637", f"no train block is for the model `{model}`", file.models[model].name_span, help=f"train {model} {{ … }}")
    dataset = data.open_for(program, found.data, folder, found.seed, codec)
    free = {str(i.classes): size for i, size in zip(program.inputs, dataset.classes) if program.sizes.integer(i.classes) is None}
    if free:
        for dim, size in free.items(): spec = _bound(spec, dim, size, found.data.span)
        file = open_file(spec)
        program = expand(file, model, loss=True)
        found = recipe(file.spec, model, file.values(model)) or found
    trainable(found)
    how = how or How()
    target = target_of(torch.device(device).type)
    if memory is not None:
        fitted = fit(program, memory, part(found, dataset.length), target, how.kernels)
        how = How(fitted.kernels, fitted.choice)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(found.seed)
        module = Module(applied(program, how.choice), device=device if whole else "cpu", compile=compile, kernels=how.kernels)
    module.autocast = PRECISIONS[found.precision]
    return Prepared(module, found, dataset.by(found.batch), render(spec), how)


def reopen(folder: Path, *, settings: tuple[Override, ...] = (), device: torch.device | str = "cpu", compile: bool = True,
           whole: bool = True) -> Prepared:
    """What a run was made from, by its folder; the weights are fresh (`checkpoint.load` and `resume` bring the trained ones).
    settings: overrides. Raises PlaitError where the folder holds no run, or its data is gone."""
    text = record.spec_text(folder)
    model, data_folder = record.about(folder)
    spec = override.apply(parse(text, str(folder / record.SPEC)), settings)
    kernels, pieces, recomputed = record.plan(folder)
    how = How(kernels, Choice(pieces, recomputed))
    made = prepare(spec, model, data_folder, device=device, compile=compile, codec=record.vocabulary(folder), how=how, whole=whole)
    return replace(made, spec_text=text)


def bare(folder: Path, *, settings: tuple[Override, ...] = (), device: torch.device | str = "cpu",
         compile: bool = True) -> tuple[Module, Codec]:
    """The module of a run with fresh weights, and what its symbols stand for: all that sampling needs, and no data. settings: overrides."""
    spec = override.apply(parse(record.spec_text(folder), str(folder / record.SPEC)), settings)
    file = open_file(spec)
    model = _known(file, record.about(folder)[0])
    with torch.random.fork_rng(devices=[]): module = Module(expand(file, model), device=device, compile=compile)
    module.autocast = precision_of(file, model)
    return module, record.vocabulary(folder)


def precision_of(file: File, model: str) -> torch.dtype | None:
    """What a model's products are computed in, by its train block; None: as they come."""
    found = recipe(file.spec, model, file.values(model))
    return PRECISIONS[found.precision if found else "fp32"]


def _only(file: File) -> str:
    if len(file.models) == 1: return next(iter(file.models))
    raise error("E0637", f"the spec has {len(file.models)} models", help="--model " + " | ".join(file.models))


def _known(file: File, model: str) -> str:
    if model in file.models: return model
    raise error("E0637", f"there is no model `{model}` in the spec", help=f"models: {', '.join(file.models)}")


def _bound(spec: Spec, dim: str, value: int, span: Span | None) -> Spec:
    place = span or Span(0, 0, spec.source)
    return override.apply(spec, (Override((dim,), (Number(value, str(value), place),), place),))
