"""`plait table`, whole process, on the largest spec."""
from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.harness import ROUNDS, Row

SPECS = Path(__file__).parents[1] / "specs"
CODE = """
import sys
from plait.cli import main
sys.argv = ["plait", "table", {spec!r}]
try: main()
finally: assert "torch" not in sys.modules
"""


def seconds(spec: Path) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", CODE.format(spec=str(spec))], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def rows(rounds: int = ROUNDS) -> list[Row]:
    found = {spec.name: statistics.median(seconds(spec) for _ in range(rounds)) for spec in sorted(SPECS.glob("*.plait"))}
    slowest = max(found, key=lambda name: found[name])
    return [Row("`plait table`, whole process, the slowest of the specs", "1 second", "≤ 1×", found[slowest], found[slowest] <= 1,
                f"{slowest} {found[slowest]:.2f} s; torch is not imported")]
