"""What the kernels keep and how their backward goes, in the alphabet: an entry a kernel, by its name in `compiler.kernels`.

A kernel without an entry is autograd through the body of its region, or a library call that is derived so. The
emissions are in `plait.runtime.kernels`."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sympy as sp

from plait.compiler.derive import attention, dense, lsh, output
from plait.compiler.derive.adjoint import Gradients
from plait.compiler.derive.call import Call
from plait.compiler.derive.scope import Scope
from plait.compiler.derive.tape import Pull
from plait.compiler.graph import Node, Value
from plait.compiler.prims import Region


@dataclass(frozen=True)
class Rule:
    """forward: (scope, region, operands) → the region's results, then what the kernel keeps besides; None: the body as it is.
    backward: what it reads of the call is what is saved. beside: bytes that the emission keeps and the alphabet does not say."""
    backward: Callable[[Scope, Call], Gradients]
    forward: Callable[[Scope, Region, tuple[Value, ...]], Sequence[Value]] | None = None
    beside: Callable[[Region], sp.Expr] = lambda op: sp.Integer(0)


RULES: dict[str, Rule] = {
    "softmax": Rule(dense.softmax_back),
    "layer_norm": Rule(dense.layer_norm_back, dense.layer_norm),
    "rms_norm": Rule(dense.rms_norm_back, dense.rms_norm),
    "conv1d": Rule(dense.convolution_back, dense.convolution),
    "cross_entropy": Rule(dense.cross_entropy_back, dense.cross_entropy, dense.weights),
    "linear_cross_entropy": Rule(output.linear_cross_entropy_back, output.linear_cross_entropy),
    "scaled_dot_product_attention": Rule(attention.fused_back, attention.fused),
    "rowwise_attention": Rule(attention.rowwise_back, attention.rowwise),
    "banded_attention": Rule(attention.rowwise_back, attention.rowwise),
    "lsh_attention": Rule(lsh.lsh_back, lsh.lsh, lsh.codes),
}

# Kernels that keep something that the alphabet does not say: what a library's recurrence writes for its own backward. What they save has
# to be measured.
MEASURED = frozenset({"rnn", "lstm", "gru"})


def claimed(b: Scope, n: Node, ins: tuple[Value, ...], need: Sequence[bool]) -> tuple[tuple[Value, ...], Pull]:
    """Emit a claimed region with what its kernel keeps; its results, those of the region first, and its pullback: a region over just
    what it reads, called `…_backward`."""
    op = n.op
    assert isinstance(op, Region)
    rule = RULES[op.kernel]
    with b.located(n.at, n.span):
        outs = b.replay(n, ins) if rule.forward is None else b.framed(op, ins, lambda inner, *xs: rule.forward(inner, op, xs))  # type: ignore[misc]

    def pull(back: Scope, gs: Sequence[Value | None]) -> Gradients:
        call = Call(op, ins, outs, gs[0], tuple(need))                                                     # type: ignore[arg-type]
        wanted = [k for k, w in enumerate(need) if w]
        region = Region(f"{op.name}_backward", op.body, op.args, f"{op.kernel}_backward")

        def body(inner: Scope) -> list[Value]:
            found = rule.backward(inner, call)
            return [found[k] for k in wanted]                                                              # type: ignore[misc]
        made = dict(zip(wanted, back.framed(region, (), body)))
        return [made.get(k) for k in range(len(ins))]
    return outs, pull
