"""Which weights of a run a model takes: the last, the best, those of a step, or a mean of several."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import nn

from plait.dsl.errors import error
from plait.runtime import checkpoint, record


def trained(folder: Path, module: nn.Module, say: Callable[[str], None], *, best: bool = False, average: int | None = None,
            step: int | None = None) -> int:
    """The module takes the last weights of a run; the best, which `checkpoint(best = METRIC)` keeps; those of `step`; or the mean of those
    of the last `average` checkpoints. Of a run that keeps a moving average it takes that one, but for the mean. Gives the step; `say` is
    told of whatever is not plainly the last weights. Raises PlaitError where there are none."""
    text = record.spec_text(folder)
    if best + (average is not None) + (step is not None) > 1:
        raise error("E0505", "the best checkpoint is one, that of a step is one, and a mean is of several", help="--best, or --average 5")
    if average is not None:
        found = checkpoint.averaged(folder, module, average, text)
        say(f"the mean of the weights of steps {', '.join(f'{s:,}' for s in found)}")
        return found[-1]
    if step is not None and step not in checkpoint.steps(folder):
        kept = ", ".join(f"{s:,}" for s in checkpoint.steps(folder))
        raise error("E0621", f"`{folder}` has no checkpoint of step {step:,}", help=f"it keeps those of step {kept}" if kept else "")
    state = checkpoint.latest(folder, text, say) if step is None else checkpoint.check(folder, step, text)
    if best:
        if state.best is None:
            raise error("E0621", f"`{folder}` keeps no best checkpoint", help="every N steps { checkpoint(best = loss) } keeps one")
        say(f"the best checkpoint, of step {state.best.step:,}: {state.best.value:.4f}")
        state = checkpoint.check(folder, state.best.step, text)
    if checkpoint.take(folder, state.step, module): say("the moving average of the weights")
    return state.step
