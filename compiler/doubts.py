"""Warnings about meaning that the derived costs give: a stack that does not reach, scores that do not fit, hashing that does not pay."""
from __future__ import annotations

from collections.abc import Iterator

import sympy as sp

from plait.compiler.axis import BATCH_SIZE, axis
from plait.compiler.builder import Builder
from plait.compiler.claim import claim
from plait.compiler.costs import path as paths
from plait.compiler.costs.order import per_sequence
from plait.compiler.costs.work import macs
from plait.compiler.file import File
from plait.compiler.graph import Node
from plait.compiler.kernels import Target
from plait.compiler.layers.attention import whole
from plait.compiler.prims import Region
from plait.compiler.program import Program
from plait.compiler.sizes import Free, Sizes, evaluate
from plait.dsl.errors import Diagnostic

LONGEST = 2**26                                               # positions up to which a crossing is looked for


def doubts(file: File, program: Program, memory: int, batch: int = 1) -> list[Diagnostic]:
    """W0403 for a model that is to be trained and reaches less than its length; W0404 for score matrices larger than `memory` bytes;
    W0405 and W0406 for LSH attention that costs more than full attention at this length, or hashes more than it attends."""
    return [*(_reach(file, program) if file.train(program.model) else ()), *_scores(program, memory, batch), *_hashing(program)]


def _reach(file: File, program: Program) -> Iterator[Diagnostic]:
    for i in program.inputs:
        if not any(a.role == "sequence" for a in i.value.axes): continue
        found = [paths.as_written(program.graph, i.value, program.sizes, out) for out in program.graph.outs]
        short = [p for p in found if p.connected is False and p.reach]
        if not short or any(p.connected for p in found): continue
        n, reach = program.sizes.integer(i.value.role("sequence").size), short[0].reach["positions"]["value"]      # type: ignore[index]
        if n is None or reach is None or reach >= n: continue      # short of all only at some positions
        yield Diagnostic("W0403", f"an output of {program.model} reads {reach:,} of the {n:,} positions of `{i.name}`",
                         file.models[program.model].name_span, help="more layers, wider windows, dilation = 2^i, or attention")


def _regions(program: Program) -> Iterator[Node]:
    yield from (n for n in program.graph.walk() if isinstance(n.op, Region))


def _scores(program: Program, memory: int, batch: int) -> Iterator[Diagnostic]:
    """Whole attention that no fused kernel takes holds its scores."""
    claimed = claim(program.graph, Target())
    seen: set[str] = set()
    for n in claimed.walk():
        if not isinstance(n.op, Region) or n.op.name != "attention" or n.op.kernel or n.at in seen: continue
        seen.add(n.at)
        scores = next(m for m in n.op.body.nodes if m.name == "scores").outs[0].size
        size = program.sizes.value(4 * sp.sympify(scores).subs(BATCH_SIZE, batch))
        if size is None or size <= memory: continue
        takes = f"the scores of this attention take {_gib(size)} GiB in float32, and there are {_gib(memory)} GiB here"
        yield Diagnostic("W0404", takes, n.span, numbers=f"4 bytes · {scores}, b = {batch}",
                         help="kernel = auto without dropout, a window, or lsh_attention")


def _gib(size) -> str:
    return f"{float(size) / 2**30:,.1f}"


def _hashing(program: Program) -> Iterator[Diagnostic]:
    seen: set[str] = set()
    for n in _regions(program):
        assert isinstance(n.op, Region)
        if n.op.name != "lsh_attention" or n.at in seen: continue
        seen.add(n.at)
        hashing = per_sequence(macs(n.op.body, lambda m: m.name == "hashing"))
        mine, full = per_sequence(macs(n.op.body)), _full(n, program.sizes)
        values = [program.sizes.value(e) for e in (hashing, mine, full)]
        if None in values: continue
        hashed, here, other = (int(v) for v in values if v is not None)
        if here > other:
            yield Diagnostic("W0405", f"LSH attention costs {here:,} multiply-adds here, full attention {other:,}", n.span,
                             numbers=_pays(n, mine, full, program.sizes), help="attention(…), fewer rounds, or a longer sequence")
        if hashed > here - hashed:
            yield Diagnostic("W0406", f"hashing costs {hashed:,} multiply-adds, the attention that it saves {here - hashed:,}", n.span,
                             help="buckets = (A, B): factorised, it grows with A + B instead of A·B")


def _full(n: Node, sizes: Sizes) -> sp.Expr:
    """The multiply-adds of whole attention on the same queries and values."""
    q, v = n.op.body.ins[:2]                                                                           # type: ignore[union-attr]
    b = Builder(sizes)
    there = axis("n'", q.role("sequence").size, "sequence")
    query, value = b.input(q.axes), b.rename(b.input(v.axes), "n", there)
    key = b.rename(b.input(q.axes), "n", there)
    return per_sequence(macs(b.graph(whole(b, query, key, value, None, None, True, False, sp.Integer(1), sp.Integer(0), "body"))))


def _pays(n: Node, lsh: sp.Expr, full: sp.Expr, sizes: Sizes) -> str:
    """The first power of two of the length at which hashing is cheaper; with what else the length decides."""
    length = n.op.body.ins[0].role("sequence").size                                                    # type: ignore[union-attr]
    if not length.is_Symbol or length in sizes.derived: return ""
    e = sizes.resolve(lsh - full)
    at = dict(sizes.bound)
    k = int(at.get(length, 1))
    while k <= LONGEST:
        k *= 2
        try:
            if evaluate(e, {**at, length: k}) < 0: return f"{length} = {k:,} is the first doubling at which it is cheaper"
        except (Free, ArithmeticError): return ""
    return "with these buckets and rounds it is never cheaper"


