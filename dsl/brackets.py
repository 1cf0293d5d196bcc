"""Brackets and line ends, before the parser sees them.

A file whose brackets match is taken as it is, however it is indented. Otherwise the indentation says which bracket was never closed:
that is reported where it was opened, and closed where its indentation ends, so that the rest of the file can be read.
"""

from __future__ import annotations

from plait.dsl.errors import Note, Span
from plait.dsl.lexer import Diagnostics, Token

OPENERS = {"LBRACE": "RBRACE", "LPAR": "RPAR", "LSQB": "RSQB"}
SIGN = {"LBRACE": "{", "RBRACE": "}", "LPAR": "(", "RPAR": ")", "LSQB": "[", "RSQB": "]"}
CLOSERS = {close: open for open, close in OPENERS.items()}
DEEPEST = 100  # brackets around a token: every walk over a tree may recurse
ITEMS = {"MODEL", "BLOCK", "TRAIN", "COMPARE", "USE"}  # at the start of a line, these stand in nothing
STARTERS = ITEMS | {"DIMS", "LET", "SHARE", "INPUT", "OUTPUT", "REPEAT", "EVERY", "REQUIRE"}


def settle(tokens: list[Token], out: Diagnostics) -> list[Token]:
    """Comments dropped, brackets matched, newlines and `;` turned into END, depths filled in.
    Nothing is left of a file that is nested too deep."""
    tokens = [t for t in tokens if t.type != "COMMENT"]
    deep = _too_deep(tokens)
    if deep:
        out.add(
            "E0106", f"brackets stand at most {DEEPEST} deep", deep.start, deep.end, help="a `block` gives a part of a model a name"
        )
        return []
    if not _match(tokens):
        tokens = _round(tokens, out)
        if not _match(tokens):
            tokens = _braces(tokens, out)
    return _ends(tokens)


def _too_deep(tokens: list[Token]) -> Token | None:
    depth = 0
    for token in tokens:
        depth += (token.type in OPENERS) - (token.type in CLOSERS)
        if depth > DEEPEST:
            return token
    return None


def _starts(tokens: list[Token], i: int) -> bool:
    """Whether a token is the first of its line."""
    return tokens[i].indent >= 0


def _round(tokens: list[Token], out: Diagnostics) -> list[Token]:
    """Matches ( ) and [ ]: one that meets a brace, a `;` or a statement's first word was never closed. It then ends with its line."""
    result: list[Token] = []
    open_: list[int] = []  # places in `result`

    def give_up() -> None:
        """Closes every open one at the end of the line where the first stands."""
        for place in open_:
            sign = result[place]
            if not _swallowed(result, place):
                out.add(
                    "E0103", f"this `{sign.text}` is never closed", sign.start, sign.end, help=_closing(result, place, out.source.text)
                )
        at = open_[0]
        while at < len(result) and result[at].type != "NEWLINE":
            at += 1
        inside = [p for p in open_ if p < at]
        last = result[at - 1]
        result[at:at] = [Token(OPENERS[result[p].type], "", last.end, last.end, invented=True) for p in reversed(inside)]
        for place in sorted((p + len(inside) for p in open_ if p >= at), reverse=True):
            del result[place]  # opened on a later line: the message is enough
        open_.clear()

    for i, token in enumerate(tokens):
        if open_ and (token.type in ("LBRACE", "RBRACE", "SEMICOLON") or _word_starts(tokens, i)):
            give_up()
        if token.type in ("LPAR", "LSQB"):
            open_.append(len(result))
        elif token.type in ("RPAR", "RSQB"):
            if not open_:
                out.add("E0104", f"this `{token.text}` closes nothing", token.start, token.end, help="take it away, or open it before")
                continue
            outer = [p for p in open_ if result[p].type == CLOSERS[token.type]]
            while outer and result[open_[-1]].type != CLOSERS[token.type]:
                sign = result[open_.pop()]  # `([1, 2)`: the inner one is closed before the outer one
                out.add(
                    "E0103",
                    f"this `{sign.text}` is never closed",
                    sign.start,
                    sign.end,
                    help=f"add `{SIGN[OPENERS[sign.type]]}` before `{token.text}`",
                )
                result.append(Token(OPENERS[sign.type], "", token.start, token.start, invented=True))
            opener = result[open_.pop()]
            if CLOSERS[token.type] != opener.type:
                right = SIGN[OPENERS[opener.type]]
                out.add(
                    "E0104",
                    f"`{opener.text}` is closed by `{token.text}`",
                    token.start,
                    token.end,
                    Note(Span(opener.start, opener.end, out.source), "opened here"),
                    help=f"`{right}`",
                )
                token = Token(OPENERS[opener.type], right, token.start, token.end, invented=True)
        result.append(token)
        if out.full:
            return result
    if open_:
        give_up()
    return result


def _word_starts(tokens: list[Token], i: int) -> bool:
    """A keyword at the start of a line begins a statement, unless it names an argument (`tokens = 100`)."""
    following = tokens[i + 1].type if i + 1 < len(tokens) else "NEWLINE"
    return tokens[i].type in STARTERS and _starts(tokens, i) and following not in ("EQUAL", "COMMA")


def _swallowed(tokens: list[Token], place: int) -> bool:
    """Whether an open quote behind a bracket took the rest of its line."""
    while place < len(tokens) and tokens[place].type != "NEWLINE":
        if tokens[place].type == "TEXT" and tokens[place].invented:
            return True
        place += 1
    return False


def _closing(tokens: list[Token], place: int, text: str) -> str:
    """The statement of a bracket as far as its line goes, closed."""
    breaks = ("NEWLINE", "SEMICOLON", "LBRACE", "RBRACE")
    start = end = place
    while start and tokens[start - 1].type not in breaks:
        start -= 1
    while end + 1 < len(tokens) and tokens[end + 1].type not in breaks:
        end += 1
    closers: list[str] = []
    for token in tokens[start : end + 1]:
        if token.type in ("LPAR", "LSQB"):
            closers.append(SIGN[OPENERS[token.type]])
        elif token.type in ("RPAR", "RSQB") and closers:
            closers.pop()
    written = text[tokens[start].start : tokens[end].end].rstrip(", ")
    return (
        f"`{written}{''.join(reversed(closers))}`" if len(written) < 60 else f"add `{SIGN[OPENERS[tokens[place].type]]}` where it ends"
    )


def _match(tokens: list[Token]) -> bool:
    """Whether every bracket has its partner, none in ( ) is a brace, and no item starts inside another."""
    open_: list[str] = []
    for i, token in enumerate(tokens):
        if token.type in OPENERS:
            if token.type == "LBRACE" and open_ and open_[-1] != "LBRACE":
                return False
            open_.append(token.type)
        elif token.type in CLOSERS:
            if not open_ or open_.pop() != CLOSERS[token.type]:
                return False
        elif open_ and (token.type == "SEMICOLON" and open_[-1] != "LBRACE" or _item_starts(tokens, i)):
            return False
    return not open_


def _item_starts(tokens: list[Token], i: int) -> bool:
    following = tokens[i + 1].type if i + 1 < len(tokens) else "NEWLINE"
    return tokens[i].type in ITEMS and _starts(tokens, i) and following in ("NAME", "TEXT", "LBRACE")


def _braces(tokens: list[Token], out: Diagnostics) -> list[Token]:
    """Matches { } by indentation, with a message for each that has no partner."""
    result: list[Token] = []
    open_: list[tuple[int, int]] = []  # place in `result`, indentation of its line
    line = 0  # indentation of the line being read

    def close() -> None:
        """The innermost was never closed: it is closed before the first line that stands no deeper than its own."""
        place, indent = open_.pop()
        sign = result[place]
        out.add("E0103", "this `{` is never closed", sign.start, sign.end, help="add `}` " + _where(result, place, indent))
        at = _dedent(result, place, indent)
        last = result[at - 1]
        result[at:at] = [
            Token("RBRACE", "", last.end, last.end, invented=True),
            Token("NEWLINE", "", last.end, last.end, invented=True),
        ]

    for i, token in enumerate(tokens):
        if token.indent >= 0:
            line = token.indent
        if token.type == "LBRACE":
            open_.append((len(result), line))
        elif token.type == "RBRACE":
            if token.indent >= 0:  # at the start of a line: it closes what its indentation says, if that is open
                while len(open_) > 1 and open_[-1][1] > line and any(indent == line for _, indent in open_[:-1]) and not out.full:
                    close()
            if not open_:
                out.add("E0104", "this `}` closes nothing", token.start, token.end, help="take it away, or open it with `{` before")
                continue
            open_.pop()
        elif open_ and _item_starts(tokens, i):
            while open_ and not out.full:
                close()
        result.append(token)
        if out.full:
            return result
    while open_ and not out.full:
        close()
    return result


def _dedent(tokens: list[Token], place: int, indent: int) -> int:
    """Where a block that opened at `place` ends by its indentation: before the newline in front of a line that is no deeper."""
    at = place + 1
    while at < len(tokens) and tokens[at].type != "NEWLINE":
        at += 1
    while at < len(tokens):
        if tokens[at].type not in ("NEWLINE", "RBRACE") and 0 <= tokens[at].indent <= indent:
            break
        at += 1
    while at - 1 > place and tokens[at - 1].type == "NEWLINE":
        at -= 1
    return at


def _where(tokens: list[Token], place: int, indent: int) -> str:
    at = _dedent(tokens, place, indent)
    while at < len(tokens) and tokens[at].type == "NEWLINE":
        at += 1
    return f"before `{tokens[at].text}`" if at < len(tokens) and tokens[at].text else "where its block ends"


def _ends(tokens: list[Token]) -> list[Token]:
    """Newlines and `;` outside ( ) and [ ] become one END; there is none after `{`, before `{` and `}`, and at both ends of the file."""
    result: list[Token] = []
    kinds: list[str] = []
    pending: Token | None = None
    for token in tokens:
        if token.type in ("NEWLINE", "SEMICOLON"):
            if not (kinds and kinds[-1] != "LBRACE"):
                pending = pending or token
            continue
        if pending and result and result[-1].type != "LBRACE" and token.type not in ("LBRACE", "RBRACE"):
            result.append(Token("END", pending.text, pending.start, pending.end, None, -1, len(kinds), pending.invented))
        pending = None
        token.depth = len(kinds)
        if token.type in OPENERS:
            kinds.append(token.type)
        elif token.type in CLOSERS and kinds:
            kinds.pop()
        result.append(token)
    return result
