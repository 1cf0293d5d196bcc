"""Depth against arithmetic, and closed loops against loops unrolled trip by trip."""
import pytest
import sympy as sp

from plait.compiler.costs.depth import chain, depth, tree, unit
from plait.compiler.costs.maxplus import NOW, late, latest, plus, written
from plait.compiler.expand import expand, open_file
from plait.compiler.graph import Graph
from plait.compiler.layer import LAYERS
from plait.compiler.prims import Loop
from plait.compiler.sizes import Sizes
from plait.dsl.parser import parse

from .models import alone, model, value

n, d, L, p = (sp.Symbol(s, integer=True, positive=True) for s in "ndLp")
UNIT = {
    "attention(heads = 1, project = false)": 4,              # scores, max, sum, weighted sum
    "attention(heads = 2)": 6,                               # and the projections before and behind
    "attention(heads = 1, window = 3, project = false)": 4,
    "conv(d, kernel = 3)": 1,
    "linear(d)": 1,
    "feed_forward(d)": 2,
    "layer_norm": 2,                                         # mean, then variance
    "rnn(d)": n, "lstm(d)": n, "gru(d)": n,
    "rnn(d); rnn(d)": 2 * n,
    "rnn(d, layers = 2)": 2 * n,
    "repeat L { rnn(d) }": L * n,
    "repeat L { residual { feed_forward(d) } }": 4 * L,
    "chunked(over = n, pieces = p) { feed_forward(d) }": 2 * p,
    "relu": 0,
    "reversible(repeat = L) { one: { linear(d) }; two: { feed_forward(d) } }": 3 * L,
    "reversible(repeat = L) { one: { linear(d) }; two: { linear(d) }; three: { feed_forward(d) } }": 4 * L,
}


@pytest.mark.parametrize("body", UNIT)
def test_unit_depth(body):
    program = model(body, "n = 12; d = 8; L = 5; p = 3; require n % p == 0")
    assert sp.expand(depth(program.graph) - UNIT[body]) == 0


def test_tree_depth():
    """A contraction over K is 1 + ⌈log₂ K⌉, a reduction ⌈log₂ K⌉, a pointwise step 1: linear 8→8 with bias 1 + 3 + 1;
    layer norm of 8: 3 (sum), divide, subtract, square, 3, divide, add ε, rsqrt, multiply, scale, shift = 15."""
    for body, want in (("linear(d)", 5), ("layer_norm", 3 + 3 + 9), ("relu", 1)):
        program = model(body)
        assert value(depth(program.graph, tree), program) == want


def test_recurrent_tree():
    """A step waits for the state product 1 + ⌈log₂ 8⌉ = 4, its addition, and tanh: 6 a step after the first, which also waits
    for the input product; without biases 12·6 + nothing else."""
    program = model("rnn(d, bias = false)", "n = 12; d = 8")
    assert value(depth(program.graph, tree), program) == 12 * 6


def entries(graph: Graph):
    return [() if v.kind == "index" and not v.axes else NOW for v in graph.ins]


# ---- loops unrolled -------------------------------------------------------------------------------------------------------
def unrolled(graph: Graph, entry, weigh, sizes, closed=chain):
    """The same chain with every loop run trip by trip, at bound sizes."""
    at = dict(zip(graph.ins, entry))
    for node in graph.nodes:
        ins = [at[v] for v in node.ins]
        if isinstance(node.op, Loop): outs = _trips(node.op, ins, weigh, sizes)
        elif node.body is not None: outs = unrolled(node.body, ins, weigh, sizes)
        else:
            weight = sp.Integer(int(sizes.value(weigh(node))))
            outs = [plus(latest(ins), late(weight))] if latest(ins) else [()]
        at.update(zip(node.outs, outs))
    return [at[v] for v in graph.outs]


def _trips(op, entry, weigh, sizes):
    """Trip by trip: a piece waits for the piece before it, a scan step takes 1 at least from all that it reads."""
    c, trips = op.carried, int(sizes.value(op.axis.size))
    state, rest, outs, last = [e or NOW for e in entry[:c]], list(entry[c:]), None, None
    for t in range(trips):
        bound = sizes if op.index is None else Sizes({**sizes.bound, op.index: t})
        if op.axis.role == "chunk" and last is not None: rest = [latest([r, last]) if r else r for r in rest]
        got = unrolled(op.body, state + rest, weigh, bound)
        if op.axis.role == "sequence":
            before = latest([*state, *(rest if t == 0 else [])])
            got = [latest([g, plus(before, late(1))]) if k < c else g for k, g in enumerate(got)]
        state, last = got[:c], latest(got)
        outs = got if outs is None else [latest([x, y]) for x, y in zip(outs, got)]
    return state + outs[c:]


LOOPS = [body for body in UNIT if any(w in body for w in ("rnn", "lstm", "gru", "repeat", "chunked", "reversible"))] + [
    "linear(d); lstm(d, direction = both); linear(d)", "repeat L { residual { gru(d) }; conv(d, kernel = 3) }",
    "reversible(repeat = L) { one: { attention(heads = 2) }; two: { chunked(over = n, pieces = p) { feed_forward(d) } } }",
    "repeat L as i { attention(heads = 1, window = 2^i + 1) }",
    "repeat 2 as i { repeat 3 as j { attention(heads = 1, window = 2^i + j) } }",
    "conv(d, kernel = 3); repeat L { rnn(d); linear(d) }; chunked(over = n, pieces = p) { repeat 2 { linear(d) } }"]


@pytest.mark.parametrize("weigh", [unit, tree])
@pytest.mark.parametrize("body", LOOPS)
def test_closed_loops_equal_unrolled_ones(body, weigh):
    program = model(body, "n = 6; d = 8; L = 3; p = 2; require n % p == 0", out="[n, 8]")
    g = program.graph
    true = written(latest([NOW, *unrolled(g, entries(g), weigh, program.sizes)]))
    assert value(depth(g, weigh), program) == true


DECODERS = {
    # written out, a decoder's self-attention runs beside the encoder
    "repeat": ("repeat 3 { residual { attention(heads = 2) }; attention(heads = 2, keys = memory) }",
               "residual { attention(heads = 2) }; attention(heads = 2, keys = memory);" * 3),
    "recurrence": ("repeat 3 { rnn(d); attention(heads = 2, keys = memory) }", "rnn(d); attention(heads = 2, keys = memory);" * 3),
    "late": ("repeat 2 { linear(d); linear(d); attention(heads = 1, keys = memory) }",
             "linear(d); linear(d); attention(heads = 1, keys = memory);" * 2),
    "pieces": ("chunked(over = n, pieces = 2) { attention(heads = 1, keys = memory) }", None),
}


@pytest.mark.parametrize("weigh", [unit, tree])
@pytest.mark.parametrize("name", DECODERS)
def test_what_runs_beside_the_memory_is_not_counted_behind_it(name, weigh):
    def derived(body):
        text = f"""plait 1
dims {{ m = 7; n = 6; d = 8; require n % 2 == 0 }}
model t {{ input a: stream[m, d]
input x: stream[n, d]
memory = a {{ repeat 2 {{ feed_forward(d); linear(d) }} }}
y = x {{ {body} }}
output y: [n, d] }}
"""
        program = expand(open_file(parse(text, "test")), "t")
        g = program.graph
        true = written(latest([NOW, *unrolled(g, entries(g), weigh, program.sizes)]))
        found = value(depth(g, weigh), program)
        assert found == true
        return found
    once, copied = DECODERS[name]
    assert copied is None or derived(once) == derived(copied)


def test_keys_of_random_numbers_are_there_before():
    """Dropout waits for its input: where and ÷ in a tree, 2; mixing its key does not count."""
    program = model("dropout(0.1)")
    assert value(depth(program.graph, tree), program) == 2


@pytest.mark.parametrize("weigh", [unit, tree])
@pytest.mark.parametrize("name", sorted(LAYERS))
def test_every_layer_closed_and_unrolled(name, weigh):
    """Every layer of the registry, without being named here."""
    graph, sizes = alone(name)
    true = written(latest([NOW, *unrolled(graph, entries(graph), weigh, sizes)]))
    assert sizes.value(depth(graph, weigh)) == true
