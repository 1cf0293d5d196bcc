"""Depth against arithmetic, and closed loops against loops unrolled trip by trip."""
import pytest
import sympy as sp

from plait.compiler.costs.depth import chain, depth, tree, unit
from plait.compiler.costs.maxplus import NOW, late, latest, plus, written
from plait.compiler.graph import Graph
from plait.compiler.layer import LAYERS
from plait.compiler.prims import Loop

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
    c, trips = op.carried, int(sizes.value(op.axis.size))
    state, rest, outs, last = list(entry[:c]), list(entry[c:]), None, None
    start = latest([*entry, NOW])
    for t in range(trips):
        if op.axis.role == "chunk":
            rest = [latest([r, last]) if last is not None and r else (start if r else r) for r in rest]
        got = unrolled(op.body, state + rest, weigh, sizes)
        if op.axis.role == "sequence":
            before = latest(state) if t else start
            got = [latest([g, plus(before, late(1))]) if k < c else g for k, g in enumerate(got)]
        state, last = got[:c], latest(got)
        outs = got if outs is None else [latest([x, y]) for x, y in zip(outs, got)]
    return state + outs[c:]


LOOPS = [body for body in UNIT if any(w in body for w in ("rnn", "lstm", "gru", "repeat", "chunked", "reversible"))] + [
    "linear(d); lstm(d, direction = both); linear(d)", "repeat L { residual { gru(d) }; conv(d, kernel = 3) }",
    "reversible(repeat = L) { one: { attention(heads = 2) }; two: { chunked(over = n, pieces = p) { feed_forward(d) } } }"]


@pytest.mark.parametrize("weigh", [unit, tree])
@pytest.mark.parametrize("body", LOOPS)
def test_closed_loops_equal_unrolled_ones(body, weigh):
    program = model(body, "n = 6; d = 8; L = 3; p = 2; require n % p == 0", out="[n, 8]")
    g = program.graph
    true = written(latest([NOW, *unrolled(g, [NOW] * len(g.ins), weigh, program.sizes)]))
    assert value(depth(g, weigh), program) == true


@pytest.mark.parametrize("weigh", [unit, tree])
@pytest.mark.parametrize("name", sorted(LAYERS))
def test_every_layer_closed_and_unrolled(name, weigh):
    """Every layer of the registry, without being named here."""
    graph, sizes = alone(name)
    true = written(latest([NOW, *unrolled(graph, [NOW] * len(graph.ins), weigh, sizes)]))
    assert sizes.value(depth(graph, weigh)) == true
