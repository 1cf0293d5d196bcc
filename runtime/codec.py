"""What the symbols of a model stand for: characters, bytes, names, pieces of words, or only numbers. A run keeps its own, so that a
trained model reads and writes the same whatever becomes of the file it learned from."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, takewhile
from typing import Any, Protocol

from plait.dsl.errors import Span, error

STRANGE = "\N{REPLACEMENT CHARACTER}"                       # what is written for a number that is no symbol
NO_BYTE = 0xFF                                             # it stands in no UTF-8, so decoding gives STRANGE for it


class Codec(Protocol):
    """size: how many symbols there are. end: the symbol that ends a sentence, None where nothing does. encode raises PlaitError for
    what has no symbol; decode fails for no whole number: V may be larger than the data needs, and rows are padded by -1."""
    @property
    def size(self) -> int: ...
    @property
    def end(self) -> int | None: ...
    def encode(self, text: str) -> list[int]: ...
    def decode(self, ids: Sequence[int]) -> str: ...
    def facts(self) -> dict[str, Any]: ...


def written(text: object) -> str:
    """The text that is to be encoded. Raises PlaitError where it is none."""
    if isinstance(text, str): return text
    raise error("E0505", f"a text is encoded, and this is a {type(text).__name__}", help='encode("a text")')


@dataclass(frozen=True)
class Alphabet:
    """The symbols of a text. characters[i] is symbol i; None: symbols are bytes."""
    characters: str | None
    end: int | None = field(default=None, init=False)

    @property
    def size(self) -> int:
        return 256 if self.characters is None else len(self.characters)

    def encode(self, text: str) -> list[int]:
        """Raises PlaitError for a character that the training text does not have."""
        text = written(text)
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
        if self.characters is None: return bytes(i if 0 <= i < 256 else NO_BYTE for i in ids).decode(errors="replace")
        return "".join(self.characters[i] if 0 <= i < self.size else STRANGE for i in ids)

    def facts(self) -> dict[str, Any]:
        return {"kind": "bytes" if self.characters is None else "characters", "size": self.size, "characters": self.characters}


@dataclass(frozen=True)
class Numbers:
    """Symbols 0 to size − 1, written as numbers."""
    size: int
    end: int | None = field(default=None, init=False)

    def encode(self, text: str) -> list[int]:
        """Numbers with spaces between them."""
        try: ids = [int(word) for word in written(text).split()]
        except ValueError:
            raise error("E0613", f"a prompt of this task is numbers with spaces between them, not {text!r}", help='"0 5 7 2 0"') from None
        strange = [i for i in ids if not 0 <= i < self.size]
        if strange: raise error("E0613", f"symbol {strange[0]} is outside the vocabulary, 0 to {self.size - 1}")
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(f" {i}" for i in ids)

    def facts(self) -> dict[str, Any]:
        return {"kind": "numbers", "size": self.size, "characters": None}


@dataclass(frozen=True)
class Words:
    """names[i] is symbol i, written with spaces between: the operators of a task, the notes of a music."""
    names: tuple[str, ...]
    end: int | None = field(default=None, init=False)

    @property
    def size(self) -> int:
        return len(self.names)

    def encode(self, text: str) -> list[int]:
        number = {name: i for i, name in enumerate(self.names)}
        strange = [word for word in written(text).split() if word not in number]
        if strange:
            raise error("E0613", f"`{strange[0]}` is no symbol of this data", help="its symbols: " + " ".join(self.names[:40]))
        return [number[word] for word in text.split()]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(f" {self.names[i]}" if 0 <= i < self.size else f" {STRANGE}" for i in ids)

    def facts(self) -> dict[str, Any]:
        return {"kind": "names", "size": self.size, "characters": None, "names": list(self.names)}


START, END, UNKNOWN, OWN = 0, 1, 2, 3                      # OWN: the first symbol that stands for a piece of text


@dataclass(frozen=True)
class Pair:
    """The symbols of two languages, in one vocabulary: 0 starts and pads, 1 ends a sentence, 2 is what has none, and symbol 3 + i stands
    for pieces[i]: a character, a word, or a piece of a word in the alphabet of bytes that `merges` (first things first) put together."""
    tokenizer: str
    pieces: tuple[str, ...]
    merges: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    end: int | None = field(default=END, init=False)

    @property
    def size(self) -> int:
        return OWN + len(self.pieces)

    @cached_property
    def _number(self) -> dict[str, int]:
        return {piece: OWN + i for i, piece in enumerate(self.pieces)}

    @cached_property
    def _bpe(self) -> Any:
        return byte_pairs(self._number, self.merges)

    def encode(self, text: str) -> list[int]:
        """The symbols of a sentence, without the one that ends it."""
        return self.encoded([written(text)])[0]

    def encoded(self, texts: Sequence[str]) -> list[list[int]]:
        if self.tokenizer == "bpe": return [e.ids for e in self._bpe.encode_batch(list(texts), add_special_tokens=False)]
        return [[self._number.get(piece, UNKNOWN) for piece in split(self.tokenizer, text)] for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """The sentence, up to the symbol that ends it; what has no piece comes out as U+FFFD, a start not at all."""
        known = [i for i in takewhile(lambda i: i != END, ids) if i != START]
        if self.tokenizer == "bpe":
            runs = groupby(known, lambda i: OWN <= i < self.size)
            parts = ((known, list(run)) for known, run in runs)
            return "".join(self._bpe.decode(run, skip_special_tokens=False) if known else STRANGE * len(run) for known, run in parts)
        texts = [self.pieces[i - OWN] if OWN <= i < self.size else STRANGE for i in known]
        return (" " if self.tokenizer == "words" else "").join(texts)

    def facts(self) -> dict[str, Any]:
        return {"kind": "pair", "size": self.size, "characters": None, "tokenizer": self.tokenizer, "pieces": list(self.pieces),
                "merges": [" ".join(pair) for pair in self.merges]}


def split(tokenizer: str, text: str) -> list[str]:
    """A sentence in characters or in words, which have spaces between them."""
    return text.split() if tokenizer == "words" else list(text)


def byte_pairs(number: dict[str, int], merges: Sequence[tuple[str, str]], span: Span | None = None) -> Any:
    """Byte pairs by the tokenizers library: sentences are cut before spaces and punctuation, and bytes are written as letters, so that
    nothing is without a symbol and decoding gives back what was encoded. Sennrich et al. 2016; on bytes, Radford et al. 2019."""
    try:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    except ImportError:
        raise error("E0610", "byte pairs need the package `tokenizers`, which is not installed", span,
                    help="pip install 'plait[translation]', or tokenizer = words") from None
    made = Tokenizer(models.BPE(number, list(merges)) if number else models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


def from_facts(facts: dict[str, Any]) -> Codec:
    """The codec whose `facts` these are. Raises ValueError where they are none's."""
    match facts:
        case {"kind": "characters", "characters": str(characters), "size": int(size)} if len(characters) == size > 0:
            return Alphabet(characters)
        case {"kind": "bytes"}: return Alphabet(None)
        case {"kind": "numbers", "size": int(size)} if size > 0: return Numbers(size)
        case {"kind": "names", "names": list(names), "size": int(size)} if len(names) == size > 0: return Words(tuple(map(str, names)))
        case {"kind": "pair", "tokenizer": "characters" | "words" | "bpe" as kind, "pieces": list(pieces), "merges": list(merges)}:
            return Pair(kind, tuple(map(str, pieces)), tuple(_pair(m) for m in merges))
    raise ValueError("no vocabulary")


def _pair(merge: object) -> tuple[str, str]:
    left, right = str(merge).split(" ")                    # ValueError where there are not two
    return left, right
