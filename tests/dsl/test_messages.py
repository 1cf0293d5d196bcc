"""What a person is told: the wrong programs of `wrong/`, each with its recorded output, and the facts about messages."""
import os
import re
from pathlib import Path

import pytest

from plait.dsl.codes import CODES
from plait.dsl.errors import LIMIT, PlaitError, render_all
from plait.dsl.lexer import FOREIGN, KEYWORDS
from plait.dsl.parser import parse
from plait.dsl.tables import load
from plait.dsl.wording import BLOCKS, words

WRONG = sorted((Path(__file__).parent / "wrong").glob("*.plait"))
SIZES = "dims { n = 512; d = 64; h = 8; V = 256; f = 256; L = 2; c = 64 }\n"


def refuse(text):
    with pytest.raises(PlaitError) as caught:
        parse(text, "test.plait")
    return caught.value.diagnostics


def only(text):
    [diagnostic] = refuse("plait 1\n" + text)
    line, column = diagnostic.span.source.place(diagnostic.span.start)
    return diagnostic, line, column


@pytest.mark.parametrize("path", WRONG, ids=lambda p: p.stem)
def test_wrong_programs_get_the_recorded_output(path):
    """`PLAIT_RECORD=1 pytest tests/dsl` records anew; every sentence is then to be read."""
    with pytest.raises(PlaitError) as caught:
        parse(path.read_bytes().decode(), path.name)
    output = render_all(caught.value) + "\n"
    recorded = path.with_suffix(".txt")
    if os.environ.get("PLAIT_RECORD"):
        recorded.write_text(output, encoding="utf-8")
    assert output == recorded.read_text(encoding="utf-8")
    assert all(d.code in CODES and d.span for d in caught.value.diagnostics)


# ---- what people really write
def test_a_missing_brace_before_the_next_item_is_reported_at_its_opener():
    found, line, column = only("model m {\n  input x: tokens[n] of V\n  y = x {\n    gelu\n  }\n\ntrain m {\n  lr = 1\n}\n")
    assert (found.message, line, column) == ("this `{` is never closed", 2, 9)


@pytest.mark.parametrize("text, line", [
    ("model m {\n  y = x {\n    gelu\n  output y: [n]\n}\n", 3),                      # the flow's
    ("model m {\n  y = x {\n    repeat L {\n      gelu\n  }\n  output y: [n]\n}\n", 4),   # the repeat's
    ("block b {\n  gelu\n", 2),
])
def test_the_indentation_says_which_brace_is_missing(text, line):
    found, where, _ = only(text)
    assert (found.message, where) == ("this `{` is never closed", line)


def test_a_file_whose_brackets_match_is_read_however_it_is_indented():
    assert parse("plait 1\nmodel m {\n      y = x {\n  repeat L {\ngelu\n      }\n  }\n        output y: [n]\n}\n")


def test_a_missing_parenthesis_is_reported_at_its_opener():
    found, line, column = only("block b {\n  attention(heads = 8,\n  layer_norm\n}\n")
    assert (found.message, found.help, line, column) == ("this `(` is never closed", "`attention(heads = 8)`", 3, 12)


def test_a_block_behind_a_colon_is_told_of_braces():
    found, line, column = only("model m:\n    input x: tokens[n] of V\n    y = x:\n        gelu\n")
    assert (found.code, line, column) == ("E0205", 2, 8)
    assert "braces" in found.message and "`model m {`" in found.help


def test_arguments_use_equals():
    found, line, column = only("block b { attention(heads: 8, causal: true) }\n")
    assert (found.message, column) == ("an argument is given with `=`, not with `:`", 26)


def test_one_layer_stands_on_each_line():
    found, line, column = only("block b {\n  layer_norm lsh_attention(heads = h)\n}\n")
    assert (found.code, line, column) == ("E0203", 3, 14)
    assert found.message == "one layer on each line, or `;` between them"


def test_arrows_are_explained_once():
    found, line, column = only("block b { embed(tok) -> dropout(p) -> gelu }\n")
    assert found.message == "`->`: layers compose by order, without arrows"


def test_each_foreign_sign_is_explained_once_and_recovery_continues():
    diagnostics = refuse("plait 1\n// one\n// two\nuse 'x'\nuse 'y'\nuse “z”\ndims { d = 2 ** 3; e = 2 ** 4; f = 64K }\n")
    assert [d.code for d in diagnostics] == ["E0102"] * 4 + ["E0101"]
    signs = ["`//`", "single quotes", "curly quotes", "`**`", "64K"]
    assert all(sign in d.message for sign, d in zip(signs, diagnostics, strict=True))


@pytest.mark.parametrize("sign", sorted(FOREIGN))
def test_every_foreign_sign_has_its_message(sign):
    diagnostics = refuse(f"plait 1\ndims {{ d = 4 {sign} 2 }}\n")
    assert diagnostics[0].code == "E0102" and diagnostics[0].message.startswith(f"`{sign}`: ")


def test_a_length_is_not_read_in_two_ways_and_has_no_bytes():
    found, _, column = only("dims { n = 64K }\n")
    assert (found.help, column) == ("`64Ki` (65,536) or `64k` (64,000)", 12)
    for size in ("64KB", "64KiB", "64kb"):
        found, _, _ = only(f"dims {{ n = {size} }}\n")
        assert found.message == f"`{size}`: a length has no bytes"
        assert found.help == "`64Ki` (65,536) or `64k` (64,000)"


@pytest.mark.parametrize("text", ["", " \n\n", "# only a comment\n"])
def test_an_empty_file_is_told_its_first_line(text):
    [found] = refuse(text)
    assert "empty" in found.message and found.help == "`plait 1`"


def test_all_independent_mistakes_are_found_in_one_run():
    lines = [("dims { d = }", 2), ("let = 3", 3), ("block b { 3; gelu }", 4), ("train { lr 3 }", 5), ("dims { e = 5 }", 6), ("use x", 7)]
    diagnostics = refuse("plait 1\n" + "\n".join(text for text, _ in lines) + "\n")
    assert [d.span.source.place(d.span.start)[0] for d in diagnostics] == [2, 3, 4, 5, 7]


def test_at_most_twenty_are_reported():
    assert len(refuse("plait 1\n" + "let = 3\n" * 100)) == LIMIT == 20


# ---- facts about every message
def test_no_state_of_the_parser_speaks_of_terminals():
    """Whatever may stand in a place is named in a person's words."""
    for row in load().actions:
        for place in BLOCKS:
            for before in ("", "NAME", "MODEL", "EVERY", "EQUAL"):
                text = words(set(row), place, before)
                assert text and not re.search(r"\b[A-Z_$]{2,}\b", text), (row, text)


def test_every_keyword_is_refused_as_a_name():
    for word in KEYWORDS:
        diagnostics = refuse(f"plait 1\ndims {{ {word} = 3 }}\n")
        assert diagnostics[0].code == ("E0202" if word == "require" else "E0204"), word


@pytest.mark.parametrize("text, help", [
    ("block b { linear d }", "block b { linear; d }"),
    ("block b { linear d }", "block b { linear(d) }"),
    ("dims { n = 64K }", "dims { n = 64Ki }"),
    ("dims { n < 512 }", "dims { n <= 512 }"),
    ("dims { f = 4 d }", "dims { f = 4 * d }"),
    ("use blocks", 'use "blocks.plait"'),
    ("train { stop = 100k step }", "train { stop = 100k steps }"),
    ("block b { attention(heads 8) }", "block b { attention(heads = 8) }"),
])
def test_what_the_help_says_compiles(text, help):
    """The quoted help, put in the place of what was written."""
    assert any(piece.strip("`").strip("…; ") in help for piece in re.findall(r"`[^`]+`", only(text)[0].help))
    assert parse("plait 1\n" + help + "\n")
