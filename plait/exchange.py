"""From a run to a file for other programs, and from another library's checkpoint to a spec and its weights. Imports torch."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from plait.dsl.errors import error
from plait.dsl.spec import Override
from plait.dsl.suggest import suggest
from plait.runtime.foreign import program, reformer, weights

ENDINGS = {"safetensors": ".safetensors", "torch.export": ".pt2", "onnx": ".onnx"}
ALIASES = {"pt2": ["torch.export"], "torch": ["torch.export"], "export": ["torch.export"], "st": ["safetensors"]}


def exported(folder: Path, to: str, out: Path | None, step: int | None, best: bool, average: int | None, settings: tuple[Override, ...],
             say: Callable[[str], None]) -> str:
    """Writes the model of a run, or of a file of weights that plait has written; gives the line that says so. out: by default NAME.ENDING
    in the folder. Raises PlaitError."""
    if to not in ENDINGS:
        near = suggest(to, list(ENDINGS), {}) or ALIASES.get(to.lower(), [])
        raise error("E0505", f"there is no form `{to}` to export to", help=f"--to {near[0]}" if near else "--to " + " | ".join(ENDINGS))
    if folder.is_file():
        if best or average is not None or step is not None:
            raise error("E0504", "a file of weights has no checkpoints", help="--step, --best and --average are for runs")
        module = weights.from_file(folder, settings=settings, compile=False)
    else: module = weights.from_run(folder, step=step, best=best, average=average, settings=settings, compile=False, say=say)
    path = out or (folder.parent if folder.is_file() else folder) / f"{module.program.model}{ENDINGS[to]}"
    if path.is_dir(): raise error("E0660", f"`{path}` is a folder, not a file", help=f"--out {path / module.program.model}{ENDINGS[to]}")
    if to == "safetensors": weights.write(path, module)
    else: weights.put(path, program.WRITERS[to](module))
    return f"{path}: {module.program.model} of step {module.step:,}"


def imported(folder: Path, out: Path | None, name: str | None) -> str:
    """Writes NAME.plait and NAME.safetensors; gives the line that says so. Raises PlaitError."""
    found = reformer.read(folder, name)
    where = out or Path(found.model)
    spec, tensors = where / f"{found.model}.plait", where / f"{found.model}.safetensors"
    for path in (spec, tensors):
        if path.exists(): raise error("E0662", f"`{path}` is there already", help="--out FOLDER, or --name NAME")
    module = reformer.loaded(found)
    weights.put(spec, found.spec.encode())
    weights.write(tensors, module)
    return f"{spec}: {sum(p.numel() for p in module.parameters()):,} parameters in {tensors}; plait table {spec}"
