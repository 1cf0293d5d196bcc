"""Models of one chain, and what the steps of a model are held against."""
from __future__ import annotations

import torch
from torch import Tensor

from plait.compiler.expand import expand, open_file
from plait.compiler.layer import LAYERS
from plait.dsl.parser import parse
from plait.runtime.generate.steps import Incremental, Recomputing, stepper, target_input
from plait.runtime.module import Module

from .layers import CALLS, call

N = 12
OWN = {**CALLS, "lsh_attention": f"lsh_attention(heads = 2, rounds = 2, chunk = {N})"}           # one chunk: it is full attention
ENDS = ("embed", "unembed", "pool")                        # what begins or ends a stream of vectors

# What one layer may be told: each is a layer, or a construct, that has a rule or a combination of rules of its own.
VARIANTS = {
    "grouped heads": "attention(heads = 4, kv_heads = 2, causal = true)",
    "shared queries and keys": "attention(heads = 2, causal = true, share_qk = true)",
    "no projections": "attention(heads = 2, causal = true, project = false)",
    "row-wise": "attention(heads = 2, causal = true, kernel = rowwise)",
    "rotary": "positions(rotary); attention(heads = 2, causal = true)",
    "rotary, grouped, window": "positions(rotary); attention(heads = 4, kv_heads = 2, causal = true, window = 3)",
    "window": "attention(heads = 2, causal = true, window = 3)",
    "window wider than n": "attention(heads = 2, causal = true, window = 20)",
    "window, shared": "attention(heads = 2, causal = true, window = 3, share_qk = true)",
    "rnn": "rnn(d, layers = 2, nonlinearity = relu)", "lstm": "lstm(d, layers = 2)", "gru": "gru(d, layers = 3, bias = false)",
    "dilated": "conv(d, kernel = 3, dilation = 2, groups = 2, causal = true)",
    "kernel of one": "conv(d, kernel = 1)",
    "separable": "separable_conv(d, kernel = 3, dilation = 3, causal = true)",
    "learned, more": "positions(learned, max = 20)", "axial": "positions(axial, grid = (3, 5), widths = (d / 2, d / 2))",
    "dropout": "residual(dropout = 0.5) { attention(heads = 2, causal = true, dropout = 0.5) }",
    "reversible": "reversible(repeat = 2) { a: { layer_norm; attention(heads = 2, causal = true) } b: { layer_norm; feed_forward(16) } }",
    "chunked": "chunked(over = n, pieces = 4) { layer_norm; feed_forward(16) }",
    "chunked, ragged": "chunked(over = n, pieces = 5) { linear(d); gelu }",
    "repeat": "repeat 2 { residual { attention(heads = 2, causal = true) }; residual { feed_forward(16) } }",
    "repeat as i": "repeat 3 as i { residual { conv(d, kernel = 2, dilation = 2^i, causal = true) } }",
    "repeat shared": "repeat 2 shared { residual { lstm(d) }; residual { attention(heads = 2, causal = true) } }",
    "repeat in repeat": "repeat 2 { repeat 2 { residual(norm = post) { attention(heads = 2, causal = true) } } }",
    "parallel": "parallel(merge = concat) { a: { attention(heads = 2, causal = true) } b: { gru(d) } }; linear(d)",
    "shifts": "residual { shift_right; shift_right }; residual { shift_right }",
    "hashed": f"lsh_attention(heads = 2, rounds = 3, chunk = {N}, causal = true)",
    "hashed, shared rotations": "lsh_attention(heads = 2, rounds = 2, chunk = 16, causal = true, share_rotations = true, buckets = (2, 4))",
    "hashed, all buckets": f"lsh_attention(heads = 2, rounds = 2, chunk = {N}, causal = true, within_bucket = false)",
    "hashed, counted once a round": f"lsh_attention(heads = 2, rounds = 3, chunk = {N}, causal = true, dedup = false)",
}
AHEAD = {  # what looks at later positions
    "attention": "attention(heads = 2)", "window": "attention(heads = 2, window = 3)", "conv": "conv(d, kernel = 3)",
    "separable": "separable_conv(d, kernel = 2)", "both ways": "lstm(d / 2, direction = both)", "backward": "gru(d, direction = backward)",
    "hashed": f"lsh_attention(heads = 2, chunk = {N})", "inside": "repeat 2 { residual { rnn(d, direction = backward) } }",
}


def causal(name: str) -> str:
    """A layer of the registry that does not look ahead."""
    written = OWN.get(name) or call(name)
    if not any(a.name == "causal" for a in LAYERS[name].arguments): return written
    return f"{written[:-1]}{'' if written.endswith('(') else ', '}causal = true)"


def continued(chain: str, ahead: bool = True, padded: bool = False, n: int | None = N, d: int = 8, dtype=torch.float64,
              unshifted: bool = False, before: str = "embed(V, width = d)", after: str = "unembed(V)") -> Module:
    """A language model: `chain` between an embedding and an output layer. ahead: it predicts the next symbol, else its shifted input."""
    text = (f"plait 1\ndims {{ {'n' if n is None else f'n = {n}'}; d = {d}; V = 11 }}\nmodel m {{\n"
            f"  input x: tokens[n] of V{' padded' if padded else ''}\n"
            f"  y = x {{ {'' if ahead or unshifted else 'shift_right; '}{before}; {chain}; {after} }}\n  output y: [n, V]\n}}\n"
            f"train m {{ data = bytes(\"a\"); loss = cross_entropy(y, {'next(x)' if ahead else 'x'}); batch = 1 sequences; lr = 1; "
            "stop = 1 steps }\n")
    torch.manual_seed(0)
    return Module(expand(open_file(parse(text)), "m", loss=True), compile=False, dtype=dtype).eval()


TRANSLATOR = """plait 1
dims {{ m{m}; n{n}; d = 8; V = {V} }}
share tok = embedding(V, d)
model t {{
  input source: tokens[m] of V padded
  input target: tokens[n] of V padded
  memory = source {{
    embed(tok)
    positions(sinusoidal)
    repeat 2 {{ residual {{ attention(heads = 2) }}; residual {{ feed_forward(16) }} }}
  }}
  logits = target {{ shift_right; embed(tok); positions(sinusoidal); {decoder}; unembed(tok) }}
  output logits: [n, V]
}}
train t {{ data = parallel_text("a", "b"); loss = cross_entropy(logits, target); batch = 1 sequences; lr = 1; stop = 1 steps }}
"""
DECODERS = {
    "plain": "repeat 2 { residual { attention(heads = 2, causal = true) }; residual { attention(heads = 2, keys = memory) }; "
             "residual { feed_forward(16) } }",
    "reversible": "reversible(repeat = 2) { self: { layer_norm; attention(heads = 2, causal = true) } "
                  "cross: { layer_norm; attention(heads = 2, keys = memory) } feed: { layer_norm; feed_forward(16) } }; layer_norm",
}


def translator(decoder: str = "plain", m: str = "", n: str = "", V: int = 7, seed: int = 0) -> Module:
    torch.manual_seed(seed)
    text = TRANSLATOR.format(m=m, n=n, V=V, decoder=DECODERS[decoder])
    made = Module(expand(open_file(parse(text)), "t", loss=True), compile=False, dtype=torch.float64).eval()
    with torch.no_grad():
        for p in made.parameters(): p.mul_(2)                                     # so that symbols are not all as likely
    return made


def incremental(m: Module) -> Incremental:
    run = stepper(m)
    assert isinstance(run, Incremental)
    return run


def recomputing(m: Module) -> Recomputing:
    return Recomputing(m, target_input(m.program))


def stepped(m: Module, x: Tensor, first: int, **inputs: Tensor) -> Tensor:
    """The logits of x [b, n]: the first positions in one step, the others each in its own."""
    run = incremental(m)
    given = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1) if run.delayed else x
    at, outs = run.begin(len(x), **inputs), []
    for a, b in [(0, first), *((t, t + 1) for t in range(first, x.shape[1]))]:
        y, at = run.step(given[:, a:b], at)
        outs.append(y)
    assert at.past == x.shape[1]
    return torch.cat(outs, 1)
