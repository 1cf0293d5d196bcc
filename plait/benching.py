"""`plait bench`: step times in turn, beside what was derived. Imports torch."""
from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from plait import files
from plait.compiler.expand import expand
from plait.compiler.file import File, open_file
from plait.compiler.program import Program
from plait.compiler.solve import freed
from plait.dsl import override
from plait.dsl.errors import error
from plait.dsl.parser import parse_override
from plait.dsl.spec import Override
from plait.dsl.suggest import suggest
from plait.plot import draw_bench
from plait.pretty import whole
from plait.runtime.laboratory.bench import Bench, Measured, measure
from plait.runtime.laboratory.steps import Subject
from plait.runtime.laboratory.turns import ROUNDS, STEADY
from plait.runtime.record import machine, replace

MOST_CASES = 200                                              # models at lengths, all of which are held at once


def bench(paths: Sequence[Path], lengths: Sequence[int], batch: int, *, tokens: int | None = None, settings: tuple[Override, ...] = (),
          models: Sequence[str] = (), by: str | None = None, rounds: int = ROUNDS, against: str | None = None,
          kernels: Mapping[str, str] | None = None, compile: bool = True, python_loop: bool = False, device: torch.device | None = None,
          told: Callable[[int], None] = lambda k: None) -> Bench:
    """Times a training step of models of specs at lengths, in turn. tokens: of a step, instead of so many sequences. lengths: values of
    the dim `by` (the length of the first input, where it is not said). models: of any of the specs; all where none is named. against: the
    model that others are divided by, the last one where it is not said. Raises PlaitError for what cannot be opened or built, and names
    that are not there."""
    opened = {path: files.opened(path, settings) for path in paths}
    owners = _owners(opened, models)
    if against is not None and against not in owners: raise _unknown(against, list(owners))
    if len(owners) * len(lengths) > MOST_CASES:
        raise error("E0505", f"these are {len(owners) * len(lengths):,} models to be held at once: a bench has at most {MOST_CASES}",
                    help="fewer --lengths, or --model NAME")
    subjects = {}
    for n in lengths:
        for name, (path, model) in owners.items():
            file = at_length(opened[path], model, by, n)
            program = expand(file, model, loss=True)
            rows = batch if tokens is None else _rows(program, tokens)
            subjects[name, n] = Subject(file, program, rows, dict(kernels or {}), compile)
    return measure(subjects, rounds=rounds, device=device or torch.device("cpu"), against=against or list(owners)[-1],
                   python_loop=python_loop, told=told)


def _rows(program: Program, tokens: int) -> int:
    """Sequences that have so many tokens together. Raises PlaitError where they do not come out even."""
    sizes = [program.sizes.integer(a.size) for i in program.inputs[:1] for a in i.value.axes if a.role == "sequence"]
    if not sizes or sizes[0] is None: raise error("E0505", f"{program.model} has no length that tokens fill", help="--batch 32")
    if tokens % sizes[0] == 0: return tokens // sizes[0]
    raise error("E0505", f"{tokens:,} tokens are no whole number of sequences of {sizes[0]:,}",
                help=f"--tokens {math.ceil(tokens / sizes[0]) * sizes[0]}, and lengths that divide it")


def _owners(opened: Mapping[Path, File], models: Sequence[str]) -> dict[str, tuple[Path, str]]:
    """Name in the table → the file and the model: the file's name stands before where two files have one of that name."""
    every = [(path, m) for path, file in opened.items() for m in file.models]
    if not every: raise error("E0505", "a bench needs a spec", help="plait bench FILE")
    stems = [path.stem for path in opened]
    def full(path: Path, m: str) -> str: return f"{path.stem if stems.count(path.stem) == 1 else path}/{m}"

    for m in models:
        if m not in {name for path, known in every for name in (known, full(path, known))}: raise _unknown(m, [known for _, known in every])
    chosen = [(path, m) for path, m in every if not models or m in models or full(path, m) in models]
    twice = {m for _, m in chosen if sum(m == other for _, other in chosen) > 1}
    return {full(path, m) if m in twice else m: (path, m) for path, m in chosen}


def _unknown(model: str, known: Sequence[str]):
    near = suggest(model, list(known), {})
    return error("E0402", f"there is no model `{model}`", help=f"`{near[0]}`?" if near else f"models: {', '.join(dict.fromkeys(known))}")


def at_length(file: File, model: str, by: str | None, n: int) -> File:
    """The file with another value of the dim that is the length. Raises PlaitError where it is not clear which dim that is."""
    name = by or length_of(file, model)
    dims = {k: e for k, e in file.names_of(model).entries.items() if e.kind == "dim"}
    if name not in dims:
        near = suggest(name, dims, {})
        raise error("E0401", f"`{name}` is no dim of {model}", help=f"--by {near[0]}" if near else f"--by with one of {', '.join(dims)}")
    if name not in _read(file, model):
        raise error("E0505", f"no size of {model} depends on `{name}`", help="--by with another dim")
    spec = override.apply(freed(file.spec, name), (parse_override(f"{name}={n}", "--lengths"),))
    return open_file(spec, None, file.spec)


def _read(file: File, model: str) -> set[str]:
    """The dims that sizes of a model depend on."""
    program = expand(file, model)
    every = [v for n in program.graph.walk() for v in (*n.ins, *n.outs)] + list(program.graph.ins)
    symbols = {s for v in every for a in v.axes for s in a.size.free_symbols}
    return {str(s) for x in symbols for s in (x, *program.sizes.resolve(x).free_symbols)}


def length_of(file: File, model: str) -> str:
    """The dim that is the length of a model's first input."""
    program = expand(file, model)
    sizes = [a.size for i in program.inputs for a in i.value.axes if a.role == "sequence"]
    if sizes and sizes[0].is_Symbol: return str(sizes[0])
    raise error("E0505", f"no dim by itself is the length of {model}'s input" + (f", which is {sizes[0]}" if sizes else ""),
                help="--by NAME")


def written(paths: Sequence[Path], settings: tuple[Override, ...], models: Sequence[str]) -> tuple[int, ...]:
    """The length that the first model has by itself. Raises PlaitError where it has none."""
    path, model = next(iter(_owners({p: files.opened(p, settings) for p in paths}, models).values()))
    file = files.opened(path, settings)
    name = length_of(file, model)
    found = file.values(model).get(name)
    if not isinstance(found, int): raise error("E0638", f"`{name}` has no value, and a step needs one", help="--lengths 64,128,256")
    return (found,)


# -- as a person reads it, and as JSON ------------------------------------------------------------------------------------------------
def table(found: Bench, name: str = "context") -> str:
    """The medians in milliseconds, growth and ratios; then each beside its derived work, depth and share of the machine's rate."""
    lengths = found.lengths
    held = f"at batch {found.batch[0]}" if len(set(found.batch)) == 1 else f"of {found.batch[0] * lengths[0]:,} tokens"
    head = f"a training step {held}, median of {_rounds(found)} in turn, milliseconds"
    times = [[m, *(_ms(found.of(m, n)) for n in lengths), *([f"{found.growth(m):.1f}"] if len(lengths) > 1 else [])] for m in found.names]
    ends = [f"{lengths[-1]}/{lengths[0]}"] if len(lengths) > 1 else []
    said = [head, _grid([[name, *(f"{n:,}" for n in lengths), *ends], *times])]
    if len(found.names) > 1:
        said += ["", f"with {found.against} as 1",
                 _grid([[name, *(f"{n:,}" for n in lengths)], *([m, *(f"{found.ratio(m, n):.2f}" for n in lengths)] for m in found.names)])]
    said += [*_loops(found, name)]
    rows = [[r.name, f"{r.length:,}", _ms(r), f"{_ms(r.times.low)}–{_ms(r.times.high)}", whole(r.work), whole(r.depth), _share(found, r)]
            for r in found.rows]
    heads = ["model", name, "median", "quartiles", "work", "depth", "share of the rate"]
    return "\n".join([*said, "", "beside what was derived of a step of the whole batch: multiply-adds, and depth of forward and backward",
                      _grid([heads, *rows]), *_above(found), "", _steady(found)])


def _above(found: Bench) -> list[str]:
    """Why a share of the rate can be more than all of it."""
    if not any((found.share(r) or 0) > 1 for r in found.rows): return []
    return ["  above 100%: the work counts every pair of positions, and a fused kernel leaves out blocks that a causal mask excludes;",
            "  or the machine was slower when its rate was measured"]


def _loops(found: Bench, name: str) -> list[str]:
    """What a recurrence costs as a loop in Python."""
    if not found.looped: return []
    rows = [[m, *(f"{found.loop(m, n):.2f}" for n in found.lengths)] for m in found.looped]
    head = [name, *(f"{n:,}" for n in found.lengths)]
    return ["", "a Python loop over the steps, with the same model run eagerly as 1", _grid([head, *rows])]


def _steady(found: Bench) -> str:
    if found.unsteady is None: return f"{_rounds(found)}: too few to tell how noisy this machine is"
    most = max(found.apart, key=lambda name: found.apart[name])
    usual = statistics.median(found.apart.values())
    apart = (f"by the halves of these rounds, a ratio differs from that of another such run by some {usual:.0%}, "
             f"and by {found.unsteady:.0%} where it is most: {most}")
    if not found.noisy: return apart
    return f"this machine is too noisy: {apart}. {STEADY:.0%} is the most; more --rounds, or nothing else at work"


def _rounds(found: Bench) -> str: return f"{found.rounds} round{'s' if found.rounds != 1 else ''}"


def _ms(r: Measured | float) -> str:
    seconds = r.times.median if isinstance(r, Measured) else r
    return f"{1e3 * seconds:.1f}" if seconds >= 1e-3 else f"{1e3 * seconds:.3f}"


def _share(found: Bench, r: Measured) -> str:
    share = found.share(r)
    return "" if share is None else f"{share:.1%}"


def _grid(rows: list[list[str]]) -> str:
    wide = [max(len(r[k]) for r in rows) for k in range(len(rows[0]))]
    return "\n".join("  " + "  ".join(t.ljust(w) if k == 0 else t.rjust(w) for k, (t, w) in enumerate(zip(r, wide))).rstrip() for r in rows)


def as_json(found: Bench, paths: Sequence[Path], device: torch.device) -> dict[str, Any]:
    rows = [{"model": r.name, "of": r.model, "way": r.way, "length": r.length, "median": r.times.median, "low": r.times.low,
             "high": r.times.high, "each": list(r.times.each), "ratio": found.ratio(r.name, r.length), "work": r.work, "depth": r.depth,
             "share": found.share(r)} for r in found.rows]
    return {"plait": 1, "files": [str(p) for p in paths], "date": time.strftime("%Y-%m-%d"), "machine": machine(device),
            "batch": list(found.batch), "rounds": found.rounds, "lengths": list(found.lengths), "against": found.against,
            "machine_work_a_second": found.rate,
            "growth": {m: found.growth(m) for m in found.names}, "unsteady": found.unsteady, "noisy": found.noisy, "apart": found.apart,
            "rows": rows}


def kept(found: Bench, paths: Sequence[Path], device: torch.device, folder: Path) -> None:
    """The results in a folder, for programs and for people. Raises PlaitError where the disk refuses."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace(folder / "bench.json", json.dumps(as_json(found, [Path(p.name) for p in paths], device), indent=1) + "\n")
        replace(folder / "bench.txt", table(found) + "\n")
    except OSError as why:
        raise error("E0620", f"the results cannot be kept in `{folder}`: {why.strerror or why}", help="another folder") from None
    try: draw_bench(found, folder / "bench.svg")
    except (ImportError, OSError): pass                       # matplotlib is an extra, and the results are kept without a drawing
