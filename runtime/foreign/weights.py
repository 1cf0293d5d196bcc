"""A trained model without its trainer: from the folder of a run, or from one safetensors file that holds its spec too."""
from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from plait.compiler.expand import expand, open_file
from plait.dsl import override
from plait.dsl.errors import PlaitError, error
from plait.dsl.parser import parse
from plait.dsl.spec import Override
from plait.runtime import codec, record
from plait.runtime.checkpoint import stored_once
from plait.runtime.codec import Codec
from plait.runtime.module import Module
from plait.runtime.prepare import precision_of
from plait.runtime.trained import trained

FORMAT = "1"                                               # of the metadata; under the key `plait`


class Loaded(Module):
    """A trained model in evaluation mode. codec: what its symbols stand for; spec_text: the spec it was made from; step: of its weights."""
    codec: Codec
    spec_text: str
    step: int


def from_run(folder: Path, *, step: int | None = None, best: bool = False, average: int | None = None, settings: tuple[Override, ...] = (),
             device: torch.device | str = "cpu", compile: bool = True, say: Callable[[str], None] = lambda text: None) -> Loaded:
    """The model of a run, with the weights that `evaluate` and `sample` would take (`runtime.trained`). settings may change what has no
    weights. The data is not needed. Raises PlaitError where the folder holds no run, or no such checkpoint."""
    text = record.spec_text(folder)
    model = record.about(folder)[0]
    made = _made(text, str(folder / record.SPEC), model, settings, device, compile)
    at = trained(folder, made, say, best=best, average=average, step=step)
    return _ready(made, record.vocabulary(folder), text, at)


def _made(text: str, source: str, model: str, settings: tuple[Override, ...], device: torch.device | str, compile: bool) -> Loaded:
    file = open_file(override.apply(parse(text, source), settings))
    if model not in file.models:
        raise error("E0637", f"there is no model `{model}` in the spec", help=f"models: {', '.join(file.models)}")
    with torch.random.fork_rng(devices=[]): made = Loaded(expand(file, model, loss=True), device=device, compile=compile)
    made.autocast = precision_of(file, model)
    return made


def _ready(made: Loaded, known: Codec, text: str, step: int) -> Loaded:
    made.codec, made.spec_text, made.step = known, text, step
    return made.eval()


# ---- one file ------------------------------------------------------------------------------------------------------------------
def write(path: Path, module: Loaded) -> None:
    """The weights under the names of the spec, and in the metadata the spec, the model, the vocabulary and the step. A tensor with
    several names is stored once. Raises PlaitError where the file cannot be written."""
    facts = {"plait": FORMAT, "format": "pt", "spec": module.spec_text, "model": module.program.model, "step": str(module.step),
             "vocabulary": json.dumps(module.codec.facts())}
    once, also = stored_once(module.state_dict())
    put(path, save(once, {**facts, "also": json.dumps(also)}))


def put(path: Path, content: bytes) -> None:
    """All of it or nothing. Raises PlaitError where the disk refuses."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(content)
        beside.replace(path)
    except OSError as why:
        beside.unlink(missing_ok=True)
        raise error("E0660", f"`{path}` cannot be written: {why.strerror or why}", help="--out FILE") from None


def from_file(path: Path, *, settings: tuple[Override, ...] = (), device: torch.device | str = "cpu", compile: bool = True) -> Loaded:
    """The model of a file that `write` has written. Raises PlaitError for another file, and for one that is damaged."""
    facts, tensors = _read(path)
    try: known, also = codec.from_facts(json.loads(facts["vocabulary"])), json.loads(facts["also"])
    except (KeyError, ValueError, RecursionError): raise _strange(path, "what it says of itself is not whole") from None
    made = _made(facts["spec"], str(path), facts["model"], settings, device, compile)
    weights = {**tensors, **{name: tensors[first] for name, first in also.items() if first in tensors}}
    own = made.state_dict()
    wrong = sorted(own.keys() ^ weights.keys()) or [k for k in own if own[k].shape != weights[k].shape]
    if wrong: raise _strange(path, f"its weights are not those of its spec: `{wrong[0]}` differs")
    made.load_state_dict(weights)
    return _ready(made, known, facts["spec"], int(facts.get("step", "0")) if facts.get("step", "0").isdecimal() else 0)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if not path.is_file(): raise error("E0661", f"there is no file `{path}`", help="plait export RUN --to safetensors makes one")
    try:
        with safe_open(path, "pt") as file:
            facts = file.metadata() or {}
            if facts.get("plait") != FORMAT or not {"spec", "model"} <= facts.keys():
                raise _strange(path, "it does not hold a spec" if "plait" not in facts else "it is of another version of plait")
            return facts, {name: file.get_tensor(name) for name in file.keys()}              # noqa: SIM118 (not a mapping)
    except (OSError, SafetensorError) as why: raise _strange(path, str(why)) from None


def _strange(path: Path, why: str) -> PlaitError:
    return error("E0661", f"`{path}` is no model that plait has written: {why}", help="plait export RUN --to safetensors makes one")
