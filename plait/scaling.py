"""Memory on several processes: `plait table FILE --ranks 8 --shard fsdp`. Imports no torch."""
from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import sympy as sp

from plait.api import Spec
from plait.compiler.costs.ranks import QUANTITIES, SHARDS, Share, share
from plait.compiler.fit import free, needs, size
from plait.compiler.graph import Value
from plait.compiler.program import Program
from plait.compiler.sizes import Sizes
from plait.compiler.table import cell
from plait.dsl.errors import error
from plait.runtime.matrices import hidden
from plait.runtime.recipe import Described, Recipe, recipe
from plait.runtime.sources import CUTTABLE

# optimizer → how many numbers it remembers of a parameter of a program
Remembered = Callable[[Described, Program, Value], sp.Expr]


def _adafactor(d: Described, program: Program, v: Value) -> sp.Expr:
    """Row and column means of the squares, of the last two axes (Shazeer & Stern 2018); of a vector, the squares."""
    own = [a for a in v.axes if a.role != "copies"]
    return v.size if len(own) < 2 else v.size / own[-1].size + v.size / own[-2].size


REMEMBERED: dict[str, Remembered] = {
    "adam": lambda d, program, v: 2 * v.size, "adamw": lambda d, program, v: 2 * v.size,
    "sgd": lambda d, program, v: v.size if d.arguments["momentum"] else sp.Integer(0), "adafactor": _adafactor,
    "muon": lambda d, program, v: v.size if v in hidden(program) else 2 * v.size,
}


@dataclass(frozen=True)
class Scaled:
    """A model on one process and on `ranks` of them. batch: sequences of the whole batch; here, alone: those that lie in one process."""
    model: str
    at: str
    optimizer: str
    batch: int
    here: int
    each: Share
    whole: Share
    sizes: Sizes

    def bytes(self, found: Share, at_once: int) -> dict[str, int | None]:
        known = self.sizes.bind(b=at_once)
        return {q: known.integer(getattr(found, q)) for q in QUANTITIES}

    def json(self, ranks: int, shard: str) -> dict:
        def cells(found: Share, at_once: int) -> dict:
            made = {q: cell(getattr(found, q), self.sizes, at_once) or {} for q in QUANTITIES}
            return {"sequences": at_once, **{q: {**c, "bytes": c.get("value")} for q, c in made.items()}}
        return {"count": ranks, "shard": shard, "optimizer": self.optimizer, "batch": self.batch,
                "each": cells(self.each, self.here), "alone": cells(self.whole, self.batch)}


def scaled(spec: Spec, model: str, ranks: int, shard: str) -> Scaled:
    """Derived for one model; the batch and the optimiser are those of its train block (one sequence a process, and Adam, without one). A
    moving average is counted with what the optimiser remembers."""
    if shard not in SHARDS: raise error("E0505", f"ranks share by {' or '.join(SHARDS)}, not by `{shard}`", help="--shard fsdp")
    found: Recipe | None = recipe(spec.file.spec, model, spec.file.values(model))
    step = spec.step(model)
    described = found.optimizer if found else Described("adam", {})
    remembered = REMEMBERED[described.kind]

    def kept(v: Value) -> sp.Expr:
        mean = v.size if found and found.average is not None else 0
        return remembered(described, step.program, v) + mean
    sizes = step.program.sizes
    lengths = [sizes.integer(a.size) for i in step.program.inputs for a in i.value.axes if a.role == "sequence"]
    batch = _sequences(found.batch if found else None, lengths) or ranks
    at_once = _sequences(found.microbatch if found else None, lengths)
    here = -(-batch // ranks)
    mine = min(here, at_once or here)
    each = share(step, ranks, shard, kept, -(-here // mine))
    return Scaled(model, model, described.kind, min(batch, at_once or batch), mine, each, share(step, 1, "ddp", kept), sizes)


def _sequences(amount, lengths: list[int | None]) -> int | None:
    """How many sequences an amount of a train block is; None where it does not say."""
    if amount is None or not isinstance(amount.amount, int): return None
    if amount.unit == "sequences": return amount.amount
    return max(1, amount.amount // lengths[0]) if lengths and lengths[0] else None


HEADINGS = {"parameters": "parameters", "gradients": "gradients", "optimizer": "optimizer", "saved": "saved activations", "peak": "peak",
            "traffic": "sent a step"}


def lines(found: Scaled, ranks: int, shard: str) -> list[list[str]]:
    """Two rows: one process alone with the whole batch, and each of the ranks."""
    def row(label: str, share: Share, at_once: int) -> list[str]:
        return [label, f"{at_once:,}", *("" if v is None else size(v) if v else "–" for v in found.bytes(share, at_once).values())]
    return [row(f"{found.model} alone", found.whole, found.batch),
            row(f"{found.model}, each of {ranks:,} by {shard}", found.each, found.here)]


def notes(found: list[Scaled], ranks: int, shard: str) -> list[str]:
    """What the table cannot say: why cells are empty, and which of its trainings there are not."""
    said = []
    for f in found:
        names = sorted({s for x in (f.each, f.whole) for q in QUANTITIES for s in free(f.sizes.bind(b=1), getattr(x, q))})
        if names: said.append(f"{f.model}: {needs(names)}; --set {names[0]}=…")
        if ranks > 1 and shard == "fsdp" and f.optimizer not in CUTTABLE:
            said.append(f"{f.model}: fsdp does not train by {f.optimizer} yet, which needs whole matrices; --shard ddp, or an optimizer of "
                        + ", ".join(CUTTABLE))
    return said


def told(found: list[Scaled], ranks: int, shard: str, markdown: bool = False) -> str:
    """The table in text or Markdown, and the notes on it. Where a dim has no value its cell is empty."""
    head = ["", "sequences", *(HEADINGS[q] for q in QUANTITIES)]
    rows = [line for f in found for line in lines(f, ranks, shard)]
    below = notes(found, ranks, shard)
    if markdown:
        table = ["| " + " | ".join(r) + " |" for r in [head, ["---", *["---:"] * (len(head) - 1)], *rows]]
        return "\n".join([*table, *(f"\n{n}" for n in below)])
    widths = [max(len(r[k]) for r in [head, *rows]) for k in range(len(head))]
    def line(r: list[str]) -> str: return "  ".join([r[0].ljust(widths[0]), *(t.rjust(w) for t, w in zip(r[1:], widths[1:]))]).rstrip()
    return "\n".join([*map(line, [head, *rows]), *(f"  {n}" for n in below)])


def dumps(table, found: list[Scaled], ranks: int, shard: str) -> str:
    """The JSON of the ordinary table, each model's row with the key `ranks`."""
    document = table.json()
    mine = {f.at: f for f in found}
    for row in document["rows"]:
        if row["kind"] == "model": row["ranks"] = mine[row["model"]].json(ranks, shard)
    return json.dumps(document, indent=1, ensure_ascii=False)
