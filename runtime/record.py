"""The folder of a run: the spec, the machine, the vocabulary, and the rows of what was measured."""
from __future__ import annotations

import csv
import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from plait.dsl.errors import error
from plait.runtime.data import Dataset

COLUMNS = ("step", "split", "loss", "bits_per_token", "accuracy", "lr", "gradient_norm", "count", "seconds", "tokens")
SPEC, ROWS, TABLE, SAMPLES = "spec.plait", "metrics.jsonl", "metrics.csv", "samples.jsonl"


def default_folder(model: str) -> Path:
    return Path("runs") / f"{model}-{time.strftime('%Y%m%d-%H%M%S')}"


def begin(folder: Path, spec_text: str, model: str, dataset: Dataset, device: torch.device, table: Mapping | None) -> None:
    """Makes the folder of a new run. Raises PlaitError where one already holds a run, or the disk refuses."""
    if (folder / SPEC).exists():
        raise error("E0620", f"`{folder}` already holds a run", help=f"plait resume {folder}, or --out with another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "machine.json", machine(device))
        _write(folder / "vocabulary.json", data_facts(dataset))
        _write(folder / "run.json", {"model": model, "data_folder": str(dataset.folder.absolute())})
        if table is not None: _write(folder / "table.json", table)
        for name in (ROWS, TABLE, SAMPLES): (folder / name).write_text(",".join(COLUMNS) + "\n" if name == TABLE else "")
        (folder / SPEC).write_text(spec_text)                      # last: a folder with a spec is a run
    except OSError as why:
        raise error("E0620", f"the run cannot be kept in `{folder}`: {why.strerror or why}", help="--out FOLDER") from None


def spec_text(folder: Path) -> str:
    """The resolved spec of a run. Raises PlaitError where the folder holds none."""
    try: return (folder / SPEC).read_text()
    except OSError:
        raise error("E0620", f"`{folder}` is not the folder of a run: it holds no {SPEC}",
                    help="plait train SPEC --out RUN makes one") from None


def about(folder: Path) -> dict[str, Any]:
    """`model`, and `data_folder`, where the spec's relative paths start."""
    try: return json.loads((folder / "run.json").read_text())
    except (OSError, ValueError): raise error("E0620", f"`{folder}` is not the folder of a run: run.json cannot be read") from None


def machine(device: torch.device) -> dict[str, Any]:
    versions = {name: metadata.version(name) for name in ("plait", "torch", "numpy", "safetensors", "sympy")}
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {"device": str(device), "name": name, "cores": os.cpu_count(), "threads": torch.get_num_threads(), "system": platform.platform(),
            "python": sys.version.split()[0], **versions}


def data_facts(dataset: Dataset) -> dict[str, Any]:
    """What must not change between a run and its resumption: the vocabulary and the amount of training data."""
    return {"size": dataset.vocabulary, "characters": dataset.characters, "training_targets": dataset.symbols}


def same_data(folder: Path, dataset: Dataset) -> None:
    """Raises PlaitError where the data is not what the run began with."""
    try: before = json.loads((folder / "vocabulary.json").read_text())
    except (OSError, ValueError): return                           # lost, not different
    now = data_facts(dataset)
    changed = [name.replace("_", " ") for name in now if before.get(name) != now[name]]
    if changed:
        raise error("E0614", f"the data is not what the run `{folder}` began with: another {' and '.join(changed)}",
                    numbers=f"size {before.get('size')} then, {now['size']} now; {before.get('training_targets')} training targets then, "
                            f"{now['training_targets']} now", help="put the old file back, or start a new run")


# ---- rows --------------------------------------------------------------------------------------------------------------
def add(folder: Path, step: int, split: str, **measured: object) -> None:
    """One row in both files. A number that is not finite is written as null: JSON has no other word for it."""
    row = {"step": step, "split": split, **{k: _plain(v) for k, v in measured.items()}}
    with (folder / ROWS).open("a") as file: file.write(json.dumps(row) + "\n")
    with (folder / TABLE).open("a", newline="") as file: csv.DictWriter(file, COLUMNS, extrasaction="ignore").writerow(row)


def add_sample(folder: Path, step: int, prompt: str, text: str) -> None:
    with (folder / SAMPLES).open("a") as file: file.write(json.dumps({"step": step, "prompt": prompt, "text": text}) + "\n")


def rows(folder: Path, name: str = ROWS) -> Iterator[dict[str, Any]]:
    """The rows of a run in order. A last line that was cut off is not one."""
    try: lines = (folder / name).read_text().splitlines()
    except OSError: return
    for line in lines:
        try: yield json.loads(line)
        except ValueError: return


def rewind(folder: Path, step: int) -> None:
    """Drops the rows behind a step, which a resumed run writes again."""
    kept = [r for r in rows(folder) if r["step"] <= step]
    _replace(folder / ROWS, "".join(json.dumps(r) + "\n" for r in kept))
    lines = [",".join("" if r.get(c) is None else str(r[c]) for c in COLUMNS) for r in kept]
    _replace(folder / TABLE, "\n".join([",".join(COLUMNS), *lines]) + "\n")
    _replace(folder / SAMPLES, "".join(json.dumps(r) + "\n" for r in rows(folder, SAMPLES) if r["step"] <= step))


def _plain(value: object) -> object:
    if not isinstance(value, float): return value
    return value if value == value and abs(value) != float("inf") else None


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1, default=str) + "\n")


def _replace(path: Path, text: str) -> None:
    """All of it or nothing, whenever the machine stops."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text)
    os.replace(beside, path)
