"""Where an expansion stands, and what it says of a stream there."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from plait.compiler.layer import Stream
from plait.compiler.names import Names


class Poisoned(Exception):
    """The stream is unknown from here on: what depends on it is not looked at."""


@dataclass(frozen=True)
class Place:
    """Where an expansion stands: its names, its streams, and its path in the spec."""
    names: Names
    streams: Mapping[str, Stream]
    at: str
    blocks: tuple[str, ...] = ()                               # the blocks being expanded: one cannot contain itself

    def into(self, step: object) -> Place:
        return replace(self, at=f"{self.at}/{step}")


def shape(x: Stream) -> str:
    """[n, d] as sizes, without the batch."""
    axes = sorted((a for a in x.value.axes if a.role != "batch"), key=lambda a: a.role != "sequence")
    return f"[{', '.join(str(a.size) for a in axes)}]"
