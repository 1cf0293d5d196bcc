"""Local attention: in chunks that lie side by side. As in the Trax Reformer, beside Kitaev, Kaiser and Levskaya 2020."""
import sympy as sp

from plait.compiler.axis import axis
from plait.compiler.builder import Builder
from plait.compiler.graph import Value
from plait.compiler.layer import NUMBER_0, Count, Mistake, Probability, Size, Stream, feature, layer, sequence
from plait.compiler.layers.attention import joined, projected, weighted, width_of_heads
from plait.compiler.layers.lsh import look
from plait.compiler.layers.positions import rotated


@layer
def local_attention(b: Builder, x: Stream, heads: Size, *, chunk: Size, look_back: Count = 1, look_ahead: Count = 0, causal: bool = False,
                    wrap: bool = False, head_width: Size | None = None, dropout: Probability = NUMBER_0, bias: bool = True) -> Value:
    """Attention in chunks: [n, d] → [n, d]; 2·n·(look_back + 1 + look_ahead)·chunk·heads·head_width MACs and the projections.

    Each position sees its own chunk of `chunk` positions, `look_back` whole chunks before it and `look_ahead` after it; causal: of
    these only what is not behind it. wrap: the first chunk looks back to the last, and the last ahead to the first."""
    value, sizes = x.value, b.sizes
    d, n = feature(value), sequence(value)
    w = width_of_heads(b, d, heads, head_width)
    if look_back < 0 or look_ahead < 0: raise Mistake("E0503", "a chunk cannot look at fewer than 0 neighbours", "look_back")
    chunks = sizes.integer(sizes.quotient(n.size, chunk))
    if wrap and chunks is not None and look_back + look_ahead >= chunks:
        beside = look_back + look_ahead + 1
        raise Mistake("E0504", f"with wrap, {beside} chunks in a row would hold some of the {chunks} twice", "look_back", (n.size, chunk))
    h, k, v = axis("h", heads, "head"), axis("k", w), axis("v", w)
    q, key, val = (projected(b, value, name, h, a, bias=bias) for name, a in (("query", k), ("key", k), ("value", v)))
    if x.rotary is not None: q, key = rotated(b, q, x.rotary), rotated(b, key, x.rotary)
    how = dict(chunk=chunk, look_back=look_back, look_ahead=look_ahead, causal=causal, wrap=wrap, dropout=dropout,
               masked=x.mask is not None)
    operands = [q, key, val] + ([x.mask] if x.mask is not None else []) + ([b.key()] if dropout else [])
    o = b.region("local_attention", lambda b, *ins: _body(b, how, *ins), *operands, **how)
    return joined(b, o, d, h, v, project=True, bias=bias)


def _body(b: Builder, how: dict, q: Value, k: Value, v: Value, *rest: Value) -> Value:
    """q, k [b, n, h, k], v [b, n, h, v] → [b, n, h, v]: cut, attend, put together."""
    n = sequence(q)
    chunk, chunks = how["chunk"], b.sizes.quotient(n.size, how["chunk"])
    total = chunk * chunks                                                 # n, padded to whole chunks
    p, c, m = axis("n", total, "sequence"), axis("c", chunks, "chunk"), axis("m", chunk, "window")
    ragged = not b.sizes.equal(total, n.size)
    def cut(t: Value) -> Value: return b.split(b.pad(t, "n", 0, total - n.size) if ragged else t, "n", c, m)
    def neighbours(t: Value) -> Value: return look(b, t, how, chunks)
    at = b.add(b.position(p), 1)                                           # 0: nothing is there
    seen = b.where(b.map("le", at, n.size), at, 0) if ragged else at
    seen, mine = neighbours(b.split(seen, "n", c, m)), b.split(at, "n", c, m)
    allowed = b.map("lt", 0, seen)
    if how["causal"]: allowed = b.map("and", allowed, b.map("le", seen, mine))
    if how["masked"]: allowed = b.map("and", allowed, neighbours(cut(rest[0])))
    s = b.mul(b.contract(cut(q), neighbours(cut(k)), "k", name="scores"), 1 / sp.sqrt(q.axis("k").size))
    s = b.where(allowed, s, -sp.oo)
    o = b.merge(weighted(b, s, neighbours(cut(v)), "m'", how["dropout"], rest[-1] if how["dropout"] else None), "c", "m", p)
    o = b.slice(o, "n", 0, n.size) if ragged else o
    return b.broadcast(o, *v.axes)
