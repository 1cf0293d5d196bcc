"""Spec to text: the canonical text of a syntax tree, itself a valid file. The formatter of a person's file is in layout.py."""
from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from plait.dsl.layout import format
from plait.dsl.spec import (
    Apply,
    Argument,
    Binary,
    Block,
    Body,
    Bytes,
    Call,
    ClassType,
    Compare,
    Dim,
    Dims,
    Every,
    Expr,
    Flow,
    Input,
    Item,
    Let,
    List,
    Model,
    Name,
    Number,
    Output,
    Parameter,
    Part,
    Quantity,
    Repeat,
    Require,
    Setting,
    Share,
    Spec,
    StreamType,
    Text,
    TokensType,
    Train,
    Tuple,
    Type,
    Unary,
    Use,
)

__all__ = ["expression", "format", "render"]

WIDTH = 100                                  # a chain that fits stays on one line
# How tightly an operator holds; what is looser inside it needs parentheses.
_VALUE, _OR, _AND, _COMPARISON, _SUM, _PRODUCT, _UNARY, _POWER, _ATOM = range(9)
_LEVELS = {"or": _OR, "and": _AND, "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "%": _PRODUCT, "^": _POWER} | dict.fromkeys(
    ("==", "!=", "<", "<=", ">", ">="), _COMPARISON)


def render(spec: Spec) -> str:
    """The text of a Spec. `parse(render(spec)) == spec`."""
    return "\n\n".join([f"plait {spec.version}", *(_item(item) for item in spec.items)]) + "\n"


def expression(value: Expr) -> str:
    """The text of an expression."""
    return _expr(value, _VALUE)


# ---- expressions ----------------------------------------------------------------------------------------------------------
def _expr(value: Expr, around: int) -> str:
    """`around`: how tightly the place holds."""
    level, text = _leveled(value)
    return text if level >= around else f"({text})"


def _leveled(value: Expr) -> tuple[int, str]:
    match value:
        case Number() | Bytes():
            return _ATOM, value.text
        case Text():
            return _ATOM, quoted(value.value)
        case Name():
            return _ATOM, value.name
        case Quantity():
            return _VALUE, f"{_expr(value.amount, _OR)} {value.unit}"
        case Unary():
            return _UNARY, f"{value.op}{_expr(value.operand, _UNARY)}"
        case Binary():
            level = _LEVELS[value.op]
            if level == _POWER:              # to the right, and a minus may stand there
                return level, f"{_expr(value.left, _ATOM)}^{_expr(value.right, _UNARY)}"
            left = level + 1 if level == _COMPARISON else level
            return level, f"{_expr(value.left, left)} {value.op} {_expr(value.right, level + 1)}"
        case Tuple():
            return _ATOM, f"({_list(value.items)})"
        case List():
            return _ATOM, f"[{_list(value.items)}]"
        case Call():
            return _ATOM, f"{value.name}{_arguments(value.arguments)}"
    assert_never(value)


def _list(items: Sequence[Expr]) -> str:
    return ", ".join(expression(item) for item in items)


def _sizes(items: Sequence[Expr]) -> str:
    return "[" + ", ".join(_expr(item, _OR) for item in items) + "]"


def _arguments(arguments: Sequence[Argument]) -> str:
    return "(" + ", ".join((f"{a.name} = " if a.name else "") + expression(a.value) for a in arguments) + ")"


def quoted(text: str) -> str:
    """A text in double quotes."""
    for sign, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t")):
        text = text.replace(sign, escape)
    return f'"{text}"'


# ---- items ----------------------------------------------------------------------------------------------------------------
def _item(item: Item) -> str:
    match item:
        case Dims() | Let() | Share():
            return _shared_item(item)
        case Use():
            return f"use {quoted(item.path)}"
        case Block():
            parameters = ", ".join(_parameter(p) for p in item.parameters)
            return f"block {item.name}{f'({parameters})' if parameters else ''} {_body(item.body)}"
        case Model():
            return f"model {item.name} " + _block([_member(m) for m in item.members])
        case Train():
            models = ", ".join(m.name for m in item.models)
            return f"train {models} ".replace("  ", " ") + _block([_train_entry(e) for e in item.entries])
        case Compare():
            return f"compare {item.name} " + _block([_setting(s) for s in item.entries])
    assert_never(item)


def _shared_item(item: Dims | Let | Share) -> str:
    """What may stand in a file or in a model."""
    match item:
        case Dims():
            return "dims " + _block([_dim(e) for e in item.entries])
        case Let():
            return f"let {item.name} = {_expr(item.value, _OR)}"
        case Share():
            return f"share {item.name} = {expression(item.value)}"
    assert_never(item)


def _dim(entry: Dim | Require) -> str:
    if isinstance(entry, Require):
        return f"require {_expr(entry.condition, _OR)}"
    return entry.name if entry.value is None else f"{entry.name} {entry.relation} {_expr(entry.value, _OR)}"


def _parameter(parameter: Parameter) -> str:
    if parameter.type:
        return f"{parameter.name}: {_type(parameter.type)}"
    return parameter.name if parameter.default is None else f"{parameter.name} = {_expr(parameter.default, _OR)}"


def _member(member: Dims | Let | Share | Input | Flow | Output) -> str:
    match member:
        case Dims() | Let() | Share():
            return _shared_item(member)
        case Input():
            return f"input {member.name}: {_type(member.type)}{' padded' if member.padded else ''}"
        case Flow():
            return f"{member.name} = {member.source} {_body(member.body)}"
        case Output():
            return f"output {member.name}: {_sizes(member.shape)}"
    assert_never(member)


def _type(type: Type) -> str:
    match type:
        case TokensType():
            return f"tokens{_sizes(type.shape)} of {_expr(type.of, _OR)}"
        case StreamType():
            return f"stream{_sizes(type.shape)}"
        case ClassType():
            return f"class of {_expr(type.of, _OR)}"
    assert_never(type)


def _setting(setting: Setting) -> str:
    return f"{setting.name} = {expression(setting.value)}"


def _train_entry(entry: Setting | Every) -> str:
    if isinstance(entry, Setting):
        return _setting(entry)
    return f"every {expression(entry.period)} " + _block([expression(a) for a in entry.actions], flat=True)


# ---- bodies ---------------------------------------------------------------------------------------------------------------
def _body(body: Body) -> str:
    return _block([_statement(s) for s in body.statements], flat=True)


def _statement(statement: Apply | Repeat) -> str:
    if isinstance(statement, Repeat):
        index = f" as {statement.index}" if statement.index else ""
        return f"repeat {_expr(statement.count, _OR)}{index}{' shared' if statement.shared else ''} {_body(statement.body)}"
    text = statement.name + (_arguments(statement.arguments) if statement.called or statement.arguments else "")
    if statement.body is not None:
        return f"{text} {_body(statement.body)}"
    if statement.parts is not None:
        return f"{text} " + _block([_part(p) for p in statement.parts])
    return text


def _part(part: Part) -> str:
    return f"{part.name}: {_body(part.body)}"


def _block(statements: list[str], flat: bool = False) -> str:
    """Statements in braces: on one line where `flat` allows it and they fit, else each on its own."""
    if not statements:
        return "{}"
    line = "{ " + "; ".join(statements) + " }"
    if flat and len(line) <= WIDTH - 20 and "\n" not in line and (len(statements) == 1 or "{" not in line[1:]):
        return line
    return "{\n" + "\n".join("  " + row for s in statements for row in s.split("\n")) + "\n}"
