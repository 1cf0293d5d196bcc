"""From symbols to vectors and back."""
import sympy as sp

from plait.compiler.axis import axis
from plait.compiler.builder import Builder, Init
from plait.compiler.graph import Value
from plait.compiler.layer import NUMBER_1, Mistake, Number, Share, Size, Stream, Table, feature, layer
from plait.compiler.layers.linear import ZERO, deviation


def rows(b: Builder, table: Table | sp.Expr, width: sp.Expr | None, std: sp.Expr | None = None) -> Value:
    """The parameter [V, d]: a shared table by its name, or one of this layer's own. std: the deviation of its first weights."""
    if isinstance(table, Table): name, size, width = table.name, table.rows, table.width
    else: name, size = "", table
    assert width is not None
    axes = axis("V", size), axis("d", width)
    # by itself so that a tied output layer starts with logits of size 1
    init = Init("normal", 1 / sp.sqrt(width) if std is None else std)
    return b.table(name, *axes, init=init) if name else b.param("weight", *axes, init=init)


@layer
def embed(b: Builder, stream: Stream, table: Share | Size, *, width: Size | None = None, scale: Number = NUMBER_1,
          std: Number | None = None) -> Value:
    """Symbols to rows of a table: [n] of V → [n, d]. With a size, the layer has a table of its own and needs a width; its weights start
    with the deviation std, 1/√d where it is left out. A lookup is movement: 0 MACs."""
    x = stream.value
    if x.kind != "index": raise Mistake("E0313", "embed reads symbols, and this stream holds vectors already")
    if not isinstance(table, Table) and width is None:
        raise Mistake("E0502", "embed needs a width when it is given the number of symbols", "table", help="embed(V, width = d)")
    if isinstance(table, Table) and width is not None and not b.sizes.same(table.width, width):
        raise Mistake("E0302", f"the shared table {table.name} is {table.width} wide, not {width}", "width", (table.width, width))
    deviation(b, std)
    if isinstance(table, Table) and std is not None:
        raise Mistake("E0504", f"the first weights of the shared table {table.name} are its own", "std",
                      help="std goes with embed(V, width = d)")
    have, need = b.sizes.integer(table.rows if isinstance(table, Table) else table), b.sizes.integer(stream.symbols or 1)
    if have is not None and need is not None and have < need:
        raise Mistake("E0302", f"the table has {have:,} rows, and the stream {need:,} symbols", "table", (stream.symbols,),
                      help=f"embed({stream.symbols}, …)")
    y = b.gather(rows(b, table, width, std), x, "V", name="lookup")
    return y if scale == 1 else b.mul(y, scale)


@layer
def unembed(b: Builder, x: Value, table: Share | Size, *, bias: bool = False) -> Value:
    """Vectors to a score for every symbol, by a shared table or one of its own: [n, d] → [n, V]. V·d MACs a position."""
    d = feature(x)
    if isinstance(table, Table) and not b.sizes.same(table.width, d.size):
        raise Mistake("E0302", f"the shared table {table.name} is {table.width} wide and the stream {d.size}", "table",
                      (table.width, d.size))
    weight = rows(b, table, d.size)
    symbols = weight.axis("V")
    y = b.contract(x, weight, "d", name="logits")
    if bias: y = b.add(y, b.param("bias", symbols, init=ZERO))
    return b.rename(y, "V", axis("d", symbols.size))
