"""The step times of the five-way comparison at contexts of up to 1,024: where n² overtakes n.

    python examples/longer/study.py            # some 10 minutes on two cores; `--short` runs a small form of it

Results go to examples/longer/result/. Nothing else may run meanwhile."""
from __future__ import annotations

import argparse
from pathlib import Path

import plait

HERE = Path(__file__).parent
SPEC = HERE / "longer.plait"


def main(short: bool = False) -> None:
    if short: plait.bench(SPEC, lengths=[16, 32], batch=2, rounds=2, against="transformer", compile=False)
    else: plait.bench(SPEC, lengths=[64, 128, 256, 512, 1024], batch=32, rounds=11, against="transformer", results=HERE / "result")


if __name__ == "__main__":
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--short", action="store_true", help="small sizes, few rounds: shows that it runs, and nothing more")
    main(ask.parse_args().short)
