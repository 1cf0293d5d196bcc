"""Recurrent layers: a scan over the sequence, one loop in the graph whatever its length."""
from collections.abc import Callable
from typing import Literal

import sympy as sp

from plait.compiler.axis import axis, without
from plait.compiler.builder import Builder, Init
from plait.compiler.graph import Value
from plait.compiler.layer import Count, Mistake, Size, Stream, feature, layer, sequence

Direction = Literal["forward", "backward", "both"]


def scan(b: Builder, x: Stream, width, gates: int, states: int, name: str, cell: Callable, layers: int, direction: str, bias: bool,
         **args) -> Value:
    """`layers` recurrences in a row, each forward, backward or both ways (side by side in the features)."""
    if layers < 1: raise Mistake("E0503", "a recurrent layer has at least one layer", "layers", help="layers = 1")
    value = x.value
    ways = {"forward": (False,), "backward": (True,), "both": (False, True)}[direction]
    for depth in range(layers):
        outs = []
        for reverse in ways:
            with b.named(f"{depth}{'_reverse' if reverse else ''}"):
                outs.append(_one(b, value, x.mask, width, gates, states, name, cell, reverse, bias, args))
        value = outs[0] if len(outs) == 1 else b.concat("d", *outs)
    return value


def _one(b: Builder, x: Value, mask, width, gates: int, states: int, name: str, cell: Callable, reverse: bool, bias: bool, args) -> Value:
    n, d = sequence(x), feature(x)
    g, u, u2 = axis("gate", gates), axis("u", width), axis("u'", width)
    start = Init("uniform", 1 / sp.sqrt(width))                       # as torch.nn.LSTM starts, biases too
    params = [b.param("weight_input", g, u, d, init=start), b.param("weight_state", g, u, u2, init=start)]
    if bias: params += [b.param("bias_input", g, u, init=start), b.param("bias_state", g, u, init=start)]

    def body(b, x, *operands):
        weights, there = operands[:len(params)], operands[len(params):]
        zero = b.broadcast(0, *without(x.axes, (n.name, "d")), u)

        def step(b, carried, sliced):
            new = cell(b, sliced[0], carried, weights)
            if there: new = [b.where(sliced[1], p, q) for p, q in zip(new, carried)]       # padding holds the state
            return (*new, new[0])

        return b.loop(n, [zero] * states, [x, *there], step, reverse=reverse)[-1]

    there = () if mask is None else (mask,)
    y = b.region(name, body, x, *params, *there, reverse=reverse, bias=bias, masked=mask is not None, **args)
    return b.rename(y, "u", axis("d", width))


def products(b: Builder, x: Value, h: Value, weights) -> tuple[Value, Value]:
    """x W and h U (with the two biases, as PyTorch has them): [b, gate, u] each."""
    u = h.axis("u")
    p = b.contract(x, weights[0], "d", name="input product")
    q = b.contract(b.rename(h, "u", axis("u'", u.size)), weights[1], "u'", name="state product")
    return (b.add(p, weights[2]), b.add(q, weights[3])) if len(weights) > 2 else (p, q)


@layer
def rnn(b: Builder, x: Stream, width: Size, *, nonlinearity: Literal["tanh", "relu"] = "tanh", layers: Count = 1,
        direction: Direction = "forward", bias: bool = True) -> Value:
    """h_t = f(x_t W + h_{t−1} U + c): [n, d] → [n, width]. Elman 1990; weights and both biases as torch.nn.RNN."""
    def cell(b, x, states, weights):
        p, q = products(b, x, states[0], weights)
        return [b.map(nonlinearity, b.select(b.add(p, q), "gate", 0))]
    return scan(b, x, width, 1, 1, "rnn", cell, layers, direction, bias, nonlinearity=nonlinearity)


@layer
def lstm(b: Builder, x: Stream, width: Size, *, layers: Count = 1, direction: Direction = "forward", bias: bool = True) -> Value:
    """Long short-term memory: [n, d] → [n, width]. Hochreiter and Schmidhuber 1997 with forget gates; gates i, f, g, o as torch.nn.LSTM."""
    def cell(b, x, states, weights):
        h, c = states
        z = b.add(*products(b, x, h, weights))
        i, f, g, o = (b.map(fn, b.select(z, "gate", k)) for k, fn in enumerate(("sigmoid", "sigmoid", "tanh", "sigmoid")))
        c = b.add(b.mul(f, c), b.mul(i, g))
        return [b.mul(o, b.map("tanh", c)), c]
    return scan(b, x, width, 4, 2, "lstm", cell, layers, direction, bias)


@layer
def gru(b: Builder, x: Stream, width: Size, *, layers: Count = 1, direction: Direction = "forward", bias: bool = True) -> Value:
    """Gated recurrent unit: [n, d] → [n, width]. Cho et al. 2014, the reset gate after the product; gates r, z, n as torch.nn.GRU."""
    def cell(b, x, states, weights):
        h, = states
        p, q = products(b, x, h, weights)
        r, z = (b.map("sigmoid", b.add(b.select(p, "gate", k), b.select(q, "gate", k))) for k in (0, 1))
        new = b.map("tanh", b.add(b.select(p, "gate", 2), b.mul(r, b.select(q, "gate", 2))))
        return [b.add(new, b.mul(z, b.sub(h, new)))]
    return scan(b, x, width, 3, 1, "gru", cell, layers, direction, bias)
