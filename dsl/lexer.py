"""Text to tokens. Loose on purpose: what other languages write is read as what it means here, with one message for each sign."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from plait.dsl.errors import Diagnostic, Source, Span
from plait.dsl.numerals import BadNumber, both, read
from plait.dsl.spec import UNITS

KEYWORDS = frozenset(
    "plait dims require let share block use model input output tokens stream class of padded repeat as shared train every compare "
    "and or steps sequences epochs minutes".split()
)
SIGNS = {
    "{": "LBRACE",
    "}": "RBRACE",
    "(": "LPAR",
    ")": "RPAR",
    "[": "LSQB",
    "]": "RSQB",
    ",": "COMMA",
    ":": "COLON",
    ".": "DOT",
    "=": "EQUAL",
    "<=": "LE",
    "==": "COMPARISON",
    "!=": "COMPARISON",
    "<": "COMPARISON",
    ">": "COMPARISON",
    ">=": "COMPARISON",
    "+": "PLUS",
    "-": "MINUS",
    "*": "TIMES",
    "/": "TIMES",
    "%": "TIMES",
    "^": "POWER",
    ";": "SEMICOLON",
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
MOST_CHARACTERS = 100_000  # of a file: 2,000 lines and more, still read in about a second
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd\ud800-\udfff]")
_TOKEN = re.compile(
    r"""
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
""",
    re.VERBOSE,
)
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}

_OPENS = re.compile(r"[ \t]*\(")


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
    invented: bool = False  # not in the text: put there to go on after a mistake


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


def scan(source: Source, out: Diagnostics, sizes: bool = False) -> list[Token]:
    """All tokens, with comments and newlines. `sizes`: bytes are refused everywhere, not only in `dims { … }`."""
    text, at, line_start = source.text, 0, 0
    tokens: list[Token] = []
    skipped = False  # a sign that means nothing: what follows from it is not reported
    braces: list[bool] = []  # of the open `{`: whether each belongs to `dims`
    while at < len(text) and not out.full:
        match = _TOKEN.match(text, at)
        assert match is not None and match.lastgroup is not None
        kind, word, start, at = match.lastgroup, match.group(), match.start(), match.end()
        if kind == "SPACE":
            continue
        fresh = not tokens or tokens[-1].type == "NEWLINE"
        token = Token(kind, word, start, at, None, _width(text, line_start, start) if fresh else -1)
        if kind == "NEWLINE":
            line_start = at
        elif kind == "NAME":
            called = word in UNITS and _OPENS.match(text, at)  # `sequences("FILE")` is data, `8 sequences` an amount
            token.type = word.upper() if word in KEYWORDS and not called else "NAME"
        elif kind == "SIGN":
            token.type = SIGNS[word]
            if word == "{":
                braces.append(bool(tokens) and tokens[-1].type == "DIMS")
            elif word == "}" and braces:
                braces.pop()
        elif kind == "NUMBER":
            _number(token, sizes or (bool(braces) and braces[-1]), out)
        elif kind == "TEXT":
            token.value = _unescape(word[1:-1])
        elif kind == "QUOTED":
            token.type, token.value = "TEXT", word[1:-1]
            what = "single quotes" if word[0] == "'" else "curly quotes"
            out.once(what, "E0102", f"a text stands in straight double quotes, not in {what}", start, at, f'`"{_short(word[1:-1])}"`')
        elif kind == "SLASHES":
            at = _slashes(token, tokens, out)
        elif kind == "FOREIGN":
            meant, message, help = FOREIGN[word]
            out.once(word, "E0102", f"`{word}`: {message}", start, at, help)
            if meant is None:
                continue
            token.type, token.text = SIGNS.get(meant) or meant.upper(), meant
        elif word == '"':
            at = _open_quote(token, text, out)
        elif kind == "OTHER":
            _other(word, start, out)
            skipped = True
            continue
        token.invented, skipped = token.invented or skipped and kind != "NEWLINE", False
        tokens.append(token)
    return tokens


def _width(text: str, line_start: int, start: int) -> int:
    """The column of the first sign of a line; a tab reaches to the next multiple of four."""
    column = 0
    for sign in text[line_start:start]:
        column = (column // 4 + 1) * 4 if sign == "\t" else column + 1
    return column


def _number(token: Token, sizes: bool, out: Diagnostics) -> None:
    """Fills in the value. A bad number is reported and counts as 1, so that nothing follows from it."""
    token.value = 1
    try:
        value, in_bytes = read(token.text)
        if in_bytes and sizes:
            raise BadNumber("", bytes=True)
        token.type, token.value = ("BYTES" if in_bytes else "NUMBER"), value
    except BadNumber as bad:
        if sizes and bad.bytes:
            digits = token.text.rstrip("kKmMgGibB")
            letter = token.text[len(digits) : len(digits) + 1].upper()
            help = both(digits, letter) if letter in "KMG" and digits.replace(".", "").isdigit() else ""
            out.add("E0207", f"`{token.text}`: a length has no bytes", token.start, token.end, help=help)
        else:
            out.add("E0101", bad.message, token.start, token.end, help=bad.help)


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m.group(1), m.group()), text)


def _slashes(token: Token, before: list[Token], out: Diagnostics) -> int:
    """`//` and `/* … */`. A `//` between two operands is another language's division, any other a comment. Returns where to go on."""
    ended = not before or before[-1].type in ("NEWLINE", "SEMICOLON", "LBRACE", "RBRACE", "COMMENT")
    if token.text.startswith("//") and not ended and re.match(r"//\s*[\w(]+\s*($|[;,)}\]#+*%-])", token.text):
        out.once("//", "E0102", "`//`: a quotient is written `/`; sizes always divide exactly", token.start, token.start + 2, "`d / h`")
        token.type, token.text, token.end = "TIMES", "/", token.start + 2
        return token.end
    sign = token.text[:2]
    out.once(
        sign,
        "E0102",
        f"`{sign}`: a comment starts with `#`",
        token.start,
        token.start + 2,
        f"`# {_short(token.text[2:].strip(' */'))}`",
    )
    token.type = "COMMENT"
    return token.end


def _open_quote(token: Token, text: str, out: Diagnostics) -> int:
    """A text that its line does not close: it is read to the end of the line."""
    stop = text.find("\n", token.start)
    stop = len(text) if stop < 0 else stop
    out.add(
        "E0103",
        'this `"` is never closed on its line',
        token.start,
        token.start + 1,
        help='a text ends with `"` on the line it started on',
    )
    token.type, token.text, token.end, token.invented = "TEXT", text[token.start : stop], stop, True
    token.value = token.text[1:].rstrip(")}] ")
    return stop


def _other(sign: str, start: int, out: Diagnostics) -> None:
    """A character that means nothing."""
    if sign.isalpha():
        message, help = f"`{sign}` cannot stand in a name", "names are written with a to z, A to Z, digits and `_`"
    elif sign in "'‘’“”„`":
        message, help = (
            f"{'a backtick' if sign == '`' else f'`{sign}`'} is no quote of this language",
            'a text stands in straight double quotes, as in `"enwik8"`',
        )
    else:
        message, help = (
            f"`{sign}` means nothing here" if sign.isprintable() else "a character that cannot be seen means nothing here",
            "",
        )
    out.once(sign, "E0102", message, start, start + 1, help)


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"
