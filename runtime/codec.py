"""What the symbols of a model stand for: characters, bytes, or only numbers. A run keeps its own, so that a trained model reads and
writes the same whatever becomes of the file it learned from."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from plait.dsl.errors import error


class Codec(Protocol):
    """size: how many symbols there are. encode raises PlaitError for what has no symbol; decode never fails: V may be larger than
    the data needs."""
    @property
    def size(self) -> int: ...
    def encode(self, text: str) -> list[int]: ...
    def decode(self, ids: Sequence[int]) -> str: ...
    def facts(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Alphabet:
    """The symbols of a text. characters[i] is symbol i; None: symbols are bytes."""
    characters: str | None

    @property
    def size(self) -> int:
        return 256 if self.characters is None else len(self.characters)

    def encode(self, text: str) -> list[int]:
        """Raises PlaitError for a character that the training text does not have."""
        if self.characters is None: return list(text.encode(errors="surrogateescape"))
        number = {c: i for i, c in enumerate(self.characters)}
        strange = sorted(set(text) - number.keys())
        if strange: raise self.unknown(strange)
        return [number[c] for c in text]

    def unknown(self, strange: Sequence[str]):
        """The mistake of a text with characters that are not here."""
        return error("E0613", f"the text has {', '.join(repr(c) for c in strange[:5])}, which the model's vocabulary does not have",
                     help=f"its {self.size} characters: {self.characters!r}")

    def decode(self, ids: Sequence[int]) -> str:
        """Symbols beyond the alphabet come out as U+FFFD."""
        if self.characters is None: return bytes(i if i < 256 else 63 for i in ids).decode(errors="replace")
        return "".join(self.characters[i] if i < self.size else "\N{REPLACEMENT CHARACTER}" for i in ids)

    def facts(self) -> dict[str, Any]:
        return {"kind": "bytes" if self.characters is None else "characters", "size": self.size, "characters": self.characters}


@dataclass(frozen=True)
class Numbers:
    """Symbols 0 to size − 1 of a task, written as numbers."""
    size: int

    def encode(self, text: str) -> list[int]:
        """Numbers with spaces between them."""
        try: ids = [int(word) for word in text.split()]
        except ValueError:
            raise error("E0613", f"a prompt of this task is numbers with spaces between them, not {text!r}", help='"0 5 7 2 0"') from None
        strange = [i for i in ids if not 0 <= i < self.size]
        if strange: raise error("E0613", f"symbol {strange[0]} is outside the vocabulary, 0 to {self.size - 1}")
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(f" {i}" for i in ids)

    def facts(self) -> dict[str, Any]:
        return {"kind": "numbers", "size": self.size, "characters": None}


def from_facts(facts: dict[str, Any]) -> Codec:
    """The codec whose `facts` these are. Raises ValueError where they are none's."""
    match facts:
        case {"kind": "characters", "characters": str(characters), "size": int(size)} if len(characters) == size > 0:
            return Alphabet(characters)
        case {"kind": "bytes"}: return Alphabet(None)
        case {"kind": "numbers", "size": int(size)} if size > 0: return Numbers(size)
    raise ValueError("no vocabulary")
