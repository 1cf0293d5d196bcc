"""`python -m benchmarks [NAME …]`: measures, each script in a process of its own, and prints; without names, docs/benchmarks.md too.

`--json NAME` prints the rows of one script; `--from FOLDER` writes the page from such output, NAME.json, of runs one by one."""
from __future__ import annotations

import datetime
import importlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SCRIPTS = ("lsh", "windowed", "transformer", "recurrent", "reversible", "chunked", "first_step", "generate", "loader", "table")
PACKAGES = ("torch", "transformers", "reformer-pytorch", "x-transformers")
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
FINDINGS = Path(__file__).parent / "findings.md"               # written by hand
HEAD = """# Benchmarks

`make bench` measures and writes this page. plait and its peers run in turn, in one process, on the same shapes in float32; a figure is
a ratio of medians of {rounds} calls each. Absolute times belong to the machine. Where two compute the same function, their outputs are
compared first. Peers in plain PyTorch stand in `benchmarks/peers/`.

{where}

| what | against | goal | found | met | |
|---|---|---|---|---|---|
"""


def machine() -> str:
    versions = ", ".join(f"{p} {_version(p)}" for p in PACKAGES)
    model = next((line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    return f"{datetime.date.today()}. {os.cpu_count()} cores ({model}), Python {platform.python_version()}, {versions}."


def _version(package: str) -> str:
    try: return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError: return "not installed"


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines() if Path(path).exists() else []


def line(row: dict) -> str:
    met = "yes" if row["met"] else "**no**"
    return f"| {row['what']} | {row['against']} | {row['goal']} | {row['ratio']:.3f}× | {met} | {row['detail']} |"


def measured(name: str) -> list[dict]:
    """The rows of one script, run in a process of its own."""
    done = subprocess.run([sys.executable, "-m", "benchmarks", "--json", name], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def page(rows: list[dict], missing: Sequence[str] = ()) -> None:
    """docs/benchmarks.md: the rows, then what was found of those that are not met."""
    from benchmarks.harness import ROUNDS
    said = f"\nNot measured this time: {', '.join(missing)}.\n" if missing else ""
    table = HEAD.format(rounds=ROUNDS, where=machine()) + "\n".join(map(line, rows)) + "\n"
    PAGE.write_text(f"{table}{said}\n{FINDINGS.read_text(encoding='utf-8')}", encoding="utf-8")


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--json"]:
        print(json.dumps([row.as_dict() for row in importlib.import_module(f"benchmarks.{arguments[1]}").rows()]))
        return
    if arguments[:1] == ["--from"]:
        kept = [(name, _lines(f"{arguments[1]}/{name}.json")) for name in SCRIPTS]
        page([row for _, lines in kept if lines for row in json.loads(lines[-1])], [name for name, lines in kept if not lines])
        return
    unknown = [a for a in arguments if a not in SCRIPTS]
    if unknown: sys.exit(f"error: no benchmark is called {unknown[0]}; there are {', '.join(SCRIPTS)}")
    found = []
    for name in arguments or SCRIPTS:
        for row in measured(name):
            found.append(row)
            print(line(row), flush=True)
    if not arguments: page(found)


if __name__ == "__main__": main(sys.argv[1:])
