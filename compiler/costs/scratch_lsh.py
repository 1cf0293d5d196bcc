"""What LSH attention needs besides its operands and results while it runs eagerly, in bytes.

Rounds go one after the other; a round is a list of chunks, of which a slab is at hand at once. A chunk has m queries and 2·m keys."""
from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from plait.compiler.axis import volume
from plait.compiler.kernels import HASHED, HASHES, SLAB
from plait.compiler.prims import Region

REAL, INTEGER, TRUTH, CODE = 4, 8, 1, 4                       # bytes


@dataclass(frozen=True)
class Sizes:
    """rows: positions of all heads and sequences; places: the same filled up to whole chunks; slab: chunks at hand; k, v: widths; tests:
    rounds that a pair is looked for in; more: 0 where there is one round, else 1."""
    rows: sp.Expr
    places: sp.Expr
    slab: sp.Expr
    m: sp.Expr
    k: sp.Expr
    v: sp.Expr
    rounds: sp.Expr
    tests: sp.Expr
    more: sp.Expr

    @property
    def pairs(self) -> sp.Expr: return self.slab * self.m * 2 * self.m

    @property
    def looked_at(self) -> sp.Expr:
        """A round by its places: whose row, the codes, what causality compares, the norms; rows, keys and values of a slab."""
        a_place = INTEGER + CODE * (self.tests + 1) + REAL
        return (self.places + self.m) * a_place + REAL * (self.rows + (self.slab + 1) * self.m * (self.k + self.v))

    @property
    def hiding(self) -> sp.Expr:
        """Who is hidden from whom, as it is found out: differences of codes, and truth values of this round, beside those of the others."""
        return self.pairs * (CODE + TRUTH + TRUTH * sp.Min(1, self.tests - 1, evaluate=False))


def sizes(op: Region) -> Sizes:
    q, v = op.body.ins[:2]
    m, rounds = sp.sympify(op.arg("chunk")), sp.sympify(op.arg("rounds"))
    rows, k = volume([a for a in q.axes if a.name != "k"]), q.axis("k").size
    n = q.axis("n").size
    chunks = rows / n * sp.ceiling(n / m)
    slab = sp.ceiling(chunks / sp.ceiling(chunks / SLAB))      # slabs are of the same size, as far as that goes
    tests = rounds if op.arg("dedup") else sp.Integer(1)
    return Sizes(rows, chunks * m, slab, m, k, v.axis("v").size, rounds, tests, sp.Min(1, rounds - 1, evaluate=False))


def ahead(op: Region) -> sp.Expr:
    """The scores of a slab, and what the rounds have made: by place, and by row where there are several. Its results come only then."""
    s = sizes(op)
    made = REAL * ((s.v + 2) * s.places + s.more * (s.v + 2) * s.rows) - REAL * (s.v + 1) * s.rows
    return s.looked_at + REAL * s.pairs + s.hiding + made


def back(op: Region) -> sp.Expr:
    """The weights of a slab and their slopes; gradients by place, and of its keys and values. Where there is one round, its results
    come only then."""
    s = sizes(op)
    gradients = REAL * ((s.places + s.m) * (s.k + s.v) + (s.slab + 1) * 2 * s.m * (s.k + s.v) + s.slab * s.m * s.v)
    a_row = REAL * (2 * s.places + s.rows)
    more = sp.Max(s.hiding, 3 * REAL * s.slab * s.m * s.k, evaluate=False)                   # afterwards: through the norm of the keys
    return s.looked_at + 2 * REAL * s.pairs + more + gradients + a_row - (1 - s.more) * REAL * (s.k + s.v) * s.rows


def hashing(op: Region) -> sp.Expr:
    """The products of some positions with the rotations of all rounds; which of them is the largest, and its number."""
    q, rounds = op.body.ins[0], sp.sympify(op.arg("rounds"))
    each = q.axis("h").size * rounds * sp.Max(*op.arg("buckets")) / 2
    positions = volume([a for a in q.axes if a.name not in ("h", "k")])
    some = sp.Min(sp.Max(HASHED, sp.floor(HASHES / each), evaluate=False), positions, evaluate=False)
    return (2 * REAL + CODE + TRUTH) * each * some


def more(op: Region) -> sp.Expr:
    """What may come on top: a quarter, and the whole numbers of the sorting."""
    s = sizes(op)
    return back(op) / 4 + 8 * INTEGER * s.rounds * (s.places + s.rows)
