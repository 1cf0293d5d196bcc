"""What stands between the lowering and a kernel: what an emission is told, and the layouts of its operands."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import sympy as sp
from torch import Tensor

from plait.compiler.graph import Value
from plait.compiler.prims import Region
from plait.compiler.sizes import Sizes, evaluate


@dataclass(frozen=True)
class KernelCall:
    """What an emission is told: the region, its operands and results as the body names them (with their axes), the sizes."""
    region: Region
    sizes: Sizes
    compiled: bool = False

    @property
    def ins(self) -> tuple[Value, ...]: return self.region.body.ins

    @property
    def outs(self) -> tuple[Value, ...]: return self.region.body.outs

    def into(self, k: int, *names: str) -> Callable[[Tensor], Tensor]:
        """Operand k, permuted to this order of its axes."""
        return permuted(self.ins[k].names, names)

    def back(self, *names: str, k: int = 0) -> Callable[[Tensor], Tensor]:
        """Result k, given with its axes in this order, permuted to the order that the graph wants."""
        return permuted(names, self.outs[k].names)

    def number(self, name: str, *operands: Tensor, default=None):
        """The value of an argument that is a number or an expression; free dims are read from the operands' shapes."""
        e = self.region.arg(name, default)
        if e is None or isinstance(e, bool | int | float | str): return e
        return self.value(e, *operands)

    def value(self, e, *operands: Tensor):
        found = self.sizes.value(e)
        if found is None:
            at = dict(self.sizes.bound)
            for v, x in zip(self.ins, operands):
                at |= {a.size: x.shape[k] for k, a in enumerate(v.axes) if isinstance(a.size, sp.Symbol)}
            found = evaluate(self.sizes.resolve(e), at)
        return int(found) if found == int(found) else float(found)


# Torch's side of a kernel. Called once a region while lowering; gives a function of tensors in the layout of `ins`, which gives
# a tensor in the layout of `outs`, or a tuple of them where there are several.
Emission = Callable[[KernelCall], Callable]


def permuted(have: tuple[str, ...], want: tuple[str, ...]) -> Callable[[Tensor], Tensor]:
    if set(have) != set(want): raise ValueError(f"axes {have} cannot be ordered as {want}")
    order = [have.index(w) for w in want]
    return (lambda x: x) if order == sorted(order) else (lambda x: x.permute(order))
