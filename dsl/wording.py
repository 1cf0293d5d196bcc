"""The words for what a place takes and for what stands there instead: no name of a terminal reaches a person."""

from __future__ import annotations

from plait.dsl.lexer import KEYWORDS, Token

VALUE = frozenset(("NUMBER", "NAME", "LPAR", "LSQB", "MINUS", "TEXT", "BYTES"))
OPERATORS = frozenset(("PLUS", "MINUS", "TIMES", "POWER", "COMPARISON", "LE", "AND", "OR"))
UNITS = frozenset(("STEPS", "TOKENS", "SEQUENCES", "EPOCHS", "MINUTES"))
WORDS = frozenset(word.upper() for word in KEYWORDS)
SIGNS = {
    "LBRACE": "`{`",
    "RBRACE": "`}`",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "COMMA": "`,`",
    "COLON": "`:`",
    "EQUAL": "`=`",
    "DOT": "`.`",
    "TEXT": 'a text in `"…"`',
    "NUMBER": "a number",
    "END": "the end of the line",
    "$END": "the end",
}
# In each kind of block: what one statement of it is called, what stands in it, and a statement to copy.
BLOCKS = {
    "file": ("item", "`dims`, `let`, `share`, `block`, `use`, `model`, `train` and `compare`", "`model m { … }`"),
    "dims": ("dim", "dims", "`d = 512`, `n <= 512`, or `n` alone"),
    "model": ("statement", "`dims`, `let`, `share`, `input`, `output` and streams", "`logits = text { … }`"),
    "body": ("layer", "layers", "`layer_norm`, or `linear(d)`"),
    "train": ("setting", "settings and `every`", "`lr = 3e-4`"),
    "every": ("action", "actions", "`evaluate(loss)`"),
    "compare": ("setting", "settings", "`seeds = [1, 2, 3]`"),
    "override": ("override", "one name and its value", "`--set d=256`"),
    "expression": ("value", "one value", "`n % c == 0`"),
}
NAMED = {
    "MODEL": "the model's name",
    "INPUT": "the input's name",
    "OUTPUT": "the output's name",
    "LET": "the number's name",
    "SHARE": "the table's name",
    "BLOCK": "the block's name",
    "COMPARE": "the comparison's name",
    "AS": "the index's name",
}
HOME = {"OUTPUT": "model", "INPUT": "model", "EVERY": "train", "REPEAT": "body", "REQUIRE": "dims"}
PLACES = {
    "file": "at the top of the file",
    "dims": "in `dims`",
    "model": "in a model",
    "body": "in a chain of layers",
    "train": "in `train`",
    "every": "in `every`",
    "compare": "in `compare`",
    "override": "in `--set`",
    "expression": "in a value",
}
EXAMPLES = {
    "OUTPUT": "`output logits: [n, V]` in the model",
    "INPUT": "`input text: tokens[n] of V` in the model",
    "EVERY": "`every 500 steps { evaluate(loss) }` in `train`",
    "REPEAT": "`logits = text { repeat L { layer_norm } }`",
    "REQUIRE": "`dims { require n % c == 0 }`",
}


def after(token: Token) -> str:
    return "after the text" if token.type == "TEXT" else f"after `{token.text if len(token.text) < 30 else token.text[:29] + '…'}`"


def found(token: Token) -> str:
    if token.type == "END":
        return "`;`" if token.text == ";" else "the end of the line"
    if token.type == "$END":
        return "the end of the text"
    if token.type == "TEXT":
        return "a text"
    return f"`{token.text if len(token.text) < 30 else token.text[:29] + '…'}`"


def words(types: set[str], place: str = "file", before: str = "") -> str:
    """What a place takes, in plain words: "a size, `(` or the end of the line"."""
    left = set(types) - {"BROKEN"}
    told: list[str] = []
    if VALUE - {"BYTES"} <= left:
        told.append("a size" if place == "dims" else "a value")
        left -= VALUE | WORDS
    elif "NAME" in left:
        told.append(NAMED.get(before, "a name"))
        left.discard("NAME")
    if len(left & OPERATORS) > 2:
        told.append("an operator")
        left -= OPERATORS
    if UNITS <= left:
        told.append("a unit (`steps`, `tokens`, …)")
        left -= UNITS
    if {"TOKENS", "STREAM", "CLASS"} <= left:
        told.append("`tokens[n] of V`, `stream[n, d]` or `class of C`")
        left -= {"TOKENS", "STREAM", "CLASS"}
    if len(left & WORDS) > 20:
        left -= WORDS  # any word may name an argument or a setting
    if before.upper() in WORDS and told:
        left.discard("EQUAL")  # `every = …` is possible, and nobody means it
    for type in sorted(left & WORDS):
        told.append(f"`{type.lower()}`")
    if left & OPERATORS:
        told.append("an operator")
    for type in ("TEXT", "NUMBER", "LBRACE", "LPAR", "LSQB", "EQUAL", "COLON", "DOT", "COMMA", "RPAR", "RSQB", "RBRACE", "END"):
        if type in left:
            told.append(SIGNS[type])
    if "$END" in left and "END" not in left:
        told.append(SIGNS["$END"])
    return told[0] if len(told) == 1 else ", ".join(told[:-1]) + " or " + told[-1] if told else "nothing more"
