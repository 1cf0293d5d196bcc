"""Arrays in `.npy` and `.npz` files. A file is only ever data: of what a pickle in it may hold, arrays alone are made."""
from __future__ import annotations

import io
import math
import pickle
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from plait.dsl.errors import PlaitError, Span, error
from plait.runtime import files

HARMLESS = {("_codecs", "encode"), ("numpy", "ndarray"), ("numpy", "dtype")} | {
    (f"numpy.{core}.multiarray", name) for core in ("core", "_core") for name in ("_reconstruct", "scalar")} | {
    (f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")}


class _Arrays(pickle.Unpickler):
    """Arrays of arrays, as numpy writes them, and nothing else: a pickle may otherwise run any program."""
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in HARMLESS: return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it holds a `{module}.{name}`, which is no array")


def arrays(name: str, folder: Path, span: Span | None, objects: bool = False) -> dict[str, np.ndarray]:
    """Name → array of a `.npz` file; of a `.npy` file, which is mapped, "" → its array. objects: arrays of arrays are read too.
    Raises PlaitError for what is torn or no such file."""
    raw = files.raw_bytes(name, folder, span)
    try:
        if Path(name).suffix == ".npy" and not objects: return {"": _mapped(folder / name)}
        if Path(name).suffix == ".npy": return {"": _array(io.BytesIO(raw.tobytes()), len(raw), objects)}
        with zipfile.ZipFile(folder / name) as archive:
            found = {}
            for member in archive.infolist():
                if member.file_size > files.LARGEST: raise ValueError(f"{member.filename} has {member.file_size:,} bytes")
                with archive.open(member) as file: found[member.filename.removesuffix(".npy")] = _array(file, member.file_size, objects)
    except PlaitError: raise
    except MemoryError: raise error("E0611", f"`{name}` does not fit into memory", span, help="a .npy file is mapped, not read") from None
    except OSError as why: raise error("E0612", f"`{name}` cannot be read: {why.strerror or why}", span) from None
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError, TypeError, AttributeError, IndexError, ImportError,
            NotImplementedError, RuntimeError, SyntaxError, pickle.UnpicklingError, RecursionError) as why:
        said = str(why).splitlines()[0] if str(why) else type(why).__name__
        raise error("E0612", f"`{name}` is no sound {Path(name).suffix} file: {said}", span,
                    help=f"numpy.savez({Path(name).name!r}, …) writes one") from None
    if not found: raise error("E0611", f"`{name}` holds no array", span)
    return found


def _mapped(path: Path) -> np.ndarray:
    found = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(found, np.ndarray): raise ValueError("it holds no single array")
    return found


def _array(file, size: int, objects: bool) -> np.ndarray:
    version = np.lib.format.read_magic(file)
    header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in header: raise ValueError(f"format {version[0]}.{version[1]} is not known")
    shape, fortran, dtype = header[version](file)
    if dtype.hasobject:
        if not objects: raise ValueError("it holds Python objects, not numbers")
        found = _Arrays(file, encoding="latin1").load()
        if not isinstance(found, np.ndarray): raise ValueError("it holds no array")
        return found
    count = math.prod(shape)
    if count * dtype.itemsize > size: raise EOFError("it ends too early")
    data = file.read(count * dtype.itemsize)
    if len(data) < count * dtype.itemsize: raise EOFError("it ends too early")
    flat = np.frombuffer(data, dtype, count)
    return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)


def named(found: dict[str, np.ndarray], *names: str) -> np.ndarray | None:
    """The first of the names that is there."""
    return next((found[n] for n in names if n in found), None)


def whole_numbers(a: np.ndarray, what: str, name: str, span: Span | None) -> np.ndarray:
    """The array as integers. Raises PlaitError where it holds anything else."""
    if a.dtype.kind == "b": return a.astype(np.uint8)
    if a.dtype.kind in "iu": return a
    if a.dtype.kind == "f" and np.isfinite(a).all() and (a == np.floor(a)).all():
        largest = float(abs(a).max()) if a.size else 0.0
        if largest >= 2**53: raise error("E0613", f"{what} of `{name}` reach {largest:.4g}: too many to be levels or classes", span)
        return a.astype(np.int64)
    raise error("E0612", f"{what} of `{name}` are whole numbers, and this holds {a.dtype}", span)
