"""How a model runs, in words: `plait graph FILE --plan`."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from plait.api import Spec
from plait.checking import batch_of
from plait.compiler.fit import bytes_of, fit, most, peak, size, told
from plait.compiler.kernels import Target
from plait.compiler.plan import kernels_of, plan
from plait.compiler.step import Step
from plait.dsl.errors import PlaitError, error

DEVICES = ("cpu", "cuda")


def planned(spec: Spec, model: str, kernels: Iterable[str], memory: str | None, device: str) -> str:
    """A line a decision, then what a training step of the spec's batch takes, where its dims have values."""
    if device not in DEVICES: raise error("E0615", f"there is no device `{device}`", help="--device cpu or cuda")
    wanted, target = kernels_of(kernels), Target(device)
    program, batch = spec.program(model, loss=True), batch_of(spec.file, model)
    lines: list[str] = []
    used: Mapping[str, str] = wanted
    sequences = f"{batch:,} sequence{'s' if batch != 1 else ''}"
    if memory is not None:
        found = fit(program, bytes_of(memory), batch, target, wanted)
        program, used = found.program, found.kernels
        lines.append(f"  to fit {size(bytes_of(memory))}: {told(used, found.choice)}; {found.work:.3f} times the multiply-adds")
    made = plan(program.loss or program.graph, program.sizes, target, used)
    made = replace(made, decisions=tuple(replace(d, why="its memory is derived") if d.what in used and d.what not in wanted else d
                                         for d in made.decisions))
    try: lines += _memory(Step(lambda: program, target, used), sequences, batch)
    except PlaitError as free: lines.append(f"  {free.diagnostics[0].message}")
    unused = [r for r in wanted if all(d.what != r for d in made.decisions)]
    lines += [f"  no {r} here: --kernel {r}={wanted[r]} changes nothing" for r in unused]
    kind = "training" if program.loss is not None else "forward and backward of the outputs"
    return "\n".join([f"{model}: {kind} on {device}, float32", made.text("  "), *lines])


def _memory(step: Step, sequences: str, batch: int) -> list[str]:
    """Derived, for an eager step; with what comes on top where a kernel has buffers of its own, or keeps what only its library knows."""
    low, high = peak(step, batch), most(step, batch)
    above = f", {size(high)} with all that its kernels may take while they run" if high > low else ""
    return [f"  a step of {sequences} takes {size(low)} at its peak, derived{above}", *(f"  {line}" for line in unknown(step))]


def unknown(step: Step) -> list[str]:
    """What of a step's memory is not derived."""
    library = sorted({kernel for _, kernel in step.joint.measured})
    return [f"what the library's {k} keeps besides is its own: --kernel {k}=body has a derived peak" for k in library]
