"""From the graph of a whole sequence to the graph of one step, in the same alphabet.

Every node that depends on the sequence is emitted again for the new positions only. What reads other positions has a rule by its
primitive: an axis of positions that is renamed (queries against keys) becomes a cache that grows, a window or a shift keeps the few
positions before, a loop over positions keeps its states. What does not depend on the sequence is computed once, in a graph of its own,
or, where it has a row a position, cut to the positions that are asked for. A sum over positions is exact only where later ones weigh
nothing: inside a region that says `causal`."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace

import sympy as sp

from plait.compiler.axis import Axis, without
from plait.compiler.builder import Builder
from plait.compiler.decode.items import NEW, PAST, Decoded, Fresh, Item, Made, NoRule, NotCausal, Padded, Pieced, State, Static
from plait.compiler.decode.lsh import hashing
from plait.compiler.graph import Graph, Node, Value, live
from plait.compiler.prims import (
    Broadcast,
    Concat,
    Const,
    Contract,
    Gather,
    Loop,
    Map,
    Merge,
    Op,
    Pad,
    Position,
    Reduce,
    Region,
    Rename,
    Slice,
    Split,
    Window,
)
from plait.compiler.program import Input, Program
from plait.compiler.verify import verify

WHOLE = ("softmax", "layer_norm", "rms_norm")            # regions that a kernel may take as they are: each position stands for itself
MOST_COPIES = 1000                                       # that a step writes out one by one


def decode(program: Program, graph: Graph, target: Input, delayed: bool) -> Decoded:
    """The step that continues `target` of the graph of a model's outputs (without dropout), whose first output are the logits [n, V].

    delayed: the symbols handed in at position t are those of t − 1, and symbol 0 first: for a model that shifts its input, and predicts
    symbol t at t. Raises NotCausal where a position reads a later one, NoRule where the graph has something that has no rule."""
    return Derivation(program, graph, target, delayed).derived()


class Derivation:
    def __init__(self, program: Program, graph: Graph, target: Input, delayed: bool):
        self.graph, self.target, self.delay = replace(graph, nodes=live(graph.nodes, graph.outs[:1])), target, int(delayed)
        self.sizes = program.sizes
        self.step, self.once = Builder(self.sizes), Builder(self.sizes)
        self.states: list[tuple[Value, Value, float]] = []
        self.given: list[tuple[Value, Value]] = []                     # (output of what is computed once, input of the step)
        self.copies: dict[str, tuple[str, tuple[int, ...]]] = {}
        self.recomputed: list[str] = []
        self.index: dict[sp.Symbol, sp.Expr] = {}                      # trips of the loops around
        self.scope: dict[str, str] = {}                                # what the axes of the region around hold
        self.causal, self.piece, self.unrolled, self.loops = False, False, 0, 0
        size = self.sizes.resolve(target.value.axes[1].size)
        if self.sizes.integer(size) is None and not size.is_Symbol: raise NoRule(f"{size} positions")
        self.length = size
        self.free = {size: PAST + NEW} if self.sizes.integer(size) is None else {}

    def derived(self) -> Decoded:
        env: dict[Value, Item] = {}
        for v in self.graph.ins:
            if v in (self.target.value, self.target.mask):
                made = self.step.input([a.resized(NEW) if a.role == "sequence" else a for a in v.axes], v.kind, v.name)
                env[v] = Fresh(made, {v.axes[1].name: "new"}, self.delay)
            else: env[v] = Static(Made(None, ()), 0, v.axes, v.kind, v.name)
        symbols, masked = list(self.step.ins), self.target.mask in env
        self.run(self.graph.nodes, env)
        out = env[self.graph.outs[0]]
        if not isinstance(out, Fresh) or "new" not in out.along.values(): raise NoRule("the output has no positions of this input")
        self.plain(out)
        ins = [*symbols, *(before for before, _, _ in self.states), *(v for _, v in self.given)]
        rest = [v for v in self.step.ins if v not in ins]
        outs = (out.value, *(after for _, after, _ in self.states))
        step = verify(Graph((*ins, *rest), live(self.step.nodes, outs), outs), self.sizes)
        once = verify(self.once.graph(*(v for v, _ in self.given)), self.sizes)
        return Decoded(once, step, tuple(State(*s) for s in self.states), tuple(v for _, v in self.given), self.copies, masked,
                       tuple(dict.fromkeys(self.recomputed)))

    # -- sizes -----------------------------------------------------------------------------------------------------------------
    def here(self, e):
        """An expression as it is in this step: with the trip's number, and as many positions as there are by now."""
        if not isinstance(e, sp.Basic) or not e.free_symbols: return e
        if self.free: e = self.sizes.resolve(e)
        return e.xreplace({**self.index, **self.free})

    def adapted(self, op: Op) -> Op:
        """The op with the sizes of this step."""
        def changed(x):
            if isinstance(x, Axis): return x.resized(self.here(x.size))
            if isinstance(x, tuple): return tuple(map(changed, x))
            return self.here(x)
        if not self.index and not self.free or isinstance(op, Region | Loop): return op
        return replace(op, **{f.name: changed(getattr(op, f.name)) for f in fields(op)})

    def plain(self, x: Fresh) -> Value:
        """The value at its own positions."""
        if x.delay: raise NoRule("what is given late, at its own place")
        return x.value

    # -- what does not depend on the sequence ------------------------------------------------------------------------------------
    def fixed(self, n: Node, ins: tuple[Static, ...]) -> list[Item]:
        if self.index and isinstance(n.op, Region | Loop) and any(s in self.index for m in n.op.body.walk() for s in m.symbols):
            raise NoRule(f"{n.at}: the trip's number inside a body")
        op = n.op
        if self.index and not isinstance(op, Region | Loop):
            now = self.index

            def changed(x):
                if isinstance(x, Axis): return x.resized(x.size.xreplace(now))
                if isinstance(x, tuple): return tuple(map(changed, x))
                return x.xreplace(now) if isinstance(x, sp.Basic) else x
            op = replace(op, **{f.name: changed(getattr(op, f.name)) for f in fields(op)})
        made = Made(op, ins, n.at)
        return [Static(made, k, tuple(a.resized(a.size.xreplace(self.index)) for a in v.axes), v.kind) for k, v in enumerate(n.outs)]

    def leaf(self, b: Builder, s: Static) -> Value:
        """A parameter, the seed or an input, as an input of a graph."""
        name = s.name + "".join(f"@{k}" for k in s.copies)
        if s.copies: self.copies[name] = (s.name, s.copies)
        found = next((v for v in b.ins if v.name == name), None)
        return found if found is not None else b.input(s.axes, s.kind, name)

    def before(self, s: Static) -> Value:
        """The value in the graph of what is computed once."""
        m = s.made
        if m.op is None: return self.leaf(self.once, s)
        if m.outs is None:
            if self.free and self.free.keys() & _symbols(m.op, s): raise NoRule(f"{m.at}: a table of as many rows as there are positions")
            out = self.once.emit(m.op, *map(self.before, m.ins))
            m.outs = out if isinstance(out, tuple) else (out,)
        return m.outs[s.which]

    def whole(self, s: Static) -> Value:
        """The value in the step."""
        if s.given is not None: return s.given
        op = s.made.op
        if op is None and (s.kind == "param" or not s.axes): s.given = self.leaf(self.step, s)
        elif isinstance(op, Const): return self.step.const(self.here(op.value))
        elif isinstance(op, Map) and not s.axes and self.free: return self.step.emit(op, *map(self.whole, s.made.ins))
        else:
            v = self.before(s)
            root = self.step
            while root.parent: root = root.parent
            s.given = next((inner for out, inner in self.given if out == v), None)
            if s.given is None:
                self.given.append((v, root.input(v.axes, v.kind if v.kind != "param" else "real")))
                s.given = self.given[-1][1]
        return s.given

    def part(self, s: Static, along: Mapping[str, str]) -> Value:
        """The value in the step, with those of its positions that are asked for."""
        need = {a: form for a, form in along.items() if a in s.names}
        if not need: return self.whole(s)
        key = (*sorted(need.items()), id(self.step))
        if key not in s.parts: s.parts[key] = self.cut(s, need)
        return s.parts[key]

    def cut(self, s: Static, need: dict[str, str]) -> Value:
        b, op, ins = self.step, s.made.op, s.made.ins
        count = {a: NEW if form == "new" else PAST + NEW for a, form in need.items()}
        match op:
            case Position(a):
                at = b.position(a.resized(count[a.name]))
                return b.add(at, PAST) if need[a.name] == "new" else at
            case Map(): return b.emit(op, *(self.part(i, need) for i in ins))
            case Contract(over) | Reduce(_, over) if not set(over) & need.keys():
                return b.emit(op, *(self.part(i, need) for i in ins))
            case Rename(old, new):
                x = self.part(ins[0], {old if a == new.name else a: form for a, form in need.items()})
                return b.rename(x, old, new.resized(x.axis(old).size))
            case Broadcast(axes):
                return b.broadcast(self.part(ins[0], need), *(a.resized(count.get(a.name, self.here(a.size))) for a in axes))
            case Concat(name) if name not in need: return b.concat(name, *(self.part(i, need) for i in ins))
            case Slice(name) if name not in need: return b.emit(self.adapted(op), self.part(ins[0], need))
            case Slice(name, start, _) if len(need) == 1 and not isinstance(ins[0].made.op, Position | Map):
                return b.slice(self.whole(ins[0]), name, self.here(start) + (PAST if need[name] == "new" else 0), count[name])
            case Merge(_, into) if into.name not in need: return b.emit(self.adapted(op), self.part(ins[0], need))
            case Split(name) if name not in need: return b.emit(self.adapted(op), self.part(ins[0], need))
            case Gather(name) if name not in need and not set(ins[1].names) & need.keys():
                return b.emit(op, self.part(ins[0], need), self.whole(ins[1]))
        x = self.whole(s)
        for along, form in need.items(): x = b.slice(x, along, PAST if form == "new" else 0, count[along])
        return x

    # -- what does ---------------------------------------------------------------------------------------------------------------
    def run(self, nodes: Iterable[Node], env: dict[Value, Item]) -> None:
        for n in nodes:
            ins = tuple(env[v] for v in n.ins)
            fixed = tuple(i for i in ins if isinstance(i, Static))
            with self.step.located(n.at, n.span):
                outs = self.fixed(n, fixed) if len(fixed) == len(ins) else self.moving(n, ins)
            env.update(zip(n.outs, outs))

    def moving(self, n: Node, ins: tuple[Item, ...]) -> list[Item]:
        """The rule of a node that depends on the sequence."""
        op, x = n.op, ins[0]
        match op:
            case Region(): return self.region(n, op, ins)
            case Loop(): return self.loop(n, op, ins)
        if isinstance(x, Padded): return [self.shifted(n, x)]
        if isinstance(x, Pieced): return [self.joined(n, x)]
        if not all(isinstance(i, Fresh | Static) for i in ins): raise NoRule(n.at)
        if isinstance(x, Fresh):
            match op:
                case Pad(a, before, _) if a in x.along: return [Padded(x, a, self.here(before))]
                case Slice(a, start, size) if a in x.along:
                    if self.sizes.same(start, 0) and self.sizes.same(size, self.length): return [x]
                    raise NoRule(f"{n.at}: a part of the sequence")
                case Window(a) if a in x.along: return [self.window(n, op, x)]
                case Rename(a, new) if a in x.along: return [self.renamed(n, x, a, new)]
                case Split(a, (piece, c)) if x.along.get(a) == "new" and piece.role == "chunk":
                    cut = self.step.rename(self.plain(x), a, c.resized(NEW))
                    return [Pieced(Fresh(cut, {c.name: "new"}), piece.name)]
        return [self.each(n, op, ins)]

    def each(self, n: Node, op: Op, ins: tuple[Item, ...]) -> Fresh:
        """An op that leaves positions as they are: of the new ones only."""
        along: dict[str, str] = {}
        for i in ins:
            for a, form in (i.along if isinstance(i, Fresh) else {}).items():
                if along.setdefault(a, form) != form: raise NoRule(f"{n.at}: new positions against all")
        for i in ins:                                                  # positions that only what is fixed has
            if isinstance(i, Static): along |= {a: self.scope[a] for a in i.names if a in self.scope and a not in along}
        over: tuple[str, ...] = ()
        match op:
            case Contract(over) | Reduce(_, over): pass
            case Gather(a) | Concat(a) | Split(a) | Slice(a) | Pad(a) | Window(a): over = (a,)
            case Merge(pair): over = pair
            case Map() | Broadcast() | Rename(): pass
            case _: raise NoRule(f"{n.at}: {type(op).__name__}")
        if mixed := set(over) & along.keys():
            if not isinstance(op, Contract | Reduce): raise NoRule(f"{n.at}: {type(op).__name__} over positions")
            if not self.causal or any(along[a] == "new" for a in mixed): raise NotCausal(n)
        late = {i.delay for i in ins if isinstance(i, Fresh)}
        if late != {0}:                                                # so is what is made of it, position by position
            if len(late) > 1 or any(isinstance(i, Static) and set(i.names) & along.keys() for i in ins): raise NoRule(f"{n.at}: given late")
            ins = tuple(replace(i, delay=0) if isinstance(i, Fresh) else i for i in ins)
            return replace(self.each(n, op, ins), delay=late.pop(), made=True)
        values = [self.value(i, along) for i in ins]
        op = self.adapted(op)
        if isinstance(op, Broadcast):
            x = values[0]
            op = Broadcast(tuple(x.axis(a.name) if x.has(a.name) else a for a in op.axes))
        out = self.step.emit(op, *values, name=n.name)
        return Fresh(out, {a: form for a, form in along.items() if out.has(a)})

    def value(self, i: Item, along: Mapping[str, str]) -> Value:
        if isinstance(i, Static): return self.part(i, along)
        assert isinstance(i, Fresh)
        return self.plain(i)

    # -- states ------------------------------------------------------------------------------------------------------------------
    def state(self, axes, kind: str, fill: float = 0) -> Value:
        """What the step before has handed on; `keep` says what this one does."""
        root = self.step
        while root.parent: root = root.parent
        v = root.input(axes, kind if kind in ("index", "mask") else "real")
        return self.step.use(v)

    def keep(self, before: Value, after: Value, fill: float = 0) -> None:
        self.states.append((before, after, fill))

    def cached(self, x: Value, old: str, new: Axis) -> Value:
        """All positions so far, along `new`: those before, and x. They lie in front of the last feature, as products read them."""
        x = self.step.rename(x, old, new.resized(NEW))
        rest = without(x.axes, (new.name,))
        last = len(rest) - (len(rest) > 1)
        axes = (*rest[:last], x.axis(new.name), *rest[last:])
        if x.axes != axes: x = self.step.broadcast(x, *axes)
        past = self.state([a.resized(PAST) if a.name == new.name else a for a in axes], x.kind)
        every = self.step.concat(new.name, past, x)
        self.keep(past, every)
        return every

    def behind(self, x: Value, along: str, by) -> Value:
        """x with the `by` positions before it in front; zeros stand before the first."""
        past = self.state([a.resized(by) if a.name == along else a for a in x.axes], x.kind)
        both = self.step.concat(along, past, x)
        self.keep(past, self.step.slice(both, along, NEW, by))
        return both

    def renamed(self, n: Node, x: Fresh, old: str, new: Axis) -> Fresh:
        """Positions under another name are those that each position reads: all so far."""
        rest = {a: form for a, form in x.along.items() if a != old}
        if self.piece or x.along[old] == "all":
            v = self.plain(x)
            return Fresh(self.step.rename(v, old, new.resized(v.axis(old).size)), {**rest, new.name: x.along[old]})
        return Fresh(self.cached(self.plain(x), old, new), {**rest, new.name: "all"})

    def shifted(self, n: Node, x: Padded) -> Fresh:
        """A slice of a pad: each position holds what one before it held."""
        op, a = n.op, x.axis
        if isinstance(op, Split) and op.axis == a and op.into[0].role == "chunk":                    # a ragged last piece
            cut = self.step.rename(self.plain(x.inner), a, op.into[1].resized(NEW))
            return Pieced(Fresh(cut, {op.into[1].name: "new"}), op.into[0].name)                     # type: ignore[return-value]
        if not isinstance(op, Slice) or op.axis != a: raise NoRule(f"{n.at}: padded positions")
        by = self.sizes.integer(x.before - self.here(op.start))
        if by is None: raise NoRule(f"{n.at}: a shift by what is not known")
        if by < x.inner.delay: raise NotCausal(n) if not x.inner.delay else NoRule(f"{n.at}: given late")
        v, by = x.inner.value, by - x.inner.delay
        if x.inner.made:                                               # a shift puts zeros first
            here = self.step.add(self.step.position(v.axis(a)), PAST)
            v = self.step.where(self.step.map("le", x.inner.delay, here), v, 0)
        if by == 0: return Fresh(v, x.inner.along)
        return Fresh(self.step.slice(self.behind(v, a, sp.Integer(by)), a, 0, NEW), x.inner.along)

    def window(self, n: Node, op: Window, x: Fresh) -> Fresh:
        """The neighbourhood of each new position, which is before it."""
        op = self.adapted(op)                                                                       # type: ignore[assignment]
        if not self.sizes.same(op.left, op.into.size - 1):
            ahead = self.sizes.integer(op.into.size - 1 - op.left)
            if ahead is None or ahead > 0: raise NotCausal(n)
        v, a, by = self.plain(x), op.axis, op.left * op.dilation
        if x.along[a] != "new": raise NoRule(f"{n.at}: a window over all positions")
        if self.sizes.same(by, 0): return Fresh(self.step.emit(op, v), x.along)
        out = self.step.emit(op, self.behind(v, a, by))
        return Fresh(self.step.slice(out, a, by, NEW), x.along)

    # -- bodies ------------------------------------------------------------------------------------------------------------------
    def region(self, n: Node, op: Region, ins: tuple[Item, ...]) -> list[Item]:
        if op.name == "lsh_attention": return [hashing(self, n, op, ins)]
        if op.name in WHOLE and all(isinstance(i, Fresh | Static) for i in ins): return [self.untouched(n, op, ins)]
        env = dict(zip(op.body.ins, ins))
        around = self.causal, self.scope
        self.causal = self.causal or op.arg("causal") is True
        self.scope = {a: form for i in ins if isinstance(i, Fresh) for a, form in i.along.items()}
        try: self.run(op.body.nodes, env)
        finally: self.causal, self.scope = around
        return [env[v] for v in op.body.outs]

    def untouched(self, n: Node, op: Region, ins: tuple[Item, ...]) -> Fresh:
        """A region that a kernel may take, of the new positions."""
        along = {a: form for i in ins if isinstance(i, Fresh) for a, form in i.along.items()}
        over = str(op.arg("over"))
        if over in along and (along[over] == "new" or not self.causal): raise NotCausal(n)

        def body(b: Builder, *operands: Value) -> Value:
            outer, self.step = self.step, b
            causal, self.causal = self.causal, True
            env: dict[Value, Item] = {inner: Fresh(v, {a: f for a, f in along.items() if v.has(a)})
                                      for inner, v in zip(op.body.ins, operands)}
            try:
                for m in op.body.nodes:
                    given = tuple(env[v] for v in m.ins)
                    made = self.each(m, m.op, given) if m.ins else Fresh(b.emit(self.adapted(m.op)), {})
                    env[m.outs[0]] = made
            finally: self.step, self.causal = outer, causal
            out = env[op.body.outs[0]]
            assert isinstance(out, Fresh)
            return out.value

        out = self.step.region(op.name, body, *(self.value(i, along) for i in ins), **dict(op.args))               # type: ignore[arg-type]
        return Fresh(out, {a: f for a, f in along.items() if out.has(a)})

    def loop(self, n: Node, op: Loop, ins: tuple[Item, ...]) -> list[Item]:
        match op.axis.role:
            case "copies": return self.copied(n, op, ins)
            case "sequence": return self.recurrence(n, op, ins)
            case "chunk": return self.pieces(n, op, ins)
        raise NoRule(f"{n.at}: a loop over {op.axis}")

    def recurrence(self, n: Node, op: Loop, ins: tuple[Item, ...]) -> list[Item]:
        """A loop over positions goes on from its last states."""
        if op.reverse: raise NotCausal(n)
        c, s, name = op.carried, op.carried + op.sliced, op.axis.name
        along = {name: "new"}
        starts = [self.constant(n, i) for i in ins[:c]]
        states = [self.state([a.resized(self.here(a.size)) for a in v.axes], v.kind) for v in op.body.ins[:c]]
        rest = [self.value(i, along if c + k < s else {}) for k, i in enumerate(ins[c:])]
        if any(isinstance(i, Fresh) and name in i.along for i in ins[s:]): raise NoRule(f"{n.at}: a loop that reads all positions")
        self.loops += 1
        body = _named(op.body, f"~{self.loops}")                       # copies that share their weights share their body
        outs = self.step.emit(replace(op, body=body, axis=op.axis.resized(NEW)), *states, *rest, name=n.name)
        for before, after, fill in zip(states, outs, starts): self.keep(before, after, fill)
        return [Fresh(v, along if v.has(name) else {}) for v in outs]

    def constant(self, n: Node, i: Item) -> float:
        if isinstance(i, Static) and isinstance(i.made.op, Broadcast) and isinstance(start := i.made.ins[0].made.op, Const):
            return float(start.value)
        raise NoRule(f"{n.at}: a recurrence that starts from no constant")

    def pieces(self, n: Node, op: Loop, ins: tuple[Item, ...]) -> list[Item]:
        """Pieces in which each position stands for itself: one piece of the new ones."""
        if op.carried: raise NoRule(f"{n.at}: pieces that hand something on")
        first = [i.inner if isinstance(i, Pieced) else self.copy(i, op.axis, 0) for i in ins[:op.sliced]]
        env = dict(zip(op.body.ins, (*first, *ins[op.sliced:])))
        piece, self.piece = self.piece, True
        try: self.run(op.body.nodes, env)
        finally: self.piece = piece
        outs = [env[v] for v in op.body.outs]
        if not all(isinstance(v, Fresh) for v in outs): raise NoRule(n.at)
        return [Pieced(v, op.axis.name) for v in outs if isinstance(v, Fresh)]

    def joined(self, n: Node, x: Pieced) -> Item:
        """What puts pieces together again."""
        v, op = x.inner.value, n.op
        match op:
            case Broadcast(axes):
                axes = tuple(v.axis(a.name) if v.has(a.name) else a for a in without(axes, (x.piece,)))
                return Pieced(Fresh(self.step.broadcast(v, *axes), x.inner.along), x.piece)
            case Merge((p, c), into) if p == x.piece:
                return Fresh(self.step.rename(v, c, into.resized(NEW)), {into.name: "new"})
        raise NoRule(f"{n.at}: pieces")

    def copied(self, n: Node, op: Loop, ins: tuple[Item, ...]) -> list[Item]:
        """Copies, one after another: a step writes them out."""
        trips, c = self.sizes.integer(op.axis.size), op.carried
        if trips is None or len(op.body.outs) > c: raise NoRule(f"{n.at}: {op.axis.size} copies")
        self.unrolled += trips
        if self.unrolled > MOST_COPIES: raise NoRule(f"{n.at}: more than {MOST_COPIES:,} copies")
        carried = list(ins[:c])
        for k in range(trips):
            cut = [self.copy(i, op.axis, k) for i in ins[c:c + op.sliced]]
            env = dict(zip(op.body.ins, (*carried, *cut, *ins[c + op.sliced:])))
            with self.trip(op.index, k): self.run(op.body.nodes, env)
            carried = [env[v] for v in op.body.outs]
        return carried

    def copy(self, i: Item, over: Axis, k: int) -> Static:
        """What one copy has of what is cut along the copies."""
        if not isinstance(i, Static): raise NoRule("copies that read a sequence each")
        axes = without(i.axes, (over.name,))
        if i.made.op is None and i.kind == "param":
            return Static(Made(None, ()), 0, axes, i.kind, i.name, (*i.copies, k))
        number = Static(Made(Const(sp.Integer(k)), ()), 0, (), "const")
        return Static(Made(Gather(over.name), (i, number), i.made.at), 0, axes, i.kind)

    @contextmanager
    def trip(self, index: sp.Symbol | None, k: int):
        before = self.index
        if index is not None: self.index = {**before, index: sp.Integer(k)}
        try: yield
        finally: self.index = before


def _symbols(op: Op, s: Static) -> set[sp.Symbol]:
    """The symbols in an op's own attributes and in the sizes of what it makes."""
    return Node(op, (), (Value("", s.axes),)).symbols


def _named(graph: Graph, mark: str) -> Graph:
    """The graph with names of its own for all values."""
    def named(values): return tuple(replace(v, name=v.name + mark) for v in values)
    graph = graph.map_bodies(lambda body: _named(body, mark))
    nodes = tuple(replace(n, ins=named(n.ins), outs=named(n.outs)) for n in graph.nodes)
    return Graph(named(graph.ins), nodes, named(graph.outs))
