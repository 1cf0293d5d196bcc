"""Five models of one size on one small corpus: what a step costs, and the steps and seconds to each model's own minimum. After "Comparing
by steps favoured the transformer".

    PLAIT_DATA=FOLDER python examples/five_way/study.py    # some 70 minutes on two cores; `--short` runs a small form of it

FOLDER/part13/part13-corpus.txt is the corpus, which is not part of this project. Results go to examples/five_way/result/, runs to
examples/five_way/runs/; what is there already is not made again. Nothing else may run while step times are measured, in the beginning."""
from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import plait

HERE = Path(__file__).parent
SPEC = HERE / "five_way.plait"


def corpus() -> dict[str, object]:
    path = Path(os.environ.get("PLAIT_DATA", "")) / "part13" / "part13-corpus.txt"
    if not path.is_file(): raise SystemExit(f"the corpus {path} is not there: PLAIT_DATA names the folder that holds part13/")
    return {"train.data": f'text("{path.absolute()}", tokens = characters, split = (0.9, 0.1))'}


def main(short: bool = False) -> None:
    if not short:
        data = corpus()
        if not (HERE / "result" / "bench.json").exists():
            plait.bench(SPEC, lengths=[16, 32, 64, 128], against="transformer", python_loop=True, results=HERE / "result")
        plait.compare(SPEC, set=data, out=HERE / "runs", results=HERE / "result")
        return
    plait.bench(SPEC, lengths=[8, 16], batch=2, rounds=2, against="transformer", python_loop=True, compile=False)
    data = {"train.data": 'text("builtin:python_docs", tokens = characters, split = (0.05, 0.01))', "n": 16, "train.batch": "2 sequences",
            "V": 103}                                         # the symbols of that text
    with tempfile.TemporaryDirectory() as folder:
        plait.compare(SPEC, models=["gru", "transformer"], set=data, seeds=[1], budget="5 steps", out=Path(folder) / "runs", rounds=2,
                      compile=False)


if __name__ == "__main__":
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--short", action="store_true", help="small sizes, a few steps: shows that it runs, and nothing more")
    main(ask.parse_args().short)
