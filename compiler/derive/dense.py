"""Softmax, norms, convolution and cross entropy, as torch's own calls keep and differentiate them."""
from __future__ import annotations

import sympy as sp

from plait.compiler.derive.adjoint import Gradients
from plait.compiler.derive.call import Call
from plait.compiler.derive.scope import Scope
from plait.compiler.derive.tape import pullback, record
from plait.compiler.graph import Value
from plait.compiler.prims import Region, Scatter, Window


def softmax_back(b: Scope, call: Call) -> Gradients:
    """p ⊙ (g − Σ p ⊙ g), from the output p."""
    pg = b.mul(call.outs[0], call.g)
    return [b.sub(pg, b.mul(call.outs[0], b.sum(pg, str(call.region.arg("over")))))]


# -- layer norm: the input and the statistics of each row -------------------------------------------------------------------------
def layer_norm(b: Scope, op: Region, ins: tuple[Value, ...]) -> list[Value]:
    x, scale, *shift = ins
    d = x.axis(str(op.arg("over")))
    mean = b.div(b.sum(x, d.name, name="mean"), d.size)
    centred = b.sub(x, mean)
    inverse = b.map("rsqrt", b.add(b.div(b.sum(b.mul(centred, centred), d.name, name="variance"), d.size), op.arg("eps")))
    y = b.mul(b.mul(centred, inverse), scale)
    return [b.add(y, shift[0]) if shift else y, mean, inverse]


def layer_norm_back(b: Scope, call: Call) -> Gradients:
    """dx = (ĝ − mean(ĝ) − hat · mean(ĝ ⊙ hat)) / σ with ĝ = g ⊙ scale and hat the normalised rows."""
    x, scale, *_ = call.ins
    _, mean, inverse = call.outs
    d = x.axis(str(call.region.arg("over")))
    rows = [a for a in x.names if a != d.name]
    hat = b.mul(b.sub(x, mean), inverse)
    dx = None
    if call.need[0]:
        g = b.mul(call.g, scale)
        along, level = (b.div(b.sum(t, d.name), d.size) for t in (b.mul(g, hat), g))
        dx = b.mul(b.sub(b.sub(g, level), b.mul(hat, along)), inverse)
    found = [dx, b.sum(b.mul(call.g, hat), *rows) if call.need[1] else None]
    return found + [b.sum(call.g, *rows) if needed else None for needed in call.need[2:]]


# -- rms norm: the input and a number a row ---------------------------------------------------------------------------------------
def rms_norm(b: Scope, op: Region, ins: tuple[Value, ...]) -> list[Value]:
    x, scale = ins
    d = x.axis(str(op.arg("over")))
    inverse = b.map("rsqrt", b.add(b.div(b.sum(b.mul(x, x), d.name, name="squares"), d.size), op.arg("eps")))
    return [b.mul(b.mul(x, inverse), scale), inverse]


def rms_norm_back(b: Scope, call: Call) -> Gradients:
    """dx = (ĝ − hat · mean(ĝ ⊙ hat)) / rms with ĝ = g ⊙ scale and hat the normalised rows."""
    x, scale = call.ins
    inverse = call.outs[1]
    d = x.axis(str(call.region.arg("over")))
    hat = b.mul(x, inverse)
    dx = None
    if call.need[0]:
        g = b.mul(call.g, scale)
        dx = b.mul(b.sub(g, b.mul(hat, b.div(b.sum(b.mul(g, hat), d.name), d.size))), inverse)
    return [dx, b.sum(b.mul(call.g, hat), *(a for a in x.names if a != d.name)) if call.need[1] else None]


# -- convolution: the padded input, not its neighbourhoods ---------------------------------------------------------------------
def convolution(b: Scope, op: Region, ins: tuple[Value, ...]) -> list[Value]:
    env = dict(zip(op.body.ins, ins))
    record(b, op.body.nodes, env, set())
    window = _window(op)
    before, after = _around(window)
    return [env[op.body.outs[0]], b.pad(ins[0], window.axis, before, after)]


def convolution_back(b: Scope, call: Call) -> Gradients:
    window, x = _window(call.region), call.ins[0]
    inside = b.slice(call.outs[1], window.axis, _around(window)[0], x.axis(window.axis).size)
    out = call.region.body.outs[0]
    back = call.again(b, [out], {call.region.body.ins[0]: inside})
    grads = pullback(b, back.tape, {back.env[out]: call.g})
    return [grads.get(inside), grads.get(call.ins[1])]


def _window(op: Region) -> Window:
    return next(n.op for n in op.body.nodes if isinstance(n.op, Window))


def _around(w: Window) -> tuple[sp.Expr, sp.Expr]:
    return w.left * w.dilation, (w.into.size - 1 - w.left) * w.dilation


# -- cross entropy: the logarithms of the probabilities, and the targets, −1 where none counts ---------------------------------
def cross_entropy(b: Scope, op: Region, ins: tuple[Value, ...]) -> list[Value]:
    logits, target, counts = ins
    d, smoothing = logits.axis(str(op.arg("over"))), sp.sympify(op.arg("smoothing", 0))
    shifted = b.sub(logits, b.max(logits, d.name, name="max"))
    log_p = b.sub(shifted, b.map("log", b.sum(b.map("exp", shifted), d.name, name="sum")))
    wanted = b.where(counts, b.map("maximum", target, 0), -1)
    loss = b.mul(b.gather(log_p, b.map("maximum", wanted, 0), d.name, name="target"), smoothing - 1)
    if smoothing != 0: loss = b.sub(loss, b.mul(b.sum(log_p, d.name, name="smoothing"), smoothing / d.size))
    return [b.where(counts, loss, 0), log_p, wanted]


def cross_entropy_back(b: Scope, call: Call) -> Gradients:
    """g · (p − (1 − ε) · [target] − ε / V) where the target counts."""
    _, log_p, wanted = call.outs
    d, smoothing = log_p.axis(str(call.region.arg("over"))), sp.sympify(call.region.arg("smoothing", 0))
    g = b.where(b.map("le", 0, wanted), call.g, 0)
    at = b.map("maximum", wanted, 0)
    dx = b.sub(b.mul(b.map("exp", log_p), g), b.emit(Scatter(d, wanted.names), b.mul(g, 1 - smoothing), at))
    return [b.sub(dx, b.mul(g, smoothing / d.size)) if smoothing != 0 else dx, None, None]


def weights(op: Region) -> sp.Expr:
    """Bytes: the number of targets that count, as a float; with smoothing, which they are."""
    target = op.body.ins[1]
    return 4 + (target.size if sp.sympify(op.arg("smoothing", 0)) != 0 else sp.Integer(0))
