"""The numbers of machines as files: those that were measured here, in the user's cache, and those that are given by hand. Knows no torch.

`docs/prediction.md` says what is in one."""
from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from plait.compiler.costs.calls import KINDS
from plait.compiler.costs.memory import WIDTHS
from plait.compiler.costs.time import Kernel, Machine
from plait.dsl.errors import error

VERSION = 1
FORMAT = '{"plait_machine": 1, "rate": 5e13, "bandwidth": 2e12, "latency": 5e-6}'


@dataclass(frozen=True)
class About:
    """Where, with what and when it was measured. noise: how far the times of a kernel differ, as a part, on the median; took: seconds."""
    device: str = "cpu"
    dtype: str = "float32"
    threads: int | None = None
    name: str = ""
    processor: str = ""
    torch: str = ""
    date: str = ""
    noise: float | None = None
    took: float | None = None

    @property
    def measured(self) -> bool: return self.noise is not None

    def __str__(self) -> str:
        said = [self.processor or self.name or self.device, f"{self.threads} threads" if self.threads else "", self.dtype,
                f"torch {self.torch}" if self.torch else "", f"measured {self.date}" if self.measured else "given, not measured"]
        return ", ".join(s for s in said if s)


@dataclass(frozen=True)
class Measured:
    """A machine, and what is known about how its numbers came about."""
    about: About
    machine: Machine

    def as_json(self) -> dict[str, Any]:
        m = self.machine
        about = {k: v for k, v in asdict(self.about).items() if v not in (None, "")}
        kernels = {kind: {key: v for key, v in asdict(k).items() if v} for kind, k in m.kernels.items()}
        return {"plait_machine": VERSION, **about, "rate": m.rate, "bandwidth": [list(p) for p in m.bandwidth], "latency": m.latency,
                "kernels": kernels, "functions": dict(m.functions)}


def folder() -> Path:
    """The user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "plait"


def place(device: str, dtype: str, threads: int, name: str) -> Path:
    """One file a machine, a device, a dtype and a number of threads."""
    return folder() / f"machine-{name or 'here'}-{device}-{dtype}-{threads}.json"


def write(found: Measured) -> Path:
    """Into the cache; written beside and renamed, so that nobody reads half of it."""
    a = found.about
    path = place(a.device, a.dtype, a.threads or 1, a.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(found.as_json(), indent=1) + "\n")
    os.replace(beside, path)
    return path


def known(device: str, dtype: str, threads: int, name: str, torch: str) -> Measured:
    """What was measured here. Raises PlaitError where nothing was with so many threads and this torch, or the file cannot be read."""
    path = place(device, dtype, threads, name)
    again = "plait calibrate" + (f" --device {device}" if device != "cpu" else "") + (f" --dtype {dtype}" if dtype != "float32" else "")
    if not path.exists():
        raise error("E0670", f"this machine's {device} has not been measured in {dtype} with {threads} thread{'s' if threads != 1 else ''}",
                    help=again)
    found = read(path, again)
    if found.about.torch != torch:
        raise error("E0670", f"this machine was measured with torch {found.about.torch}, and this is torch {torch}", help=again)
    return found


def read(path: Path, way_out: str = "docs/prediction.md says what is in such a file") -> Measured:
    """Raises PlaitError for what is no such file."""
    try: text = path.read_text()
    except FileNotFoundError: raise error("E0671", f"there is no file {path}", help=way_out) from None
    except (OSError, ValueError) as why: raise error("E0671", f"{path} cannot be read: {why}", help=way_out) from None
    try: given = json.loads(text)
    except ValueError: raise error("E0671", f"{path} is torn, or no JSON", help=way_out) from None
    if not isinstance(given, dict) or "plait_machine" not in given:
        raise error("E0671", f"{path} holds no machine's numbers", numbers=FORMAT, help=way_out)
    if given["plait_machine"] != VERSION:
        raise error("E0671", f"{path} is of another version: {given['plait_machine']}, and this one reads {VERSION}", help=way_out)
    try: return _measured(given)
    except Wrong as why: raise error("E0671", f"{path}: {why}", numbers=FORMAT, help=way_out) from None


class Wrong(Exception):
    """A number that is missing, or none."""


def _measured(given: Mapping[str, Any]) -> Measured:
    known_kinds = (*KINDS, "product")
    band, kernels, functions = given.get("bandwidth"), _mapping(given, "kernels"), _mapping(given, "functions")
    points = band if isinstance(band, list) else [[1.0, band]]
    if not points or not all(isinstance(p, list) and len(p) == 2 for p in points):
        raise Wrong("`bandwidth` is a number, or a list of [bytes, bytes a second]")
    bandwidth = tuple(sorted((_number(s, "bandwidth"), _number(v, "bandwidth")) for s, v in points))
    strange = [k for k in kernels if k not in known_kinds]
    if strange: raise Wrong(f"there is no kind of call `{strange[0]}`; there are {', '.join(known_kinds)}")
    rate = _number(given.get("rate"), "rate")
    machine = Machine(rate, bandwidth, _number(given.get("latency"), "latency", 0.0), _kernels(kernels, rate),
                      {k: _number(v, f"functions.{k}") for k, v in functions.items()})
    about = About(**{k: given[k] for k in About.__dataclass_fields__ if k in given})
    if about.dtype not in WIDTHS: raise Wrong(f"`dtype` is one of {', '.join(WIDTHS)}, not {about.dtype}")
    return Measured(about, machine)


def _kernels(given: Mapping[str, Any], rate: float) -> dict[str, Kernel]:
    """`product` stands for all three layouts."""
    found = {}
    for kind, numbers in given.items():
        if not isinstance(numbers, dict): raise Wrong(f"`kernels.{kind}` is no table of numbers")
        strange = [k for k in numbers if k not in Kernel.__dataclass_fields__]
        if strange: raise Wrong(f"`kernels.{kind}` has `{strange[0]}`; there are {', '.join(Kernel.__dataclass_fields__)}")
        half = numbers.get("half", [])
        if not isinstance(half, list): raise Wrong(f"`kernels.{kind}.half` is a list of sizes")
        rest = {k: _number(v, f"kernels.{kind}.{k}", 0.0) for k, v in numbers.items() if k != "half"}
        kernel = Kernel(**{"rate": rate, **rest}, half=tuple(_number(h, f"kernels.{kind}.half", 0.0) for h in half))
        if kernel.rate <= 0 or kernel.bandwidth == 0: raise Wrong(f"`kernels.{kind}` has a rate of nothing")
        for name in (f"product_{layout}" for layout in ("nn", "nt", "tn")) if kind == "product" else (kind,): found[name] = kernel
    return found


def _mapping(given: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = given.get(key, {})
    if not isinstance(found, dict): raise Wrong(f"`{key}` is no table")
    return found


def _number(value: object, name: str, least: float | None = None) -> float:
    """least: what is allowed besides what is more than nothing."""
    if value is None: raise Wrong(f"`{name}` is missing")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value): raise Wrong(f"`{name}` is no number")
    if value > 0 or value == least: return float(value)
    raise Wrong(f"`{name}` is {value}, and should be more than 0")
