"""One of two processes that train together: what the tests of ranks start, twice, with RANK and WORLD_SIZE set."""
from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

if __name__ == "__main__": sys.path.insert(0, str(Path(__file__).parent))

import torch
from torch import nn

from plait.compiler.fit import Choice
from plait.compiler.lowering import segments, units
from plait.compiler.prims import Loop
from plait.dsl.parser import parse
from plait.runtime import checkpoint
from plait.runtime.prepare import How, prepare
from plait.runtime.ranks import Ranks, join, leave, together
from plait.runtime.train import train

KEYS = {"batch": "6 sequences", "optimizer": "sgd(momentum = 0.9)", "lr": "0.1", "stop": "4 steps"}
NESTED = "repeat 2 { repeat 2 { residual { linear(d) } }; layer_norm }"
# What is trained → a family of `tiny` or layers, and keys.
CASES = {
    "decoder, dropout": ("stack", {}), "attention, dropout": ("attention", {}), "lstm": ("repeat 2 { residual { lstm(d) } }", {}),
    "lsh": ("repeat 2 { residual { lsh_attention(heads = 2, causal = true, chunk = 4, rounds = 2) } }", {}),
    "reversible, dropout": ("reversible", {}), "reversible lsh": ("reversible(repeat = 2) { a: { lsh_attention(heads = 2, causal = true, "
                            "chunk = 4, rounds = 2) }; b: { chunked(over = n, pieces = 2) { feed_forward(12) } } }", {}),
    "nested": (NESTED, {}), "recomputed": ("repeat 3 { residual { feed_forward(12) } }", {}),
    "a statement recomputed": ("repeat 3 { residual { feed_forward(12) } }", {}),
    "in parts": (NESTED, {"microbatch": "2 sequences", "average": "0.9"}),
    "half": (NESTED, {"precision": "bf16"}),
    "uneven": (NESTED, {"batch": "5 sequences", "optimizer": "adam(eps = 1e-3)"}),
}
RECOMPUTED = {"recomputed": ("m/logits/1",), "a statement recomputed": ("m/logits/1/0/0",)}
COMPILED = ("decoder, dropout", "reversible, dropout")
LONG = {"stop": "8 steps"}                                     # of the training that goes on elsewhere


def text(case: str, **more: str) -> str:
    import tiny
    layers, keys = CASES[case]
    return tiny.spec(tiny.FAMILIES.get(layers, layers), **{**KEYS, **keys, **more})


def trained(case: str, folder: Path, name: str, compile: bool = False, **more):
    p = prepare(parse(text(case), "m.plait"), "m", folder, compile=compile, how=How({}, Choice(1, RECOMPUTED.get(case, ()))))
    if case in RECOMPUTED: assert any(n.op.keep == "recompute" for n in p.module.program.loss.walk() if isinstance(n.op, Loop))
    return train(p.module, p.recipe, p.dataset, folder / name, spec_text=text(case), **more), p.module


def main(folder: Path, out: Path) -> None:
    """Every case by both ways; the weights of each, whole, and how many units were whole at once. Then a training in parts that others go
    on with, and one that goes on with what another began."""
    import tiny
    device = torch.device("cpu")
    met, _ = join(device, timeout=60)
    found = {}
    for name in CASES:
        for shard in ("ddp", "fsdp"):
            ranks = replace(met, shard=shard)
            watched = Watched(ranks)
            with together(ranks), watched:
                _, module = trained(name, folder, f"{name} {shard}", ranks=ranks)
                weights = whole(module, ranks)
            found[f"{name} {shard}"] = weights, watched.most
    ranks = replace(met, shard="fsdp")
    segments.BACKEND = "aot_eager"
    for name in COMPILED:
        _, module = trained(name, folder, f"{name} compiled", ranks=ranks, compile=True)
        found[f"{name} compiled"] = whole(module, ranks), 0
    tiny.trained(text("in parts", **LONG), folder, "begun by two", ranks=ranks, steps=4)
    again = checkpoint.steps(folder / "begun by two")
    if ranks.lead: (folder / "begun by two" / "steps.json").write_text(json.dumps(again))
    _, module = tiny.resumed(text("in parts", **LONG), folder, "begun by one", ranks=ranks)
    found["begun by one"] = whole(module, ranks), 0
    if ranks.lead: torch.save(found, out)
    ranks.wait()
    leave(0)


def whole(module: nn.Module, ranks: Ranks) -> dict[str, torch.Tensor]:
    from plait.runtime.ranks import whole as gathered
    return {name: gathered(p).detach().clone() for name, p in module.named_parameters()}


class Watched:
    """How many copies of repeated bodies were whole at once, at most, while one ran."""

    def __init__(self, ranks: Ranks): self.most, self.ranks = 0, ranks

    def __enter__(self) -> None:
        self.before = units.Unit.forward

        def forward(unit, run, *operands):
            self.known.add(unit)
            self.most = max(self.most, sum(any(not hasattr(p, "to_local") for p in u.parameters(recurse=False)) or any(
                not hasattr(p, "to_local") for m in u.children() for p in m.parameters()) for u in self.known))
            return self.before(unit, run, *operands)
        self.known: set = set()
        units.Unit.forward = forward

    def __exit__(self, *_) -> None: units.Unit.forward = self.before


if __name__ == "__main__":
    torch.set_num_threads(1)
    try: main(Path(sys.argv[1]), Path(sys.argv[2]))
    except BaseException:
        import traceback
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
