"""Bytes of files, as a user names them: memory-mapped, `.gz` and `.bz2` unpacked, and the texts that come with Python."""
from __future__ import annotations

import bz2
import gzip
import stat
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from plait.dsl.errors import PlaitError, Span, error
from plait.dsl.suggest import ALIASES, suggest


def python_docs() -> bytes:
    """CPython's own `pydoc_data.topics`: about 465,000 characters of English, different from one Python to the next."""
    from pydoc_data.topics import topics
    return "\n".join(topics.values()).encode()


BUILTIN = {"python_docs": python_docs}
UNPACK: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open}
LARGEST = 2**34                                # bytes that are unpacked: what unpacks to more is no text but a trap
IN_MEMORY = 2**26                              # bytes that are unpacked, or numbered, in memory; more go into a temporary file
PIECE = 2**20
COPY = "copy what it gives into a file: cat NAME > FILE"
MARK = b"\xef\xbb\xbf"                         # with which some programs begin a UTF-8 text, and which is no part of it


def raw_bytes(name: str, folder: Path, span: Span | None, start: str = "the folder of the spec") -> np.ndarray:
    """The bytes of `builtin:NAME` or of a file relative to `folder`, uint8 [N], N ≥ 1. A plain file is mapped, not read.
    start: what `folder` is, in words. Raises PlaitError at `span` for what cannot be read."""
    if name.startswith("builtin:"): return np.frombuffer(_builtin(name.removeprefix("builtin:"), span), np.uint8)
    path = folder / name
    if not name or "\0" in str(path): raise error("E0610", "the name of a file is needed here", span, help='text("FILE")')
    try:
        if path.is_dir(): raise error("E0610", f"`{name}` is a folder, not a file", span)
        found = path.stat()
        if not stat.S_ISREG(found.st_mode): raise error("E0610", f"`{name}` is {_kind(found.st_mode)}, not a file", span, help=COPY)
        if found.st_size == 0: raise _sizeless(path, name, span)
        if path.suffix not in UNPACK: return np.memmap(path, np.uint8, "r")
        unpacked = _unpacked(path, name, span)
    except FileNotFoundError: raise error("E0610", f"there is no file `{name}`", span, help=_nearby(path, start)) from None
    except (EOFError, zlib.error, gzip.BadGzipFile, ValueError) as why:
        raise error("E0612", f"`{name}` cannot be unpacked: {why}", span) from None
    except OSError as why:
        if why.errno is None: raise error("E0612", f"`{name}` cannot be unpacked: {why}", span) from None      # bz2 says it so
        raise error("E0610", f"`{name}` cannot be read: {why.strerror or why}", span) from None
    if not len(unpacked): raise error("E0611", f"`{name}` is empty", span)
    return unpacked


def _kind(mode: int) -> str:
    if stat.S_ISFIFO(mode): return "a pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


def _sizeless(path: Path, name: str, span: Span | None) -> PlaitError:
    """A file of no bytes; or one that is made while it is read, as those of /proc are."""
    with path.open("rb") as file:
        if not file.read(1): return error("E0611", f"`{name}` is empty", span)
    return error("E0610", f"`{name}` is made by the system while it is read, and has no size before that", span, help=COPY)


def _unpacked(path: Path, name: str, span: Span | None) -> np.ndarray:
    """The bytes of a packed file: in memory while they are few, else in a temporary file that is mapped."""
    with UNPACK[path.suffix](path, "rb") as packed:
        start = packed.read(min(IN_MEMORY, LARGEST) + 1)
        if len(start) <= min(IN_MEMORY, LARGEST): return np.frombuffer(start, np.uint8)

        def pieces() -> Iterator[np.ndarray]:
            piece, total = start, 0
            while piece:
                total += len(piece)
                if total > LARGEST:
                    raise error("E0611", f"`{name}` unpacks to more than {LARGEST / 2**30:g} GiB", span,
                                help="unpack it first: a plain file is mapped, not read")
                yield np.frombuffer(piece, np.uint8)
                piece = packed.read(PIECE)
        return kept(pieces(), np.dtype(np.uint8), True, name, span)


def kept(pieces: Iterable[np.ndarray], dtype: np.dtype, mapped: bool, name: str, span: Span | None) -> np.ndarray:
    """The pieces one after another. mapped: in a file without a name in the folder for temporary files, which is gone with the process.
    It is written and then mapped, since a full disk is told to who writes and kills who stores into a map."""
    if not mapped: return np.concatenate([np.empty(0, dtype), *pieces])
    with tempfile.TemporaryFile(prefix="plait-") as file:
        for piece in pieces:
            data = np.ascontiguousarray(piece, dtype).data
            try: file.write(data)
            except OSError as why: raise _no_room(name, why, span) from None
        try: file.flush()
        except OSError as why: raise _no_room(name, why, span) from None
        return np.memmap(file, dtype, "r")


def _no_room(name: str, why: OSError, span: Span | None) -> PlaitError:
    return error("E0610", f"`{name}` is read by way of {tempfile.gettempdir()}, which refuses: {why.strerror or why}", span,
                 help="TMPDIR=FOLDER names another folder for temporary files")


def not_utf8(raw: np.ndarray, name: str, at: int, span: Span | None, help: str = "tokens = bytes reads any file") -> PlaitError:
    """The mistake of a byte that is no UTF-8, with its line."""
    line = 1 + sum(int((raw[first:min(first + PIECE, at)] == 10).sum()) for first in range(0, at, PIECE))
    return error("E0612", f"`{name}` is not UTF-8 text", span, numbers=f"byte {at:,} (line {line:,}) is 0x{int(raw[at]):02x}",
                 help=help)


def begin(raw: np.ndarray) -> int:
    """Where a UTF-8 text begins: behind the mark that some programs put before it."""
    return len(MARK) if raw[:len(MARK)].tobytes() == MARK else 0


def lines(raw: np.ndarray, name: str, span: Span | None) -> Iterator[str]:
    """The lines of a UTF-8 text, without their ends; the file is read a piece at a time. Raises PlaitError at a byte that is no UTF-8."""
    left, at = b"", begin(raw)
    for first in range(at, len(raw), PIECE):
        *whole, left = (left + raw[first:first + PIECE].tobytes()).split(b"\n")
        for line in whole:
            yield _decoded(line, raw, name, at, span)
            at += len(line) + 1
    if left: yield _decoded(left, raw, name, at, span)


def _decoded(line: bytes, raw: np.ndarray, name: str, at: int, span: Span | None) -> str:
    try: return line.decode().removesuffix("\r")
    except UnicodeDecodeError as why: raise not_utf8(raw, name, at + why.start, span, "write it anew as UTF-8") from None


def _builtin(name: str, span: Span | None) -> bytes:
    if name in BUILTIN: return BUILTIN[name]()
    close = suggest(name, list(BUILTIN), ALIASES)
    raise error("E0610", f"there is no built-in text `{name}`", span, help=" or ".join(f'"builtin:{n}"' for n in close or BUILTIN))


def _nearby(path: Path, start: str) -> str:
    """The files of the same folder with a similar name, else where the path was looked for."""
    try: near = suggest(path.name, sorted(p.name for p in path.parent.iterdir() if p.is_file())[:1000], {})
    except OSError: near = []
    return f"`{near[0]}`?" if near else f"looked for {path.absolute()}; paths start at {start}"
