"""Table 2 of the Reformer paper at a length that a CPU can train: the accuracy of copying the second half of 0w0w, for models trained
with full attention and with 4, 2 and 1 rounds of hashing, each evaluated with full attention and with 8, 4, 2 and 1 rounds.

    python examples/duplication/study.py       # some 30 minutes on two cores; `--short` runs a small form of it

Full attention is LSH attention with one chunk: queries that are the keys, at unit length, each position without itself.
Results go to examples/duplication/result/, runs to examples/duplication/runs/; what is there already is not made again."""
from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from datetime import date
from pathlib import Path

import plait

HERE = Path(__file__).parent
SPEC = HERE / "duplication.plait"
TRAINED = {"full": None, "LSH-4": 4, "LSH-2": 2, "LSH-1": 1}           # rounds; None: one chunk
EVALUATED = {"full": None, "LSH-8": 8, "LSH-4": 4, "LSH-2": 2, "LSH-1": 1}


def attention(rounds: int | None, n: int) -> dict[str, object]:
    return {"c": n, "R": 1} if rounds is None else {"R": rounds}


def trained(run: Path, settings: dict[str, object]) -> None:
    """A run that was cut off is begun anew: it has another name until it is whole."""
    part = run.with_name(f"{run.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    plait.train(SPEC, set=settings, out=part, device="cpu")
    part.rename(run)


def table(runs: Path, n: int, seeds: list[int], **more) -> dict[str, dict[str, list[float]]]:
    """Trained with → evaluated with → the accuracy of each seed, in percent."""
    found: dict[str, dict[str, list[float]]] = {}
    for name, rounds in TRAINED.items():
        for seed in seeds:
            run = runs / f"{name}-seed{seed}"
            settings = {"n": n, "train.seed": seed, **attention(rounds, n), **more}
            if not run.exists(): trained(run, settings)
            for other, r in EVALUATED.items():
                # the chunk of a run that was trained with one chunk is given back to it
                seen = attention(r, n) if r is None else {"R": r, "c": 8}
                accuracy = plait.evaluate(run, ["accuracy"], set=seen)["accuracy"]
                found.setdefault(name, {}).setdefault(other, []).append(round(100 * accuracy, 2))
            print(name, seed, found[name])
    return found


def markdown(found: dict[str, dict[str, list[float]]]) -> str:
    rows = [["trained with", *EVALUATED], ["---", *("---:" for _ in EVALUATED)]]
    rows += [[name, *(" / ".join(f"{a:.1f}" for a in cells[e]) for e in EVALUATED)] for name, cells in found.items()]
    return "\n".join("| " + " | ".join(r) + " |" for r in rows)


def draw(found: dict[str, dict[str, list[float]]], out: Path) -> None:
    """The accuracy by how a model is evaluated, a line for how it was trained: the mean, and each seed as a dot."""
    from matplotlib import pyplot as plt
    plt.rcParams["svg.hashsalt"] = "plait"                    # the same drawing is the same file
    figure, panel = plt.subplots(figsize=(6.0, 4.5))
    for k, (name, cells) in enumerate(found.items()):
        panel.plot(range(len(EVALUATED)), [sum(cells[e]) / len(cells[e]) for e in EVALUATED], color=f"C{k}", label=f"trained with {name}")
        for at, e in enumerate(EVALUATED): panel.plot([at] * len(cells[e]), cells[e], ".", color=f"C{k}")
    panel.set_xticks(range(len(EVALUATED)), list(EVALUATED))
    panel.set(xlabel="evaluated with", ylabel="accuracy, %")
    panel.grid(alpha=0.3)
    panel.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None})


def main(short: bool = False) -> None:
    if short:
        with tempfile.TemporaryDirectory() as folder:
            small = {"d": 16, "train.stop": "2 steps", "train.batch": "2 sequences"}
            print(markdown(table(Path(folder), 16, [1], **small)))
        return
    found = table(HERE / "runs", 64, [1, 2])
    (HERE / "result").mkdir(exist_ok=True)
    machine = json.loads((HERE / "runs" / "full-seed1" / "machine.json").read_text())
    (HERE / "result" / "results.json").write_text(json.dumps({"plait": 1, "date": str(date.today()), "machine": machine, "length": 64,
                                                              "accuracy": found}, indent=1) + "\n")
    (HERE / "result" / "results.md").write_text(markdown(found) + "\n")
    draw(found, HERE / "result" / "accuracy.svg")
    print(markdown(found))


if __name__ == "__main__":
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--short", action="store_true", help="small sizes, a few steps: shows that it runs, and nothing more")
    main(ask.parse_args().short)
