"""How a model runs, in words: `plait graph FILE --plan`."""
from __future__ import annotations

from collections.abc import Iterable

from plait.api import Spec
from plait.checking import batch_of
from plait.compiler.fit import bytes_of, fit, peak, size
from plait.compiler.kernels import Target
from plait.compiler.plan import kernels_of, plan
from plait.compiler.step import Step
from plait.dsl.errors import PlaitError, error

DEVICES = ("cpu", "cuda")


def told(spec: Spec, model: str, kernels: Iterable[str], memory: str | None, device: str) -> str:
    """A line a decision, then what a training step of the spec's batch takes, where its dims have values."""
    if device not in DEVICES: raise error("E0615", f"there is no device `{device}`", help="--device cpu or cuda")
    wanted, target = kernels_of(kernels), Target(device)
    program, batch = spec.program(model, loss=True), batch_of(spec.file, model)
    lines = []
    sequences = f"{batch:,} sequence{'s' if batch != 1 else ''}"
    if memory is not None:
        found = fit(program, bytes_of(memory), batch, target, wanted)
        program = found.program
        lines.append(f"  to fit {size(bytes_of(memory))}: {found.choice}; {found.work:.3f} times the multiply-adds")
    made = plan(program.loss or program.graph, program.sizes, target, wanted)
    try: lines.append(f"  a step of {sequences} takes {size(peak(Step(lambda: program, target, wanted), batch))} at its peak, derived")
    except PlaitError: pass                                        # a dim has no value
    kind = "training" if program.loss is not None else "forward and backward of the outputs"
    return "\n".join([f"{model}: {kind} on {device}, float32", made.text("  "), *lines])
