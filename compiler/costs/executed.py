"""Work as the plan's kernels do it: blocks of rows that skip what a causal mask excludes, blocks of a window that see more than it.

Everything else runs what its definition says. A library does not tell how much of a causal mask its fused attention skips."""
from __future__ import annotations

from collections.abc import Callable

import sympy as sp

from plait.compiler.axis import volume
from plait.compiler.costs.order import added, over_trips, per_sequence
from plait.compiler.costs.work import macs
from plait.compiler.graph import Graph
from plait.compiler.kernels import BLOCK_ROWS, band
from plait.compiler.prims import Contract, Loop, Region


def executed(claimed: Graph) -> sp.Expr | None:
    """Multiply-adds of one sequence, forward; None where a library's kernel decides for itself."""
    found = list(_terms(claimed, ()))
    return None if None in found else added(per_sequence(e) for e in found if e is not None)


def _terms(graph: Graph, loops: tuple[Loop, ...]):
    for n in graph.nodes:
        if isinstance(n.op, Loop): yield from _terms(n.op.body, (*loops, n.op))
        elif isinstance(n.op, Region) and not n.op.kernel: yield from _terms(n.op.body, loops)
        elif isinstance(n.op, Region):
            own = BY_KERNEL.get(n.op.kernel, _defined)(n.op)
            yield None if own is None else over_trips(own, loops)
        elif isinstance(n.op, Contract):
            yield over_trips(n.outs[0].size * volume([n.ins[0].axis(o) for o in n.op.over]), loops)


def _defined(op: Region) -> sp.Expr:
    return macs(op.body)


def _fused(op: Region) -> sp.Expr | None:
    return None if op.arg("causal") else macs(op.body)


def _rows(op: Region) -> sp.Expr:
    """A block of rows meets all keys, or, causal, those up to its last row."""
    q, k, v = op.body.ins[:3]
    n, m = q.axis("n").size, k.axis("n'").size
    each = volume([a for a in q.axes if a.role != "batch" and a.name not in ("n", "k")]) * (q.axis("k").size + v.axis("v").size)
    if not op.arg("causal"): return n * m * each
    t = sp.Symbol("t", integer=True, nonnegative=True)
    rows = sp.Min(BLOCK_ROWS, n - BLOCK_ROWS * t, evaluate=False)
    pairs = sp.Sum(rows * (BLOCK_ROWS * t + rows), (t, 0, sp.ceiling(n / BLOCK_ROWS) - 1))
    return pairs * each


def _bands(op: Region) -> sp.Expr | None:
    """Blocks of queries, each with blocks of keys that hold all that any of them sees."""
    q, _, v = op.body.ins[:3]
    window, left, n = sp.sympify(op.arg("window")), sp.sympify(op.arg("left")), q.axis("n").size
    window = sp.Min(left, n - 1, evaluate=False) + sp.Min(window - 1 - left, n - 1, evaluate=False) + 1
    size = sp.Min(band(window), n, evaluate=False)
    each = volume([a for a in q.axes if a.role != "batch" and a.name not in ("n", "k")]) * (q.axis("k").size + v.axis("v").size)
    return size * sp.ceiling(n / size) * size * (sp.ceiling((window - 1) / size) + 1) * each


BY_KERNEL: dict[str, Callable[[Region], sp.Expr | None]] = {
    "scaled_dot_product_attention": _fused, "rowwise_attention": _rows, "banded_attention": _bands,
}
