"""Spec files: read from disk, with the sentence a person needs when that fails."""
from __future__ import annotations

from pathlib import Path

from plait.compiler.expand import File, open_file
from plait.dsl import override
from plait.dsl.errors import Diagnostic, PlaitError, Span, error
from plait.dsl.parser import parse, parse_override
from plait.dsl.spec import Override, Spec

LARGEST = 2**20                                               # bytes of a spec


def read(path: str | Path, span: Span | None = None) -> str:
    """The text of a spec file. Raises PlaitError for whatever is no such thing."""
    p = Path(path)
    try:
        if p.is_dir(): raise error("E0105", f"{path} is a directory, not a spec", span, help=_inside(p))
        if p.stat().st_size > LARGEST: raise error("E0106", f"{path} has {p.stat().st_size:,} bytes: a spec has at most {LARGEST:,}", span)
        return p.read_bytes().decode("utf-8")
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
    def other(name: str, span: Span) -> Spec: return parse(read(folder / name, span), name)
    return open_file(override.apply(original, settings) if settings else original, other, original)
