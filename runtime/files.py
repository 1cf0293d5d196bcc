"""Bytes of files, as a user names them: memory-mapped, `.gz` and `.bz2` unpacked, and the texts that come with Python."""
from __future__ import annotations

import bz2
import gzip
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from plait.dsl.errors import Span, error
from plait.dsl.suggest import ALIASES, suggest


def python_docs() -> bytes:
    """CPython's own `pydoc_data.topics`: about 465,000 characters of English, different from one Python to the next."""
    from pydoc_data.topics import topics
    return "\n".join(topics.values()).encode()


BUILTIN = {"python_docs": python_docs}
UNPACK: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open}
LARGEST = 2**31                                # bytes that are unpacked into memory


def raw_bytes(name: str, folder: Path, span: Span | None) -> np.ndarray:
    """The bytes of `builtin:NAME` or of a file relative to `folder`, uint8 [N], N ≥ 1. A plain file is mapped, not read.
    Raises PlaitError at `span` for what cannot be read."""
    if name.startswith("builtin:"): return np.frombuffer(_builtin(name.removeprefix("builtin:"), span), np.uint8)
    path = folder / name
    if not name or "\0" in str(path): raise error("E0610", "the name of a file is needed here", span, help='text("FILE")')
    try:
        if path.is_dir(): raise error("E0610", f"`{name}` is a folder, not a file", span)
        size = path.stat().st_size
        if size == 0: raise error("E0611", f"`{name}` is empty", span)
        if path.suffix not in UNPACK: return np.memmap(path, np.uint8, "r")
        with UNPACK[path.suffix](path, "rb") as packed: unpacked = packed.read(LARGEST + 1)
    except FileNotFoundError: raise error("E0610", f"there is no file `{name}`", span, help=_nearby(path)) from None
    except (EOFError, zlib.error, gzip.BadGzipFile, ValueError) as why:
        raise error("E0612", f"`{name}` cannot be unpacked: {why}", span) from None
    except OSError as why:
        if why.errno is None: raise error("E0612", f"`{name}` cannot be unpacked: {why}", span) from None      # bz2 says it so
        raise error("E0610", f"`{name}` cannot be read: {why.strerror or why}", span) from None
    if len(unpacked) > LARGEST:
        raise error("E0611", f"`{name}` unpacks to more than {LARGEST / 2**30:g} GiB", span,
                    help="unpack it first: a plain file is mapped, not read")
    if not unpacked: raise error("E0611", f"`{name}` is empty", span)
    return np.frombuffer(unpacked, np.uint8)


def utf8(raw: np.ndarray, name: str, span: Span | None) -> str:
    """The text. Raises PlaitError at the first byte that is no UTF-8."""
    data = raw.tobytes()
    try: return data.decode()
    except UnicodeDecodeError as why:
        line = data.count(b"\n", 0, why.start) + 1
        raise error("E0612", f"`{name}` is not UTF-8 text", span, numbers=f"byte {why.start:,} (line {line:,}) is 0x{data[why.start]:02x}",
                    help="tokens = bytes reads any file") from None


def _builtin(name: str, span: Span | None) -> bytes:
    if name in BUILTIN: return BUILTIN[name]()
    close = suggest(name, list(BUILTIN), ALIASES)
    raise error("E0610", f"there is no built-in text `{name}`", span, help=" or ".join(f'"builtin:{n}"' for n in close or BUILTIN))


def _nearby(path: Path) -> str:
    """The files of the same folder with a similar name, else where the path was looked for."""
    try: near = suggest(path.name, sorted(p.name for p in path.parent.iterdir() if p.is_file())[:1000], {})
    except OSError: near = []
    return f"`{near[0]}`?" if near else f"looked for {path.absolute()}; paths start at the folder of the spec"
