"""What a node may need besides its operands and results while it runs eagerly: bounds in bytes, for the audit of peaks.

A product may copy its operands into the layout of a matrix; random numbers are made from integers; a kernel has scratch of its own."""
from __future__ import annotations

from collections.abc import Callable, Mapping

import sympy as sp

from plait.compiler.axis import volume
from plait.compiler.costs import scratch_lsh as lsh
from plait.compiler.graph import Graph, Node, Value
from plait.compiler.kernels import BAND_SLAB, BLOCK_ROWS, band
from plait.compiler.prims import Contract, Loop, Map, Random, Reduce, Region

REAL, INTEGER = 4, 8                                          # bytes


def special(graph: Graph) -> dict[tuple[str, str], sp.Expr]:
    """(place, kernel) → bytes of scratch of its own, forward and backward alike."""
    return {(n.at, n.op.kernel): OWN[n.op.kernel](n.op) for n in graph.walk() if isinstance(n.op, Region) and n.op.kernel in OWN}


def sure(graph: Graph) -> dict[tuple[str, str], sp.Expr]:
    """(place, kernel) → bytes that a kernel certainly takes while it runs: buffers that it makes first. Its backward, `…_backward`, has
    an entry of its own. (place, "argmax") → those in which it decides, before."""
    found: dict[tuple[str, str], sp.Expr] = {}
    for n in graph.walk():
        if not isinstance(n.op, Region): continue
        both = [(n.at, n.op.kernel), (n.at, f"{n.op.kernel}_backward")]
        match n.op.kernel:
            case "lsh_attention": found |= {both[0]: lsh.ahead(n.op), both[1]: lsh.back(n.op), (n.at, "argmax"): lsh.hashing(n.op)}
            case "rowwise_attention": found |= {place: _block(n.op, k > 0) for k, place in enumerate(both)}
            case "conv1d": found[both[1]] = REAL * n.op.body.ins[0].size                # the input in the order of the library's own
            case "rms_norm": found[both[1]] = 2 * REAL * n.op.body.ins[0].size           # the normalised rows, and a product with them
            case "banded_attention": found |= {place: _head(n.op, k > 0) for k, place in enumerate(both)}
            case "linear_cross_entropy": found[both[0]] = _logits(n.op)
            case "cross_entropy": found[both[1]] = REAL * n.op.body.ins[0].size       # the slope of the logarithms comes first
    return found


def surely(n: Node) -> sp.Expr:
    """Bytes that a primitive certainly takes: random numbers are made from integers, two of which are at hand before the number is."""
    return (2 * INTEGER - REAL) * _size(*n.outs) if isinstance(n.op, Random) else sp.Integer(0)


def bound(n: Node, own: Mapping[tuple[str, str], sp.Expr]) -> sp.Expr:
    """Bytes that may be alive only while this node runs. own: of the kernels, as `special` has them."""
    op = n.op
    if isinstance(op, Loop): return sp.Integer(0)
    if isinstance(op, Contract): return REAL * _size(*n.ins, *n.outs)
    if isinstance(op, Random): return 6 * INTEGER * _size(*n.outs)
    if isinstance(op, Map | Reduce): return INTEGER * _size(*n.outs, *n.ins[:1])
    if isinstance(op, Region):
        return 2 * INTEGER * _size(*n.ins, *n.outs) + own.get((n.at, op.kernel.removesuffix("_backward")), 0)
    return 2 * INTEGER * _size(*n.ins, *n.outs)


def of_kernels(n: Node, own: Mapping[tuple[str, str], sp.Expr]) -> sp.Expr:
    """Of `bound` what kernels may take that have buffers of their own."""
    return own.get((n.at, n.op.kernel.removesuffix("_backward")), sp.Integer(0)) if isinstance(n.op, Region) else sp.Integer(0)


def _size(*values: Value) -> sp.Expr:
    return sp.Add(*(v.size for v in values if v.kind != "const"))


def _convolution(op: Region) -> sp.Expr:
    """The neighbourhoods written out, for the product with the weights or its gradient."""
    x = op.body.ins[0]
    return 2 * REAL * x.size * sp.sympify(op.arg("kernel"))


def _block(op: Region, backward: bool) -> sp.Expr:
    """The scores of a block of rows, their slopes beside them and where dropout leaves them; keys or values in the order of a product, and
    some rows of queries. With dropout at least the integers of its random numbers, before."""
    q, k, v = op.body.ins[:3]
    outer, m = volume([a for a in q.axes if a.name not in ("n", "k")]), k.axis("n'").size
    rows = sp.Min(BLOCK_ROWS, q.axis("n").size, evaluate=False)
    each = REAL * (1 + backward) + (1 + REAL * backward if op.arg("dropout") else 0)
    if op.arg("dropout"): each = sp.Integer(max(each, 2 * INTEGER))
    wide = outer * m * max(k.axis("k").size, v.axis("v").size, key=str)
    return each * outer * rows * m + REAL * (wide + outer * rows * v.axis("v").size)


def _rowwise(op: Region) -> sp.Expr:
    """A quarter more: who sees whom, and rows that a product copies."""
    return _block(op, True) / 4


def _head(op: Region, backward: bool) -> sp.Expr:
    """Banded attention, a head at a time: its rows in whole blocks, the scores of a slab of blocks and who is hidden from whom; on the way
    back the gradients of the rows, and weights and slopes where the keys of a block find them."""
    q, k, v = op.body.ins[:3]
    window, n = sp.sympify(op.arg("window")), q.axis("n").size
    size = sp.Min(band(window), n)
    count, over = sp.ceiling(n / size), sp.ceiling((window - 1) / size)
    span, slab = size * (over + 1), sp.Max(sp.Min(BAND_SLAB, count), over)
    pairs, widths = slab * size * span, k.axis("k").size + v.axis("v").size
    rows = size * (count + 2 * over) * k.axis("k").size + size * (count + over) * widths
    each = q.size / k.axis("k").size
    if not backward: return REAL * (rows + pairs + count * size * (v.axis("v").size + 2)) + 2 * pairs
    rows += size * (count + 2 * over) * v.axis("v").size + size * count * k.axis("k").size + size * (count + over) * widths
    found = 2 * ((slab + over) * size * (span + 1) + span)
    return REAL * (rows + 2 * pairs + found + 2 * count * size + each) + 2 * pairs


def _banded(op: Region) -> sp.Expr:
    """A quarter more: a mask's copies, what is carried from slab to slab."""
    return _head(op, True) / 4


def _logits(op: Region) -> sp.Expr:
    """The logits of a piece, which become their gradient where they lie, and the powers of e that are summed."""
    x, table = op.body.ins[0], op.body.ins[3]
    n = x.axis("n").size
    rows = volume([a for a in x.axes if a.name not in ("n", "d")]) * sp.ceiling(n / sp.sympify(op.arg("pieces")))
    return 2 * REAL * rows * volume([a for a in table.axes if a.name != "d"])


def _loss(op: Region) -> sp.Expr:
    """The same once more, where the numbers are too short for a sum over all symbols, and a few numbers a row."""
    x = op.body.ins[0]
    return 2 * _logits(op) + 12 * INTEGER * x.size / x.axis("d").size


SCALES = frozenset({"linear_cross_entropy_backward"})           # kernels that scale what they are given, in place

OWN: dict[str, Callable[[Region], sp.Expr]] = {
    "linear_cross_entropy": _loss,
    "conv1d": _convolution, "rowwise_attention": _rowwise, "banded_attention": _banded, "lsh_attention": lsh.more,
}
