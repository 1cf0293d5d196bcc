"""LSH attention a position at a time: where one chunk holds all positions a cache, else all positions so far once more."""
from __future__ import annotations

from typing import TYPE_CHECKING

import sympy as sp

from plait.compiler.axis import axis
from plait.compiler.builder import Builder
from plait.compiler.decode.items import ALL, NEW, PAST, Fresh, Item, NoRule, NotCausal
from plait.compiler.graph import Graph, Node, Value, live
from plait.compiler.layers.attention import unit
from plait.compiler.layers.lsh import _body, hashed
from plait.compiler.layers.norm import softmax
from plait.compiler.prims import Region

if TYPE_CHECKING:
    from plait.compiler.decode.derivation import Derivation


def hashing(d: Derivation, n: Node, op: Region, ins: tuple[Item, ...]) -> Fresh:
    """Operands: queries [b, n, h, k], values [b, n, h, v], a key, and perhaps where there are symbols [b, n].

    Sorting by bucket moves the borders of chunks whenever a position is added, so what a position sees depends on all that are
    there: no cache of results is exact."""
    if op.arg("causal") is not True: raise NotCausal(n)
    if op.arg("wrap") or op.arg("dropout"): raise NoRule(f"{n.at}: hashing that wraps around")
    values = [d.value(i, {"n": "new"}) for i in ins]
    chunks = d.sizes.integer(d.sizes.quotient(n.ins[0].axis("n").size, op.arg("chunk")))
    if chunks == 1: return Fresh(_one_chunk(d, dict(op.args), *values), {"n": "new"})
    d.recomputed.append(n.at)
    return Fresh(_again(d, dict(op.args), *values), {"n": "new"})


def _one_chunk(d: Derivation, how: dict, q: Value, v: Value, key: Value, mask: Value | None = None) -> Value:
    """Attention to all positions before that share a bucket in some round, and to itself where there are none."""
    b = d.step
    every = axis("n'", PAST + NEW, "sequence")
    here = b.add(b.position(axis("n", NEW, "sequence")), PAST)
    allowed = b.map("lt", b.position(every), here)
    if mask is not None: allowed = b.map("and", allowed, d.cached(mask, "n", every))
    s = b.contract(q, d.cached(unit(b, q, "k"), "n", every), "k", name="scores")
    if how["within_bucket"]:
        bucket = hashed(b, how, q, key, axis("r", how["rounds"], "round"))
        same = b.map("eq", bucket, d.cached(bucket, "n", every))
        meetings = b.sum(b.where(same, 1, 0), "r", name="meetings")
        allowed = b.map("and", allowed, b.map("lt", 0, meetings))
        if not how["dedup"]: s = b.add(s, b.map("log", b.map("maximum", meetings, 1)))
    p = softmax(b, b.where(allowed, s, -sp.oo), "n'")
    o = b.contract(p, d.cached(v, "n", every), "n'", name="weighted sum")
    alone = b.map("eq", b.sum(b.where(allowed, 1, 0), "n'"), 0)
    return b.broadcast(b.where(alone, v, o), *v.axes)


def _again(d: Derivation, how: dict, q: Value, v: Value, key: Value, mask: Value | None = None) -> Value:
    """The layer over all positions so far; the new ones of its results. Free sizes are those of whole chunks."""
    whole, every = axis("n", PAST + NEW, "sequence"), axis("n", ALL, "sequence")
    total = sp.ceiling(ALL / how["chunk"]) * how["chunk"]
    how["buckets"] = tuple(d.sizes.resolve(f).xreplace(dict.fromkeys(d.free, total)) for f in how["buckets"])
    operands = [d.cached(q, "n", whole), d.cached(v, "n", whole), key, *([d.cached(mask, "n", whole)] if mask is not None else [])]
    inner = Builder(parent=d.step, closed=True)
    ins = [inner.input([every if a.name == "n" else a for a in x.axes], x.kind) for x in operands]
    out = _body(inner, how, *ins)
    o, = d.step.emit(Region("lsh_attention", Graph(tuple(ins), live(inner.nodes, (out,)), (out,)), tuple(how.items())), *operands)
    return d.step.slice(o, "n", PAST, NEW)
