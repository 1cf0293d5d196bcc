"""Small specs as programs, and layers by themselves."""
from __future__ import annotations

import sympy as sp

from plait.compiler.axis import BATCH, axis
from plait.compiler.builder import Builder
from plait.compiler.expand import expand, open_file
from plait.compiler.graph import Graph
from plait.compiler.layer import LAYERS, Stream
from plait.compiler.program import Program
from plait.compiler.sizes import Sizes, dim
from plait.dsl.parser import parse


def model(body: str, dims: str = "n = 6; d = 8", io: str = "stream[n, d]", out: str = "[n, d]", before: str = "",
          loss: str = "") -> Program:
    """One model m with input x, stream y made by `body`."""
    train = f"train m {{ data = text(\"f\"); loss = {loss}; batch = 1 sequences; lr = 1; stop = 1 steps }}" if loss else ""
    text = f"plait 1\ndims {{ {dims} }}\n{before}\nmodel m {{\n input x: {io}\n y = x {{\n{body}\n }}\n output y: {out}\n}}\n{train}\n"
    return expand(open_file(parse(text, "test")), "m", loss=bool(loss))


def alone(name: str, n: int = 6, d: int = 4) -> tuple[Graph, Sizes]:
    """A layer of the registry by itself on a stream [n, d] (embed: on symbols), its required arguments filled in by kind."""
    entry, sizes = LAYERS[name], Sizes().bind(n=n, d=d)
    b = Builder(sizes)
    places = axis("n", dim("n"), "sequence")
    x = b.input((BATCH, places), "index", "x") if name == "embed" else b.input((BATCH, places, axis("d", dim("d"))), "real", "x")
    filled = {"size": sp.Integer(2), "number": sp.Rational(1, 2), "probability": sp.Rational(1, 2), "count": 1}
    how = {a.name: a.choices[0] if a.choices else filled[next(k for k in a.kinds if k in filled)] for a in entry.arguments if a.required}
    if name == "embed": how["width"] = dim("d")
    with b.located("m/y/0", None): y = entry.expand(b, Stream(x) if entry.takes_stream else x, **how)
    return b.graph(y.value if isinstance(y, Stream) else y), sizes
