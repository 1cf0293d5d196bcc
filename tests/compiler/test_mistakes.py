"""What people really write wrong in names, sizes and shapes, and what each gets: code, the marked text, words of the message."""
import pytest

from plait.compiler.causality import leaks
from plait.compiler.expand import expand, open_file
from plait.compiler.unused import unused
from plait.dsl.errors import PlaitError, render_all
from plait.dsl.parser import parse


def wrong(text: str):
    """The diagnostics of a text, over all its models."""
    try:
        file = open_file(parse(text, "test.plait"))
        for m in file.models: expand(file, m, loss=True)
    except PlaitError as e:
        assert render_all(e)
        return e.diagnostics
    return ()


def marked(d) -> str:
    return d.span.source.text[d.span.start:d.span.end]


def spec(body: str, dims: str = "n = 16; d = 8; h = 2; f = 4 * d", before: str = "", out: str = "[n, d]") -> str:
    return f"plait 1\ndims {{ {dims} }}\n{before}\nmodel m {{\n  input x: stream[n, d]\n  y = x {{\n{body}\n  }}\n  output y: {out}\n}}\n"


LM = """plait 1
model m { input text: tokens[8] of 5; logits = text { embed(5, width = 4); unembed(5) }; output logits: [8, 5] }
train m { data = bytes("x"); loss = cross_entropy(logits, next(text)); batch = 2 sequences; lr = 1; stop = 1 steps }
"""

CASES = {
    # body or whole file, code, marked text, words in the message or help
    "a misspelt layer": (spec("attnetion(heads = h)"), "E0402", "attnetion", "attention"),
    "another library's argument": (spec("attention(n_heads = 8)"), "E0501", "n_heads", "called `heads` here"),
    "an undefined dim": (spec("linear(dff)"), "E0401", "dff", "`f` (32)"),
    "dims that define each other": ("plait 1\ndims { h = 2; d = h * k; k = d / h }\n", "E0404", "d = h * k", "define each other"),
    "heads that do not divide": (spec("attention(heads = h)", "n = 16; d = 1024; h = 12"), "E0301", "h", "8 or 16"),
    "heads that do not divide a huge width": (spec("attention(heads = h)", "n = 16; d = 10^15; h = 7"), "E0301", "h", "5 or 8"),
    "a branch of another width": (spec("residual { linear(f); gelu }"), "E0310", "residual", "[n, f]"),
    "one part": (spec("reversible(repeat = 2) { attend: { attention(heads = h) } }"), "E0310", "reversible", "at least two"),
    "a size that is not whole": (spec("linear(d / 3)"), "E0302", "d / 3", "whole"),
    "a derived dim that is not whole": ("plait 1\ndims { d = 10; k = d / 4 }\n", "E0302", "d / 4", "whole"),
    "an index that gives a size of zero": (spec("repeat 3 as i { conv(d, kernel = 3, dilation = i) }"), "E0303", "i", "i = 0"),
    "an index that gives half a size": (
        spec("repeat 3 as i { conv(d, kernel = 3, dilation = (i + 2) / 2) }"), "E0302", "(i + 2) / 2", "i = 1"),
    "an index that divides by zero": (spec("repeat 3 as i { conv(d, kernel = 3, dilation = 1 / i) }"), "E0303", "1 / i", "i = 0"),
    "a free number of trips": (spec("repeat L as i { conv(d, kernel = 3, dilation = i) }", "n = 8; d = 4; L"), "E0303", "i", "i = 0"),
    "squares of squares": ("plait 1\ndims { a = 10^20; b1 = a * a; c = b1 * b1; e = c^100; g = e^100 }\n", "E0303", "b1 * b1", "10^60"),
    "what can never hold": ("plait 1\ndims { n; require n < n }\n", "E0304", "require n < n", "n < n"),
    "what no length is": ("plait 1\ndims { n; require n <= 0 }\n", "E0304", "require n <= 0", "n <= 0"),
    "another pi": ("plait 1\ndims { pi = 3 }\n", "E0406", "pi = 3", "another name"),
    "sines with first weights": (spec("positions(sinusoidal, std = 1)"), "E0504", "1", "no"),
    "a deviation below nothing": (spec("positions(learned, std = -1)"), "E0503", "-1", "at least 0"),
    "a table of sines": (spec("positions(sinusoidal, max = 5)"), "E0504", "5", "learned"),
    "an odd width": (spec("positions(sinusoidal)", "n = 8; d = 5"), "E0301", "sinusoidal", "d = 4 or 6"),
    "odd heads to turn": (spec("positions(rotary); attention(heads = 2, head_width = 3)"), "E0301", "3", "head_width = 2 or 4"),
    "the batch as a size": (spec("linear(b)"), "E0401", "b", "in scope"),
    "a recurrence repeated in pieces": (spec("chunked(over = n, pieces = 4) { repeat 2 { gru(d) } }"), "E0308", "gru(d)", "move it out"),
    "attention repeated in pieces": (spec("chunked(over = n, pieces = 4) { repeat 2 shared { attention(heads = h) } }"), "E0308",
                                     "attention(heads = h)", "move it out"),
    "a reversible recurrence in pieces": (
        spec("chunked(over = n, pieces = 4) { reversible(repeat = 2) { a: { linear(d) }; c: { gru(d) } } }"),
        "E0308", "gru(d)", "move it out"),
    "dilations in pieces": (spec("chunked(over = n, pieces = 4) { repeat 2 as i { conv(d, kernel = 2, dilation = 2^i) } }"), "E0308",
                            "conv(d, kernel = 2, dilation = 2^i)", "move it out"),
    "positions in pieces": (spec("chunked(over = n, pieces = 4) { positions(learned) }"), "E0308", "positions(learned)", "move it out"),
    "axial positions in pieces": (
        spec("chunked(over = n, pieces = 4) { positions(axial, grid = (4, 4), widths = (4, 4)) }"), "E0308",
        "positions(axial, grid = (4, 4), widths = (4, 4))", "move it out"),
    "turns in pieces": (spec("chunked(over = n, pieces = 4) { positions(rotary) }; attention(heads = h)"), "E0308", None, "out of chunked"),
    "two outputs of one name": (
        spec("linear(d)").replace("output y", "output y: [n, d]\n  output y"), "E0406", "output y: [n, d]", "two outputs"),
    "a name of PyTorch": (spec("linear(d)").replace("y", "training"), "E0406", None, "choose another"),
    "a table with too few rows": (
        "plait 1\nshare t = embedding(5, 8)\nmodel m { input x: tokens[4] of 11; y = x { embed(t) }; output y: [4, 8] }\n",
        "E0302", "t", "5 rows"),
    "a loss of symbols": (LM.replace("logits, next", "text, next"), "E0309", "text", "a score for every symbol"),
    "next of nothing": (LM.replace("next(text)", "next()"), "E0402", "next()", "no input of symbols"),
    "a size of zero": (spec("linear(d - d)"), "E0303", "d - d", "at least 1"),
    "a broken promise": ("plait 1\ndims { n = 10; c = 4; require n % c == 0 }\n", "E0304", "require n % c == 0", "n % c == 0"),
    "an odd number of buckets": (spec("lsh_attention(heads = h, chunk = 4, buckets = 7)"), "E0305", "7", "even"),
    "a repeat that changes the width": (spec("repeat 2 { linear(f) }"), "E0306", None, "[n, f]"),
    "an index in a parameter's shape": (spec("repeat 3 as i { linear(d + i); linear(d) }"), "E0307", None, "i"),
    "mixing in a chunked body": (spec("chunked(over = n, pieces = 4) { linear(d); attention(heads = h) }"),
                                 "E0308", "attention(heads = h)", "mixes"),
    "a recurrence in a chunked body": (spec("chunked(over = n, pieces = 4) { rnn(d) }"), "E0308", "rnn(d)", "mixes"),
    "a shift in a chunked body": (spec("chunked(over = n, pieces = 4) { shift_right }"), "E0308", "shift_right", "mixes"),
    "positions in a chunked body": (spec("chunked(over = n, pieces = 4) { positions(sinusoidal) }"),
                                    "E0308", "positions(sinusoidal)", "mixes"),
    "an output of another shape": (spec("linear(f)"), "E0309", "output y: [n, d]", "[n, f]"),
    "a block in itself": (spec("loop", before="block loop { loop }"), "E0405", None, "contains itself"),
    "no such stream": (spec("attention(heads = h, keys = memroy)"), "E0402", "memroy", "stream"),
    "two arguments without a name": (spec("conv(d, 3)"), "E0505", "3", "kernel"),
    "a missing argument": (spec("conv(d)"), "E0502", None, "kernel"),
    "a word where a size belongs": (spec("linear(true)"), "E0501", "true", "number belongs"),
    "a bare flag": (spec("attention(heads = h, causal)"), "E0505", "causal", "causal = true"),
    "a size where a word belongs": (spec("feed_forward(d, activation = 3)"), "E0501", "3", "relu"),
    "a word that is no choice": (spec("feed_forward(d, activation = swish)"), "E0501", "swish", "relu"),
    "dropout of one": (spec("dropout(1)"), "E0503", "1", "below 1"),
    "vectors where symbols belong": (spec("embed(10, width = d)"), "E0313", None, "vectors already"),
    "a dim bound twice": ("plait 1\ndims { d = 1; d = 2 }\n", "E0406", "d = 2", "twice"),
    "the batch": ("plait 1\ndims { b = 1 }\n", "E0406", "b = 1", "batch"),
    "a window on another stream": (spec("attention(heads = h, keys = x, window = 3)"), "E0504", None, "window"),
    "a sequence beside a pooled vector": (
        spec("parallel(merge = concat) { a: { pool(mean) } c: { tanh } }"), "E0310", None, "side by side"),
    "a count that would fill the graph": (spec("lstm(d, layers = 10^9)"), "E0503", "10^9", "at most 256"),
    "attention after pool": (spec("pool(mean); attention(heads = h, keys = x)", out="[d]"), "E0312", None, "none left after pool"),
    "chunks that wrap around twice": (spec("lsh_attention(heads = h, chunk = 4, look_back = 9, wrap = true)"), "E0504", "9", "twice"),
    "positions that do not reach": (spec("positions(learned, max = 4)"), "E0303", "4", "16"),
    "no input": ("plait 1\nmodel m { output y: [1] }\n", "E0408", None, "no input"),
}


@pytest.mark.parametrize("name", CASES)
def test_mistake(name):
    text, code, where, words = CASES[name]
    found = wrong(text)
    assert found, "no mistake was found"
    d = next((d for d in found if d.code == code), None)
    assert d is not None, [(x.code, x.message) for x in found]
    assert where is None or marked(d) == where
    assert words in f"{d.message} {d.help} {d.numbers}", (d.message, d.help, d.numbers)


def test_heads_that_do_not_divide_shows_where_both_were_set():
    d, = wrong(spec("attention(heads = h)", "n = 16\nd = 1024\nh = 12"))
    assert d.numbers == "d / h = 1024 / 12 leaves 4"
    assert d.help == "h = 8 or 16; or d = 1020 or 1032"
    assert [marked(n) for n in d.notes] == ["d = 1024", "h = 12"]


def test_the_grid_and_the_widths_at_once():
    """Axial positions: a grid that does not cover n, widths that do not add up to d: both reported at once, before anything is built."""
    found = wrong(spec("positions(axial, grid = (3, 4), widths = (2, 5))"))
    assert [d.code for d in found] == ["E0303", "E0302"] and [marked(d) for d in found] == ["(3, 4)", "(2, 5)"]


def test_all_independent_mistakes_in_one_run():
    found = wrong(spec("attention(n_heads = 8)\nlinear(dff)\nconv(d, kernel = true)\nwibble"))
    assert [d.code for d in found] == ["E0501", "E0401", "E0501", "E0402"]


def test_at_most_twenty():
    assert len(wrong(spec("\n".join(f"linear(q{i})" for i in range(50))))) == 20


LANGUAGE_MODEL = """plait 1
dims {{ V = 11; n = 16; d = 8; h = 2 }}
model m {{
  input text: tokens[n] of V
  logits = text {{ {shift}embed(V, width = d); residual {{ attention(heads = h{causal}) }}; unembed(V) }}
  output logits: [n, V]
}}
train m {{ data = text("f"); loss = cross_entropy(logits, {target}); batch = 1 sequences; lr = 1; stop = 1 steps }}
"""


def test_a_stream_that_nothing_reads():
    text = spec("linear(d)").replace("  output y", "  z = y { linear(f) }\n  w = y { linear(f) }\n  output w: [n, f]\n  output y")
    d, = unused(open_file(parse(text, "test.plait")), "m")
    assert (d.code, marked(d)) == ("W0402", "z = y { linear(f) }")


@pytest.mark.parametrize("causal, shift, target, leak", [
    ("", "", "next(text)", True),
    (", causal = true", "", "next(text)", False),
    (", causal = true", "", "text", True),                    # the logits at t see symbol t itself
    (", causal = true", "shift_right; ", "text", False),
    ("", "shift_right; ", "text", True),
])
def test_a_model_that_sees_what_it_predicts(causal, shift, target, leak):
    file = open_file(parse(LANGUAGE_MODEL.format(causal=causal, shift=shift, target=target), "lm.plait"))
    found = leaks(file, "m")
    assert [d.code for d in found] == (["W0401"] if leak else [])
    if leak:
        way = found[0].numbers.split(" → ")
        assert way[0] == "text" and way[-2:] == ["logits", "loss"]
        assert causal or "attention" in way


def test_a_pooled_loss_has_no_pieces():
    text = ("plait 1\nmodel m {\n  input x: stream[8, 4]\n  input c: class of 3\n  y = x { pool(mean); linear(3) }\n  output y: [3]\n}\n"
            "train m {\n  data = bytes(\"a\")\n  loss = cross_entropy(y, c, pieces = 4)\n  stop = 1 steps\n}\n")
    with pytest.raises(PlaitError) as wrong: expand(open_file(parse(text)), "m", loss=True)
    d, = wrong.value.diagnostics
    assert d.code == "E0504" and text[d.span.start:d.span.end] == "pieces = 4"
