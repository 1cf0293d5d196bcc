"""The printer and the formatter, over generated syntax trees: what they write parses to the same tree, and they are stable."""
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from plait.dsl.errors import Source, Span
from plait.dsl.lexer import KEYWORDS, Diagnostics, scan
from plait.dsl.numerals import read
from plait.dsl.parser import parse, parse_expression
from plait.dsl.printer import expression, format, render
from plait.dsl.spec import (
    UNITS,
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
    Flow,
    Input,
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
    Unary,
    Use,
)

AT = Span(0, 0, Source("", ""))
names = st.sampled_from(["a", "d", "n", "heads", "x_1", "_y", "K", "true"])
words = st.one_of(names, st.sampled_from(sorted(KEYWORDS)))    # an argument or a setting may be called like a word of the language
texts = st.text(st.one_of(st.sampled_from('\\"\n\tn#;{'),
                          st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\ufffd")), max_size=8)
numbers = st.sampled_from(["0", "7", "512", "0.1", "1e-3", "64Ki", "37k", "1.5k", "2M", "1Gi"]).map(lambda t: Number(read(t)[0], t, AT))
sizes = st.sampled_from(["1KiB", "16GiB"]).map(lambda t: Bytes(read(t)[0], t, AT))
OPERATORS = ["+", "-", "*", "/", "%", "^", "==", "!=", "<", "<=", ">", ">=", "and", "or"]


def tuples(items, low=0, high=3):
    return st.lists(items, min_size=low, max_size=high).map(tuple)


def expressions(leaves):
    def grow(inner):
        arguments = tuples(st.builds(Argument, st.one_of(st.none(), words), inner, st.just(AT)))
        return st.one_of(
            st.builds(Unary, st.just("-"), inner, st.just(AT)),
            st.builds(Binary, st.sampled_from(OPERATORS), inner, inner, st.just(AT)),
            st.builds(Tuple, tuples(inner, 2), st.just(AT)),
            st.builds(List, tuples(inner), st.just(AT)),
            st.builds(Quantity, inner, st.sampled_from(UNITS), st.just(AT)),
            st.builds(Call, names, arguments, st.just(AT)),
        )
    return st.recursive(leaves, grow, max_leaves=6)


leaves = st.one_of(numbers, st.builds(Name, names, st.just(AT)), st.builds(Text, texts, st.just(AT)))
lengths = expressions(leaves)                # of `dims`, where bytes are refused
values = expressions(st.one_of(leaves, sizes))
arguments = tuples(st.builds(Argument, st.one_of(st.none(), words), values, st.just(AT)))
calls = st.builds(Call, names, arguments, st.just(AT))


def bodies(depth):
    """Chains; constructs inside constructs up to a depth."""
    plain = st.one_of(
        st.builds(Apply, names, arguments, st.none(), st.none(), st.just(True), st.just(AT)),
        st.builds(Apply, names, st.just(()), st.none(), st.none(), st.just(False), st.just(AT)),
    )
    if not depth:
        return st.builds(Body, tuples(plain), st.just(AT))
    inner = bodies(depth - 1)
    parts = tuples(st.builds(Part, names, inner, st.just(AT)), 1)
    statement = st.one_of(
        plain,
        st.builds(Apply, names, arguments, inner, st.none(), st.just(True), st.just(AT)),
        st.builds(Apply, names, st.just(()), inner, st.none(), st.just(False), st.just(AT)),
        st.builds(Apply, names, arguments, st.none(), parts, st.just(True), st.just(AT)),
        st.builds(Apply, names, st.just(()), st.none(), parts, st.just(False), st.just(AT)),
        st.builds(Repeat, values, st.one_of(st.none(), names), st.booleans(), inner, st.just(AT)),
    )
    return st.builds(Body, tuples(statement), st.just(AT))


chains = st.deferred(lambda: bodies(2))  # deferred: its text would be very long
shapes = tuples(values, 1)
streams = st.builds(StreamType, shapes, st.just(AT))
types = st.one_of(st.builds(TokensType, shapes, values, st.just(AT)), streams, st.builds(ClassType, values, st.just(AT)))
dims = st.builds(Dims, tuples(st.one_of(
    st.builds(Dim, names, st.sampled_from(["=", "<="]), lengths, st.just(AT)),
    st.builds(Dim, names, st.none(), st.none(), st.just(AT)),
    st.builds(Require, lengths, st.just(AT)),
)), st.just(AT))
lets = st.builds(Let, names, values, st.just(AT))
shares = st.builds(Share, names, calls, st.just(AT))
parameters = st.one_of(st.builds(Parameter, names, streams, st.none(), st.just(AT)),
                       st.builds(Parameter, names, st.none(), st.one_of(st.none(), values), st.just(AT)))
members = st.one_of(dims, lets, shares, st.builds(Input, names, types, st.booleans(), st.just(AT)),
                    st.builds(Flow, names, names, chains, st.just(AT)), st.builds(Output, names, shapes, st.just(AT)))
setting = st.builds(Setting, words, values, st.just(AT))
every = st.builds(Every, st.builds(Quantity, numbers, st.sampled_from(UNITS), st.just(AT)), tuples(calls), st.just(AT))
items = st.one_of(
    dims, lets, shares,
    st.builds(Block, names, tuples(parameters), chains, st.just(AT)),
    st.builds(Use, texts, st.just(AT)),
    st.builds(Model, names, tuples(members), st.just(AT)),
    st.builds(Train, tuples(st.builds(Name, names, st.just(AT))), tuples(st.one_of(setting, every)), st.just(AT)),
    st.builds(Compare, names, tuples(setting), st.just(AT)),
)
specs = st.builds(Spec, st.just(1), tuples(items), st.just(AT.source))
few = settings(max_examples=60, deadline=None, derandomize=True)


@few
@given(values)
def test_an_expression_that_is_printed_parses_to_itself(value):
    assert parse_expression(expression(value)) == value


@few
@given(specs)
def test_a_spec_that_is_printed_parses_to_itself(spec):
    text = render(spec)
    assert parse(text) == spec
    assert render(parse(text)) == text
    assert format(text) == text              # the printer writes the formatter's layout


def scatter(text, seed):
    """The same file with comments, blank lines, other spaces, and breaks inside parentheses; and the comments."""
    dice = random.Random(seed)
    result, comments, around = [], [], []
    for token in tokens_of(text):
        gap = dice.choice(["", " ", "   ", "\t"])
        if token.type == "NEWLINE" or around and around[-1] != "{" and dice.random() < 0.2:
            if dice.random() < 0.3:
                comments.append(f"#{dice.choice('# !')}note {len(comments)}")
                result.append(gap + comments[-1] + "  ")
            result.append("\n" * dice.randint(1, 3))
        if token.type != "NEWLINE":
            result.append((gap or " ") + token.text)
        if token.text in ("{", "(", "["):
            around.append(token.text)
        elif token.text in ("}", ")", "]"):
            around.pop()
    return "".join(result), comments


def tokens_of(text):
    source = Source("", text)
    return scan(source, Diagnostics(source, 1))


@few
@given(specs, st.integers(0, 10**6))
def test_the_formatter_keeps_the_meaning_and_every_comment(spec, seed):
    text, comments = scatter(render(spec), seed)
    once = format(text)
    assert parse(once) == spec
    assert format(once) == once
    assert [t.text for t in tokens_of(once) if t.type == "COMMENT"] == comments
    assert "\n\n\n" not in once
    assert all(line == line.rstrip(" \t") for line in once.split("\n"))
