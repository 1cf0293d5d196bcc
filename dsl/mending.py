"""What to say about a token that does not fit, and how to go on.

Each mending tries one change that makes the rest of the line fit: a sign added, dropped or exchanged. Where none does, the sentence
names what the place takes, and the statement is given up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.dsl.brackets import STARTERS
from plait.dsl.lexer import Token
from plait.dsl.wording import BLOCKS, EXAMPLES, HOME, OPERATORS, PLACES, UNITS, WORDS, after, found, words

if TYPE_CHECKING:
    from plait.dsl.parser import Parser

def mend(parser: Parser) -> bool:
    """Reports the current token. True where the tokens were changed so that the walk can go on, False where the statement is lost."""
    token, before = parser.tokens[parser.at], parser.tokens[parser.at - 1] if parser.at else None
    if token.invented or before is not None and before.invented and before.type not in ("END", "NUMBER"):
        return False  # what follows from a mistake that was reported before
    for attempt in (_reserved, _no_braces, _exchange, _misplaced, _add, _drop):
        done = attempt(parser, token, before)
        if done is not None:
            return done
    _report(parser, token, before)
    return False


# ---- where the walk stands -----------------------------------------------------------------------------------------------
def block(parser: Parser) -> str:
    """The kind of block around the current token, a key of BLOCKS."""
    closed = 0
    values = [entry.value for entry in parser.stack]
    for i in range(len(values) - 1, 0, -1):
        type = getattr(values[i], "type", "")
        if not isinstance(values[i], Token):
            continue
        if type == "RBRACE":
            closed += 1
        elif type == "LBRACE" and closed:
            closed -= 1
        elif type == "LBRACE":
            for value in reversed(values[max(0, i - 4) : i]):
                if isinstance(value, Token) and value.type in ("DIMS", "MODEL", "TRAIN", "EVERY", "COMPARE"):
                    return str(value.type.lower())
                if isinstance(value, Token) and value.type in ("LBRACE", "END"):
                    break
            return "body"
    return "file" if parser.start == "spec" else parser.start


def inside(parser: Parser) -> bool:
    """Whether ( or [ stands open."""
    round = 0
    for entry in reversed(parser.stack):
        if isinstance(entry.value, Token):
            if entry.value.type in ("RPAR", "RSQB"):
                round += 1
            elif entry.value.type in ("LPAR", "LSQB"):
                if not round:
                    return True
                round -= 1
            elif entry.value.type == "LBRACE":
                return False
    return False


def _next(parser: Parser, steps: int = 1) -> str:
    at = parser.at + steps
    return parser.tokens[at].type if at < len(parser.tokens) else "$END"


# ---- mendings ------------------------------------------------------------------------------------------------------------
def _reserved(parser: Parser, token: Token, before: Token | None) -> bool | None:
    """`model stream { … }`: a keyword where a name must stand."""
    if token.type not in WORDS or not parser.accepts("NAME", _next(parser)):
        return None
    statement = before is None or before.type in ("END", "LBRACE")
    if statement and token.type in STARTERS and _next(parser) not in ("EQUAL", "LE") or before is not None and before.type == "EVERY":
        return None
    parser.out.add(
        "E0204",
        f"`{token.text}` is a word of the language and cannot be a name",
        token.start,
        token.end,
        help=f"another name, such as `{token.text}_1`",
    )
    token.type = "NAME"
    return True


def _no_braces(parser: Parser, token: Token, before: Token | None) -> bool | None:
    """`model m:` or `model m`, and lines that are indented below it."""
    colon = token.type == "COLON" and _next(parser) in ("END", "RBRACE", "$END")
    if not (colon or token.type == "END") or not parser.accepts("LBRACE"):
        return None
    line = _line(parser, parser.at)
    indent = parser.tokens[line].indent
    after = parser.at + (2 if colon else 1)
    deeper = after < len(parser.tokens) and parser.tokens[after].indent > indent
    if not colon and not deeper:
        return None
    written = " ".join(t.text for t in parser.tokens[line : parser.at] if t.text)
    written = _glue(written)
    parser.out.add(
        "E0205",
        "a block stands in braces" + (", not behind `:`" if colon else ""),
        token.start,
        max(token.end, token.start + 1) if colon else token.start,
        help=f"`{written} {{` here, and `}}` on a line of its own where it ends" if len(written) < 60 else "",
    )
    at = after  # the block is left out: braces decide what would stand in it
    while (
        at < len(parser.tokens) - 1
        and (parser.tokens[at].indent > indent or parser.tokens[at].indent < 0)
        and not (parser.tokens[at].type == "RBRACE" and parser.tokens[at].depth <= token.depth)
    ):
        at += 1
    if parser.tokens[at - 1].type == "END" and at - 1 > parser.at:
        at -= 1
    parser.at = at
    return False


def _exchange(parser: Parser, token: Token, before: Token | None) -> bool | None:
    """`heads: 8` and `heads == 8` for `heads = 8`, a comma between statements."""
    if token.type == "COLON" and parser.accepts("EQUAL", _next(parser)):
        what = "an argument is given" if inside(parser) else "a value is set"
        parser.out.once(
            ":", "E0102", f"{what} with `=`, not with `:`", token.start, token.end, f"`{before.text if before else 'd'} = …`"
        )
        token.type, token.text = "EQUAL", "="
        return True
    if token.text == "==" and parser.accepts("EQUAL", _next(parser)):
        parser.out.add(
            "E0208", "`==` compares; a value is set with `=`", token.start, token.end, help=f"`{before.text if before else 'd'} = …`"
        )
        token.type, token.text = "EQUAL", "="
        return True
    if token.text == "<" and block(parser) == "dims" and parser.accepts("LE", _next(parser)):
        parser.out.add(
            "E0208",
            "a dim that is free up to a bound is written with `<=`",
            token.start,
            token.end,
            help=f"`{before.text if before else 'n'} <= …`",
        )
        token.type, token.text = "LE", "<="
        return True
    if (
        token.type == "EQUAL"
        and parser.accepts("COMPARISON", _next(parser))
        and before is not None
        and (block(parser) == "dims" or parser.start == "expression")
    ):
        parser.out.add("E0208", "`=` sets a value; a condition compares with `==`", token.start, token.end, help="`require n % c == 0`")
        token.type, token.text = "COMPARISON", "=="
        return True
    told = f"comma {BLOCKS[block(parser)][0]}" in parser.out.told
    if (
        token.type == "COMMA"
        and not inside(parser)
        and (parser.accepts("END", _next(parser)) or told and parser.accepts(_next(parser)))
    ):
        name = BLOCKS[block(parser)][0]
        if _next(parser) in ("RBRACE", "END"):
            del parser.tokens[parser.at]  # the one before was explained
            return True
        parser.out.once(
            "comma " + name,
            "E0203",
            f"one {name} on each line, or `;` between them, not `,`",
            token.start,
            token.end,
            f"`; {parser.tokens[parser.at + 1].text} …`",
        )
        token.type, token.text = "END", ";"
        return True
    return None


def _misplaced(parser: Parser, token: Token, before: Token | None) -> bool | None:
    """A statement that belongs in another block."""
    place = block(parser)
    fresh = before is None or before.type in ("END", "LBRACE", "BROKEN")
    if fresh and token.type in STARTERS and token.type not in parser.expected():
        home = HOME.get(token.type, "file")
        help = EXAMPLES.get(token.type, f"`{token.text}` on a line of its own, outside every `{{ }}`")
        parser.out.add("E0206", f"`{token.text}` stands {PLACES[home]}, not {PLACES[place]}", token.start, token.end, help=help)
        return False
    if fresh and place == "file" and token.type == "NAME" and _next(parser) in ("EQUAL", "LE"):
        sign = parser.tokens[parser.at + 1]
        parser.out.add(
            "E0206",
            "a size is set in `dims`, and a number that is no size with `let`",
            token.start,
            sign.end,
            help=f"`dims {{ {token.text} {sign.text} … }}`" + (f" or `let {token.text} = …`" if sign.text == "=" else ""),
        )
        return False
    if fresh and place == "file" and token.type == "NAME":
        parser.out.add(
            "E0206",
            f"`{token.text}` stands in no block",
            token.start,
            token.end,
            help="layers stand in a model's streams: `model m { y = x { … } }`",
        )
        return False
    if before is None or before.type != "NAME" or parser.at < 2 or parser.tokens[parser.at - 2].type not in ("END", "LBRACE"):
        if place == "model" and fresh is False and token.type == "LPAR" and _shape(parser, ("NAME", "EQUAL", "NAME")):
            name, stream = parser.tokens[parser.at - 3].text, before.text if before else ""
            parser.out.add(
                "E0206",
                "a stream is made from another by layers in braces",
                token.start,
                token.end,
                help=f"`{name} = x {{ {stream}(…) }}`, where x is an input or another stream",
            )
            return False
        return None
    if place == "body" and token.type == "EQUAL":
        parser.out.add(
            "E0206",
            "a chain of layers names no streams: each line changes the stream it stands in",
            before.start,
            token.end,
            help=f"`{before.text} = … {{ … }}` in the model, outside this `{{ }}`",
        )
        return False
    if place == "body" and token.type == "COLON":
        parser.out.add(
            "E0206",
            "named parts stand in `reversible` and `parallel`, and nothing else stands beside them",
            before.start,
            token.end,
            help="`parallel(merge = add) { a: { gelu } b: { relu } }`",
        )
        return False
    if place == "model" and token.type in ("LPAR", "LBRACE", "END", "RBRACE"):
        parser.out.add(
            "E0206",
            f"a layer stands in a stream's braces, not directly in the model: `{before.text}`",
            before.start,
            before.end,
            help=f"`y = x {{ {before.text}{'(…)' if token.type == 'LPAR' else ''} }}`, where x is an input or another stream",
        )
        return False
    if place == "train" and token.type in ("LPAR", "END", "RBRACE"):
        parser.out.add(
            "E0206",
            f"`{before.text}` is no setting; what is done again and again stands in `every`",
            before.start,
            before.end,
            help=f"`every 500 steps {{ {before.text}{'(…)' if token.type == 'LPAR' else ''} }}`",
        )
        return False
    return None


def _add(parser: Parser, token: Token, before: Token | None) -> bool | None:
    """A line end, a comma, a `=` or a `*` that is missing."""
    if before is None:
        return None
    simple = (
        token.type in ("NAME", "NUMBER", "TEXT", "BYTES") or token.type in ("LPAR", "LSQB") and inside(parser) or token.type in WORDS
    )
    if not simple or before.type in ("END", "LBRACE"):
        return None
    pair = f"{before.text} {token.text}"
    if before.type == "NUMBER" and token.type == "NAME" and parser.accepts("STEPS"):
        done = _unit(parser, token, before)
        if done is not None:
            return done
    if (
        before.type == "NUMBER"
        and token.type in ("NAME", "LPAR")
        and _next(parser) not in ("EQUAL", "LE")
        and parser.accepts("TIMES", token.type, _next(parser))
    ):
        return _insert(
            parser, "TIMES", "*", "E0208", f"a product is written with `*`: `{pair}` says nothing", f"`{before.text} * {token.text}`"
        )
    if inside(parser):
        if before.type == "NAME" and token.type in ("NUMBER", "TEXT") and parser.accepts("EQUAL", token.type, _next(parser)):
            return _insert(
                parser, "EQUAL", "=", "E0208", f"an argument is given with `=`: `{pair}` lacks it", f"`{before.text} = {token.text}`"
            )
        if parser.accepts("COMMA", token.type):
            return _insert(
                parser, "COMMA", ",", "E0208", f"a comma is missing before `{token.text}`", f"`{before.text}, {token.text} …`"
            )
        return None
    place = block(parser)
    if not (parser.accepts("END", token.type) if place == "body" else parser.accepts("END", token.type, _next(parser))):
        return None
    name = BLOCKS[place][0]
    written = token.text + ("(…)" if _next(parser) == "LPAR" else " { … }" if _next(parser) == "LBRACE" else "")
    help = f"`{before.text}; {written}`" if before.type == "NAME" else f"`; {written}`"
    if name == "layer" and before.type == "NAME" and _next(parser) in ("END", "RBRACE"):
        help += f"; an argument stands in parentheses: `{before.text}({token.text})`"
    if name == "item":
        help = f"`{token.text}` at the start of the next line"
    return _insert(parser, "END", ";", "E0203", f"one {name} on each line, or `;` between them", help)


def _unit(parser: Parser, token: Token, before: Token) -> bool | None:
    """`100k step`, `2 hours`."""
    unit = token.text.lower().rstrip("s") + "s"
    if unit.upper() in UNITS:
        parser.out.add("E0208", f"the unit is written `{unit}`", token.start, token.end, help=f"`{before.text} {unit}`")
        token.type, token.text = unit.upper(), unit
        return True
    if unit in ("iterations", "updates", "examples", "samples", "sentences", "batches", "words", "seconds", "hours", "days"):
        parser.out.add(
            "E0208",
            f"`{token.text}` is no unit; the units are steps, tokens, sequences, epochs and minutes",
            token.start,
            token.end,
            help=f"`{before.text} {dict(iterations='steps', updates='steps', words='tokens').get(unit, 'sequences')}`"
            if unit not in ("seconds", "hours", "days")
            else "`10 minutes`",
        )
        token.type = "STEPS"
        return True
    return None


def _insert(parser: Parser, type: str, text: str, code: str, message: str, help: str) -> bool:
    token = parser.tokens[parser.at]
    parser.out.add(code, message, token.start, token.end, help=help)
    parser.tokens.insert(parser.at, Token(type, text, token.start, token.start, None, -1, token.depth))
    return True


def _drop(parser: Parser, token: Token, before: Token | None) -> bool | None:
    """A sign too many."""
    if token.type not in ("COMMA", "COLON", "EQUAL", "DOT", "END") or not parser.accepts(_next(parser)) or token.type == "END":
        return None
    parser.out.add("E0202", f"`{token.text}` has nothing to do here", token.start, token.end, help=f"without `{token.text}`")
    del parser.tokens[parser.at]
    return True


def _shape(parser: Parser, types: tuple[str, ...]) -> bool:
    """Whether the tokens before the current one have these types."""
    start = parser.at - len(types)
    return start >= 0 and tuple(t.type for t in parser.tokens[start : parser.at]) == types


def _line(parser: Parser, at: int) -> int:
    """The token that starts the current statement."""
    while at > 0 and parser.tokens[at - 1].type not in ("END", "LBRACE"):
        at -= 1
    return at


def _glue(text: str) -> str:
    for sign in ("( ", " )", " (", " ,", "[ ", " ]"):
        text = text.replace(sign, sign.strip())
    return text


# ---- the sentence for every other state
def _report(parser: Parser, token: Token, before: Token | None) -> None:
    place = block(parser)
    wanted = words(parser.expected(), place, before.type if before else "")
    given = found(token)
    start, end = token.start, token.end
    name, stands, example = BLOCKS[place]
    help = ""
    if token.type in ("COMPARISON", "LE") and before is not None and "AND" in parser.expected():
        parser.out.add("E0208", "two comparisons are joined with `and`", start, end, help=f"`… and {before.text} {token.text} …`")
        return
    if before is None or before.type in ("END", "LBRACE"):
        message = f"{'an' if name[0] in 'aeio' else 'a'} {name} cannot start with {given}"
        if place == "override":
            message = f"an override is a name, `=` and a value; {given} is neither"
        help = example
    else:
        if token.type in ("END", "$END"):
            start = end = before.end
        message = f"{after(before)} comes {wanted}, not {given}"
        if token.type in ("END", "$END", "RBRACE") and before.type in OPERATORS | {"EQUAL"} and not inside(parser):
            help = "a value ends on its line; in ( ) it may go on over several"
        elif place == "override":
            help = example
        elif before.type == "USE" and token.type == "NAME":
            help = f'`use "{token.text}.plait"`'
        elif before.type == "NUMBER" and token.type == "LBRACE" and place == "train":
            help = f"`{before.text} steps`"
    parser.out.add("E0202", message, start, end, help=help)
