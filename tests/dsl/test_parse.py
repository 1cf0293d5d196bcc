"""Each construct of the language, as the syntax tree it becomes."""
from fractions import Fraction

import pytest

from plait.dsl.errors import PlaitError, Source, Span
from plait.dsl.parser import parse, parse_expression, parse_override
from plait.dsl.printer import expression
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
    StreamType,
    Text,
    TokensType,
    Train,
    Tuple,
    Unary,
    Use,
)

AT = Span(0, 0, Source("", ""))              # places do not count when nodes are compared


def items(text):
    return parse("plait 1\n" + text, "test.plait").items


def item(text):
    [only] = items(text)
    return only


def statements(text):
    return item("block b { " + text + " }").body.statements


def number(value, text=None):
    return Number(value, text or str(value), AT)


def name(text):
    return Name(text, AT)


def layer(text, *arguments, called=True, body=None, parts=None):
    return Apply(text, arguments, body, parts, called, AT)


def body(*lines):
    return Body(lines, AT)


# ---- items
def test_an_empty_spec_has_a_version_and_nothing_else():
    spec = parse("# a comment\n\nplait 1\n")
    assert (spec.version, spec.items) == (1, ())


def test_dims_are_bound_bounded_free_or_constrained():
    assert item("dims { d = 4 * h; n <= 512\n m\n\n require n % c == 0 }") == Dims((
        Dim("d", "=", Binary("*", number(4), name("h"), AT), AT),
        Dim("n", "<=", number(512), AT),
        Dim("m", None, None, AT),
        Require(Binary("==", Binary("%", name("n"), name("c"), AT), number(0), AT), AT),
    ), AT)


def test_let_share_and_use():
    assert items('let p = 0.1\nshare tok = embedding(V, d)\nuse "blocks.plait"') == (
        Let("p", number(Fraction(1, 10), "0.1"), AT),
        Share("tok", Call("embedding", (Argument(None, name("V"), AT), Argument(None, name("d"), AT)), AT), AT),
        Use("blocks.plait", AT),
    )


def test_a_block_takes_sizes_defaults_and_streams():
    block = item("block b(width, p = 0.1, memory: stream[m, d]) { layer_norm }")
    assert block == Block("b", (
        Parameter("width", None, None, AT),
        Parameter("p", None, number(Fraction(1, 10), "0.1"), AT),
        Parameter("memory", StreamType((name("m"), name("d")), AT), None, AT),
    ), body(layer("layer_norm", called=False)), AT)
    assert item("block b {}") == item("block b() {}")


def test_a_model_keeps_the_order_of_its_members():
    assert item("""model m {
      dims { k = 3 }
      input x: tokens[n] of V padded
      input y: stream[n, d]
      input z: class of C
      h = x { gelu }
      output h: [n, V]
      output z: [C]
    }""") == Model("m", (
        Dims((Dim("k", "=", number(3), AT),), AT),
        Input("x", TokensType((name("n"),), name("V"), AT), True, AT),
        Input("y", StreamType((name("n"), name("d")), AT), False, AT),
        Input("z", ClassType(name("C"), AT), False, AT),
        Flow("h", "x", body(layer("gelu", called=False)), AT),
        Output("h", (name("n"), name("V")), AT),
        Output("z", (name("C"),), AT),
    ), AT)


def test_train_has_settings_and_every():
    assert item("train a, b {\n batch = 8 sequences\n every 1k steps { evaluate(loss, bleu); checkpoint(keep = 2); sample } }") == Train(
        (name("a"), name("b")), (
            Setting("batch", Quantity(number(8), "sequences", AT), AT),
            Every(Quantity(number(1000, "1k"), "steps", AT), (
                Call("evaluate", (Argument(None, name("loss"), AT), Argument(None, name("bleu"), AT)), AT),
                Call("checkpoint", (Argument("keep", number(2), AT),), AT),
                Call("sample", (), AT),
            ), AT),
        ), AT)
    assert item("train { seed = 7 }").models == ()


def test_compare():
    assert item("compare heads { models = [a, b]; fit = params(2M, by = d); budget = 10 minutes; memory = 16GiB }") == Compare("heads", (
        Setting("models", List((name("a"), name("b")), AT), AT),
        Setting("fit", Call("params", (Argument(None, number(2_000_000, "2M"), AT), Argument("by", name("d"), AT)), AT), AT),
        Setting("budget", Quantity(number(10), "minutes", AT), AT),
        Setting("memory", Bytes(16 * 2**30, "16GiB", AT), AT),
    ), AT)


# ---- bodies
def test_lines_and_semicolons_end_statements_alike():
    assert statements("layer_norm; linear(d); gelu") == statements("\n layer_norm\n\n linear(d)\n ;gelu;\n")


def test_a_layer_is_called_or_not():
    bare, empty, full = statements("gelu; gelu(); attention(heads = h, causal = true)")
    assert bare == layer("gelu", called=False)
    assert empty == layer("gelu")
    assert full == layer("attention", Argument("heads", name("h"), AT), Argument("causal", name("true"), AT))


def test_a_construct_has_a_body_or_parts():
    assert statements("residual { gelu }") == (layer("residual", called=False, body=body(layer("gelu", called=False))),)
    parts = (Part("a", body(layer("gelu", called=False)), AT), Part("b", body(), AT))
    for between in ("; ", "\n", " "):
        text = "parallel(merge = add) { a: { gelu }" + between + "b: {} }"
        assert statements(text) == (layer("parallel", Argument("merge", name("add"), AT), parts=parts),)


def test_repeat_takes_an_expression_an_index_and_shared():
    assert statements("repeat (2 * L) as i shared { gelu }") == (
        Repeat(Binary("*", number(2), name("L"), AT), "i", True, body(layer("gelu", called=False)), AT),)
    [plain] = statements("repeat L { gelu }")
    assert (plain.count, plain.index, plain.shared) == (name("L"), None, False)


def test_newlines_inside_brackets_end_nothing():
    assert statements("attention(\n  heads = h,\n  causal = true,\n)") == statements("attention(heads = h, causal = true)")
    assert item("train { lr = (1\n + 2) }") == item("train { lr = (1 + 2) }")


def test_a_brace_may_stand_on_the_next_line():
    assert item("block b\n{\n gelu\n}") == item("block b { gelu }")


def test_words_of_the_language_may_name_arguments_and_settings():
    [call] = statements("sample(tokens = 100, repeat = L, model = m)")
    assert [a.name for a in call.arguments] == ["tokens", "repeat", "model"]
    assert item("compare c { steps = 3 }").entries[0].name == "steps"


def test_tabs_and_carriage_returns_are_spaces():
    assert items("dims {\r\n\td = 1\r\n\tn\r\n}\r\n") == items("dims {\n  d = 1\n  n\n}\n")


# ---- expressions
@pytest.mark.parametrize("short, full", [
    ("a + b * c", "a + (b * c)"),
    ("a - b - c", "(a - b) - c"),
    ("a / b * c", "(a / b) * c"),
    ("a % b * c", "(a % b) * c"),
    ("2 ^ 3 ^ 4", "2 ^ (3 ^ 4)"),
    ("-a ^ 2", "-(a ^ 2)"),
    ("2 ^ -a", "2 ^ (-a)"),
    ("-a * b", "(-a) * b"),
    ("a * -b", "a * (-b)"),
    ("a + 1 < b * 2", "(a + 1) < (b * 2)"),
    ("a == b and c < d or e", "((a == b) and (c < d)) or e"),
    ("a or b and c", "a or (b and c)"),
])
def test_precedence(short, full):
    assert parse_expression(short) == parse_expression(full)
    assert parse_expression(expression(parse_expression(full))) == parse_expression(full)


def test_parentheses_change_the_tree():
    assert parse_expression("(a + b) * c") != parse_expression("a + b * c")
    assert parse_expression("(-a) ^ 2") == Binary("^", Unary("-", name("a"), AT), number(2), AT)
    assert parse_expression("a - (b - c)") != parse_expression("a - b - c")


def test_tuples_lists_texts_and_calls():
    assert parse_expression("(a, 2)") == Tuple((name("a"), number(2)), AT)
    assert parse_expression("(a)") == name("a")
    assert parse_expression("[]") == List((), AT)
    assert parse_expression("[a, 25k tokens]") == List((name("a"), Quantity(number(25_000, "25k"), "tokens", AT)), AT)
    assert parse_expression(r'"a \"b\" \\ \n"') == Text('a "b" \\ \n', AT)
    assert parse_expression(r'"C:\data"') == Text(r"C:\data", AT)
    assert parse_expression("next(text)") == Call("next", (Argument(None, name("text"), AT),), AT)


def test_a_comparison_is_not_chained():
    with pytest.raises(PlaitError) as caught:
        parse_expression("1 < n < 5")
    assert caught.value.diagnostics[0].help == "`… and n < …`"


# ---- overrides
def test_overrides():
    assert parse_override("d=256").path == ("d",)
    assert parse_override("train.lr=3e-4").path == ("train", "lr")
    assert [v.value for v in parse_override("n=1Ki,4Ki,16Ki").values] == [1024, 4096, 16384]
    assert parse_override('train.data=text("FILE")').values == (Call("text", (Argument(None, Text("FILE", AT), AT),), AT),)
    assert parse_override("m.d = 4 * h").values == (Binary("*", number(4), name("h"), AT),)
    assert parse_override("d=256").span.source.name == "--set"


@pytest.mark.parametrize("text", ["", "d", "d=", "=3", "d 3", "d=3 n=4", "d=64KB", "d=64K", "--d=3", "d=(", "d={", "a..b=3", "\x00"])
def test_a_bad_override_is_refused(text):
    with pytest.raises(PlaitError):
        parse_override(text)


# ---- places
def test_spans_cover_what_was_written():
    text = "plait 1\ndims { d = 4 * (h + 1) }\n"
    [dims] = parse(text).items
    [dim] = dims.entries
    assert text[dims.span.start:dims.span.end] == "dims { d = 4 * (h + 1) }"
    assert text[dim.span.start:dim.span.end] == "d = 4 * (h + 1)"
    assert text[dim.name_span.start:dim.name_span.end] == "d"
    assert text[dim.value.right.span.start:dim.value.right.span.end] == "(h + 1)"


def test_every_node_lies_inside_its_parent():
    def walk(node, inside):
        if hasattr(node, "span"):
            assert inside.start <= node.span.start <= node.span.end <= inside.end
            inside = node.span
            for child in vars(node).values():
                walk(child, inside)
        elif isinstance(node, tuple):
            for child in node:
                walk(child, inside)

    text = "plait 1\nmodel m { input x: tokens[n] of V padded\n"
    text += " y = x { repeat L as i { conv(d, 2^i); p { a: { gelu(1, b = -2) } } } }\n output y: [n] }\n"
    walk(parse(text).items, Span(0, len(text), Source("", text)))
