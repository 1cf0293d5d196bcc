"""The LALR(1) tables of grammar.lark, in the form that parser.py walks over.

lark makes them, which takes longer than everything else that `plait check` does; so they are kept in made.py, with the checksum of the
grammar they were made from. A grammar that was changed is made anew at each start until `python -m plait.dsl.tables` has written made.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

STARTS = ("spec", "override", "expression")
Rule = tuple[str, int, str, tuple[int, ...]]


@dataclass(frozen=True)
class Table:
    """`starts`: the first state for each start rule, `ends`: the states in which such a rule is complete.
    `actions[state][terminal]`: the next state, or -1 - rule. `gotos[state][left side]`: the next state.
    `rules`: left side, length, the builder's method ("" a list, "=" the only child), and for each symbol whether it is dropped (0), handed
    on (1) or a list to be opened (2)."""

    starts: dict[str, int]
    ends: frozenset[int]
    actions: list[dict[str, int]]
    gotos: list[dict[str, int]]
    rules: list[Rule]


@cache
def load() -> Table:
    """The tables, from made.py where that fits the grammar."""
    from plait.dsl import made

    text = grammar()
    return read(made.TABLE) if made.GRAMMAR == checksum(text) else make(text)


def grammar() -> str:
    return files("plait.dsl").joinpath("grammar.lark").read_text(encoding="utf-8")


def checksum(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


# ---- made by lark ---------------------------------------------------------------------------------------------------------
def make(text: str) -> Table:
    """lark's tables, states and rules numbered by a walk from the starts, so that they do not depend on its hashing."""
    from lark import Lark
    from lark.lexer import Lexer

    class Unused(Lexer):
        """The tokens come from lexer.py."""

        def __init__(self, conf: Any) -> None: ...
        def lex(self, lexer_state: Any, parser_state: Any) -> Any: ...

    made = (
        Lark(text, parser="lalr", lexer=Unused, start=list(STARTS)).parse_interactive(start="spec").parser_state.parse_conf.parse_table
    )
    number = {made.start_states[start]: i for i, start in enumerate(STARTS)}
    queue = deque(number)
    rules: dict[Any, int] = {}
    actions: list[dict[str, int]] = []
    gotos: list[dict[str, int]] = []
    while queue:
        row = made.states[queue.popleft()]
        actions.append({})
        gotos.append({})
        for symbol in sorted(row):
            argument = row[symbol][1]
            if not isinstance(argument, int):
                actions[-1][symbol] = -1 - rules.setdefault(argument, len(rules))
                continue
            if argument not in number:
                number[argument] = len(number)
                queue.append(argument)
            (actions if symbol.isupper() else gotos)[-1][symbol] = number[argument]
    starts = {start: number[made.start_states[start]] for start in STARTS}
    return Table(
        starts, frozenset(number[s] for s in made.end_states.values() if s in number), actions, gotos, [_rule(r) for r in rules]
    )


def _rule(rule: Any) -> Rule:
    name = str(rule.origin.name)
    keep = tuple(0 if s.is_term and s.filter_out else 2 if s.name.startswith("_") else 1 for s in rule.expansion)
    if name.startswith("_"):
        method = ""
    elif rule.alias:
        method = str(rule.alias)
    else:
        method = "=" if rule.options.expand1 and sum(map(bool, keep)) == 1 else name
    return name, len(keep), method, keep


# ---- kept as text -----------------------------------------------------------------------------------------------------------
def write(table: Table) -> str:
    """The tables in three parts with `/` between them, of words with `~` between them: starts and ends; rules; states, each with its
    actions, `|` and its gotos."""
    head = [_pairs(table.starts.items()), ",".join(map(str, sorted(table.ends)))]
    rules = [f"{left}:{method}:{''.join(map(str, keep))}" for left, _, method, keep in table.rules]
    states = []
    for actions, gotos in zip(table.actions, table.gotos, strict=True):
        targets: dict[int, list[str]] = {}
        for terminal, target in actions.items():
            targets.setdefault(target, []).append(terminal)
        states.append(";".join(f"{target}={','.join(names)}" for target, names in targets.items()) + "|" + _pairs(gotos.items()))
    return "/".join("~".join(part) for part in (head, rules, states))


def _pairs(items: Iterable[tuple[str, int]]) -> str:
    return ",".join(f"{key}={value}" for key, value in items)


def read(text: str) -> Table:
    """The inverse of `write`; line ends do not count."""
    head, rules, states = (part.split("~") for part in text.replace("\n", "").split("/"))
    actions, gotos = [], []
    for state in states:
        left, right = state.split("|")
        actions.append(
            {
                name: int(target)
                for group in left.split(";")
                if group
                for target, names in [group.split("=")]
                for name in names.split(",")
            }
        )
        gotos.append(_unpair(right))
    made: list[Rule] = []
    for rule in rules:
        name, method, keep = rule.split(":")
        made.append((name, len(keep), method, tuple(map(int, keep))))
    return Table(_unpair(head[0]), frozenset(map(int, head[1].split(","))), actions, gotos, made)


def _unpair(text: str) -> dict[str, int]:
    return {key: int(value) for key, value in (pair.split("=") for pair in text.split(",") if pair)}


def module(text: str) -> str:
    """The text of made.py for a grammar."""
    table = write(make(text))
    table = "\n".join(table[i : i + 130] for i in range(0, len(table), 130))
    title = '"""Written by `python -m plait.dsl.tables` from grammar.lark: see tables.py."""'
    return f'{title}\nGRAMMAR = "{checksum(text)}"\nTABLE = """\n{table}\n"""\n'


if __name__ == "__main__":
    from pathlib import Path

    Path(__file__).with_name("made.py").write_text(module(grammar()), encoding="utf-8")
