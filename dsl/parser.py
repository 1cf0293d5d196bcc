"""Text to Spec. lark makes the tables from grammar.lark; the walk over them is here, because it goes on after a mistake.

A mistake is mended where one token more, less or other does it (with a message), otherwise the statement is given up: the stack
is cut back to where a statement may start, and the tokens are skipped to the next END or `}` of that depth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from plait.dsl.brackets import settle
from plait.dsl.builder import Builder
from plait.dsl.errors import LIMIT, Diagnostic, PlaitError, Source, Span, error
from plait.dsl.lexer import Diagnostics, Token, scan, unfit
from plait.dsl.mending import mend
from plait.dsl.spec import Expr, Override, Spec
from plait.dsl.tables import Table, load

VERSION = 1


def parse(text: str, name: str = "<text>") -> Spec:
    """The syntax tree of a file. Raises PlaitError with every independent diagnostic, 20 at most."""
    source = Source(name, text)
    out = Diagnostics(source, LIMIT)
    tokens = _tokens(source, out)
    if tokens is None:
        raise PlaitError(*out.found)
    spec = Parser(load(), "spec", source, out).run(_first_line(tokens, out))
    return _result(spec, out)


def parse_override(text: str, name: str = "--set") -> Override:
    """`d=256`, `train.lr=3e-4`, `n=1Ki,4Ki`. A path of names, then one value or several (a sweep)."""
    source = Source(name, text)
    out = Diagnostics(source, LIMIT)
    if not text.strip():
        raise error("E0202", "`--set` is followed by a name and a value", Span(0, len(text), source), help="`--set d=256`")
    tokens = _tokens(source, out, sizes=not text.lstrip().startswith("train."))
    return _result(None if tokens is None else Parser(load(), "override", source, out).run(tokens), out)


def parse_expression(text: str, name: str = "<expression>") -> Expr:
    """One expression: `n % c == 0`."""
    source = Source(name, text)
    out = Diagnostics(source, LIMIT)
    tokens = _tokens(source, out)
    return _result(None if tokens is None else Parser(load(), "expression", source, out).run(tokens), out)


def _result(tree: Any, out: Diagnostics) -> Any:
    if out.found:
        found = sorted(out.found, key=lambda d: d.span.start if d.span else 0)
        raise PlaitError(*found[:LIMIT])
    assert tree is not None, "a text was given up without a word"
    return tree


def _tokens(source: Source, out: Diagnostics, sizes: bool = False) -> list[Token] | None:
    """The tokens for the parser; None where the text is refused as a whole."""
    refused = unfit(source.text)
    if refused:
        message, at = refused
        out.found.append(Diagnostic("E0106" if "characters; this" in message else "E0105", message, Span(at, at + 1, source)))
        return None
    tokens = scan(source, out, sizes)
    return settle(tokens, out) or (None if out.found else [])


def _first_line(tokens: list[Token], out: Diagnostics) -> list[Token]:
    """Checks `plait 1` and hands on tokens that start with it."""
    plait, one = Token("PLAIT", "plait", 0, 0, invented=True), Token("NUMBER", "1", 0, 0, 1, invented=True)
    help = "`plait 1`"
    if not tokens:
        out.add("E0201", "this file is empty; the first line of a file says which plait it is written for", 0, 0, help=help)
        return [plait, one]
    first = tokens[0]
    if first.type != "PLAIT":
        out.add(
            "E0201", "the first line of a file says which plait it is written for", first.start, first.end, help=f"put {help} before it"
        )
        return [plait, one, Token("END", "", first.start, first.start, invented=True), *tokens]
    stop = next((i for i, t in enumerate(tokens) if t.type == "END"), len(tokens))
    line = tokens[1:stop]
    if len(line) == 1 and line[0].type == "NUMBER":
        if line[0].value == VERSION or line[0].text != str(line[0].value):
            return tokens
        out.add(
            "E0201", f"this file is written for plait {line[0].text}; this is plait {VERSION}", line[0].start, line[0].end, help=help
        )
    elif len(line) > 1 and line[0].type == "NUMBER" and line[0].value == VERSION:
        out.add("E0203", "`plait 1` stands on a line of its own", line[1].start, line[1].end, help=help)
        return [first, line[0], Token("END", "", line[1].start, line[1].start, invented=True), *tokens[2:]]
    else:
        at = line[0] if line else first
        out.add("E0201", "the first line says which plait the file is written for", at.start, at.end, help=help)
    return [plait, one, *tokens[stop:]]


@dataclass(slots=True)
class Entry:
    """What stands on the stack: a state, the token or node that led there, its place and depth."""

    state: int
    value: Any
    start: int
    end: int
    depth: int


class Parser:
    """One walk over the tables."""

    def __init__(self, table: Table, start: str, source: Source, out: Diagnostics):
        self.table, self.start, self.source, self.out = table, start, source, out
        self.builder = Builder(source, out)
        self.stack = [Entry(table.starts[start], None, 0, 0, 0)]
        self.tokens: list[Token] = []
        self.at = 0
        self.lost = -1  # the token at which a statement was last given up

    def run(self, tokens: list[Token]) -> Any:
        """The value of the start rule, or None where the text was given up."""
        end = tokens[-1].end if tokens else 0
        self.tokens = [*tokens, Token("$END", "", end, end)]
        while not self.out.full:
            token = self.tokens[self.at]
            action = self.table.actions[self.stack[-1].state].get(token.type)
            if action is None:
                if not self.recover():
                    return None
            elif action >= 0:
                if token.type == "$END":
                    return self.stack[-1].value
                self.stack.append(Entry(action, token, token.start, token.end, token.depth))
                self.at += 1
            else:
                self.reduce(-action - 1)
                if len(self.stack) == 2 and token.type == "$END" and self.stack[-1].state in self.table.ends:
                    return self.stack[-1].value
        return None

    def reduce(self, rule: int) -> None:
        """Replaces the right side of a rule on the stack by its left side."""
        left, size, method, keep = self.table.rules[rule]
        popped = self.stack[len(self.stack) - size :]
        del self.stack[len(self.stack) - size :]
        children: list[Any] = []
        for index, entry in enumerate(popped):
            if index == 0 and keep[0] == 2 and method == "":
                children = entry.value  # a list grows in place
                continue
            if keep[index] == 2:
                children.extend(entry.value)
            elif keep[index] and not (isinstance(entry.value, Token) and entry.value.type in ("END", "BROKEN")):
                children.append(entry.value)
        start, end, depth = (popped[0].start, popped[-1].end, popped[0].depth) if popped else (self.stack[-1].end,) * 2 + (0,)
        value: Any
        if method == "":
            value = children  # a list inside a rule
        elif method == "=":
            value = children[0] if children else popped[0].value
        else:
            value = getattr(self.builder, method)(Span(start, end, self.source), *children)
        self.stack.append(Entry(self.table.gotos[self.stack[-1].state][left], value, start, end, depth))

    def accepts(self, *types: str) -> bool:
        """Whether tokens of these types could follow, one after the other."""
        states = [entry.state for entry in self.stack]
        for type in types:
            while True:
                action = self.table.actions[states[-1]].get(type)
                if action is None:
                    return False
                if action >= 0:
                    states.append(action)
                    break
                left, size, _, _ = self.table.rules[-action - 1]
                del states[len(states) - size :]
                states.append(self.table.gotos[states[-1]][left])
                if type == "$END" and len(states) == 2 and states[-1] in self.table.ends:
                    break
        return True

    def expected(self) -> set[str]:
        """The types of token that could stand here."""
        return {type for type in self.table.actions[self.stack[-1].state] if self.accepts(type)}

    def recover(self) -> bool:
        """Reports the token that does not fit and makes the next step possible. False where nothing is left to do."""
        if self.at == self.lost:
            self.at += 1  # it fits nowhere: nothing new is to be said about it
            return self.at < len(self.tokens)
        if mend(self):
            return True
        if not self.give_up():
            return False
        self.lost = self.at
        return True

    def give_up(self) -> bool:
        """Puts BROKEN in the place of the statement and skips to its end."""
        depth = self.tokens[self.at].depth
        while "BROKEN" not in self.table.actions[self.stack[-1].state]:
            depth = self.stack.pop().depth
            if not self.stack:
                return False
        action = self.table.actions[self.stack[-1].state]["BROKEN"]
        token = self.tokens[self.at]
        self.stack.append(Entry(action, Token("BROKEN", "", token.start, token.start), token.start, token.start, depth))
        while not (token.type == "$END" or token.depth <= depth and token.type in ("END", "RBRACE")):
            self.at += 1
            token = self.tokens[self.at]
        return True
