"""Every layer, and whole models, in ONNX's operators: onnxruntime gives the module's numbers to 1e-4."""
from __future__ import annotations

import runpy
from pathlib import Path

import onnxruntime
import pytest
import torch

from plait.compiler.expand import expand, open_file
from plait.compiler.layer import LAYERS
from plait.dsl.parser import parse
from plait.runtime.foreign import program
from plait.runtime.module import Module

of_layer = runpy.run_path(str(Path(__file__).parents[1] / "tests" / "runtime" / "layers.py"))["of_layer"]
CHAINS = {
    "reformer": "positions(axial, grid = (2, 4), widths = (2, 6)); reversible(repeat = 2, merge = concat) { "
                "one: { layer_norm(eps = 1e-12); local_attention(heads = 2, chunk = 3, causal = true) }; two: { feed_forward(12) }; "
                "three: { lsh_attention(heads = 2, chunk = 4, rounds = 2, wrap = rounds, dedup = false, within_bucket = false) }; "
                "four: { chunked(over = n, pieces = 3) { layer_norm; linear(d); gelu; linear(d) } } }",
    "stacked": "repeat 2 as i { conv(d, kernel = 2, dilation = 2^i, causal = true) }; lstm(d, layers = 2, direction = both); rnn(d)",
    "rotary": "positions(rotary); attention(heads = 2, window = 3, kv_heads = 1); lsh_attention(heads = 2, chunk = 3, buckets = (2, 2))",
}


def of_chain(chain: str) -> str:
    width = "2 * d" if "concat" in chain else "d"
    return (f"plait 1\ndims {{ n = 7; d = 8 }}\nmodel m {{\n  input x: stream[n, d] padded\n  y = x {{ {chain} }}\n"
            f"  output y: [n, {width}]\n}}\n")


@pytest.mark.parametrize("text", [*(pytest.param(of_layer(k), id=k) for k in LAYERS),
                                  *(pytest.param(of_chain(c), id=k) for k, c in CHAINS.items())])
def test_onnx(text):
    torch.manual_seed(0)
    m = Module(expand(open_file(parse(text)), "m"), compile=False).eval()
    session = onnxruntime.InferenceSession(program.onnx(m))
    i, = m.program.inputs
    for batch in (1, 4):
        shape = [batch, *(m.program.sizes.integer(a.size) for a in i.value.axes[1:])]
        x = torch.randn(shape) if i.classes is None else torch.randint(0, m.program.sizes.integer(i.classes), shape)
        given = {"x": x} if i.mask is None else {"x": x, "x_mask": torch.arange(7) < torch.randint(1, 8, (batch, 1))}
        found, = session.run(None, {k: v.numpy() for k, v in given.items()})
        with torch.no_grad(): assert torch.allclose(torch.from_numpy(found), m(**given), rtol=0, atol=1e-4)
