"""A model one step after another: the logits of the newest positions from what the steps before have kept."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor, nn

from plait.compiler.axis import BATCH_SIZE
from plait.compiler.decode import ALL, PAST, NoRule, NotCausal, decode
from plait.compiler.graph import Graph, Node, Value
from plait.compiler.lower import Lowering
from plait.compiler.lowering.growing import grown
from plait.compiler.passes.common import common
from plait.compiler.passes.evaluation import evaluation
from plait.compiler.plan import plan
from plait.compiler.prims import Concat
from plait.compiler.program import Input, Program
from plait.dsl.errors import error
from plait.runtime.kernels import EMISSIONS
from plait.runtime.module import Module, target_of

PIECE = 1024                                   # positions of a prompt at once: attention holds so many rows of scores


@dataclass(frozen=True)
class Progress:
    """Where a batch of sequences stands. kept: what the steps keep, rows: the axis of the batch in each; past: positions so far."""
    kept: tuple[Tensor, ...]
    given: tuple[Tensor, ...]
    past: int = 0


class Stepper(Protocol):
    """continues a batch of sequences by symbols [b, new]. `delayed`: a position is given the symbol of the one before, first 0."""
    delayed: bool
    @property
    def recomputed(self) -> tuple[str, ...]: ...
    def begin(self, batch: int, **inputs: Tensor) -> Progress: ...
    def step(self, symbols: Tensor, at: Progress) -> tuple[Tensor, Progress]: ...
    def choose(self, at: Progress, rows: Tensor) -> Progress: ...


def target_input(program: Program) -> Input:
    """The input of tokens that is continued: the last one."""
    tokens = [i for i in program.inputs if i.kind == "tokens"]
    if not tokens: raise error("E0625", "only a model with an input of tokens can continue a text", program.inputs[0].span)
    return tokens[-1]


def steps(module: nn.Module, target: Input) -> Stepper | None:
    """The incremental steps of a model; None where something in it has no rule, so that all is to be computed anew for each symbol.
    Raises PlaitError for a model that looks ahead."""
    if not isinstance(module, Module): return None
    program, first = module.program, next(module.parameters(), None)
    key = f"steps {None if first is None else first.dtype}", False, module._device().type
    if key in module._lowered: return module._lowered[key]                                     # type: ignore[return-value]
    graph = common(evaluation(program.graph, program.sizes), program.sizes)
    logits = graph.outs[0]
    if len(logits.axes) != 3: raise error("E0625", f"the model's output has {len(logits.axes) - 1} axes, not [n, V]: it gives no tokens")
    try:
        made = Incremental(module, graph, target)
        module._lowered[key] = made                                                            # type: ignore[assignment]
        return made
    except NotCausal as wrong:
        place = "/".join(wrong.node.at.split("/")[1:])
        raise error("E0625", f"the model looks at later positions at {place}: it cannot be continued symbol by symbol", wrong.node.span,
                    help="causal = true for attention and convolutions, direction = forward for recurrences") from None
    except NoRule: return None


class Continuing(Lowering):
    """What is put behind the past is a cache that grows."""

    def lowered(self, n: Node, args: list) -> list:
        if not isinstance(n.op, Concat) or n.ins[0].axis(n.op.axis).size != PAST: return super().lowered(n, args)
        past, new, out = *n.ins, n.outs[0]
        return [self.call(grown, args[0], self.align(args[1], new.axes, past.axes), out.names.index(n.op.axis))]


class Incremental:
    """The step that the compiler derives, and what it keeps."""

    def __init__(self, module: Module, graph: Graph, target: Input):
        self.module, self.target, self.delayed = module, target, not target.ahead
        program = module.program
        self.form = decode(program, graph, target, self.delayed)
        self.recomputed = tuple("/".join(at.split("/")[1:]) for at in self.form.recomputed)
        first = next(module.parameters(), None)
        self.dtype = torch.float32 if first is None else first.dtype
        self.device = module._device()
        aim = target_of(self.device.type, self.dtype)
        low = Continuing(program.sizes, EMISSIONS, False)

        def lowered(g: Graph, extra=()) -> nn.Module:
            return low.module(plan(g, program.sizes, aim, module.forced).graph, (), extra)
        self.once, self.run = lowered(self.form.once), lowered(self.form.step, (PAST, ALL))
        states, given, own = len(self.form.states), len(self.form.given), 1 + self.form.masked
        self.rest = self.form.step.ins[own + states + given:]
        self.rows = [_batch(s.before) for s in self.form.states], [_batch(v) for v in self.form.once.outs]

    def operand(self, v: Value, given: Mapping[str, Tensor]):
        """An input of a graph: what is given, a parameter or one copy of it, the seed."""
        if v.name in given: return given[v.name]
        name, copies = self.form.copies.get(v.name, (v.name, ()))
        if name not in self.module._places: return self.module._key()
        found = self.module._parameter(self.module._places[name])
        for k in copies: found = found[k]
        return found

    @torch.no_grad()
    def begin(self, batch: int, **inputs: Tensor) -> Progress:
        """The start of `batch` sequences. inputs: the model's others, each of `batch` rows."""
        padded = {i.name: x for i in self.module.program.inputs if i.mask is not None and (x := inputs.get(i.name)) is not None
                  and not x.is_floating_point() and f"{i.name}_mask" not in inputs}            # a negative symbol is padding
        inputs |= {name: x.clamp(min=0) for name, x in padded.items()} | {f"{name}_mask": x >= 0 for name, x in padded.items()}
        given = self.module._given(self.form.once, (), inputs)
        once = self.once(*(self.operand(v, given) for v in self.form.once.ins))
        self.operands = [self.operand(v, {}) for v in self.rest]
        sizes = {**self.module.program.sizes.bound, BATCH_SIZE: batch, PAST: 0}
        found = []
        for s in self.form.states:
            shape = [int(replace(self.module.program.sizes, bound=sizes).value(a.size)) for a in s.before.axes]     # type: ignore[arg-type]
            kind = {"index": torch.int64, "mask": torch.bool}.get(s.before.kind, self.dtype)
            found.append(torch.full(shape, s.fill, dtype=kind, device=self.device))
        return Progress(tuple(found), tuple(once))

    @torch.no_grad()
    def step(self, symbols: Tensor, at: Progress) -> tuple[Tensor, Progress]:
        """symbols [b, new] → the logits of these positions [b, new, V], and where the sequences stand then."""
        past, new = at.past, symbols.shape[1]
        if new > PIECE and not self.recomputed:
            outs = []
            for piece in symbols.split(PIECE, 1):
                logits, at = self.step(piece, at)
                outs.append(logits)
            return torch.cat(outs, 1), at
        self.fits(past + new)
        there = []
        if self.form.masked:
            there = [torch.ones_like(symbols, dtype=torch.bool)]
            if self.delayed and past == 0: there[0][:, 0] = False                              # nothing stands before the first
        logits, *kept = self.run(symbols, *there, *at.kept, *at.given, *self.operands, past, past + new)
        return logits, Progress(tuple(kept), at.given, past + new)

    def fits(self, total: int) -> None:
        """What the spec says of its sizes holds of this length."""
        size = self.target.value.axes[1].size
        if self.module.program.sizes.integer(size) is None:
            self.module._promised({self.module.program.sizes.resolve(size): (total, self.target.name)})

    def choose(self, at: Progress, rows: Tensor) -> Progress:
        """The sequences `rows` [b'] of a batch, each as often as it is named."""
        def chosen(tensors, axes): return tuple(x if a is None else x.index_select(a, rows) for x, a in zip(tensors, axes))
        return Progress(chosen(at.kept, self.rows[0]), chosen(at.given, self.rows[1]), at.past)


class Recomputing:
    """Every step computes all positions anew: for a model that has no step of its own, and to hold one against the other.

    The kept are the symbols themselves [b, past], and the inputs of the model in the order of `inputs`."""
    recomputed = ("all of it",)

    def __init__(self, module: nn.Module, target: Input):
        self.module, self.target, self.delayed = module, target, not target.ahead
        program: Program = module.program                                                      # type: ignore[assignment]
        self.fixed = program.sizes.integer(target.value.axes[1].size)
        self.device = next((p.device for p in module.parameters()), torch.device("cpu"))
        self.names: tuple[str, ...] = ()

    def begin(self, batch: int, **inputs: Tensor) -> Progress:
        self.names = tuple(inputs)
        return Progress((torch.zeros((batch, 0), dtype=torch.int64, device=self.device),), tuple(inputs.values()))

    @torch.no_grad()
    def step(self, symbols: Tensor, at: Progress) -> tuple[Tensor, Progress]:
        every = torch.cat([at.kept[0], symbols], 1)
        total = every.shape[1]
        read = torch.cat([every[:, 1:], torch.zeros_like(every[:, :1])], 1) if self.delayed else every
        if self.fixed is not None: read = nn.functional.pad(read, (0, self.fixed - total))
        out = self.module(**{self.target.name: read}, **dict(zip(self.names, at.given)))
        logits = out[0] if isinstance(out, tuple | list) else out
        if logits.dim() != 3: raise error("E0625", f"the model's output has {logits.dim() - 1} axes, not [n, V]: it gives no tokens")
        return logits[:, at.past:total], Progress((every,), at.given, total)

    def choose(self, at: Progress, rows: Tensor) -> Progress:
        return Progress((at.kept[0][rows],), tuple(x[rows] for x in at.given), at.past)


def stepper(module: nn.Module, say: Callable[[str], None] | None = None) -> Stepper:
    """The steps of a model, incremental where they can be; `say` is told of what is computed anew in every step."""
    target = target_input(module.program)                                                      # type: ignore[arg-type]
    found = steps(module, target)
    if say is not None and (found is None or found.recomputed):
        where = "the whole model" if found is None else f"hashed attention ({', '.join(found.recomputed)})"
        say(f"{where} is computed over all positions so far for every new symbol")
    return found or Recomputing(module, target)


def _batch(v: Value) -> int | None:
    return next((k for k, a in enumerate(v.axes) if a.role == "batch"), None)
