"""One of two processes that train together: what the tests of ranks start, twice, with RANK and WORLD_SIZE set."""
from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from plait.compiler.fit import Choice
from plait.compiler.lowering import segments, units
from plait.compiler.prims import Loop
from plait.dsl.parser import parse
from plait.runtime import checkpoint
from plait.runtime.prepare import How, prepare
from plait.runtime.ranks import Ranks, join, leave, together
from plait.runtime.train import train

if not __package__:
    sys.path.insert(0, str(Path(__file__).parent))
    import tiny
else:
    from . import tiny

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
    "deep": ("repeat 5 { residual { linear(d) } }", {}),
    "deep, reversible": ("reversible(repeat = 5) { a: { linear(d) }; b: { layer_norm; linear(d) } }", {}),
    "in parts": (NESTED, {"microbatch": "2 sequences", "average": "0.9"}),
    "unread": (NESTED, {}),                                    # with parameters that the loss does not read
    "half": (NESTED, {"precision": "bf16"}),
    "uneven": (NESTED, {"batch": "5 sequences", "optimizer": "adam(eps = 1e-3)"}),
}
RECOMPUTED = {"recomputed": ("m/logits/1",), "a statement recomputed": ("m/logits/1/0/0",)}
COMPILED = ("reversible, dropout",)                            # by name; the compiler takes longer than all the rest
LONG = {"stop": "8 steps"}                                     # of the training that goes on elsewhere


def text(case: str, **more: str) -> str:
    layers, keys = CASES[case]
    made = tiny.spec(tiny.FAMILIES.get(layers, layers), **{**KEYS, **keys, **more})
    if case != "unread": return made
    return made.replace("  output", "  aside = text { embed(V, width = d) }\n  output aside: [n, d]\n  output")


def trained(case: str, folder: Path, name: str, compile: bool = False, **more):
    p = prepare(parse(text(case), "m.plait"), "m", folder, compile=compile, how=How({}, Choice(1, RECOMPUTED.get(case, ()))))
    if case in RECOMPUTED: assert any(n.op.keep == "recompute" for n in p.module.program.loss.walk() if isinstance(n.op, Loop))
    return train(p.module, p.recipe, p.dataset, folder / name, spec_text=text(case), **more), p.module


def main(folder: Path, out: Path) -> None:
    """Every case by both ways; the weights of each, whole, and how many units were whole at once. Then a training in parts that others go
    on with, and one that goes on with what another began."""
    device = torch.device("cpu")
    met, _ = join(device, timeout=60)
    found = {}
    for name in CASES:
        for shard in ("ddp", "fsdp"):
            ranks = replace(met, shard=shard)
            watched = Watched()
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
    """How many copies of repeated bodies are whole at once, at most: looked at where one runs, and where backward comes to its inputs."""

    def __init__(self) -> None: self.most, self.known = 0, set[units.Unit]()

    def look(self, gradient: object = None) -> None:
        def whole(unit: units.Unit) -> bool: return any(not isinstance(p, DTensor) for p in own(unit))
        self.most = max(self.most, sum(map(whole, self.known)))

    def __enter__(self) -> None:
        self.before = units.Unit.forward

        def forward(unit, run, *operands):
            self.known.add(unit)
            self.look()
            for x in operands:
                if isinstance(x, torch.Tensor) and x.requires_grad: x.register_hook(self.look)
            return self.before(unit, run, *operands)
        units.Unit.forward = forward

    def __exit__(self, *_) -> None: units.Unit.forward = self.before


def own(unit: nn.Module) -> Iterator[nn.Parameter]:
    """Its parameters, without those of copies inside it."""
    yield from unit.parameters(recurse=False)
    for inner in unit.children():
        if not isinstance(inner, FSDPModule): yield from own(inner)


if __name__ == "__main__":
    torch.set_num_threads(1)
    try: main(Path(sys.argv[1]), Path(sys.argv[2]))
    except BaseException:
        import traceback
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
