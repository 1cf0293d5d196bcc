"""Caches that grow: what is appended is written behind what is there, while there is room."""
from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

LEAST = 64                                                        # positions that a first buffer has room for


@dataclass
class Room:
    """The buffer that a cache is the beginning of, and how many positions of it are taken. Of two that go on from one cache only the
    first finds its place free."""
    buffer: Tensor
    taken: int


def grown(past: Tensor, new: Tensor, dim: int) -> Tensor:
    """torch.cat of the two along `dim`, in time that does not grow with `past` but where the buffer has to be doubled."""
    have, more = past.shape[dim], new.shape[dim]
    room: Room | None = getattr(past, "_room", None)
    if room is None or room.taken != have or room.buffer.shape[dim] < have + more:
        shape = list(past.shape)
        shape[dim] = max(LEAST, 2 * (have + more))
        room = Room(past.new_empty(shape), 0)
        room.buffer.narrow(dim, 0, have).copy_(past)
    room.buffer.narrow(dim, have, more).copy_(new)
    room.taken = have + more
    out = room.buffer.narrow(dim, 0, room.taken)
    out._room = room                                              # type: ignore[attr-defined]
    return out
