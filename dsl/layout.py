"""`plait fmt`: a file laid out anew. It works on tokens, so every comment stays, and numbers keep their text.

Owned here: indentation, the spaces between tokens, blank lines (one at most in a row, none at the ends of a block). Kept: which
statements share a line, one-line blocks, line breaks inside ( ) and [ ].
"""

from __future__ import annotations

from plait.dsl.brackets import CLOSERS, OPENERS
from plait.dsl.errors import LIMIT, PlaitError, Source, error
from plait.dsl.lexer import Diagnostics, Token, scan
from plait.dsl.parser import parse

INDENT = "  "
_OPERANDS = {"NAME", "NUMBER", "BYTES", "TEXT", "RPAR", "RSQB", "STEPS", "TOKENS", "SEQUENCES", "EPOCHS", "MINUTES"}


def format(text: str, name: str = "<text>") -> str:
    """The same file in the one layout. Raises PlaitError where the text does not parse."""
    spec = parse(text, name)
    tokens = _tokens(text, name)
    result = _lay_out(tokens)
    try:
        kept = parse(result, name) == spec and _comments(_tokens(result, name)) == _comments(tokens)
    except PlaitError:
        kept = False
    if not kept:
        raise error(
            "E0999", f"the new layout of {name} would not mean the same, so the file stays as it is; this is a mistake of plait"
        )
    return result


def _tokens(text: str, name: str) -> list[Token]:
    source = Source(name, text)
    return scan(source, Diagnostics(source, LIMIT))


def _comments(tokens: list[Token]) -> list[str]:
    return [t.text.rstrip() for t in tokens if t.type == "COMMENT"]


def _broken(tokens: list[Token]) -> set[int]:
    """The brackets, by place, that stand on several lines."""
    result: set[int] = set()
    open_: list[int] = []
    for i, token in enumerate(tokens):
        if token.type == "NEWLINE":
            result.update(open_)
        elif token.type in OPENERS:
            open_.append(i)
        elif token.type in CLOSERS:
            start = open_.pop()
            if start in result:
                result.add(i)
    return result


class _Page:
    """Lines, the last of which is being written."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.line = ""

    def write(self, text: str, space: str, depth: int) -> None:
        self.line += (space if self.line else INDENT * depth) + text

    def end(self, blank: bool = False) -> None:
        """Ends the line; `blank`: with an empty one behind it, if it is wanted there."""
        if self.line:
            self.lines.append(self.line)
            self.line = ""
        if blank and self.lines and self.lines[-1] and not self.lines[-1].split("#")[0].rstrip().endswith(("{", "(", "[")):
            self.lines.append("")

    def tighten(self) -> None:
        """No empty line stands before a closing bracket."""
        if not self.line and self.lines and not self.lines[-1]:
            self.lines.pop()


def _lay_out(tokens: list[Token]) -> str:
    broken = _broken(tokens)
    page = _Page()
    depth = 0  # of brackets that stand on several lines
    before: Token | None = None  # on the same line
    unary = False
    for i, token in enumerate(tokens):
        after = _next_solid(tokens, i)
        if token.type == "NEWLINE":
            if after is not None and after.type == "LBRACE" and before is not None and before.type != "COMMENT":
                continue  # the brace joins the line of its head
            if before is None or before.type != "NEWLINE":
                page.end()
            else:
                page.end(blank=True)
            before = token
            continue
        if token.type == "SEMICOLON":
            following = tokens[i + 1].type if i + 1 < len(tokens) else "NEWLINE"
            if (
                page.line
                and following not in ("NEWLINE", "RBRACE", "COMMENT", "SEMICOLON", "LBRACE")
                and not page.line.endswith(("{", ";"))
            ):
                page.line += ";"
                before = token
            continue
        if token.type in CLOSERS and i in broken:
            depth -= 1
            if token.type == "RBRACE":
                page.end()
            page.tighten()
        comment = token.type == "COMMENT"
        page.write(token.text.rstrip(), "  " if comment else _space(before, token, unary), depth)
        unary = token.type == "MINUS" and (before is None or before.type not in _OPERANDS)
        before = token
        if token.type in OPENERS and i in broken:
            depth += 1
            following = tokens[i + 1].type if i + 1 < len(tokens) else "NEWLINE"
            if token.type == "LBRACE" and following not in ("NEWLINE", "COMMENT"):
                page.end()
    page.end()
    while page.lines and not page.lines[-1]:
        page.lines.pop()
    return "\n".join(page.lines) + "\n"


def _next_solid(tokens: list[Token], i: int) -> Token | None:
    """The next token that is no line end."""
    while i < len(tokens) and tokens[i].type == "NEWLINE":
        i += 1
    return tokens[i] if i < len(tokens) else None


def _space(before: Token | None, token: Token, unary: bool) -> str:
    """What stands between two tokens of a line."""
    if (
        before is None
        or unary
        or before.type in ("LPAR", "LSQB", "POWER", "DOT")
        or token.type in ("RPAR", "RSQB", "COMMA", "COLON", "POWER", "DOT")
    ):
        return ""
    if before.type == "LBRACE" and token.type == "RBRACE":
        return ""
    if token.type == "LPAR" and before.type == "NAME":
        return ""
    if token.type == "LSQB" and before.type in ("TOKENS", "STREAM"):
        return ""
    return " "
