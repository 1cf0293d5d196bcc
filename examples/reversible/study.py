"""Learning with reversible layers and without: figure 3 (right) of the Reformer paper, small.

    python examples/reversible/study.py            # some 35 minutes on two cores; `--short` runs a small form of it in a minute

Results go to examples/reversible/result/, runs to examples/reversible/runs/; what is there already is not made again."""
from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import plait

HERE = Path(__file__).parent
SHORT = {"n": 64, "d": 32, "L": 2}


def main(short: bool = False) -> None:
    spec = HERE / "reversible.plait"
    if not short:
        plait.compare(spec, out=HERE / "runs", results=HERE / "result")
        return
    with tempfile.TemporaryDirectory() as folder:
        plait.compare(spec, set=SHORT, seeds=[1], budget="20 steps", out=Path(folder) / "runs", rounds=2, compile=False)


if __name__ == "__main__":
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--short", action="store_true", help="small sizes, a few steps: shows that it runs, and nothing more")
    main(ask.parse_args().short)
