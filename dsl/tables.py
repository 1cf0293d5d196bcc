"""The LALR(1) tables of grammar.lark, in the form that parser.py walks over."""
from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Table:
    """`actions[state][terminal]`: the next state, or -1 - rule. `gotos[state][rule's left side]`: the next state.
    `rules`: left side, length, the builder's method ("" a list, "=" its only child), and for each symbol whether it is dropped (0), handed on (1)
    or a list to be opened (2)."""
    starts: dict[str, int]
    ends: frozenset[int]
    actions: dict[int, dict[str, int]]
    gotos: dict[int, dict[str, int]]
    rules: tuple[tuple[str, int, str, tuple[int, ...]], ...]


@cache
def load() -> Table:
    """Made by lark, once, when the first text is read."""
    from lark import Lark
    from lark.lexer import Lexer

    class Unused(Lexer):
        """The tokens come from lexer.py."""
        def __init__(self, conf: Any) -> None: ...
        def lex(self, lexer_state: Any, parser_state: Any) -> Any: ...

    grammar = files("plait.dsl").joinpath("grammar.lark").read_text(encoding="utf-8")
    starts = ["spec", "override", "expression"]
    made = Lark(grammar, parser="lalr", lexer=Unused, start=starts).parse_interactive(start="spec").parser_state.parse_conf.parse_table
    return _convert(made)


def _convert(made: Any) -> Table:
    actions: dict[int, dict[str, int]] = {}
    gotos: dict[int, dict[str, int]] = {}
    rules: dict[Any, int] = {}
    for state, row in made.states.items():
        actions[state], gotos[state] = {}, {}
        for symbol, (kind, argument) in row.items():
            if not isinstance(argument, int):
                actions[state][symbol] = -1 - rules.setdefault(argument, len(rules))
            elif kind.name == "Shift" and (symbol.isupper() or symbol == "$END"):
                actions[state][symbol] = argument
            else:
                gotos[state][symbol] = argument
    return Table(dict(made.start_states), frozenset(made.end_states.values()), actions, gotos, tuple(_rule(r) for r in rules))


def _rule(rule: Any) -> tuple[str, int, str, tuple[int, ...]]:
    name = str(rule.origin.name)
    keep = tuple(0 if s.is_term and s.filter_out else 2 if s.name.startswith("_") else 1 for s in rule.expansion)
    kept = sum(1 for k in keep if k)
    if name.startswith("_"):
        method = ""
    elif rule.alias:
        method = str(rule.alias)
    else:
        method = "=" if rule.options.expand1 and kept == 1 else name
    return name, len(keep), method, keep
