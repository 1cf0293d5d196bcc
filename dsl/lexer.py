"""Text to tokens. Loose on purpose: what other languages write is read as what it means here, with one message for each sign."""
from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

from plait.dsl.errors import Diagnostic, Source, Span
from plait.dsl.numerals import BadNumber, both, read

KEYWORDS = frozenset(
    "plait dims require let share block use model input output tokens stream class of padded repeat as shared train every compare "
    "and or steps sequences epochs minutes".split())
SIGNS = {
    "{": "LBRACE", "}": "RBRACE", "(": "LPAR", ")": "RPAR", "[": "LSQB", "]": "RSQB", ",": "COMMA", ":": "COLON", ".": "DOT",
    "=": "EQUAL", "<=": "LE", "==": "COMPARISON", "!=": "COMPARISON", "<": "COMPARISON", ">": "COMPARISON", ">=": "COMPARISON",
    "+": "PLUS", "-": "MINUS", "*": "TIMES", "/": "TIMES", "%": "TIMES", "^": "POWER", ";": "SEMICOLON",
}
# What another language writes → what it stands for here (None: nothing), and the help.
FOREIGN: dict[str, tuple[str | None, str, str]] = {
    "**": ("^", "a power is written `^`", "`d ^ 2`"),
    "->": (";", "layers compose by order, without arrows", "one layer on each line, or `;` between them"),
    "|>": (";", "layers compose by order, without arrows", "one layer on each line, or `;` between them"),
    ">>": (";", "layers compose by order, without arrows", "one layer on each line, or `;` between them"),
    "=>": (";", "layers compose by order, without arrows", "one layer on each line, or `;` between them"),
    ":=": ("=", "a value is set with `=`", "`d = 512`"),
    "&&": ("and", "conditions are joined with the word `and`", "`require n % c == 0 and d % h == 0`"),
    "||": ("or", "conditions are joined with the word `or`", "`require n % c == 0 or n < c`"),
    "×": ("*", "a product is written `*`", "`4 * d`"),
    "·": ("*", "a product is written `*`", "`4 * d`"),
    "÷": ("/", "a quotient is written `/`", "`d / h`"),
    "−": ("-", "a minus is the plain sign `-`", "`n - 1`"),
    "–": ("-", "a minus is the plain sign `-`", "`n - 1`"),
    "≤": ("<=", "at most is written `<=`", "`n <= 512`"),
    "≥": (">=", "at least is written `>=`", "`require n >= c`"),
    "≠": ("!=", "unequal is written `!=`", "`require n != c`"),
    "→": (";", "layers compose by order, without arrows", "one layer on each line, or `;` between them"),
    "…": (None, "`…` stands for something that is left out", "write it in full"),
    "...": (None, "`...` stands for something that is left out", "write it in full"),
}
MOST_CHARACTERS = 100_000                    # of a file: 2,000 lines and more, still read in about a second
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd\ud800-\udfff]")
_TOKEN = re.compile(r"""
    (?P<SPACE>[^\S\n]+|\ufeff)
  | (?P<NEWLINE>\n)
  | (?P<COMMENT>\#[^\n]*)
  | (?P<NAME>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<NUMBER>[0-9][A-Za-z0-9_.]*(?:(?<=[eE])[+-][0-9]+)?)
  | (?P<TEXT>"(?:[^"\\\n]|\\[^\n])*")
  | (?P<QUOTED>'[^'\n]*'|[“”„][^“”"\n]*[“”"]|[‘’][^‘’'\n]*[‘’'])
  | (?P<SLASHES>//[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/)?)
  | (?P<FOREIGN>\*\*|->|\|>|>>|=>|:=|&&|\|\||\.\.\.|[×·÷−–≤≥≠→…])
  | (?P<SIGN><=|==|!=|>=|[{}()\[\],:.=<>+\-*/%^;])
  | (?P<OTHER>.)
""", re.VERBOSE)
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}


@dataclass(slots=True)
class Token:
    """`type` is a terminal of the grammar, or NEWLINE, SEMICOLON, COMMENT before the bracket pass. `value` is the exact number or the
    string's content. `indent` is the column of the first token of a line, -1 behind it. `depth`: how many brackets stand open around it."""
    type: str
    text: str
    start: int
    end: int
    value: Any = None
    indent: int = -1
    depth: int = 0
    invented: bool = False                   # not in the text: put there to go on after a mistake


class Diagnostics:
    """What was found so far, and which explanations were already given."""

    def __init__(self, source: Source, limit: int):
        self.source, self.limit = source, limit
        self.found: list[Diagnostic] = []
        self.told: set[str] = set()

    @property
    def full(self) -> bool:
        return len(self.found) >= self.limit

    def add(self, code: str, message: str, start: int, end: int, *notes: Any, numbers: str = "", help: str = "") -> None:
        self.found.append(Diagnostic(code, message, Span(start, end, self.source), tuple(notes), numbers, help))

    def once(self, key: str, code: str, message: str, start: int, end: int, help: str = "") -> None:
        """Each foreign sign is explained where it first occurs."""
        if key not in self.told:
            self.told.add(key)
            self.add(code, message, start, end, help=help)


def unfit(text: str) -> tuple[str, int] | None:
    """Why a text is refused before it is read, and where: it holds control characters, or it is very long."""
    bad = _CONTROL.search(text)
    if bad:
        return "this is not a text file: it holds characters that no text has", bad.start()
    if len(text) > MOST_CHARACTERS:
        return f"a file has at most {MOST_CHARACTERS:,} characters; this one has {len(text):,}", 0
    return None


def scan(source: Source, out: Diagnostics) -> list[Token]:
    """All tokens, with comments and newlines."""
    text = source.text
    tokens: list[Token] = []
    line_start, first = 0, True
    in_dims = _dims_regions(text)
    for match in _TOKEN.finditer(text):
        kind, start, end = match.lastgroup, match.start(), match.end()
        word = match.group()
        if kind == "SPACE":
            continue
        indent = _width(text, line_start, start) if first else -1
        first = kind == "NEWLINE"
        value: Any = None
        if kind == "NEWLINE":
            line_start = end
        elif kind == "NAME":
            kind = word.upper() if word in KEYWORDS else "NAME"
        elif kind == "SIGN":
            kind = SIGNS[word]
        elif kind == "NUMBER":
            kind, value = _number(word, start, end, in_dims, out)
        elif kind == "TEXT":
            value = _unescape(word[1:-1])
        elif kind == "QUOTED":
            kind, value = "TEXT", word[1:-1]
            key = "'" if word[0] == "'" else "“”"
            what = "single quotes" if key == "'" else "curly quotes"
            out.once(key, "E0102", f"text stands in straight double quotes, not in {what}", start, end, help=f'`"{_short(value)}"`')
        elif kind == "SLASHES":
            kind, word, end = _slashes(word, start, tokens, out)
            if kind == "SIGN":               # a `//` between two operands: the rest of the line is read again
                tokens.append(Token("TIMES", "/", start, end, None, indent))
                tokens += _rest(source, end, match.end(), out)
                continue
            if kind == "COMMENT" and "\n" in word:
                line_start = start + word.rfind("\n") + 1
        elif kind == "FOREIGN":
            meant, message, help = FOREIGN[word]
            out.once(word, "E0102", f"`{word}`: {message}", start, end, help=help)
            if meant is None:
                continue
            kind = SIGNS.get(meant) or meant.upper()
            word = meant
        elif kind == "OTHER":
            if word == '"':
                out.add("E0103", 'this `"` is never closed on its line', start, end, help='a text ends with `"` on the same line')
                stop = text.find("\n", start)
                stop = len(text) if stop < 0 else stop
                tokens.append(Token("TEXT", text[start:stop], start, stop, text[start + 1:stop].rstrip(), indent, 0, True))
                rest = scan_from(source, stop, out)
                return tokens + rest
            _other(word, start, out)
            continue
        tokens.append(Token(str(kind), word, start, end, value, indent))
    return tokens
