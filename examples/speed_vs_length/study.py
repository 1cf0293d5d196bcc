"""Speed against length with the tokens of a step held fixed: figure 5 (right) of the Reformer paper, on a CPU.

    python examples/speed_vs_length/study.py   # some 6 minutes on two cores; `--short` runs a small form of it

Results go to examples/speed_vs_length/result/. Nothing else may run meanwhile."""
from __future__ import annotations

import argparse
from pathlib import Path

import plait

HERE = Path(__file__).parent
SPEC = HERE / "speed_vs_length.plait"


def main(short: bool = False) -> None:
    if short: plait.bench(SPEC, lengths=[256, 512], tokens=512, set={"d": 16}, rounds=2, against="full", compile=False)
    else: plait.bench(SPEC, lengths=[2**k for k in range(10, 16)], tokens=2**15, rounds=9, against="full", results=HERE / "result")


if __name__ == "__main__":
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--short", action="store_true", help="small sizes, few rounds: shows that it runs, and nothing more")
    main(ask.parse_args().short)
