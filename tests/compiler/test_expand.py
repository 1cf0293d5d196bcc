"""The language's rules as facts about graphs."""
import pytest
import sympy as sp

from plait.compiler.constructs import CONSTRUCTS
from plait.compiler.costs.params import params
from plait.compiler.costs.work import macs
from plait.compiler.expand import expand, open_file
from plait.compiler.layer import LAYERS
from plait.compiler.prims import Loop
from plait.compiler.verify import verify
from plait.dsl.override import apply
from plait.dsl.parser import parse, parse_override


def program(text: str, *sets: str, loss: bool = False):
    original = parse(text, "test")
    spec = apply(original, tuple(map(parse_override, sets))) if sets else original
    file = open_file(spec, None, original)
    return expand(file, next(iter(file.models)), loss=loss)


def names(p) -> set[str]:
    return {v.name for v in p.graph.ins if v.kind == "param"}


BLOCKS = """plait 1
dims { n = 4; m = 6; d = 8; h = 2 }
let p = 0.5
block inner(width = 2 * d) { linear(width); linear(d) }
block outer(memory: stream[m, d], k) { residual { attention(heads = k, keys = memory) }; inner; inner(width = 3) }
model t {
  dims { h = 4 }
  input a: stream[m, d]
  input x: stream[n, d]
  memory = a { linear(d) }
  y = x { outer(memory = memory, k = h) ; dropout(p) }
  output y: [n, d]
}
"""


def test_blocks_take_sizes_and_streams_and_the_inner_dim_wins():
    p = program(BLOCKS)
    assert {n for n in names(p) if n.endswith("weight")} == {
        "memory/0/weight", "y/0/1/0/weight", "y/0/1/1/weight", "y/0/2/0/weight", "y/0/2/1/weight"}
    sizes = {v.name: [p.sizes.value(a.size) for a in v.axes] for v in p.graph.ins if v.kind == "param"}
    assert sizes["y/0/1/0/weight"] == [16, 8] and sizes["y/0/2/0/weight"] == [3, 8]
    assert sizes["y/0/0/0/query"] == [4, 2, 8]                # h = 4 of the model


def test_every_node_has_a_place_and_a_span():
    p = program(BLOCKS)
    for n in p.graph.walk():
        assert n.at.startswith("t/") and n.span is not None and n.span.source.name == "test"


def test_share_is_one_parameter():
    p = program("plait 1\ndims { n = 4; d = 8; V = 5 }\nshare tok = embedding(V, d)\nmodel m { input x: tokens[n] of V\n"
                "y = x { embed(tok); linear(d); unembed(tok) }\noutput y: [n, V] }\n")
    assert names(p) == {"tok", "y/1/weight", "y/1/bias"}


def test_repeat_slices_parameters_and_shared_does_not():
    text = ("plait 1\ndims {{ n = 4; d = 8; L = 3 }}\nmodel m {{ input x: stream[n, d]\n"
            "y = x {{ repeat L {0}{{ linear(d, bias = false) }} }}\noutput y: [n, d] }}\n")
    own, one = program(text.format("")), program(text.format("shared "))
    assert own.sizes.value(params(own.graph)) == 3 * 64 and one.sizes.value(params(one.graph)) == 64
    assert macs(own.graph) == macs(one.graph)
    copies = next(v for v in own.graph.ins if v.kind == "param").axes[0]
    assert (copies.name, copies.role) == ("y/0", "copies")


def test_index_runs_from_zero():
    p = program("plait 1\ndims { n = 40; d = 8; L = 3; k = 3 }\nmodel m { input x: stream[n, d]\n"
                "y = x { repeat L as i { conv(d, kernel = k, dilation = k^i, causal = true) } }\noutput y: [n, d] }\n")
    loop = next(n.op for n in p.graph.nodes if isinstance(n.op, Loop))
    assert loop.index == sp.Symbol("i", integer=True, nonnegative=True)


def test_an_index_that_nothing_reads_is_no_index():
    p = program("plait 1\ndims { n = 4; d = 8 }\nmodel m { input x: stream[n, d]\n"
                "y = x { repeat 3 as i { linear(d) } }\noutput y: [n, d] }\n")
    assert next(n.op for n in p.graph.nodes if isinstance(n.op, Loop)).index is None


def test_learned_positions_follow_the_file():
    """A shorter n never changes parameters, a longer one is an error; a resolved spec says the size."""
    text = ("plait 1\ndims { n = 16; d = 8 }\nmodel m { input x: stream[n, d]\ny = x { positions(learned) }\noutput y: [n, d] }\n")
    assert program(text).sizes.value(params(program(text).graph)) == 128
    short = program(text, "n=4")
    assert short.sizes.value(params(short.graph)) == 128 and list(short.pins.values()) == [("max", 16)]
    with pytest.raises(Exception, match="learned positions for 16 places, and the sequence has 32"): program(text, "n=32")


def test_a_loss_reads_one_symbol_more():
    p = program("plait 1\ndims { n = 4; d = 8; V = 5 }\nmodel m { input text: tokens[n] of V\n"
                "y = text { embed(V, width = d); unembed(V) }\noutput y: [n, V] }\n"
                "train m { data = text(\"f\"); loss = cross_entropy(y, next(text)) }\n", loss=True)
    assert p.sizes.value(p.graph.ins[0].axes[1].size) == 4 and p.sizes.value(p.loss.ins[0].axes[1].size) == 5
    assert names(p) == {v.name for v in p.loss.ins if v.kind == "param"} and len(p.loss.outs) == len(p.score.outs) == 3


@pytest.mark.parametrize("pieces", [1, 2, 3])
def test_a_loss_in_pieces_never_holds_the_logits(pieces):
    """Per piece of ⌈n/pieces⌉ positions; the work grows only by padding."""
    p = program(f"plait 1\ndims {{ n = 6; d = 8; V = 50; p = {pieces} }}\nmodel m {{ input text: tokens[n] of V\n"
                "y = text { embed(V, width = d); unembed(V) }\noutput y: [n, V] }\n"
                "train m { data = text(\"f\"); loss = cross_entropy(y, next(text), pieces = p) }\n", loss=True)
    logits = [n.outs[0] for n in p.loss.walk() if n.name == "logits"]
    assert [p.sizes.bind(b=1).value(v.size) for v in logits] == [50 * 6 // pieces]
    assert p.sizes.value(macs(p.loss)) == 6 * 8 * 50


def test_masks_travel_with_padded_streams():
    p = program("plait 1\ndims { n = 4; d = 8; V = 5 }\nmodel m { input x: tokens[n] of V padded\n"
                "y = x { embed(V, width = d); lstm(d); attention(heads = 2); pool(mean) }\noutput y: [d] }\n")
    assert [v.name for v in p.graph.ins[:2]] == ["x", "x.mask"]
    masked = [n for n in p.graph.nodes if n.name in ("lstm", "attention")]
    assert len(masked) == 2 and all(n.op.arg("masked") for n in masked)


def test_the_layers_of_version_1():
    """The table of the language: every layer and construct is there."""
    assert set(LAYERS) == set("rnn lstm gru conv separable_conv attention lsh_attention local_attention feed_forward linear relu gelu "
                              "silu tanh sigmoid gated_feed_forward layer_norm rms_norm dropout embed unembed positions shift_right "
                              "pool".split())
    assert set(CONSTRUCTS) == {"residual", "reversible", "chunked", "parallel"}
    assert all(entry.doc for entry in LAYERS.values())


def test_a_broken_graph_is_found():
    """The verifier: an output that nothing makes, a value made twice, a wrong type."""
    from dataclasses import replace

    from plait.compiler.prims import Wrong
    p = program(BLOCKS)
    g = p.graph
    for broken in (replace(g, nodes=g.nodes[:-1]), replace(g, nodes=(*g.nodes, g.nodes[-1])),
                   replace(g, nodes=(*g.nodes[:-1], replace(g.nodes[-1], outs=(replace(g.nodes[-1].outs[0], kind="index"),))))):
        with pytest.raises(Wrong): verify(broken, p.sizes)


def test_networkx():
    """The schedule as a graph: acyclic, one vertex a node, inputs and outputs."""
    import networkx as nx
    g = program(BLOCKS).graph
    dag = g.networkx()
    assert nx.is_directed_acyclic_graph(dag) and len(dag) == len(g.nodes) + len(g.ins) + len(g.outs)
