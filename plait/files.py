"""Spec files: read from disk, with the sentence a person needs when that fails."""
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from plait.compiler.file import File, inlined, open_file
from plait.dsl import override
from plait.dsl.errors import Diagnostic, PlaitError, Span, error
from plait.dsl.parser import parse, parse_override
from plait.dsl.spec import Call, Expr, Override, Spec, Text, Tuple

LARGEST = 2**20                                               # bytes of a spec


def read(path: str | Path, span: Span | None = None) -> str:
    """The text of a spec file. Raises PlaitError for whatever is no such thing."""
    p = Path(path)
    try:
        if p.is_dir(): raise error("E0105", f"{path} is a directory, not a spec", span, help=_inside(p))
        with p.open("rb") as file: content = file.read(LARGEST + 1)               # a device may have no end
        if len(content) > LARGEST: raise error("E0106", f"{path} is too long: a spec has at most {LARGEST:,} bytes", span)
        return content.decode("utf-8")
    except FileNotFoundError: raise error("E0105", f"there is no file {path}", span, help=_near(p)) from None
    except PermissionError: raise error("E0105", f"{path} may not be read: permission denied", span) from None
    except UnicodeDecodeError as why: raise error("E0105", f"{path} is not a text: byte {why.start} is not UTF-8", span) from None
    except (OSError, ValueError) as why: raise error("E0105", f"{path} cannot be read: {why}", span) from None


def _inside(p: Path) -> str:
    found = sorted(q.name for q in p.glob("*.plait"))[:3]
    return " or ".join(f"{p / name}" for name in found)


def _near(p: Path) -> str:
    from plait.dsl.suggest import suggest
    try: here = [str(q) for q in p.parent.glob("*.plait")]
    except OSError: return ""
    near = suggest(p.stem, [Path(q).stem for q in here], {})
    return " or ".join(str(p.parent / f"{n}.plait") for n in near)


def overrides(settings) -> tuple[Override, ...]:
    """`--set` arguments, or a mapping name → value, as overrides. All that is wrong is reported at once."""
    texts = [f"{k}={v}" for k, v in settings.items()] if isinstance(settings, dict) else list(settings or ())
    found: list[Override] = []
    wrong: list[Diagnostic] = []
    for text in texts:
        try: found.append(parse_override(text))
        except PlaitError as e: wrong += e.diagnostics
    if wrong: raise PlaitError(*wrong)
    return tuple(found)


def single(settings: tuple[Override, ...]) -> tuple[Override, ...]:
    for o in settings:
        if len(o.values) > 1:
            raise error("E0505", "a list of values is a sweep, and this command takes one value", o.span,
                        help=f"--set {'.'.join(o.path)}=…")
    return settings


def opened(path: str | Path, settings: tuple[Override, ...] = (), text: str | None = None) -> File:
    """A spec file with its overrides applied and its names resolved."""
    original = parse(read(path) if text is None else text, str(path))
    return resolved(original, settings, Path(path).parent)


def resolved(original: Spec, settings: tuple[Override, ...], folder: Path) -> File:
    """A file with what it uses in place, so that overrides reach those dims too, and what a run keeps stands by itself."""
    def other(name: str, span: Span) -> Spec: return parse(read(folder / name, span), name)
    whole = inlined(original, other)
    return open_file(override.apply(whole, tuple(_from_here(o, folder) for o in settings)) if settings else whole, None, whole)


def _from_here(o: Override, folder: Path) -> Override:
    """A data file named on the command line may stand beside the spec, as in the spec, or in the current directory."""
    def moved(e: Expr) -> Expr:
        if not isinstance(e, Call): return e
        return replace(e, arguments=tuple(replace(a, value=_path(a.value, folder)) for a in e.arguments))
    return replace(o, values=tuple(map(moved, o.values))) if o.path == ("train", "data") else o


def _path(e: Expr, folder: Path) -> Expr:
    if isinstance(e, Tuple): return replace(e, items=tuple(_path(item, folder) for item in e.items))
    if not isinstance(e, Text) or e.value.startswith("builtin:") or (folder / e.value).exists() or not Path(e.value).exists(): return e
    return replace(e, value=str(Path(e.value).resolve()))
