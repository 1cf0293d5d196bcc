"""The loss of every shipped spec at reduced sizes: all gradients of the joint graph are autograd's; and deriving it is quick."""
from __future__ import annotations

import time
from pathlib import Path

import pytest

from plait import files
from plait.compiler.claim import claim
from plait.compiler.costs.training import by_phase
from plait.compiler.derive import derive
from plait.compiler.expand import expand
from plait.compiler.kernels import Target

from .kit import BODIES, compare

SPECS = Path(__file__).parents[2] / "specs"
SMALL: dict[str, dict[str, object]] = {
    "demo": dict(V=7, n=6, d=8, h=2), "duplication": dict(V=7, n=8, d=8, h=2, c=2, R=2), "table1": dict(n=7, d=4, r=3),
    "five_way": dict(V=7, n=6, d=8, h=2, R=5, S=4, G=3, C=6), "shakespeare": dict(V=7, n=6, d=8, h=2, L=2),
    "reformer": dict(V=7, n=8, d=8, h=2, L=2, c=2, p=4, g=4, R=2), "transformer_base": dict(V=7, m=5, n=4, d=8, h=2, L=2),
    "reformer_table1": dict(l=8, h=2, k=4, c=4, R=2), "reformer_table3": dict(l=8, d=8, h=2, L=2, c=4, R=2, p=2),
    "images": dict(V=7, C=7, s=3, d=8, h=2), "chorales": dict(V=7, n=6, d=8, h=2), "enwik8": dict(V=7, n=6, d=8, h=2, L=2),
    "imagenet64": dict(V=7, s=2, d=8, h=2, L=2, c=2, p=4, R=2), "translation": dict(V=7, m=5, n=4, d=8, h=2, L=2),
    "enwik8_local": dict(V=7, n=8, d=8, h=2, L=2, w=3, c=2, p=4, g=4, R=2),
}
MODELS = [(s, m) for s in SMALL for m in files.opened(SPECS / f"{s}.plait").models]


def program(spec: str, name: str, small: bool = True):
    file = files.opened(SPECS / f"{spec}.plait", files.single(files.overrides(SMALL[spec])) if small else ())
    return expand(file, name, loss=file.train(name) is not None)


def test_every_spec_is_here():
    assert set(SMALL) == {p.stem for p in SPECS.glob("*.plait")}


@pytest.mark.parametrize("spec, name", MODELS)
@pytest.mark.parametrize("kernels", [False, True])
def test_gradients(spec, name, kernels):
    p = program(spec, name)
    compare(p.loss or p.graph, p.sizes, {} if kernels else BODIES, symbols=7)


@pytest.mark.parametrize("spec, name", MODELS)
def test_quick(spec, name):
    """At full size, symbolically, with the work: well under 0.3 s; three times that here, for a busy machine."""
    p = program(spec, name, small=False)
    began = time.process_time()
    by_phase(derive(claim(p.loss or p.graph, Target()), p.sizes).graph)
    assert time.process_time() - began < 0.9
