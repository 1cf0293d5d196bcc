"""What compiled code makes of a run of nodes: the calls of the library that stay calls of their own, and between them nests of loops."""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from plait.compiler.graph import Node, Value
from plait.compiler.prims import VIEWS, Const, Contract, Gather, Position, Reduce, Region, Scatter, Sort

LIBRARY = {"scaled_dot_product_attention": "attention", "conv1d": "convolution"}          # kernel → kind, within a segment
LIBRARY |= {f"{kernel}_backward": f"{kind}_backward" for kernel, kind in LIBRARY.items()}


class Fused:
    """A run of nodes as compiled code has it. apart: nodes that are calls of their own; nests: the others, those that run as one; needed:
    values that are written, because a call, another nest or somebody outside reads them; given: what comes from outside."""

    def __init__(self, run: Sequence[Node], outs: set[Value]):
        self.roots: dict[Value, Value] = {}
        self.level: dict[Value, int] = {}                     # how many calls of their own stand before a value
        self.numbers: set[Value] = set()                      # made of nothing
        nodes = list(self.inlined(run))
        made = {v: n for n in nodes for v in n.outs}
        self.apart = [n for n in nodes if separate(n)]
        self.sink(nodes)
        own = [n for n in nodes if not separate(n)]
        self.nests = self.joined(own, made)
        self.given = {self.root(v) for n in nodes for v in n.ins} - made.keys()
        nest_of = {v: k for k, nest in enumerate(self.nests) for n in nest for v in n.outs}
        self.needed = {self.root(v) for v in outs} | {self.root(v) for n in self.apart for v in n.ins}
        self.needed |= {self.root(v) for n in own for v in n.ins if nest_of.get(self.root(v)) != nest_of[n.outs[0]]}

    def root(self, v: Value) -> Value: return self.roots.get(v, v)

    def column(self, n: Node) -> bool:
        """Does a sum run over what stands in front, and leave what stands behind?"""
        if not isinstance(n.op, Reduce): return False
        x = n.ins[0]
        summed_over, kept = [x.names.index(o) for o in n.op.over], [k for k, a in enumerate(x.names) if a not in n.op.over]
        return bool(kept) and min(summed_over) < max(kept)

    def inlined(self, run: Iterable[Node]) -> Iterator[Node]:
        """Nodes without views, and with the bodies of regions that are compiled like everything else; levels on the way."""
        for n in run:
            if isinstance(n.op, Region) and n.op.kernel not in LIBRARY:
                self.roots.update({i: self.root(v) for i, v in zip(n.op.body.ins, n.ins)})
                yield from self.inlined(n.op.body.nodes)
                self.roots.update({o: self.root(v) for o, v in zip(n.outs, n.op.body.outs)})
            elif isinstance(n.op, VIEWS) or isinstance(n.op, Gather) and n.ins[1].kind == "const":
                self.roots[n.outs[0]] = self.root(n.ins[0])
            else:
                level = max((self.level.get(self.root(v), 0) for v in n.ins), default=0)
                for v in n.outs: self.level[v] = level + separate(n)
                if isinstance(n.op, Const | Position): self.numbers.update(n.outs)
                yield n

    def sink(self, nodes: Sequence[Node]) -> None:
        """What is not a call of its own stands as late as those let it that read it: it is computed where it is needed."""
        latest: dict[Value, int] = {}
        for n in reversed(nodes):
            at = self.level[n.outs[0]] - separate(n)
            if not separate(n):
                at = latest.get(n.outs[0], at)
                for v in n.outs: self.level[v] = at
            for v in map(self.root, n.ins): latest[v] = min(latest.get(v, at), at)

    def joined(self, own: list[Node], made: Mapping[Value, Node]) -> list[list[Node]]:
        """What hangs together within one level; sums down columns of one level apart from it, together."""
        parent: dict[Value, Value] = {n.outs[0]: n.outs[0] for n in own}

        def top(v: Value) -> Value:
            while parent[v] != v: v = parent[v]
            return v
        columns: dict[int, Value] = {}
        for n in own:
            y = n.outs[0]
            if self.column(n):
                parent[top(y)] = top(columns.setdefault(self.level[y], y))
                continue
            for v in map(self.root, n.ins):
                m = made.get(v)
                if m is None or v not in parent or v in self.numbers or self.column(m) or self.level[v] != self.level[y]: continue
                parent[top(v)] = top(y)
        groups: dict[Value, list[Node]] = defaultdict(list)
        for n in own: groups[top(n.outs[0])].append(n)
        return list(groups.values())


def separate(n: Node) -> bool:
    """Is it a call of its own within a segment? Not a scatter where nothing adds up: the adjoint of one element out of a row."""
    if isinstance(n.op, Scatter): return not set(n.ins[0].names) <= set(n.op.together)
    return isinstance(n.op, Contract | Sort | Region)
