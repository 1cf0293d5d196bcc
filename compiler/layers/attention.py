"""Attention: whole, to another stream, in a window, with shared queries and keys."""
from typing import Literal

import sympy as sp

from plait.compiler.axis import Axis, axis
from plait.compiler.builder import Builder
from plait.compiler.graph import Value
from plait.compiler.layer import NUMBER_0, Mistake, Probability, Size, Source, Stream, divided, feature, layer, sequence
from plait.compiler.layers.convolution import before
from plait.compiler.layers.dropout import dropped
from plait.compiler.layers.linear import fan_in
from plait.compiler.layers.norm import softmax
from plait.compiler.layers.positions import rotated

TINY = sp.Rational(1, 10**12)


def projected(b: Builder, x: Value, name: str, *into: Axis, bias: bool) -> Value:
    """[b, n, d] → [b, n, *into] by a linear map."""
    d = feature(x)
    y = b.contract(x, b.param(name, *into, d, init=fan_in(d)), "d", name=name)
    return b.add(y, b.param(f"{name}_bias", *into, init=fan_in(d))) if bias else y


def width_of_heads(b: Builder, d: Axis, heads, head_width):
    """The width asked for, or an even share of the stream's."""
    if head_width is not None: return head_width
    return divided(b, d.size, heads, "heads", "attention splits the stream width evenly over its heads")


def joined(b: Builder, o: Value, d: Axis, *heads: Axis, project: bool, bias: bool) -> Value:
    """The heads' outputs [b, heads…, n, v] back to [b, n, d]."""
    if project:
        out = axis("d'", d.size)
        y = b.contract(o, b.param("out", out, *heads, init=fan_in(*heads)), *(a.name for a in heads), name="out")
        return b.rename(b.add(y, b.param("out_bias", out, init=fan_in(*heads))) if bias else y, "d'", d)
    return b.merge(o, heads[0].name, heads[1].name, d)


def unit(b: Builder, x: Value, along: str) -> Value:
    """x / ‖x‖: keys of unit length, for shared queries and keys (Kitaev et al. 2020, section 2)."""
    return b.mul(x, b.map("rsqrt", b.add(b.sum(b.mul(x, x), along, name="norm"), TINY)))


def excluded(b: Builder, allowed: Value | None, same: Value, over: str) -> Value:
    """What is allowed without the position itself, which stays where nothing else is."""
    other = b.map("not", same)
    if allowed is not None: other = b.map("and", allowed, other)
    alone = b.map("eq", b.sum(b.where(other, 1, 0), over, name="others"), 0)
    stays = b.map("and", alone, same)
    if allowed is not None: stays = b.map("and", allowed, stays)
    return b.map("or", other, stays)


def weighted(b: Builder, scores: Value, v: Value, over: str, drop, key) -> Value:
    p = softmax(b, scores, over)
    if drop: p = dropped(b, p, key, drop)
    return b.contract(p, v, over, name="weighted sum")


def whole(b: Builder, q: Value, k: Value, v: Value, mask: Value | None, key: Value | None, causal: bool, own: bool, scale, drop,
          kernel: str) -> Value:
    """softmax(q kᵀ·scale) v over the key axis n', as one region: q [b, n, h, k], k [b, n', h, k], v [b, n', h, v]."""
    def body(b, q, k, v, *rest):
        s = b.contract(q, k, "k", name="scores")
        if scale != 1: s = b.mul(s, scale)
        there = rest[0] if mask is not None else None
        here, other = b.position(q.axis("n")), b.position(k.axis("n'"))
        allowed = b.map("le", other, here) if causal else None
        if there is not None: allowed = there if allowed is None else b.map("and", allowed, there)
        if not own and causal and there is None:
            # only the first position is ever alone, so no count is needed
            allowed = b.map("or", b.map("lt", other, here), b.map("and", b.map("eq", here, 0), b.map("eq", other, 0)))
        elif not own: allowed = excluded(b, allowed, b.map("eq", other, here), "n'")
        if allowed is not None: s = b.where(allowed, s, -sp.oo)
        return weighted(b, s, v, "n'", drop, rest[-1] if rest else None)

    operands = [q, k, v] + [t for t in (mask, key) if t is not None]
    return b.region("attention", body, *operands, causal=causal, own=own, scale=scale, dropout=drop, masked=mask is not None, kernel=kernel)


def windowed(b: Builder, q: Value, k: Value, v: Value, mask: Value | None, key: Value | None, window, causal: bool, own: bool, scale, drop,
             kernel: str) -> Value:
    """Each query sees `window` keys around itself (causal: the window − 1 before it and itself): q, k [b, n, h, k], v [b, n, h, v]."""
    left = before(window, causal)

    def body(b, q, k, v, *rest):
        n, w = q.axis("n"), axis("w", window, "window")
        s = b.contract(q, b.window(k, "n", w, left), "k", name="scores")
        if scale != 1: s = b.mul(s, scale)
        at = b.add(b.position(n), b.sub(b.position(w), left))
        allowed = b.map("and", b.map("le", 0, at), b.map("lt", at, n.size))
        if mask is not None: allowed = b.map("and", allowed, b.window(rest[0], "n", w, left))
        if not own: allowed = excluded(b, allowed, b.map("eq", b.position(w), left), "w")
        return weighted(b, b.where(allowed, s, -sp.oo), b.window(v, "n", w, left), "w", drop, rest[-1] if rest else None)

    operands = [q, k, v] + [t for t in (mask, key) if t is not None]
    return b.region("windowed_attention", body, *operands, window=window, left=left, causal=causal, own=own, scale=scale, dropout=drop,
                    masked=mask is not None, kernel=kernel)


@layer
def attention(b: Builder, x: Stream, heads: Size, *, causal: bool = False, keys: Source | None = None,
              window: Size | Literal["none"] = "none", kv_heads: Size | None = None, head_width: Size | None = None, share_qk: bool = False,
              project: bool = True, dropout: Probability = NUMBER_0, bias: bool = True,
              kernel: Literal["auto", "body", "rowwise", "fused"] = "auto") -> Value:
    """Multi-head attention: [n, d] → [n, d]; 2·n²·heads·head_width MACs and the projections. Vaswani et al. 2017, section 3.2.

    keys: another stream to attend to. window: only that many keys around each query. kv_heads: fewer heads for keys and values
    than for queries (grouped queries). share_qk: keys are the queries at unit length, and a position attends to itself only if
    nothing else is allowed (Kitaev et al. 2020). project = false: queries, keys and values are the stream itself. kernel: body
    holds the scores whole, rowwise computes them in blocks of rows (Kitaev et al. 2020, section 2), fused is the library's."""
    value, memory = x.value, keys or x
    d, cross = feature(value), keys is not None
    feature(memory.value), sequence(memory.value), sequence(value)
    w = width_of_heads(b, d, heads, head_width)
    _check(b, d, heads, w, window, cross, causal, kv_heads, share_qk, project, kernel)
    h, k, v = axis("h", heads, "head"), axis("k", w), axis("v", w)
    queries: tuple[Axis, ...] = (h,)
    shared = (h,)
    if kv_heads is not None and not b.sizes.same(kv_heads, heads):
        g = axis("g", kv_heads, "head")
        queries = (g, axis("s", divided(b, heads, kv_heads, "kv_heads", "the query heads split evenly over the key heads"), "head"))
        shared = (g,)
    if project:
        q = projected(b, value, "query", *queries, k, bias=bias)
        key = q if share_qk else projected(b, memory.value, "key", *shared, k, bias=bias)
        val = projected(b, memory.value, "value", *shared, v, bias=bias)
    else:
        q, key = b.split(value, "d", h, k), b.split(memory.value, "d", h, k)
        val = b.rename(key, "k", v)
    if x.rotary is not None and not cross: q, key = rotated(b, q, x.rotary), rotated(b, key, x.rotary)
    if share_qk: key = unit(b, key, "k")
    scale = sp.Integer(1) if share_qk else 1 / sp.sqrt(w)
    seed, mask = (b.key() if dropout else None), memory.mask
    if window != "none":
        o = windowed(b, q, key, val, mask, seed, window, causal, not share_qk, scale, dropout, _kernel(kernel))
    else:
        there = axis("n'", sequence(memory.value).size, "sequence")
        key, val = b.rename(key, "n", there), b.rename(val, "n", there)
        if mask is not None: mask = b.rename(mask, "n", there)
        o = whole(b, q, key, val, mask, seed, causal, not share_qk, scale, dropout, _kernel(kernel))
    return joined(b, o, d, *queries, v, project=project, bias=bias)


def _kernel(word: str) -> str:
    return {"rowwise": "rowwise_attention", "fused": "scaled_dot_product_attention"}.get(word, word)


def _check(b, d, heads, w, window, cross, causal, kv_heads, share_qk, project, kernel) -> None:
    if window != "none" and cross:
        raise Mistake("E0504", "a window is about neighbours: it cannot be used on the keys of another stream", "window")
    if window != "none" and kernel in ("rowwise", "fused"):
        raise Mistake("E0504", f"a window has no {kernel} kernel", "kernel", help="kernel = auto")
    if cross and share_qk: raise Mistake("E0504", "the keys of another stream cannot be the queries", "share_qk", help="share_qk = false")
    if cross and causal:
        raise Mistake("E0504", "causal is about the positions of one stream: it cannot be used on the keys of another", "causal")
    if not project and (kv_heads is not None or not b.sizes.same(heads * w, d.size)):
        raise Mistake("E0504", "without projections the heads are cut out of the stream itself", "project", help="project = true")
    if share_qk and kv_heads is not None and not b.sizes.same(kv_heads, heads):
        raise Mistake("E0504", "shared queries and keys have as many key heads as query heads", "kv_heads", help="share_qk = false")
