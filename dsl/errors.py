"""Places in a text, what is wrong there, and how a person is told.

Everything a user can get wrong ends as a `PlaitError`, which carries one or more `Diagnostic`s. A diagnostic is data; `render`
writes it with the source line, a caret, the places where its symbols were bound, the numbers and a help line.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from unicodedata import combining, east_asian_width

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

    def __str__(self) -> str:
        """As the command line shows it: place, numbers and help, for those who catch it in Python."""
        return render_all(self)


def error(code: str, message: str, span: Span | None = None, *notes: Note, numbers: str = "", help: str = "") -> PlaitError:
    """The usual way to make a PlaitError with one diagnostic."""
    return PlaitError(Diagnostic(code, message, span, notes, numbers, help))


# ---- how a person is told -------------------------------------------------------------------------------------------------
WIDTH = 100                                  # columns of a source line before it is cut
_COLOURS = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "help": "\x1b[36m", "rule": "\x1b[34m", "off": "\x1b[0m"}


def render(diagnostic: Diagnostic, color: bool = False) -> str:
    """A diagnostic as a person reads it: the sentence, the line with a caret, the lines of its notes, the numbers and the help."""
    def paint(kind: str, text: str) -> str:
        return f"{_COLOURS[kind]}{text}{_COLOURS['off']}" if color else text

    places = ([(diagnostic.span, "^", "")] if diagnostic.span else []) + [(note.span, "-", note.text) for note in diagnostic.notes]
    gutter = max((len(str(span.source.place(span.start)[0])) for span, _, _ in places), default=1)
    lines = [paint(diagnostic.severity, f"{diagnostic.severity}[{diagnostic.code}]") + f": {diagnostic.message}"]
    bar = paint("rule", " " * (gutter + 1) + "|")
    name = None
    for span, mark, text in places:
        row, column = span.source.place(span.start)
        if name != span.source.name:         # a note may stand in another file
            lines.append(paint("rule", " " * gutter + "-->") + f" {span.source.name}:{row}:{column}")
            if name is None:
                lines.append(bar)
            name = span.source.name
        shown, before, under = _cut(span.source.line(row), column - 1, span.end - span.start)
        lines.append((paint("rule", f"{row:>{gutter}} |") + f" {shown}").rstrip())
        kind = diagnostic.severity if mark == "^" else "help"
        lines.append(bar + " " + " " * before + paint(kind, (mark * under + " " + text).rstrip()))
    edge = " " * (gutter + 1)
    if diagnostic.numbers:
        lines.append(f"{edge}= {diagnostic.numbers}")
    if diagnostic.help:
        lines.append(f"{edge}= {paint('help', 'help')}: {diagnostic.help}")
    return "\n".join(lines)


def render_all(problem: PlaitError, color: bool = False) -> str:
    """All diagnostics of a run, with a blank line between them."""
    return "\n\n".join(render(d, color) for d in problem.diagnostics)


def _cut(line: str, column: int, length: int) -> tuple[str, int, int]:
    """The part of a line around a place that fits WIDTH, the columns before the place and the columns it takes. A character may take
    two columns, or none."""
    line = "".join(c if c.isprintable() else " " if c in "\t\r" else "\ufffd" for c in line).rstrip()
    length = max(1, min(length, len(line) - column))
    start = 0
    if _columns(line) > WIDTH and _columns(line[:column + length]) > WIDTH - 1:
        start = max(0, column - WIDTH // 2)
    stop = start
    used = 0
    while stop < len(line) and used + _columns(line[stop]) <= WIDTH - 1:
        used += _columns(line[stop])
        stop += 1
    if stop == len(line) - 1 and _columns(line[start:]) <= WIDTH:
        stop = len(line)
    head, tail = ("…" if start else ""), ("…" if stop < len(line) else "")
    shown = head + line[start:stop] + tail
    return shown, _columns(head + line[start:column]), max(1, _columns(line[column:min(column + length, stop)]))


def _columns(text: str) -> int:
    """Columns of a terminal: two for a wide character, none for a combining one."""
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)
