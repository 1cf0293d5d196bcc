"""A step that fits a memory: what is recomputed, and in how many pieces the loss goes, so that the derived peak is within a budget.

Choices are tried in the order of the work they cost. Pieces of the loss cost none (see `runtime.kernels.linear_cross_entropy`), a
statement that is recomputed its forward but for its last product, a repeat's body all of its forward. Reversible layers are the
author's choice, and so are pieces of a feed-forward."""
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import sympy as sp

from plait.compiler.costs.work import macs
from plait.compiler.graph import Graph, Node
from plait.compiler.kernels import Target
from plait.compiler.passes.pieces import loss_in_pieces
from plait.compiler.passes.recompute import Part, parts, recomputed
from plait.compiler.program import Program
from plait.compiler.step import Step
from plait.dsl.errors import error
from plait.dsl.numerals import BadNumber, read

PIECES = (1, 4, 16, 64)


@dataclass(frozen=True)
class Choice:
    """pieces: of the loss; recomputed: places of the spec, of statements or of repeats."""
    pieces: int = 1
    recomputed: tuple[str, ...] = ()

    def __str__(self) -> str:
        said = [f"the loss in {self.pieces} pieces"] if self.pieces > 1 else []
        if self.recomputed: said.append("recomputed: " + ", ".join(p.split("/", 1)[1] for p in self.recomputed))
        return "; ".join(said) or "as the spec has it"


@dataclass(frozen=True)
class Fitted:
    """A program whose loss is planned so. peak: derived bytes of a training step (parameters, gradients, what Adam remembers, activations);
    work: its multiply-adds of products over those of the step as written."""
    program: Program
    choice: Choice
    peak: int
    work: float


def applied(program: Program, choice: Choice) -> Program:
    """The program with a choice in its loss. ValueError where it has none."""
    if program.loss is None: raise ValueError("a plan for a memory is one for training, and this program has no loss")
    loss = loss_in_pieces(program.loss, program.sizes, choice.pieces) if choice.pieces > 1 else program.loss
    return replace(program, loss=recomputed(loss, program.sizes, lambda p: p.at in choice.recomputed))


def fit(program: Program, budget: int, batch: int, target: Target | None = None, forced: Mapping[str, str] | None = None) -> Fitted:
    """The choice that costs the least work and whose derived peak is within the budget (bytes), for so many sequences a step.

    Raises PlaitError with the least that would fit, where none does, and where a dim has no value."""
    def step(p: Program) -> Step: return Step(lambda: p, target or Target(), forced or {})

    plain, least = _products(step(program)), None
    cut = program.loss is not None and loss_in_pieces(program.loss, program.sizes, 2) is not program.loss
    for places in _ladder(program, step(program)):
        tried: list[Fitted] = []
        for pieces in reversed(PIECES) if cut else PIECES[:1]:
            made = applied(program, Choice(pieces, places))
            tried.append(Fitted(made, Choice(pieces, places), peak(step(made), batch), _products(step(made)) / plain))
            least = min((t for t in (least, tried[-1]) if t is not None), key=lambda t: t.peak)
            if tried[-1].peak > budget: break                          # fewer pieces need no less
        fitting = [t for t in tried if t.peak <= budget]
        if fitting: return fitting[-1]
    assert least is not None
    raise error("E0607", f"a step of {program.model} does not fit into {size(budget)}: the least it needs is {size(least.peak)}",
                numbers=f"with {least.choice}", help="fewer sequences a step, a shorter n, or reversible layers")


def _ladder(program: Program, step: Step) -> Iterator[tuple[str, ...]]:
    """What to recompute, from nothing to every body, those that free the most bytes for their work first."""
    yield ()
    assert program.loss is not None
    found = list(parts(program.loss))
    kept = step.kept
    one = program.sizes.bind(b=1)

    def worth(p: Part) -> float:
        bytes_ = sum(one.value(k.bytes) or 0 for k in kept if _below(k.node, p.at))
        return -float(bytes_) / max(1.0, float(one.value(macs(Graph((), p.nodes, ()))) or 0))
    places: tuple[str, ...] = ()
    least = _saved(step)
    for p in sorted((p for p in found if not p.copies), key=worth):
        more = (*places, p.at)
        saved = _saved(replace(step, make=partial(applied, program, Choice(1, more))))
        if saved >= least: continue                                    # what it keeps is kept for others anyway
        places, least = more, saved
        yield places
    bodies = tuple(p.at for p in found if p.copies)
    if bodies: yield bodies


def _below(n: Node, at: str) -> bool: return n.at == at or n.at.startswith(at + "/")


def peak(step: Step, batch: int) -> int:
    """Derived bytes of a step with so many sequences. Raises PlaitError where a dim has no value."""
    sizes = step.program.sizes.bind(b=batch)
    found = sizes.integer(step.peak)
    if found is None:
        free = sorted(map(str, sizes.resolve(step.peak).free_symbols))
        raise error("E0638", f"the memory of a step needs a value for {', '.join(free)}", help=f"--set {free[0]}=…")
    return found


def _saved(step: Step) -> float:
    found = step.program.sizes.bind(b=1).value(step.saved())
    return math.inf if found is None else float(found)


def _products(step: Step) -> float:
    found = step.program.sizes.bind(b=1).value(sp.Add(*(ledgers["contraction"] for ledgers in step.work.values())))
    return 1.0 if found is None else max(1.0, float(found))


def size(count: int) -> str:
    """`4.25 GiB`"""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size: return f"{count / size:,.2f} {unit}"
    return f"{count:,} bytes"


def bytes_of(text: int | str) -> int:
    """`4GiB` → 4,294,967,296. Raises PlaitError."""
    if isinstance(text, int): return text
    try: value, counted = read(text.strip())
    except BadNumber as wrong: raise error("E0505", str(wrong), help=f"{wrong.help}" or "--memory 4GiB") from None
    if not counted or value < 1: raise error("E0505", f"`{text}` is no memory: it is counted in KiB, MiB or GiB", help="--memory 4GiB")
    return int(value)
