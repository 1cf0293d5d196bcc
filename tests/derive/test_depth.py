"""Training depth: closed loops against loops unrolled trip by trip, and worked values."""
from __future__ import annotations

import pytest
import sympy as sp

from plait.compiler.claim import claim
from plait.compiler.costs.depth import tree, unit
from plait.compiler.costs.maxplus import NEVER, NOW, covers, late, latest, plus, written
from plait.compiler.costs.training import depth, known
from plait.compiler.derive import derive
from plait.compiler.graph import Graph
from plait.compiler.kernels import Target
from plait.compiler.layer import LAYERS
from plait.compiler.prims import Loop
from plait.compiler.sizes import Sizes, dim

from .kit import BODIES
from .models import alone, model

n, d, L, p = map(dim, "ndLp")


def joint_of(body: str, dims: str = "n = 6; d = 8; L = 4; p = 2; require n % p == 0", kernels: bool = False):
    program = model(body, dims)
    return derive(claim(program.graph, Target(), {} if kernels else BODIES), program.sizes), program.sizes.bind(b=1)


# ---- loops unrolled -------------------------------------------------------------------------------------------------------
def unrolled(graph: Graph, entry, weigh, sizes):
    at = dict(zip(graph.ins, entry))
    for node in graph.nodes:
        ins = [at[v] for v in node.ins]
        if isinstance(node.op, Loop): outs = trips(node.op, ins, weigh, sizes)
        elif node.body is not None: outs = unrolled(node.body, ins, weigh, sizes)
        else:
            weight = sp.Integer(int(sizes.value(weigh(node))))
            outs = [plus(latest(ins), late(weight))] if latest(ins) else [NEVER]
        at.update(zip(node.outs, outs))
    return [at[v] for v in graph.outs]


def trips(op: Loop, entry, weigh, sizes):
    """Trip by trip: a piece waits for the piece before it; a scan step takes 1 at least, from each state that it reads."""
    c, count = op.carried, int(sizes.value(op.axis.size))
    state, rest, outs, last = [e or NOW for e in entry[:c]], list(entry[c:]), None, None
    for t in range(count):
        bound = sizes if op.index is None else Sizes({**sizes.bound, op.index: count - 1 - t if op.reverse else t})
        if op.axis.role == "chunk" and last is not None: rest, state = ([latest([r, last]) if r else r for r in x] for x in (rest, state))
        got = unrolled(op.body, state + rest, weigh, bound)
        if op.axis.role == "sequence":
            ways = [unrolled(op.body, [NOW if i == k else NEVER for i in range(len(op.body.ins))], weigh, bound) for k in range(c)]
            outside = unrolled(op.body, [NEVER] * c + rest, weigh, bound)
            got = [latest([g, *(plus(s, late(1)) for s, way in zip(state, ways) if way[k]),
                           *([plus(latest(rest), late(1))] if outside[k] else [])]) if k < c else g for k, g in enumerate(got)]
        state, last = got[:c], latest(got)
        outs = got if outs is None else [latest([x, y]) for x, y in zip(outs, got)]
    return state + outs[c:]


def truly(joint, weigh, sizes):
    before = {v: NEVER if v.kind == "index" and not v.axes else NOW for v in joint.graph.ins}
    end = latest([NOW, *unrolled(joint.forward, [before[v] for v in joint.forward.ins], weigh, sizes)])
    entry = before | {v: end for v in joint.seeds.values()}
    return sizes.value(written(latest([end, *unrolled(joint.graph, [entry[v] for v in joint.graph.ins], weigh, sizes)])))


PIECES = "chunked(over = n, pieces = p) { feed_forward(d) }"
LOOPS = ["rnn(d)", "lstm(d)", "gru(d)", "rnn(d); rnn(d)", "linear(d); lstm(d, direction = both); linear(d)", "repeat L { rnn(d) }",
         "repeat L { residual { feed_forward(d) } }", "repeat L shared { residual { feed_forward(d) } }", PIECES,
         "repeat L { residual { attention(heads = 2) }; residual { feed_forward(d) } }", "repeat 2 { repeat L { linear(d); layer_norm } }",
         "reversible(repeat = L) { one: { linear(d) }; two: { feed_forward(d) } }",
         "reversible(repeat = L) { one: { feed_forward(d) }; two: { linear(d) } }",
         "reversible(repeat = L) { one: { linear(d) }; two: { linear(d) }; three: { feed_forward(d) } }",
         f"reversible(repeat = L) {{ one: {{ layer_norm; attention(heads = 2) }}; two: {{ layer_norm; {PIECES} }} }}",
         f"linear(d); reversible(repeat = L) {{ one: {{ gru(d) }}; two: {{ {PIECES} }} }}; linear(d)",
         "repeat L as i { attention(heads = 1, window = 2^i + 1) }", "repeat L as i { linear(d); conv(d, kernel = 2, dilation = 2^i) }"]


@pytest.mark.parametrize("weigh", [unit, tree])
@pytest.mark.parametrize("body", LOOPS)
@pytest.mark.parametrize("kernels", [False, True])
def test_closed_loops_equal_unrolled_ones(body, weigh, kernels):
    joint, sizes = joint_of(body, kernels=kernels)
    assert sizes.value(depth(joint, known(weigh, sizes))) == truly(joint, weigh, sizes)


@pytest.mark.parametrize("weigh", [unit, tree])
@pytest.mark.parametrize("name", sorted(LAYERS))
def test_every_layer(name, weigh):
    graph, sizes = alone(name)
    joint = derive(claim(graph, Target()), sizes)
    bound = sizes.bind(b=1)
    assert bound.value(depth(joint, known(weigh, sizes))) == truly(joint, weigh, bound)


def test_worked_values():
    """A linear: its product, then both products of its gradient beside each other. A recurrence without biases: n steps, n steps back.
    Attention held whole: scores, max, sum, weighted sum; back: the gradient of the weights, its sum through the division, the sum through
    the maximum, the gradient of the queries."""
    cases = {"linear(d, bias = false)": 2, "linear(d, bias = false); linear(d, bias = false)": 4,
             "repeat L { linear(d, bias = false) }": 2 * L, "relu": 0, "rnn(d, bias = false)": 2 * n,
             "attention(heads = 1, project = false)": 4 + 4}
    for body, want in cases.items():
        joint, _ = joint_of(body, "n; d; L; p; require n % p == 0")
        assert sp.expand(depth(joint) - want) == 0, body


def test_one_less_does_not_cover():
    """6·L − 1 is not 6·L: the constant counts though the other has none."""
    assert not covers({L: 6, sp.S.One: -1}, {L: 6}) and covers({L: 6}, {L: 6, sp.S.One: -1})
