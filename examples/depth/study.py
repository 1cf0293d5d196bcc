"""Reformers of 2 to 12 layers at 4,096 characters: the loss falls, the memory of activations stays what it was, beside that of the same
layers as residual blocks.

    python examples/depth/study.py             # some 40 minutes on one core; `--short` runs a small form of it

Results go to examples/depth/result/, runs to examples/depth/runs/; what is there already is not made again."""
from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from datetime import date
from pathlib import Path

import torch

import plait
from plait.compiler.fit import peak
from plait.runtime.audit import measure
from plait.runtime.laboratory.steps import batch_of

HERE = Path(__file__).parent
SPEC = HERE / "depth.plait"
MIB = 2**20


def memory(model: str, sizes: dict[str, object]) -> dict[str, int]:
    """Bytes of a step: what a parameter holds with its gradient and what Adam remembers of it, and the most that stands beside them,
    derived, and as the allocator hands it out."""
    spec = plait.load(SPEC, sizes)
    module, given = plait.compile(spec, model, compile=False).train(), batch_of(spec.program(model, loss=True), 1)
    held = 4 * sum(p.nbytes for p in module.parameters())
    for _ in range(2): measure.step(module, given, True)
    for p in module.parameters(): p.grad = None
    taken = measure.peak(lambda: measure.step(module, given, True)) + 3 * held // 4
    return {"parameters": held, "derived": peak(spec.step(model), 1) - held, "measured": taken - held}


def trained(run: Path, settings: dict[str, object]) -> None:
    """A run that was cut off is begun anew: it has another name until it is whole."""
    part = run.with_name(f"{run.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    plait.train(SPEC, "reformer", set=settings, out=part, device="cpu")
    part.rename(run)


def curve(run: Path) -> list[dict]:
    found = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [{"step": r["step"], "loss": r["loss"]} for r in found if r["split"] == "validation"]


def row(L: int, runs: Path, seeds: list[int], **more: object) -> dict:
    curves = []
    for seed in seeds:
        run = runs / f"L{L}-seed{seed}"
        if not run.exists(): trained(run, {"L": L, "train.seed": seed, **more})
        curves.append(curve(run))
    symbols = json.loads((run / "vocabulary.json").read_text())["size"]
    sizes = {"L": L, "V": symbols, **{k: v for k, v in more.items() if "." not in k}}
    found = {"layers": L, "losses": [c[-1]["loss"] for c in curves], "curves": curves,
             "bytes": {m: memory(m, sizes) for m in ("reformer", "plain")}}
    print({k: v for k, v in found.items() if k != "curves"})
    return found


def draw(rows: list[dict], out: Path) -> None:
    """The loss, a dot a seed, and the bytes beyond the parameters' own, against the layers."""
    from matplotlib import pyplot as plt
    plt.rcParams["svg.hashsalt"] = "plait"                    # the same drawing is the same file
    figure, (loss, bytes_) = plt.subplots(1, 2, figsize=(11.0, 4.5))
    layers = [r["layers"] for r in rows]
    loss.plot(layers, [sum(r["losses"]) / len(r["losses"]) for r in rows], color="C0")
    for r in rows: loss.plot([r["layers"]] * len(r["losses"]), r["losses"], "o", color="C0")
    loss.set(xlabel="layers", ylabel="validation loss, nats a character")
    for color, (model, name) in enumerate({"reformer": "reversible, in chunks", "plain": "residual blocks, whole"}.items()):
        for what, line in (("derived", "-"), ("measured", "o")):
            bytes_.plot(layers, [r["bytes"][model][what] / MIB for r in rows], line, color=f"C{color}", label=f"{name}, {what}")
    bytes_.set(xlabel="layers", ylabel="MiB beyond parameters, gradients and Adam", ylim=(0, None))
    bytes_.legend(fontsize=8)
    for panel in (loss, bytes_): panel.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None})


def markdown(rows: list[dict]) -> str:
    """Losses a seed, and MiB: of parameters with what belongs to them, and beyond, reversible and as residual blocks."""
    heads = ["layers", "validation loss", "parameters, gradients, Adam", "activations, derived", "measured", "residual blocks, derived",
             "measured"]
    lines = [heads, ["---:"] * len(heads)]
    for r in rows:
        ours, plain = r["bytes"]["reformer"], r["bytes"]["plain"]
        mib = (ours["parameters"], ours["derived"], ours["measured"], plain["derived"], plain["measured"])
        lines.append([f"{r['layers']}", " / ".join(f"{x:.4f}" for x in r["losses"]), *(f"{b / MIB:.1f} MiB" for b in mib)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def main(short: bool = False) -> None:
    torch.manual_seed(0)
    if short:
        with tempfile.TemporaryDirectory() as folder:
            rows = [row(L, Path(folder), [1], n=256, c=32, d=16, **{"train.stop": "2 steps"}) for L in (2, 4)]
            print(markdown(rows))
        return
    rows = [row(L, HERE / "runs", [1, 2]) for L in (2, 4, 8, 12)]
    (HERE / "result").mkdir(exist_ok=True)
    machine = json.loads((HERE / "runs" / "L2-seed1" / "machine.json").read_text())
    (HERE / "result" / "results.json").write_text(json.dumps({"plait": 1, "date": str(date.today()), "machine": machine, "rows": rows},
                                                             indent=1) + "\n")
    (HERE / "result" / "results.md").write_text(markdown(rows))
    draw(rows, HERE / "result" / "depth.svg")
    print(markdown(rows))


if __name__ == "__main__":
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--short", action="store_true", help="small sizes, a few steps: shows that it runs, and nothing more")
    main(ask.parse_args().short)
