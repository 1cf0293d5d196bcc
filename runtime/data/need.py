"""What a model asks of its data."""
from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from plait.dsl.errors import Span
from plait.runtime.codec import Codec


@dataclass(frozen=True)
class Slot:
    """One input of the model. kind: tokens, class or stream. length: None while it is free, and for a class. classes: None while free.
    ahead: the loss reads it by next()."""
    kind: str = "tokens"
    length: int | None = None
    classes: int | None = None
    padded: bool = False
    ahead: bool = False
    name: str = ""
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Need:
    """slots: the inputs in order. codec: that of a run, by which the data is read again; None: the data makes its own."""
    slots: tuple[Slot, ...]
    seed: int
    folder: Path
    codec: Codec | None = None

    @property
    def length(self) -> int:
        """n of the first input; only for sources whose length is never free."""
        assert self.slots[0].length is not None
        return self.slots[0].length

    @property
    def ahead(self) -> bool:
        return self.slots[0].ahead

    @property
    def window(self) -> int:
        """Symbols of the first input that the loss is given."""
        return self.length + self.ahead
