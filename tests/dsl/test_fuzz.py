"""Any text gives a Spec or a PlaitError, at once."""
import random
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plait.dsl.errors import PlaitError, render_all
from plait.dsl.lexer import FOREIGN, KEYWORDS, SIGNS
from plait.dsl.parser import parse, parse_expression, parse_override
from plait.dsl.spec import Spec

PIECES = [*sorted(KEYWORDS), *SIGNS, *FOREIGN, *"dnhfLV", "gelu", "64Ki", "64K", "1e-3", '"x"', "'x'", '"',
          "\n", "\n  ", "#c\n", "“x”", "//", "λ", "@"]
many = settings(max_examples=200, deadline=None, derandomize=True)


def survive(text, read=parse):
    try:
        return read(text)
    except PlaitError as problem:
        assert 0 < len(problem.diagnostics) <= 20
        render_all(problem, color=True)
        return problem


@many
@given(st.text())
@example("\ud800")
@example("\x85\u2028\u2029\x0b\x0c")
def test_any_text(text):
    assert isinstance(survive(text), Spec | PlaitError)
    assert isinstance(survive("plait 1\n" + text), Spec | PlaitError)
    survive(text, parse_override)
    survive(text, parse_expression)


@many
@given(st.lists(st.sampled_from(PIECES), max_size=40), st.sampled_from(["", " "]))
def test_any_row_of_pieces(pieces, between):
    text = between.join(pieces)
    for start in ("plait 1\n", "plait 1\nmodel m {\n", "plait 1\nblock b { ", "plait 1\ntrain {\n", "plait 1\ndims { "):
        survive(start + text)
        survive(start + text + " }")
    survive(text, parse_override)
    survive(text, parse_expression)


@many
@given(st.integers(0, 10**9))
def test_a_file_with_one_token_changed(seed):
    dice = random.Random(seed)
    words = GOOD.replace("\n", " \n ").split(" ")
    for _ in range(dice.randint(1, 3)):
        at = dice.randrange(len(words))
        words[at:at + dice.randint(0, 2)] = dice.choices(PIECES, k=dice.randint(0, 2))
    survive(" ".join(words))


GOOD = """plait 1
dims { d = 64 ; n <= 512
  require n % 2 == 0 }
share tok = embedding( V , d )
block b ( w , m : stream[ m , d ] ) { residual( norm = pre ) { linear( w ) ; gelu } }
model m {
  input x : tokens[ n ] of V padded
  y = x { repeat L as i shared { b( 4 * d ) } ; parallel { a : { gelu } c : { relu } } }
  output y : [ n , V ]
}
train m { lr = 1e-3 ; every 500 steps { evaluate( loss ) } }
"""
START = "plait 1\n"
LARGE = {
    "random bytes": random.Random(0).randbytes(10**6).decode("utf-8", "replace"),
    "random letters": "".join(random.Random(1).choices('abc(){}[]"\'=,:;. \n#0123+-*/^%<>', k=10**6)),
    "deep bodies": START + "block b { " + "r { " * 10_000 + "} " * 10_000 + "}",
    "open bodies": START + "block b { " + "r { " * 10_000,
    "deep parentheses": START + "let x = " + "(" * 10_000 + "1" + ")" * 10_000,
    "deep minus": START + "let x = " + "-" * 10_000 + "1",
    "deep power": START + "let x = " + "2^" * 10_000 + "1",
    "long sum": START + "let x = " + "1+" * 10_000 + "1",
    "long digits": START + "let x = " + "9" * 90_000,
    "large exponent": START + "let x = 1e999999999",
    "open quotes": START + '"\n' * 40_000,
    "open comments": START + "/*" * 40_000,
    "braces": START + "}" * 90_000,
    "brackets": START + "({[" * 30_000,
    "colons": START + "share t = e(" + "a:1," * 10_000 + ")",
    "commas": START + "dims {" + "a," * 10_000 + "}",
}


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE.keys())
def test_a_large_text_is_refused_at_once(text):
    start = time.process_time()
    problem = survive(text)
    assert isinstance(problem, PlaitError)
    assert time.process_time() - start < 3   # about 0.1 s; the rest is for a busy machine
    assert all(len(d.message) < 200 for d in problem.diagnostics)


def test_as_deep_as_allowed_is_walked_without_trouble():
    text = START + "block b " + "{ r " * 99 + "{}" + " }" * 99
    spec = parse(text)
    assert spec == parse(text) and hash(spec.items) == hash(parse(text).items) and repr(spec)


def test_a_large_power_is_only_a_tree():
    assert parse("plait 1\ndims { L = 10^9 }\n")
