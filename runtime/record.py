"""The folder of a run: the spec, the machine, the vocabulary, and the rows of what was measured."""
from __future__ import annotations

import csv
import fcntl
import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from plait.compiler.plan import kernels_of
from plait.dsl.errors import Diagnostic, PlaitError, error
from plait.runtime import codec
from plait.runtime.codec import Codec
from plait.runtime.data import Dataset
from plait.runtime.folder import ABOUT, ROWS, SPEC, rows

COLUMNS = ("step", "split", "loss", "bits_per_token", "accuracy", "bleu", "lr", "gradient_norm", "count", "seconds", "tokens")
VOCABULARY, TABLE, SAMPLES = "vocabulary.json", "metrics.csv", "samples.jsonl"
MEASURED = "measured.json"


def default_folder(model: str) -> Path:
    return Path("runs") / f"{model}-{time.strftime('%Y%m%d-%H%M%S')}"


def begin(folder: Path, model: str, dataset: Dataset, device: torch.device, table: Mapping | None, plan: Mapping | None = None,
          ranks: Mapping | None = None, planned: int | None = None) -> None:
    """Makes the folder of a new run, which `commit` makes a run. plan: what was asked of it, to be asked again on resume;
    ranks: how its processes share it, if it has several; planned: its last step, None where it stops by tokens or time.
    Raises PlaitError where the folder already holds a run, or the disk refuses."""
    if (folder / SPEC).exists():
        raise error("E0620", f"`{folder}` already holds a run", help=f"plait resume {folder}, or --out with another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "machine.json", machine(device))
        _write(folder / VOCABULARY, data_facts(dataset))
        _write(folder / ABOUT, {"model": model, "data_folder": str(dataset.folder.absolute()), "plan": plan or {}, "planned": planned,
                                **({"ranks": ranks} if ranks else {})})
        if table is not None: _write(folder / "table.json", table)
        for name in (ROWS, TABLE, SAMPLES): (folder / name).write_text(",".join(COLUMNS) + "\n" if name == TABLE else "")
    except OSError as why:
        for name in ("machine.json", VOCABULARY, ABOUT, "table.json", ROWS, TABLE, SAMPLES): (folder / name).unlink(missing_ok=True)
        (folder / ".lock").unlink(missing_ok=True)
        try: folder.rmdir()                                       # where it held nothing else
        except OSError: pass
        raise _unkept(folder, why) from None


def commit(folder: Path, spec_text: str) -> None:
    """The last file of a new run, after its first checkpoint: a folder with a spec is a run, and can be resumed."""
    try: replace(folder / SPEC, spec_text)
    except OSError as why: raise _unkept(folder, why) from None


def _unkept(folder: Path, why: OSError) -> PlaitError:
    return error("E0620", f"the run cannot be kept in `{folder}`: {why.strerror or why}", help="--out FOLDER")


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """The folder, for this process alone. Raises PlaitError where another one trains there; a killed process holds nothing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as why: raise _unkept(folder, why) from None
    with lock:
        try: fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise error("E0620", f"another process is training in `{folder}`", help="wait for it, or --out with another folder") from None
        except OSError: pass                                       # a file system without locks
        yield


def spec_text(folder: Path) -> str:
    """The resolved spec of a run. Raises PlaitError where the folder holds none."""
    try: return (folder / SPEC).read_text("utf-8")
    except UnicodeDecodeError: raise _damaged(folder, SPEC, "it is not UTF-8 text") from None
    except OSError:
        raise error("E0620", f"`{folder}` is not the folder of a run: it holds no {SPEC}",
                    help="plait train SPEC --out RUN makes one") from None


def about(folder: Path) -> tuple[str, Path]:
    """The model, and the folder where the spec's relative paths start."""
    match _object(folder, ABOUT):
        case {"model": str(model), "data_folder": str(data_folder)}: return model, Path(data_folder)
    raise _damaged(folder, ABOUT, "it does not name the model and the folder of the data")


def plan(folder: Path) -> tuple[dict[str, str], int, tuple[str, ...]]:
    """What was asked of the plan of a run: kernels by region, the pieces of the loss, the places that are recomputed."""
    match _object(folder, ABOUT).get("plan") or {}:
        case {"kernels": dict(kernels), "pieces": int(pieces), "recomputed": list(places)} if pieces >= 1:
            try: return kernels_of(f"{k}={v}" for k, v in kernels.items()), pieces, tuple(map(str, places))
            except PlaitError: pass
        case {**more} if not more: return {}, 1, ()
    raise _damaged(folder, ABOUT, "what it says of the plan cannot be read")


def compiled(folder: Path) -> bool:
    """Did the run begin compiled?"""
    return (_object(folder, ABOUT).get("plan") or {}).get("compiled", True) is not False


def ranks(folder: Path) -> tuple[str, bool]:
    """How the processes of a run share it: the way, and whether parameters lie on the host."""
    match _object(folder, ABOUT).get("ranks"):
        case None: return "ddp", False
        case {"shard": "ddp" | "fsdp" as shard, "offload": bool(offload)}: return shard, offload
    raise _damaged(folder, ABOUT, "what it says of the ranks cannot be read")


def vocabulary(folder: Path) -> Codec:
    """What the symbols of a run stand for."""
    try: return codec.from_facts(_object(folder, VOCABULARY))
    except ValueError: raise _damaged(folder, VOCABULARY, "it holds no vocabulary") from None


def _object(folder: Path, name: str) -> dict[str, Any]:
    """A JSON object of a run. Raises PlaitError where it is lost or damaged."""
    try: found = json.loads((folder / name).read_bytes())
    except OSError as why: raise _damaged(folder, name, why.strerror or str(why)) from None
    except (ValueError, RecursionError): found = None
    if not isinstance(found, dict): raise _damaged(folder, name, "it is no JSON object")
    return found


def _damaged(folder: Path, name: str, why: str) -> PlaitError:
    return error("E0620", f"{name} of the run `{folder}` cannot be used: {why}", help="put it back from a copy, or start a new run")


def machine(device: torch.device) -> dict[str, Any]:
    versions = {name: metadata.version(name) for name in ("plait", "torch", "numpy", "safetensors", "sympy")}
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {"device": str(device), "name": name, "cores": os.cpu_count(), "threads": torch.get_num_threads(), "system": platform.platform(),
            "python": sys.version.split()[0], **versions}


def data_facts(dataset: Dataset) -> dict[str, Any]:
    """What must not change between a run and its resumption: the vocabulary and the amount of training data."""
    return {**dataset.codec.facts(), "training_targets": dataset.symbols, "content": dataset.content}


def other_data(folder: Path, dataset: Dataset, code: str = "E0614") -> Diagnostic | None:
    """What to say where the data is not what the run began with."""
    before, now = _object(folder, VOCABULARY), data_facts(dataset)
    changed = [name.replace("_", " ") for name in now if before.get(name) != now[name]]
    if not changed: return None
    return Diagnostic(code, f"the data is not what the run `{folder}` began with: another {' and '.join(changed)}",
                      numbers=f"{before.get('size')} symbols then, {now['size']} now; {before.get('training_targets')} training targets "
                              f"then, {now['training_targets']} now", help="put the old file back, or start a new run")


def measured(folder: Path, content: Mapping) -> None:
    """Puts what was derived beside what was measured. It is for people only: a disk that is full does not end a training for it."""
    try: replace(folder / MEASURED, json.dumps(content, indent=1) + "\n")
    except OSError: (folder / f".{MEASURED}.new").unlink(missing_ok=True)


# ---- rows --------------------------------------------------------------------------------------------------------------
def add(folder: Path, step: int, split: str, **measured: object) -> None:
    """One row in both files. A number that is not finite is written as null: JSON has no other word for it."""
    row = {"step": step, "split": split, **{k: _plain(v) for k, v in measured.items()}}
    try:
        with (folder / ROWS).open("a") as file: file.write(json.dumps(row) + "\n")
        with (folder / TABLE).open("a", newline="") as file: csv.DictWriter(file, COLUMNS, extrasaction="ignore").writerow(row)
    except OSError as why: raise _unwritten(folder, step, why) from None


def add_sample(folder: Path, step: int, prompt: str, text: str) -> None:
    try:
        with (folder / SAMPLES).open("a") as file: file.write(json.dumps({"step": step, "prompt": prompt, "text": text}) + "\n")
    except OSError as why: raise _unwritten(folder, step, why) from None


def _unwritten(folder: Path, step: int, why: OSError) -> PlaitError:
    return error("E0623", f"the row of step {step:,} cannot be written in `{folder}`: {why.strerror or why}",
                 help=f"make room, then plait resume {folder}")


def rewind(folder: Path, step: int) -> None:
    """Drops the rows behind a step, which a resumed run writes again. Raises PlaitError where the disk does not take the rest."""
    kept = [r for r in rows(folder) if r["step"] <= step]
    try:
        replace(folder / ROWS, "".join(json.dumps(r) + "\n" for r in kept))
        replace(folder / TABLE, "\n".join([",".join(COLUMNS), *_table_rows(folder, step, kept)]) + "\n")
        replace(folder / SAMPLES, "".join(json.dumps(r) + "\n" for r in rows(folder, SAMPLES) if r["step"] <= step))
    except OSError as why: raise _unwritten(folder, step, why) from None


def _table_rows(folder: Path, step: int, kept: list[dict[str, Any]]) -> list[str]:
    """The lines of the CSV up to a step: its own, or, where it has none, those of the JSON rows."""
    try: head, *lines = (folder / TABLE).read_text(errors="replace").splitlines()
    except (OSError, ValueError): head, lines = "", []
    own = [t for t in lines if (first := t.split(",")[0]).isdecimal() and int(first) <= step]
    if head == ",".join(COLUMNS) and len(own) >= len(kept): return own
    return [",".join("" if r.get(c) is None else str(r[c]) for c in COLUMNS) for r in kept]


def _plain(value: object) -> object:
    if not isinstance(value, float): return value
    return value if value == value and abs(value) != float("inf") else None


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1, default=str) + "\n")


def replace(path: Path, text: str) -> None:
    """All of it or nothing, whenever the machine stops."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text)
    os.replace(beside, path)
