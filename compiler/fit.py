"""A step that fits a memory: what is recomputed, and in how many pieces the loss goes, so that the derived peak is within a budget.

Choices are tried in an order of growing work, each with all of those before it. Pieces of the loss cost no products (see
`runtime.kernels.linear_cross_entropy`), a statement that is recomputed its forward but for its last product, a repeat's body all of its
forward. Reversible layers are the author's choice, and so are pieces of a feed-forward. A library's recurrence keeps what only the
library knows, and nothing of it can be promised: where nobody asked for it, the scan of its body runs."""
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import sympy as sp

from plait.compiler.claim import BODY
from plait.compiler.costs.work import macs
from plait.compiler.derive.kernels import MEASURED
from plait.compiler.graph import Graph, Node
from plait.compiler.kernels import Target
from plait.compiler.passes.pieces import loss_in_pieces
from plait.compiler.passes.recompute import Part, parts, recomputed
from plait.compiler.plan import plan
from plait.compiler.prims import Loop, Region
from plait.compiler.program import Program
from plait.compiler.sizes import Sizes
from plait.compiler.step import Step
from plait.dsl.errors import PlaitError, error
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
    most: with what kernels may take while they run; work: its multiply-adds of products over those of the step as written. kernels:
    region → kernel or `body`: those that were asked for, and the bodies of those whose memory is not derived."""
    program: Program
    choice: Choice
    peak: int
    most: int
    work: float
    kernels: Mapping[str, str]


def derived(program: Program, target: Target | None = None, forced: Mapping[str, str] | None = None) -> dict[str, str]:
    """The kernels that were asked for, and `body` for each that a library brings with a memory that is not derived."""
    claimed = plan(program.loss or program.graph, program.sizes, target or Target(), forced).claimed
    library = {n.op.name for n in claimed.walk() if isinstance(n.op, Region) and n.op.kernel in MEASURED}
    return {**{region: BODY for region in sorted(library)}, **(forced or {})}


def told(kernels: Mapping[str, str], choice: Choice) -> str:
    """`lstm=body; the loss in 4 pieces`"""
    said = [f"{region}={kernel}" for region, kernel in kernels.items()]
    return "; ".join([*said, str(choice)] if choice != Choice() or not said else said)


def applied(program: Program, choice: Choice) -> Program:
    """The program with a choice in its loss. Raises PlaitError where it has none."""
    if choice == Choice(): return program
    if program.loss is None: raise _lossless(program)
    loss = loss_in_pieces(program.loss, program.sizes, choice.pieces) if choice.pieces > 1 else program.loss
    return replace(program, loss=recomputed(loss, program.sizes, lambda p: p.at in choice.recomputed))


def fit(program: Program, budget: int, batch: int, target: Target | None = None, forced: Mapping[str, str] | None = None) -> Fitted:
    """The first choice in the order of work whose derived peak, with what kernels may take, is within the budget (bytes), for so many
    sequences a step.

    Raises PlaitError with the least of these that would fit, where none does, where a dim has no value, and where there is no loss."""
    if program.loss is None: raise _lossless(program)
    if not isinstance(batch, int) or batch < 1: raise error("E0505", f"a step has at least one sequence, here {batch}", help="batch = 1")
    kernels = derived(program, target, forced)
    def step(p: Program) -> Step: return Step(lambda: p, target or Target(), kernels)

    plain, least = _products(step(program)), None
    cut = loss_in_pieces(program.loss, program.sizes, 2) is not program.loss
    for places in _ladder(program, step(program)):
        tried: list[Fitted] = []
        for pieces in _pieces(program) if cut else PIECES[:1]:
            made = applied(program, Choice(pieces, places))
            s = step(made)
            tried.append(Fitted(made, Choice(pieces, places), peak(s, batch), most(s, batch), _products(s) / plain, kernels))
            least = min((t for t in (least, tried[-1]) if t is not None), key=lambda t: (t.most, t.choice.pieces))
            if tried[-1].most > max(budget, least.most): break         # fewer pieces need no less
        fitting = [t for t in tried if t.most <= budget]
        if fitting: return fitting[-1]
    assert least is not None
    reversible = any(isinstance(n.op, Loop) and n.op.keep == "invert" for n in program.loss.walk())
    raise error("E0607", f"a step of {program.model} does not fit into {size(budget)}: the least it needs is {size(least.most)}",
                numbers=f"{least.choice}", help="fewer sequences a step, a shorter n" + ("" if reversible else ", or reversible layers"))


def _pieces(program: Program) -> list[int]:
    """Of the loss, most first: those that divide the length, where it is known; a ragged last piece would be counted whole."""
    lengths = [program.sizes.integer(a.size) for i in program.inputs for a in i.value.axes if a.role == "sequence"]
    return [p for p in reversed(PIECES) if all(n is None or n % p == 0 for n in lengths)]


def _lossless(program: Program) -> PlaitError:
    return error("E0601", f"a training step is fitted into a memory, and no train block names the model {program.model}",
                 help=f"train {program.model} {{ loss = …; batch = … }}")


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
    if bodies: yield (*bodies, *(at for at in places if not any(at.startswith(b + "/") for b in bodies)))


def _below(n: Node, at: str) -> bool: return n.at == at or n.at.startswith(at + "/")


def peak(step: Step, batch: int) -> int:
    """Derived bytes of a step with so many sequences. Raises PlaitError where a dim has no value."""
    return _bytes(step, step.peak, batch)


def most(step: Step, batch: int) -> int:
    """The same with what kernels may take while they run."""
    return _bytes(step, step.most, batch)


def _bytes(step: Step, e: sp.Expr, batch: int) -> int:
    sizes = step.program.sizes.bind(b=batch)
    found = sizes.integer(e)
    if found is None:
        names = free(sizes, e)
        raise error("E0638", needs(names), help=f"--set {names[0]}=…")
    return found


def free(sizes: Sizes, e: sp.Expr) -> list[str]:
    """The dims that keep an expression from being a number."""
    return sorted(str(s) for s in sizes.resolve(e).free_symbols if sizes.value(s) is None)


def needs(names: list[str]) -> str: return f"the memory of a step needs a value for {', '.join(names)}"


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
    if not isinstance(text, str):
        if isinstance(text, int) and not isinstance(text, bool) and text > 0: return text
        raise error("E0505", f"{text!r} is no memory: it is a whole number of bytes, or a text", help='memory = "4GiB"')
    try: value, counted = read(text.strip())
    except BadNumber as wrong: raise error("E0505", str(wrong), help=f"{wrong.help}" or "--memory 4GiB") from None
    if not counted or value < 1: raise error("E0505", f"`{text}` is no memory: it is counted in KiB, MiB or GiB", help="--memory 4GiB")
    return int(value)
