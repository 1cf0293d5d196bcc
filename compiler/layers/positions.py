"""How a position is told to the layers above."""
from dataclasses import replace
from typing import Literal

import sympy as sp

from plait.compiler.axis import axis
from plait.compiler.builder import Builder, Init
from plait.compiler.graph import Value
from plait.compiler.layer import Mistake, Number, Pair, Size, Stream, feature, layer, sequence
from plait.compiler.layers.linear import deviation

BASE = sp.Integer(10000)


def small(width: sp.Expr, std: sp.Expr | None = None) -> Init:
    """By itself vectors of length about 1, as the embeddings they are added to."""
    return Init("normal", 1 / sp.sqrt(width) if std is None else std)


@layer
def positions(b: Builder, x: Stream, kind: Literal["sinusoidal", "learned", "axial", "rotary"], *, max: Size | None = None,
              grid: Pair | None = None, widths: Pair | None = None, std: Number | None = None) -> Stream:
    """Adds a vector for each position: [n, d] → [n, d].

    sinusoidal: sin and cos of growing periods (Vaswani et al. 2017, section 3.5), no parameters. learned: a table of `max`
    rows, by default n as the file has it. axial: a row and a column vector of a grid side by side (Reformer, section 4). Both start with
    the deviation std, 1/√d where it is left out.
    rotary: nothing is added; every attention that follows turns its queries and keys by their position (Su et al. 2021)."""
    feature(x.value), sequence(x.value)
    _only(kind, learned={"max": max}, axial={"grid": grid, "widths": widths})
    if std is not None and kind in ("sinusoidal", "rotary"):
        raise Mistake("E0504", f"`std` is of first weights, and {kind} positions have none", "std", help="positions(learned, std = 0.02)")
    deviation(b, std)
    if kind == "rotary": return replace(x, rotary=BASE)
    if kind == "sinusoidal": table = _sinusoidal(b, x.value)
    elif kind == "learned": table = _learned(b, x.value, max, std)
    else: table = _axial(b, x.value, grid, widths, std)
    return x.to(b.add(x.value, table))


def _only(kind: str, **belongs: dict[str, object]) -> None:
    """An argument of one kind of positions says nothing to another."""
    for owner, arguments in belongs.items():
        for name, value in arguments.items():
            if value is not None and owner != kind:
                raise Mistake("E0504", f"`{name}` is an argument of {owner} positions, and these are {kind}", name,
                              help=f"positions({owner}, …), or leave `{name}` out")


def angles(b: Builder, n, half) -> Value:
    """position · 10000^(−j / half) over [n, half]."""
    rate = b.map("exp", b.mul(b.position(half), -sp.log(BASE).evalf() / half.size))
    return b.mul(b.position(n), rate)


def halved(b: Builder, width: sp.Expr, argument: str, message: str) -> sp.Expr:
    """width / 2; a Mistake where that is known not to be whole."""
    w = b.sizes.integer(width)
    if w is not None and w % 2:
        name = str(width) if width.is_Symbol else "" if argument == "kind" else argument
        even = f"{name} = {f'{w - 1} or ' if w > 1 else ''}{w + 1}" if name else ""
        raise Mistake("E0301", message, argument, (width,), f"{'' if width.is_number else f'{width} = '}{w} leaves 1 when halved", even)
    b.demand(sp.Eq(sp.Mod(width, 2), 0, evaluate=False), message)
    return width / 2


def _sinusoidal(b: Builder, x: Value) -> Value:
    d = feature(x)
    half = axis("half", halved(b, d.size, "kind", "sinusoidal positions come in pairs of sine and cosine: the width is even"))
    one, pair = axis("pair", 1), axis("pair", 2)
    turn = angles(b, sequence(x), half)
    sides = [b.broadcast(b.map(fn, turn), *turn.axes, one) for fn in ("sin", "cos")]
    return b.merge(b.concat("pair", *sides), "half", pair.name, d)


def _learned(b: Builder, x: Value, most: sp.Expr | None, std: sp.Expr | None) -> Value:
    n, d, sizes = sequence(x), feature(x), b.sizes
    if most is None:
        file, now = (sizes.written.get(n.size), sizes.integer(n.size)) if n.size.is_Symbol else (None, None)
        most = n.size
        if file is not None and file != now:
            most = sp.Integer(file)
            b.pin("max", file)
    have, want = sizes.integer(most), sizes.integer(n.size)
    if have is not None and want is not None and want > have:
        raise Mistake("E0303", f"there are learned positions for {have} places, and the sequence has {want}", "max", (n.size, most),
                      help=f"positions(learned, max = {want})")
    if not sizes.same(most, n.size): b.demand(sp.Le(n.size, most, evaluate=False), f"there are learned positions for {most} places")
    table = b.param("weight", axis("n", most, "sequence"), d, init=small(d.size, std))
    return table if sizes.same(most, n.size) else b.slice(table, "n", 0, n.size)


def _axial(b: Builder, x: Value, grid, widths, std: sp.Expr | None) -> Value:
    n, d, sizes = sequence(x), feature(x), b.sizes
    if grid is None or widths is None:
        raise Mistake("E0502", "axial positions need a grid and two widths", "kind",
                      help="positions(axial, grid = (128, 512), widths = (d / 4, 3 * d / 4))")
    (rows, columns), (left, right) = grid, widths
    wrong = []
    cells, need = sizes.integer(rows * columns), sizes.integer(n.size)
    if cells is not None and need is not None and cells < need:
        wrong.append(Mistake("E0303", f"a grid of {rows} × {columns} has {cells} places, and the sequence has {need}", "grid", (n.size,)))
    total, width = sizes.integer(left + right), sizes.integer(d.size)
    if total != width if None not in (total, width) else not sizes.same(left + right, d.size):
        wrong.append(Mistake("E0302", f"the widths add up to {total if total is not None else left + right}, and the stream is "
                             f"{width if width is not None else d.size} wide", "widths", (d.size,)))
    if wrong: raise ExceptionGroup("axial positions", wrong)
    b.demand(sp.Le(n.size, rows * columns, evaluate=False), f"the grid of axial positions has {rows * columns} places")
    row, column = axis("row", rows, "sequence"), axis("column", columns, "sequence")
    sides = []
    for name, along, width in (("row", row, left), ("column", column, right)):
        table = b.param(name, along, axis("d", width), init=small(d.size, std))
        sides.append(b.broadcast(table, row, column, axis("d", width)))
    flat = axis("n", rows * columns, "sequence")
    table = b.merge(b.concat("d", *sides), "row", "column", flat)
    return table if sizes.same(flat.size, n.size) else b.slice(table, "n", 0, n.size)


def rotated(b: Builder, x: Value, base: sp.Expr, along: str = "k") -> Value:
    """Queries or keys [b, n, h, k] turned by their position: pairs (j, j + k/2) by position · base^(−2j/k)."""
    k = x.axis(along)
    half = axis(along, halved(b, k.size, "head_width", "rotary positions turn pairs of features: the width of a head is even"))
    turn = angles(b, sequence(x), half)
    cos, sin = b.map("cos", turn), b.map("sin", turn)
    p, q = b.slice(x, along, 0, half.size), b.slice(x, along, half.size, half.size)
    return b.concat(along, b.sub(b.mul(p, cos), b.mul(q, sin)), b.add(b.mul(q, cos), b.mul(p, sin)))
