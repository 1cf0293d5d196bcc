"""LSH attention: attend only to what hashes alike. Kitaev, Kaiser and Levskaya 2020, section 2 and appendix A."""
from typing import Literal

import sympy as sp

from plait.compiler.axis import axis
from plait.compiler.builder import Builder
from plait.compiler.graph import Value
from plait.compiler.layer import NUMBER_0, SIZE_1, Count, Mistake, Pair, Probability, Size, Stream, feature, layer, sequence
from plait.compiler.layers.attention import joined, projected, unit, width_of_heads
from plait.compiler.layers.dropout import dropped
from plait.compiler.layers.norm import LOWEST
from plait.compiler.layers.positions import rotated


@layer
def lsh_attention(b: Builder, x: Stream, heads: Size, *, chunk: Size, rounds: Size = SIZE_1,
                  buckets: Literal["auto"] | Size | Pair = "auto", look_back: Count = 1, look_ahead: Count = 0, causal: bool = False,
                  dedup: bool = True, within_bucket: bool = True, wrap: bool | Literal["rounds"] = False, share_rotations: bool = False,
                  head_width: Size | None = None, project: bool = True, dropout: Probability = NUMBER_0, bias: bool = True,
                  kernel: Literal["auto", "body"] = "auto") -> Value:
    """Attention among positions that hash alike: [n, d] → [n, d]. Kitaev et al. 2020, section 2 and appendix A.

    Queries are also the keys, at unit length. Each round hashes by random rotations into `buckets` (auto: 2·⌈n/chunk⌉; a pair
    is factorised), sorts stably by bucket, cuts into chunks, and attends within a chunk and `look_back` chunks before it. The
    rounds together give one softmax over the union of what they see (dedup = false counts a pair once a round). A position
    attends to itself only if it sees nothing else. within_bucket: only to keys of its own bucket. wrap: the first chunk looks
    back to the last; with `rounds`, to the last of the round before, the first round to the last one. Later symbols can move chunk
    borders, so causality is exact in the gradient, not in the values."""
    value, sizes = x.value, b.sizes
    d, n = feature(value), sequence(value)
    w = width_of_heads(b, d, heads, head_width)
    if look_back < 0 or look_ahead < 0: raise Mistake("E0503", "a chunk cannot look at fewer than 0 neighbours", "look_back")
    chunks = sizes.integer(sizes.quotient(n.size, chunk))
    if wrap == "rounds": chunks = sizes.integer(rounds * sizes.quotient(n.size, chunk))
    if wrap and chunks is not None and look_back + look_ahead >= chunks:
        beside = look_back + look_ahead + 1
        raise Mistake("E0504", f"with wrap, {beside} chunks in a row would hold some of the {chunks} twice", "look_back", (n.size, chunk))
    if wrap == "rounds" and (dedup or within_bucket):
        raise Mistake("E0504", "with wrap = rounds a chunk sees another round's, whose buckets are others and whose pairs are not counted",
                      "wrap", help="dedup = false, within_bucket = false")
    factors = _factors(b, n.size, chunk, buckets)
    h, k, v = axis("h", heads, "head"), axis("k", w), axis("v", w)
    if project:
        q = projected(b, value, "query", h, k, bias=bias)
        val = projected(b, value, "value", h, v, bias=bias)
    else:
        if not sizes.same(heads * w, d.size):
            raise Mistake("E0504", "without projections the heads are cut out of the stream itself", "project")
        q = b.split(value, "d", h, k)
        val = b.rename(q, "k", v)
    if x.rotary is not None: q = rotated(b, q, x.rotary)
    how = dict(chunk=chunk, rounds=rounds, buckets=factors, look_back=look_back, look_ahead=look_ahead, causal=causal, dedup=dedup,
               within_bucket=within_bucket, wrap=wrap, share_rotations=share_rotations, dropout=dropout, masked=x.mask is not None,
               kernel=kernel)
    operands = [q, val, b.key()] + ([x.mask] if x.mask is not None else [])
    o = b.region("lsh_attention", lambda b, *ins: _body(b, how, *ins), *operands, **how)
    return joined(b, o, d, h, v, project=project, bias=bias)


def _factors(b: Builder, n, chunk, buckets) -> tuple[sp.Expr, ...]:
    """The numbers of buckets, one or two, each even."""
    if buckets == "auto": return (2 * b.sizes.quotient(n, chunk),)
    factors = tuple(buckets) if isinstance(buckets, tuple) else (buckets,)
    for f in factors:
        value = b.sizes.integer(f)
        if value is not None and (value < 2 or value % 2):
            raise Mistake("E0305", f"buckets come in pairs, a rotation and its opposite: their number is even and at least 2, here {value}",
                          "buckets", (f,), help=f"buckets = {max(2, value + value % 2)}")
    return factors


def _body(b: Builder, how: dict, q: Value, v: Value, key: Value, mask: Value | None = None) -> Value:
    """q [b, n, h, k], v [b, n, h, v] → [b, n, h, v]: hash, sort, cut, attend, put back, unite the rounds."""
    n = sequence(q)
    as_given = v.axes
    chunk, chunks = how["chunk"], b.sizes.quotient(n.size, how["chunk"])
    total = chunk * chunks                                                 # n, padded to whole chunks
    p = axis("n", total, "sequence")
    r, place, c, m = axis("r", how["rounds"], "round"), axis("s", total, "sequence"), axis("c", chunks, "chunk"), axis("m", chunk, "window")
    ragged = not b.sizes.equal(total, n.size)
    fill = (lambda t: b.pad(t, "n", 0, total - n.size)) if ragged else (lambda t: t)
    bucket = fill(hashed(b, how, q, key, r))
    here = b.position(p)
    there = fill(mask) if mask is not None else b.map("lt", here, n.size) if ragged else None
    if there is not None: bucket = b.where(there, bucket, sp.Mul(*how["buckets"]))      # what does not exist sorts last
    q, v, k = fill(q), fill(v), unit(b, fill(q), "k")
    order = b.sort(bucket, "n", name="sort by bucket")                     # sorted place → position
    back = b.sort(order, "n", name="undo the sort")                        # position → sorted place
    order = b.rename(order, "n", place)

    def cut(t, name=""): return b.split(b.gather(t, order, "n", name=name), "s", c, m)
    def neighbours(t): return look(b, t, how, chunks)
    position = b.split(order, "s", c, m)
    seen = b.add(position, 1)                                              # 0: nothing is there
    if there is not None: seen = b.where(cut(there), seen, 0)
    seen, mine = neighbours(seen), b.add(position, 1)
    allowed = b.map("and", b.map("lt", 0, seen), b.map("not", b.map("eq", seen, mine)))
    if how["causal"]: allowed = b.map("and", allowed, b.map("lt", seen, mine))
    if how["within_bucket"]: allowed = b.map("and", allowed, alike(b, cut(bucket), neighbours))
    s = b.contract(cut(q, "sort queries"), neighbours(cut(k, "sort keys")), "k", name="scores")
    if how["dedup"] and how["rounds"] != 1: s = b.sub(s, b.map("log", meetings(b, how, back, bucket, cut, neighbours, m, r, chunks)))
    s = b.where(allowed, s, -sp.oo)
    top = b.map("maximum", b.max(s, "m'", name="max"), LOWEST)
    e = b.map("exp", b.sub(s, top))
    row = b.sum(e, "m'", name="sum")
    if how["dropout"]: e = dropped(b, e, b.map("mix", key, 1), how["dropout"])
    o = b.contract(e, neighbours(cut(v, "sort values")), "m'", name="weighted sum")
    o, row, top = (b.gather(b.merge(t, "c", "m", place), back, "s", name="put back") for t in (o, row, top))
    return b.broadcast(united(b, o, row, top, v, n, ragged), *as_given)        # laid out as the values were


def hashed(b: Builder, how: dict, q: Value, key: Value, r) -> Value:
    """The bucket of every query in every round: argmax([q R; −q R]). Factorised: one digit a factor."""
    bucket, worth = None, sp.Integer(1)
    for digit, f in enumerate(how["buckets"]):
        heads = () if how["share_rotations"] else (q.axis("h"),)
        half = axis("half", f / sp.Integer(2))
        turn = b.random("normal", b.map("mix", key, 2 + digit), *heads, r, q.axis("k"), half)
        turned = b.contract(q, turn, "k", name="hashing")
        found = b.argmax(b.concat("half", turned, b.map("neg", turned)), "half", name="bucket")
        bucket = found if bucket is None else b.add(bucket, b.map("mul", found, worth))
        worth = worth * f
    assert bucket is not None
    return bucket


def look(b: Builder, t: Value, how: dict, chunks) -> Value:
    """Each chunk beside its neighbours: axis m of `chunk` → axis m' of (look_back + 1 + look_ahead)·chunk. Zeros outside."""
    def turned(t: Value, count, by: int) -> Value:
        first = count - by if by > 0 else -by
        return b.concat("c", b.slice(t, "c", first, count - first), b.slice(t, "c", 0, first))

    def moved(by: int) -> Value:
        if by == 0: return t
        if how["wrap"] == "rounds":
            c, r = t.axis("c"), t.axis("r")
            row = b.merge(t, "r", "c", axis("c", r.size * c.size, "chunk"))
            return b.split(turned(row, r.size * c.size, by), "c", r, c)
        if how["wrap"]: return turned(t, chunks, by)
        if by > 0: return b.slice(b.pad(t, "c", by, 0), "c", 0, chunks)
        return b.slice(b.pad(t, "c", 0, -by), "c", -by, chunks)

    sides = [moved(by) for by in range(how["look_back"], -how["look_ahead"] - 1, -1)]
    joint = b.concat("m", *sides) if len(sides) > 1 else sides[0]
    return b.rename(joint, "m", axis("m'", len(sides) * t.axis("m").size, "window"))


def alike(b: Builder, t: Value, neighbours) -> Value:
    """Where the labels of a pair are the same. Labels are moved up by one: 0 stands outside."""
    label = b.add(t, 1)
    return b.map("eq", label, neighbours(label))


def meetings(b: Builder, how: dict, back: Value, bucket: Value, cut, neighbours, m, r, chunks) -> Value:
    """N_ij: in how many rounds i sees j (appendix A), at least 1."""
    other = axis("r'", how["rounds"], "round")
    home = b.rename(b.map("floordiv", back, m.size), "r", other)           # the chunk where a position lies
    gap = b.sub(cut(home), neighbours(cut(home)))
    if how["wrap"]: gap = b.map("mod", b.add(gap, how["look_ahead"]), chunks)
    else: gap = b.add(gap, how["look_ahead"])
    meet = b.map("and", b.map("le", 0, gap), b.map("le", gap, how["look_back"] + how["look_ahead"]))
    if how["within_bucket"]: meet = b.map("and", meet, alike(b, cut(b.rename(bucket, "r", other)), neighbours))
    return b.map("maximum", b.sum(b.where(meet, 1, 0), "r'", name="meetings"), 1)


def united(b: Builder, o: Value, row: Value, top: Value, v: Value, n, ragged: bool) -> Value:
    """One softmax over the union of the rounds; a position that sees nothing sees itself. o is not yet divided by its row."""
    weight = b.map("exp", b.sub(top, b.max(top, "r", name="max over rounds")))
    total = b.sum(b.mul(weight, row), "r", name="sum over rounds")
    summed = b.sum(b.mul(weight, o), "r", name="unite rounds")
    alone = b.map("eq", total, 0)
    y = b.where(alone, v, b.div(summed, b.where(alone, 1, total)))
    return b.slice(y, "n", 0, n.size) if ragged else y
