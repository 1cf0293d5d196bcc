"""How far what torch keeps may lie from what the adjoints read, where a library or a layout decides and not the definition."""
from __future__ import annotations

from dataclasses import dataclass, field

import sympy as sp

from plait.compiler.costs.order import over_trips
from plait.compiler.graph import Graph, Value
from plait.compiler.prims import VIEWS, Contract, Gather, Loop, Map, Pad, Region

REAL, INDEX = 4, 8                                            # bytes


@dataclass
class Slack:
    """Bytes that may be missing, and that may come on top; `why`, in words."""
    less: sp.Expr = sp.Integer(0)
    more: sp.Expr = sp.Integer(0)
    why: list[str] = field(default_factory=list)

    def add(self, why: str, less=0, more=0) -> None:
        self.less, self.more = self.less + less, self.more + more
        if why not in self.why: self.why.append(why)


def slack(claimed: Graph) -> Slack:
    """Of a claimed graph."""
    found = Slack()
    _look(claimed, {v for v in claimed.ins if v.kind == "real"}, (), False, found)
    for v in claimed.ins:
        if v.kind == "mask": found.add("a mask that was not given is made", more=v.size)
    return found


def _look(g: Graph, given: set[Value], loops: tuple[Loop, ...], body: bool, out: Slack) -> None:
    """given: views of the caller's input. body: inside a region that runs its definition."""
    for n in g.nodes:
        def times(e: sp.Expr) -> sp.Expr: return over_trips(e, loops)

        if isinstance(n.op, VIEWS) and n.ins[0] in given: given.add(n.outs[0])
        elif isinstance(n.op, Loop):
            inside = {i for v, i in zip(n.ins, n.op.body.ins) if v in given}
            _look(n.op.body, inside, (*loops, n.op), body, out)
            small = [v for v in n.ins if v.kind in ("index", "mask") and v.axes]
            if n.op.keep == "recompute" and small:
                every = times(sp.Add(*(INDEX * v.size for v in small)))
                out.add("indices of pieces are kept whole or cut", every, every)
        elif isinstance(n.op, Region) and not n.op.kernel:
            _look(n.op.body, {i for v, i in zip(n.ins, n.op.body.ins) if v in given}, loops, body or n.name != "part", out)
        elif isinstance(n.op, Region):
            total = _ragged(n.op)
            if total != 0: out.add("tables of a ragged last chunk", times(total), times(total))
        elif isinstance(n.op, Contract):
            for v in n.ins:
                if v in given or body: out.add("a product may keep its operand in another layout", more=times(REAL * v.size))
        elif isinstance(n.op, Gather) and n.ins[0].kind == "real" and n.ins[1].kind == "index":
            out.add("a gather keeps what it picks from", more=times(REAL * n.ins[0].size))
        elif isinstance(n.op, Pad):
            out.add("padding of a ragged last piece, which may be none", times(REAL * n.outs[0].size), times(REAL * n.outs[0].size))
        elif body and isinstance(n.op, Map):
            out.add("constants and masks of a body are kept, not made again", more=times(sp.Add(*(_bytes(v) * v.size for v in n.ins))))


def _ragged(op: Region) -> sp.Expr:
    """Of LSH attention whose length is no multiple of its chunks: places that are not there, in a few tables."""
    if op.kernel != "lsh_attention": return sp.Integer(0)
    q = op.body.ins[0]
    n, chunk = q.axis("n").size, sp.sympify(op.arg("chunk"))
    if not sp.ceiling(n / chunk).has(sp.ceiling) and not any(isinstance(m.op, Pad) and m.op.axis == "n" for m in op.body.nodes):
        return sp.Integer(0)
    return 4 * INDEX * sp.sympify(op.arg("rounds")) * q.size / n / q.axis("k").size * chunk


def _bytes(v: Value) -> int: return {"index": INDEX, "mask": 1, "const": 0}.get(v.kind, REAL)
