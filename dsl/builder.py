"""Reductions to syntax tree: one method for each rule or alias of grammar.lark. Children are tokens and nodes, BROKEN ones left out."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

from plait.dsl.errors import Source, Span
from plait.dsl.lexer import Diagnostics, Token
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
    Let,
    List,
    Model,
    Name,
    Number,
    Output,
    Override,
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
    Unary,
    Use,
)

DEEPEST = 100                                # operations and calls inside one another: every walk over a tree may recurse


class Builder:
    """Makes the nodes of one source."""

    def __init__(self, source: Source, out: Diagnostics):
        self.source, self.out = source, out
        self.depths: dict[int, tuple[Any, int]] = {}           # by id; the node is kept, so that its id stays its own

    def at(self, token: Token) -> Span:
        return Span(token.start, token.end, self.source)

    def grown(self, node: Any, *children: Any) -> Any:
        """Notes how deep an expression is, and refuses what no walk could follow."""
        depth = 1 + max((self.depths.get(id(child), (None, 0))[1] for child in children), default=0)
        self.depths[id(node)] = (node, depth)
        if depth == DEEPEST + 1:
            self.out.once("deep", "E0106", f"an expression is at most {DEEPEST} operations deep", node.span.start, node.span.end,
                          "`let` gives a part of it a name")
            self.out.limit = 0               # nothing more is read
        return node

    # ---- the three starts
    def spec(self, span: Span, version: Token, *items: Any) -> Spec:
        return Spec(int(version.value), tuple(i for i in items if not isinstance(i, Token)), self.source)

    def override(self, span: Span, path: tuple[str, ...], *values: Expr) -> Override:
        return Override(path, values, span)

    def expression(self, span: Span, value: Expr) -> Expr:
        return value

    def path(self, span: Span, *words: Token) -> tuple[str, ...]:
        return tuple(w.text for w in words)

    # ---- items
    def dims(self, span: Span, *entries: Any) -> Dims:
        return Dims(tuple(e for e in entries if not isinstance(e, Token)), span)

    def free_dim(self, span: Span, name: Token) -> Dim:
        return Dim(name.text, None, None, span, self.at(name))

    def bound_dim(self, span: Span, name: Token, value: Expr) -> Dim:
        return Dim(name.text, "=", value, span, self.at(name))

    def bounded_dim(self, span: Span, name: Token, _sign: Token, value: Expr) -> Dim:
        return Dim(name.text, "<=", value, span, self.at(name))

    def require(self, span: Span, condition: Expr) -> Require:
        return Require(condition, span)

    def let(self, span: Span, name: Token, value: Expr) -> Let:
        return Let(name.text, value, span)

    def share(self, span: Span, name: Token, value: Call) -> Share:
        return Share(name.text, value, span)

    def use(self, span: Span, path: Token) -> Use:
        return Use(path.value, span)

    def block(self, span: Span, name: Token, *rest: Any) -> Block:
        return Block(name.text, rest[:-1], rest[-1], span)

    def size_parameter(self, span: Span, name: Token) -> Parameter:
        return Parameter(name.text, None, None, span)

    def default_parameter(self, span: Span, name: Token, default: Expr) -> Parameter:
        return Parameter(name.text, None, default, span)

    def stream_parameter(self, span: Span, name: Token, type: StreamType) -> Parameter:
        return Parameter(name.text, type, None, span)

    def parameter(self, span: Span, parameter: Parameter) -> Parameter:
        return parameter

    def model(self, span: Span, name: Token, *members: Any) -> Model:
        return Model(name.text, tuple(m for m in members if not isinstance(m, Token)), span, self.at(name))

    def input(self, span: Span, name: Token, type: Any, *padded: Token) -> Input:
        return Input(name.text, type, bool(padded), span)

    def tokens_type(self, span: Span, shape: tuple[Expr, ...], of: Expr) -> TokensType:
        return TokensType(shape, of, span)

    def stream_type(self, span: Span, shape: tuple[Expr, ...]) -> StreamType:
        return StreamType(shape, span)

    def class_type(self, span: Span, of: Expr) -> ClassType:
        return ClassType(of, span)

    def shape(self, span: Span, *sizes: Expr) -> tuple[Expr, ...]:
        return sizes

    def output(self, span: Span, name: Token, shape: tuple[Expr, ...]) -> Output:
        return Output(name.text, shape, span)

    def flow(self, span: Span, name: Token, source: Token, body: Body) -> Flow:
        return Flow(name.text, source.text, body, span, self.at(source))

    # ---- bodies
    def body(self, span: Span, *statements: Any) -> Body:
        return Body(tuple(s for s in statements if not isinstance(s, Token)), span)

    def parts(self, span: Span, *parts: Any) -> tuple[Part, ...]:
        return tuple(p for p in parts if isinstance(p, Part))

    def part(self, span: Span, name: Token, body: Body) -> Part:
        return Part(name.text, body, span)

    def apply(self, span: Span, name: Token, *rest: Any) -> Apply:
        arguments: tuple[Argument, ...] = ()
        body, parts, called = None, None, False
        for piece in rest:
            if isinstance(piece, Body):
                body = piece
            elif isinstance(piece, Arguments):
                arguments, called = piece.items, True
            else:
                parts = piece
        return Apply(name.text, arguments, body, parts, called, span, self.at(name))

    def repeat(self, span: Span, count: Expr, *rest: Any) -> Repeat:
        index = next((r for r in rest if isinstance(r, str)), None)
        return Repeat(count, index, any(isinstance(r, Token) for r in rest), rest[-1], span)

    def index(self, span: Span, name: Token) -> str:
        return name.text

    # ---- training
    def train(self, span: Span, *rest: Any) -> Train:
        models = tuple(Name(t.text, self.at(t)) for t in rest if isinstance(t, Token) and t.type == "NAME")
        return Train(models, tuple(r for r in rest if not isinstance(r, Token)), span)

    def setting(self, span: Span, name: Token, value: Expr) -> Setting:
        return Setting(name.text, value, span, self.at(name))

    def every(self, span: Span, period: Expr, *actions: Any) -> Every:
        if not isinstance(period, Quantity):
            self.out.add("E0208", "`every` counts in a unit", period.span.start, period.span.end,
                         help="`every 500 steps`; the units are steps, tokens, sequences, epochs and minutes")
        return Every(period, tuple(a for a in actions if not isinstance(a, Token)), span)

    def bare_call(self, span: Span, name: Token) -> Call:
        return Call(name.text, (), span, span)

    def compare(self, span: Span, name: Token, *entries: Any) -> Compare:
        return Compare(name.text, tuple(e for e in entries if not isinstance(e, Token)), span)

    # ---- expressions
    def call(self, span: Span, name: Token, arguments: Arguments) -> Call:
        return self.grown(Call(name.text, arguments.items, span, self.at(name)), *(a.value for a in arguments.items))

    def arguments(self, span: Span, *items: Argument) -> Arguments:
        return Arguments(items)

    def positional(self, span: Span, value: Expr) -> Argument:
        return Argument(None, value, span)

    def named(self, span: Span, name: Token, value: Expr) -> Argument:
        return Argument(name.text, value, span, self.at(name))

    def quantity(self, span: Span, amount: Expr, unit: Token) -> Quantity:
        return self.grown(Quantity(amount, unit.text, span), amount)

    def binary(self, span: Span, left: Expr, sign: Token, right: Expr) -> Binary:
        return self.grown(Binary(sign.text, left, right, span), left, right)

    def unary(self, span: Span, sign: Token, operand: Expr) -> Unary:
        return self.grown(Unary(sign.text, operand, span), operand)

    def number(self, span: Span, token: Token) -> Number:
        return Number(token.value, token.text, span)

    def byte_size(self, span: Span, token: Token) -> Bytes:
        return Bytes(token.value, token.text, span)

    def text(self, span: Span, token: Token) -> Text:
        return Text(token.value, span)

    def name(self, span: Span, token: Token) -> Name:
        return Name(token.text, span)

    def group(self, span: Span, value: Any) -> Expr:
        return self.grown(replace(value, span=span), value)    # a caret under it covers the parentheses

    def tuple(self, span: Span, *items: Expr) -> Tuple:
        return self.grown(Tuple(items, span), *items)

    def list(self, span: Span, *items: Expr) -> List:
        return self.grown(List(items, span), *items)


class Arguments:
    """What stands between parentheses, possibly nothing."""

    def __init__(self, items: tuple[Argument, ...]):
        self.items = items
