"""Reformers of 2 to 12 layers at 4,096 characters: the loss falls, the memory of activations stays what it was.

    python examples/depth/study.py             # some 20 minutes on two cores; `--short` runs a small form of it

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


def memory(sizes: dict[str, object]) -> tuple[int, int]:
    """Bytes of a step beyond parameters, gradients and what Adam remembers of them: derived, and what the allocator hands out."""
    spec = plait.load(SPEC, {"V": 96, **sizes})
    module, given = plait.compile(spec, compile=False).train(), batch_of(spec.program(loss=True), 1)
    held = 4 * sum(p.nbytes for p in module.parameters())
    for _ in range(2): measure.step(module, given, True)
    for p in module.parameters(): p.grad = None
    taken = measure.peak(lambda: measure.step(module, given, True)) + 3 * held // 4
    return peak(spec.step(), 1) - held, taken - held


def trained(run: Path, settings: dict[str, object]) -> None:
    """A run that was cut off is begun anew: it has another name until it is whole."""
    part = run.with_name(f"{run.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    plait.train(SPEC, set=settings, out=part, device="cpu")
    part.rename(run)


def row(L: int, runs: Path, **more) -> dict:
    sizes = {"L": L, **more}
    run = runs / f"L{L}"
    if not run.exists(): trained(run, sizes)
    losses = [r for r in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()) if r["split"] == "validation"]
    derived, measured = memory({k: v for k, v in sizes.items() if "." not in k})
    found = {"layers": L, "loss": losses[-1]["loss"], "step": losses[-1]["step"], "derived_bytes": derived, "measured_bytes": measured}
    print(found)
    return found


def draw(rows: list[dict], out: Path) -> None:
    """The loss, and the bytes beyond the parameters' own, against the layers."""
    from matplotlib import pyplot as plt
    plt.rcParams["svg.hashsalt"] = "plait"                    # the same drawing is the same file
    figure, (loss, bytes_) = plt.subplots(1, 2, figsize=(11.0, 4.5))
    layers = [r["layers"] for r in rows]
    loss.plot(layers, [r["loss"] for r in rows], marker="o")
    loss.set(xlabel="layers", ylabel="validation loss")
    for name in ("derived", "measured"): bytes_.plot(layers, [r[f"{name}_bytes"] / 2**20 for r in rows], marker="o", label=name)
    bytes_.set(xlabel="layers", ylabel="MiB beyond parameters, gradients and Adam", ylim=(0, None))
    bytes_.legend(fontsize=8)
    for panel in (loss, bytes_): panel.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None})


def main(short: bool = False) -> None:
    torch.manual_seed(0)
    if short:
        with tempfile.TemporaryDirectory() as folder:
            for L in (2, 4): row(L, Path(folder), **{"n": 256, "c": 32, "d": 16, "train.stop": "2 steps"})
        return
    rows = [row(L, HERE / "runs") for L in (2, 4, 8, 12)]
    (HERE / "result").mkdir(exist_ok=True)
    machine = json.loads((HERE / "runs" / "L2" / "machine.json").read_text())
    (HERE / "result" / "results.json").write_text(json.dumps({"plait": 1, "date": str(date.today()), "machine": machine, "rows": rows},
                                                             indent=1) + "\n")
    lines = ["| layers | validation loss | activations, derived | measured |", "| ---: | ---: | ---: | ---: |"]
    lines += [f"| {r['layers']} | {r['loss']:.4f} | {r['derived_bytes'] / 2**20:.2f} MiB | {r['measured_bytes'] / 2**20:.2f} MiB |"
              for r in rows]
    (HERE / "result" / "results.md").write_text("\n".join(lines) + "\n")
    draw(rows, HERE / "result" / "depth.svg")
    print("\n".join(lines))


if __name__ == "__main__":
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--short", action="store_true", help="small sizes, a few steps: shows that it runs, and nothing more")
    main(ask.parse_args().short)
