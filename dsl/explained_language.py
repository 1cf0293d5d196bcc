"""What the codes of the language mean, E01 to E05: why there is the rule, a spec that breaks it, the same one put right."""
from __future__ import annotations

Entry = tuple[str, str, str]                                   # why, wrong, right


def file(*items: str) -> str:
    """A spec of these items."""
    return "\n\n".join(("plait 1", *items)) + "\n"


def chain(layers: str, dims: str = "n = 16; d = 32", out: str = "[n, d]", takes: str = "stream[n, d]", before: tuple[str, ...] = ()) -> str:
    """A spec with one model of one stream."""
    return file(f"dims {{ {dims} }}", *before, f"model m {{\n  input x: {takes}\n  y = x {{ {layers} }}\n  output y: {out}\n}}")


def symbols(layers: str, *before: str, out: str = "[n, d]") -> str:
    """The same, where the input is symbols."""
    return chain(layers, "V = 50; n = 16; d = 32", out, "tokens[n] of V", before)


LANGUAGE: dict[str, Entry] = {
    "E0101": (
        "Numbers are kept exactly, so every suffix has one meaning: `64k` is 64,000 and `64Ki` is 65,536. `64K` is read both ways and is "
        "refused. A product has its sign: `3 * d`, not `3d`.",
        file("dims { n = 64K }"), file("dims { n = 64Ki }")),
    "E0102": (
        "Many languages write the same thing with other signs. Here a power is `^`, a product `*`, a comment starts with `#`, a value is "
        "given with `=`, a text stands in straight double quotes, and layers follow one another without arrows. The message says what to "
        "write for the sign it points at.",
        chain("linear(d) -> gelu"), chain("linear(d); gelu")),
    "E0103": (
        "Every `(`, `[` and `{` needs its other half, and a text ends on the line where it starts. The message points at what was opened; "
        "its help is a guess, from the indentation, at where the other half belongs.",
        chain("linear(d; gelu"), chain("linear(d); gelu")),
    "E0104": (
        "A bracket closes the last one opened, and of the same kind. Often a bracket was left over after an edit, or the opening one was "
        "deleted.",
        file("dims { n = 16; d = 32 } }"), file("dims { n = 16; d = 32 }")),
    "E0105": (
        "A spec is a file of UTF-8 text. This is a folder, a file that is not there or may not be read, or one that holds bytes that no "
        "text has. Name a `.plait` file, and save it as UTF-8.",
        "plait check specs\n", "plait check specs/demo.plait\n"),
    "E0106": (
        "A spec has at most 100,000 characters, brackets 100 deep and expressions of 100 operations inside one another; so a wrong file "
        "is refused at once. `repeat`, `block` and `let` say in a few lines what a longer file would write out.",
        "plait check shakespeare.txt        # the data, 1,115,394 characters\n", "plait check specs/shakespeare.plait\n"),
    "E0201": (
        "The first line names the version of the language, so that a file means the same to every later plait. This plait reads version "
        "1.",
        "dims { d = 32 }\n", file("dims { d = 32 }")),
    "E0202": (
        "What stands here is not what the language allows at this place; the message names what may follow. A value ends on its line, "
        "unless it stands in `( )`.",
        file("dims { d = }"), file("dims { d = 32 }")),
    "E0203": (
        "A newline or `;` ends a statement; commas stand between arguments only. A layer has no body in braces; a construct has one body, "
        "or named parts where it puts several streams together.",
        chain("linear(d), gelu"), chain("linear(d); gelu")),
    "E0204": (
        "The words that start a statement, and the units, cannot be names, so that a statement is known by its first word. Choose another "
        "name, or add a letter or `_`.",
        file("dims { tokens = 16 }"), file("dims { n_tokens = 16 }")),
    "E0205": (
        "Blocks are marked by braces. Indentation means nothing, and `plait fmt` sets it.",
        file("block feed:\n  linear(64)\n  gelu"), file("block feed {\n  linear(64)\n  gelu\n}")),
    "E0206": (
        "Each block takes its own statements: sizes stand in `dims`, streams in a model, layers in the braces of a stream, settings in "
        "`train`. The message says where this one belongs.",
        file("d = 32"), file("dims { d = 32 }")),
    "E0207": (
        "A dim counts elements, and how many bytes one takes depends on its type. Write `64Ki` for 65,536, or `64k` for 64,000.",
        file("dims { n = 64KiB }"), file("dims { n = 64Ki }")),
    "E0208": (
        "A small sign decides what was meant: a comma between arguments, `=` to give a value and `==` to compare, `*` in a product, `and` "
        "between two comparisons, the unit of an amount in full.",
        chain("attention(heads 4)"), chain("attention(heads = 4)")),
    "E0301": (
        "Heads, groups and the halves of a rotation take equal parts of a width, and plait never rounds a size. Choose sizes that divide; "
        "the help names the nearest.",
        chain("attention(heads = 5)"), chain("attention(heads = 4)")),
    "E0302": (
        "Division of sizes is exact, since a size counts elements: choose sizes that divide, or say `floor(d / 3)` or `ceil(d / 3)`. "
        "Widths that meet are equal: the widths of axial positions add up to the stream's, a shared table is as wide as the stream. And "
        "`--set V=300` must keep within the bound that the file gives, `V <= 256`.",
        file("dims { d = 32; w = d / 3 }"), file("dims { d = 32; w = d / 4 }")),
    "E0303": (
        "A size counts something that is there, so it is at least 1, for every value of a `repeat` index too. A table of positions has a "
        "place for each position of the sequence. A number without a finite value is told here as well.",
        chain("positions(learned, max = 8)"), chain("positions(learned, max = 16)")),
    "E0304": (
        "`require` is a promise of the file about its sizes. Costs rely on it: with `n % c == 0` they write n/c, without rounding up. So "
        "it is checked as soon as its dims have values, after every `--set` too. Change a size, or the promise.",
        file("dims { n = 100; c = 8; require n % c == 0 }"), file("dims { n = 96; c = 8; require n % c == 0 }")),
    "E0305": (
        "LSH attention finds a bucket by the largest of the coordinates after a rotation and of their opposites, so buckets come in "
        "pairs. Give an even number, or leave `buckets` out.",
        chain("lsh_attention(heads = 4, chunk = 4, buckets = 7)"), chain("lsh_attention(heads = 4, chunk = 4, buckets = 8)")),
    "E0306": (
        "The second copy of a repeated body reads what the first one gives, so the body must give back the shape that it takes. Lead the "
        "width back inside the body, or move the layer that changes it out of `repeat`.",
        chain("repeat 2 { linear(2 * d) }"), chain("repeat 2 { linear(2 * d); gelu; linear(d) }")),
    "E0307": (
        "The copies of a `repeat` keep their parameters in one table, one row a copy, so all have the same shape. The index may stand "
        "where no parameter grows with it, as in `dilation`; layers of different width are written one by one.",
        chain("repeat 3 as i { linear(d + i); linear(d) }"), chain("repeat 3 as i { conv(d, kernel = 3, dilation = 2^i) }")),
    "E0308": (
        "`chunked` takes the sequence piece by piece, which gives the same result only where no position reads another. Attention, "
        "convolutions, recurrences and positions stand outside it. `over` is the length of the stream.",
        chain("chunked(over = n, pieces = 4) { attention(heads = 4) }"),
        chain("attention(heads = 4); chunked(over = n, pieces = 4) { feed_forward(4 * d) }")),
    "E0309": (
        "Inputs, outputs and the streams of a block state their shapes, and the layers must lead to just these. Correct the statement "
        "where the layers are right, or the layers where they are not.",
        chain("linear(2 * d)"), chain("linear(2 * d)", out="[n, 2 * d]")),
    "E0310": (
        "Streams that are added or multiplied have one shape, and side by side they have one length. `reversible` takes at least two "
        "named parts, `parallel` at least one. A `linear` at the end of a branch brings it to the width of the stream.",
        chain("residual { linear(2 * d); gelu }"), chain("residual { linear(2 * d); gelu; linear(d) }")),
    "E0311": (
        "Symbols are numbers of rows in a vocabulary and have no width. `embed` makes vectors of them, for the layers that follow.",
        symbols("linear(d)"), symbols("embed(V, width = d); linear(d)")),
    "E0312": (
        "`pool` makes one vector of a sequence, and a `stream[d]` is one vector from the start. Layers that read neighbours, such as "
        "attention, convolutions and recurrences, stand before `pool`.",
        chain("pool(mean); attention(heads = 4)", out="[d]"), chain("attention(heads = 4); pool(mean)", out="[d]")),
    "E0313": (
        "`embed` looks symbols up in a table, so it stands first, on an input of `tokens`. Vectors of another width are made by `linear`.",
        chain("embed(50, width = d)"), symbols("embed(50, width = d)")),
    "E0401": (
        "A name in a size or a number is bound in `dims`, by `let`, as a parameter of the block, or as the index of a `repeat`. The "
        "message lists what is in scope; `--set` reaches only names that the file binds. The batch is `b` in costs, and no dim.",
        chain("feed_forward(dff)", "n = 16; d = 32; f = 64"), chain("feed_forward(f)", "n = 16; d = 32; f = 64")),
    "E0402": (
        "`plait layers` lists the layers; blocks, streams and models are those of the file. A stream is known from the line below the one "
        "that makes it, and a train block may name only models of the file. The help gives the nearest names.",
        chain("self_attention(heads = 4)"), chain("attention(heads = 4)")),
    "E0403": (
        "Sizes and numbers know `sqrt exp log log2 cos ceil floor`, of one argument, and `min max`, of several.",
        file("dims { d = 32; w = round(d / 3) }"), file("dims { d = 32; w = floor(d / 3) }")),
    "E0404": (
        "The order of dims does not matter, but each must come in the end from numbers and free dims. Give one in the circle a value.",
        file("dims { d = 32; h = d / w; w = d / h }"), file("dims { d = 32; h = 4; w = d / h }")),
    "E0405": (
        "A block is copied into the place of its use, which would never end for one that uses itself, even by way of another. `repeat` "
        "says how many times.",
        chain("deep", before=("block deep {\n  linear(32)\n  deep\n}",)),
        chain("repeat 3 { deep }", before=("block deep {\n  linear(32)\n}",))),
    "E0406": (
        "In one place a name means one thing. A dim in a model may hide one of the file; within one of them, and together with the files "
        "of `use`, each name is bound once. `b` (the batch), `pi` and the names of layers are taken.",
        file("dims { d = 32; d = 64 }"), file("dims { d = 32; f = 64 }")),
    "E0407": (
        "`use` brings in the dims, lets, shares and blocks of another file, so a file cannot use itself, even by way of others; here the "
        "example is called `lib.plait`. A text that is no file has no folder to find others in. Move what both need into a third file.",
        file('use "lib.plait"', "block feed {\n  linear(64)\n}"), file("block feed {\n  linear(64)\n}")),
    "E0408": (
        "A model is a function: it says what it takes with `input` and what it gives with `output`. A command that needs a model needs "
        "one in the file.",
        file("model m {\n  input x: stream[16, 32]\n  y = x { gelu }\n}"),
        file("model m {\n  input x: stream[16, 32]\n  y = x { gelu }\n  output y: [16, 32]\n}")),
    "E0501": (
        "Every argument has a name and a kind: a size, a number, `true` or `false`, one of certain words, a stream. `plait layers NAME` "
        "shows them. Names of other libraries are answered with the name used here.",
        chain("attention(num_heads = 4)"), chain("attention(heads = 4)")),
    "E0502": (
        "An argument without a default decides the shape or the meaning of the layer, so it is never guessed. `plait layers NAME` shows "
        "which have defaults.",
        chain("conv(d)"), chain("conv(d, kernel = 3)")),
    "E0503": (
        "The value is of the right kind, but outside what the layer can mean: a probability is at least 0 and below 1, the number of "
        "layers of a recurrence from 1 to 256. The message gives the range.",
        chain("dropout(1)"), chain("dropout(0.1)")),
    "E0504": (
        "Each argument is right alone, but together they contradict each other: attention to the keys of another stream is neither causal "
        "nor in a window, a grid belongs to axial positions only. Leave out the one that is not meant.",
        chain("attention(heads = 4, keys = x, causal = true)"), chain("attention(heads = 4, causal = true)")),
    "E0505": (
        "Only the first argument of a layer may stand without its name, and flags have a value (`causal = true`): so a line can be read "
        "without the list of arguments. Functions such as `min` take values without names. Where one value is needed, `--set n=1,2` is "
        "refused.",
        chain("conv(d, kernel = 3, causal)"), chain("conv(d, kernel = 3, causal = true)")),
    "E0506": (
        "`share` names a table of parameters that several places use, and the only kind of table is `embedding(rows, width)`. Layers with "
        "one set of parameters are written `repeat L shared { … }`.",
        symbols("embed(tok)", "share tok = linear(V, d)"), symbols("embed(tok)", "share tok = embedding(V, d)")),
}
