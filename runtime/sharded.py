"""Checkpoints whose tensors lie in parts on several ranks, by torch.distributed.checkpoint: each rank writes its parts, and any number of
ranks reads them, one process too. They have the same place, the same state and the same checksums as other checkpoints."""
from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.tensor import DTensor, distribute_tensor

INDEX = ".metadata"                                            # which file has which part of what


def there(at: Path) -> bool:
    """Is it a checkpoint in parts?"""
    return (at / INDEX).exists()


def save(at: Path, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Writes the groups of named tensors into an empty folder. All ranks call it. Raises OSError where the disk of one does not take it."""
    flat = {f"{group}/{name}": t for group, named in tensors.items() for name, t in named.items()}
    with _quiet():
        try: dcp.save(flat, storage_writer=dcp.FileSystemWriter(at, sync_files=True))
        except dcp.api.CheckpointException as why: raise OSError(_reason(why)) from None


def load(at: Path, group: str, like: Callable[[str, torch.Size], Tensor | None]) -> dict[str, Tensor]:
    """The tensors of a group. like: by name and shape a tensor whose parts are wanted as its own are; None: whole, on the CPU.
    Raises OSError and ValueError for files that cannot be read."""
    made = {}
    with _quiet():
        index: Metadata = dcp.FileSystemReader(at).read_metadata()
        for key, kind in index.state_dict_metadata.items():
            if not key.startswith(f"{group}/") or not isinstance(kind, TensorStorageMetadata): continue
            model = like(key.removeprefix(f"{group}/"), kind.size)
            dtype = kind.properties.dtype
            made[key] = torch.empty(kind.size, dtype=dtype) if model is None else torch.empty_like(model, dtype=dtype)
        shared = dist.is_initialized() and any(isinstance(t, DTensor) for t in made.values())
        try: dcp.load(made, storage_reader=dcp.FileSystemReader(at), no_dist=not shared)
        except dcp.api.CheckpointException as why: raise OSError(_reason(why)) from None
    return {key.removeprefix(f"{group}/"): t for key, t in made.items()}


def groups(at: Path) -> set[str]:
    """The names of the groups that a checkpoint has."""
    with _quiet(): return {key.partition("/")[0] for key in dcp.FileSystemReader(at).read_metadata().state_dict_metadata}


def divided(x: Tensor, like: Tensor | None) -> Tensor:
    """A whole tensor in parts as those of another; as it is where that one is whole."""
    if not isinstance(like, DTensor): return x
    return distribute_tensor(x.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def _reason(why: BaseException) -> str:
    """The first thing that went wrong on a rank."""
    failures = getattr(why, "failures", {})
    first = next(iter(failures.values()), None)
    cause = first[0] if isinstance(first, tuple) else first or why
    return getattr(cause, "strerror", None) or (str(cause).strip().splitlines() or [type(cause).__name__])[0]


@contextmanager
def _quiet():
    """Without torch's remarks about a single process and its own types."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
