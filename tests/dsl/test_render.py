"""A diagnostic on a screen."""
from plait.dsl.errors import Diagnostic, Note, PlaitError, Source, Span, render, render_all


def span(source, text, nth=0):
    at = -1
    for _ in range(nth + 1):
        at = source.text.index(text, at + 1)
    return Span(at, at + len(text), source)


def test_the_place_the_notes_the_numbers_and_the_help():
    lines = ["plait 1", *[""] * 7, "  h = 12", *[""] * 20, "        lsh_attention(heads = h, causal = true)"]
    source = Source("reformer.plait", "\n".join(lines))
    found = Diagnostic("E0301", "attention splits the stream width evenly over its heads", span(source, "h,"),
                       (Note(span(source, "h = 12")),),
                       "d / h = 1024 / 12 leaves 4", "h = 8 or 16; or d = 1020 or 1032")
    assert render(found) == """\
error[E0301]: attention splits the stream width evenly over its heads
  --> reformer.plait:30:31
   |
30 |         lsh_attention(heads = h, causal = true)
   |                               ^^
 9 |   h = 12
   |   ------ set here
   = d / h = 1024 / 12 leaves 4
   = help: h = 8 or 16; or d = 1020 or 1032"""


def test_without_a_place():
    assert render(Diagnostic("W0401", "the prediction sees its target", help="causal = true")) == (
        "warning[W0401]: the prediction sees its target\n  = help: causal = true")


def test_a_note_in_another_file_names_it():
    here, there = Source("a.plait", "d = h"), Source("b.plait", "h = 3")
    text = render(Diagnostic("E0301", "no", span(here, "h"), (Note(span(there, "h"), "from here"),)))
    assert text.index("--> a.plait:1:5") < text.index("--> b.plait:1:1") < text.index("- from here")


def test_a_long_line_is_cut_around_its_place():
    source = Source("x", "a" * 300 + " here " + "b" * 300)
    shown, caret = render(Diagnostic("E0202", "no", span(source, "here"))).split("\n")[3:5]
    assert len(shown) < 110 and shown.count("…") == 2
    assert shown[caret.index("^"):][:4] == "here" and caret.count("^") == 4


def test_the_end_of_a_long_line_is_cut():
    source = Source("x", "here " + "b" * 300)
    shown, caret = render(Diagnostic("E0202", "no", span(source, "here"))).split("\n")[3:5]
    assert shown.endswith("b…") and shown.startswith("1 | here") and caret.endswith("| ^^^^")


def test_wide_characters_take_two_columns():
    source = Source("x", 'use "日本" here')
    caret = render(Diagnostic("E0202", "no", span(source, "here"))).split("\n")[4]
    assert caret == "  | " + " " * 11 + "^^^^"   # `use "` 5, two characters of 2, `" ` 2


def test_a_place_at_the_end_of_a_line_and_of_the_text():
    source = Source("x", "d =\n")
    assert render(Diagnostic("E0202", "no", Span(3, 3, source))).split("\n")[4] == "  |    ^"
    assert render(Diagnostic("E0202", "no", Span(4, 4, source))).split("\n")[1] == " --> x:2:1"


def test_what_cannot_be_printed_is_not():
    assert "\x1b" not in render(Diagnostic("E0105", "no", Span(1, 2, Source("x", "a\x1b[31mb"))))


def test_colour_only_adds():
    source = Source("x", "d = 3")
    found = Diagnostic("E0202", "no", span(source, "3"), (Note(span(source, "d")),), "1 > 0", "yes")
    import re
    assert re.sub(r"\x1b\[[0-9;]*m", "", render(found, color=True)) == render(found)
    assert "\x1b[" in render(found, color=True)


def test_all_of_a_run():
    assert render_all(PlaitError(Diagnostic("E0202", "one"), Diagnostic("E0203", "two"))) == "error[E0202]: one\n\nerror[E0203]: two"
