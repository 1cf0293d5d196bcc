"""What stands in the folder of a run: names, and rows. Needs no torch, so that `plait runs` can read it."""
from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SPEC, ABOUT, ROWS = "spec.plait", "run.json", "metrics.jsonl"
EXPERIMENT, RUNS = "experiment.json", "runs"                  # of a folder that holds the runs of a comparison


def rows(folder: Path, name: str = ROWS) -> Iterator[dict[str, Any]]:
    """The rows of a run in order. A line that was cut off or is damaged is not one."""
    try: lines = (folder / name).read_bytes().splitlines()
    except OSError: return
    for line in lines:
        try: row = json.loads(line)
        except (ValueError, RecursionError): continue
        if isinstance(row, dict) and type(row.get("step")) is int: yield row
