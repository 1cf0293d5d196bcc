"""Places in a text, what is wrong there, and how a person is told.

Everything a user can get wrong ends as a `PlaitError`, which carries one or more `Diagnostic`s. A diagnostic is data; `render`
writes it with the source line, a caret, the places where its symbols were bound, the numbers and a help line.
"""
from __future__ import annotations

from dataclasses import dataclass, field

LIMIT = 20                                   # diagnostics reported in one run


@dataclass(frozen=True)
class Source:
    """A text and the name a person knows it by (a path, or `--set`)."""
    name: str
    text: str = field(repr=False)

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column of a character, both from 1."""
        before = self.text[:offset]
        return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1

    def line(self, number: int) -> str:
        """The text of a line, from 1, without its line end."""
        lines = self.text.split("\n")
        return lines[number - 1] if 0 < number <= len(lines) else ""


@dataclass(frozen=True)
class Span:
    """Characters [start, end) of a source."""
    start: int
    end: int
    source: Source = field(repr=False, compare=False)


@dataclass(frozen=True)
class Note:
    """A further place that matters: where a symbol was bound, what was opened."""
    span: Span
    text: str = "set here"


@dataclass(frozen=True)
class Diagnostic:
    """One thing that is wrong. `numbers` is the arithmetic (`d / h = 1024 / 12 leaves 4`), `help` what to type instead."""
    code: str                                # E0301, W0401, …
    message: str
    span: Span | None = None
    notes: tuple[Note, ...] = ()
    numbers: str = ""
    help: str = ""

    @property
    def severity(self) -> str:
        return "warning" if self.code.startswith("W") else "error"


class PlaitError(Exception):
    """What a user got wrong. Holds every independent diagnostic of a run."""

    def __init__(self, *diagnostics: Diagnostic):
        super().__init__("\n".join(d.message for d in diagnostics))
        self.diagnostics = diagnostics


def error(code: str, message: str, span: Span | None = None, *notes: Note, numbers: str = "", help: str = "") -> PlaitError:
    """The usual way to make a PlaitError with one diagnostic."""
    return PlaitError(Diagnostic(code, message, span, notes, numbers, help))
