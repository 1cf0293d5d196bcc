"""Passes: the same values and gradients, and what each is there for."""
from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch

from plait.compiler.builder import Builder
from plait.compiler.costs import memory
from plait.compiler.costs.work import macs
from plait.compiler.derive import derive
from plait.compiler.kernels import Target
from plait.compiler.passes.common import common
from plait.compiler.passes.joined import joined
from plait.compiler.passes.pieces import loss_in_pieces
from plait.compiler.passes.recompute import parts, recomputed
from plait.compiler.plan import plan
from plait.compiler.prims import Contract, Map, Region
from plait.compiler.sizes import Sizes
from plait.runtime.module import Module

BLOCKS = ["residual { attention(heads = 2, causal = true) }; residual { feed_forward(16) }",
          "repeat 3 { residual { attention(heads = 2) }; residual { feed_forward(16, activation = gelu) } }",
          "repeat 2 { residual(dropout = 0.5) { attention(heads = 2, dropout = 0.2) }; residual { linear(8); layer_norm; linear(8) } }",
          "repeat 2 as i { residual { conv(8, kernel = 3, dilation = 2^i) }; residual { attention(heads = 2) } }",
          "repeat 2 { residual { lsh_attention(heads = 2, chunk = 2, rounds = 2) }; residual { lstm(8) } }",
          "layer_norm; lstm(8); linear(16); relu; linear(8)"]
LOSS = dict(loss="cross_entropy(y, next(x))", kind="tokens[n] of V", out="[n, V]", V=11)


def test_common_subexpressions():
    b = Builder(Sizes())
    x = b.input(())
    y = b.add(b.mul(b.map("exp", x), 2), b.mul(b.map("exp", x), 2))
    b.map("log", x)                                                     # nothing reads it
    found = common(b.graph(y), Sizes())
    assert Counter(n.op.fn for n in found.nodes if isinstance(n.op, Map)) == {"exp": 1, "mul": 1, "add": 1}


def test_two_dropouts_are_two():
    """The same numbers from the same key only: a dropout has a key of its own."""
    b = Builder(Sizes())
    keys = [b.key(), b.key(), b.key()]
    outs = [b.random("uniform", k) for k in (keys[0], keys[1], keys[2], keys[0])]
    found = common(b.graph(*outs), Sizes())
    assert found.outs[0] == found.outs[3] and len(set(found.outs)) == 3


def results(program, x, loss=False):
    torch.manual_seed(0)
    m = Module(program, compile=False, dtype=torch.float64).train()
    torch.manual_seed(1)
    x = x.clone().requires_grad_() if x.is_floating_point() else x
    y = m.loss(x) if loss else m(x)
    weight = torch.randn(y.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    leaves = [t for t in (x, *m.parameters()) if t.requires_grad]
    return y.detach(), [torch.zeros_like(t) if g is None else g
                        for t, g in zip(leaves, torch.autograd.grad((y * weight).sum(), leaves, allow_unused=True))] if leaves else []


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("chain", BLOCKS)
def test_recomputed_statements_and_repeats(kit, chain, copies):
    """Values and gradients to rounding, and what the joint graph says: more products (those of the forward again), fewer bytes kept."""
    program = kit.program(chain)
    other = replace(program, graph=recomputed(program.graph, program.sizes, lambda p: p.copies == copies))
    x = torch.randn(2, 7, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    kit.close(results(other, x), results(program, x), 1e-12)
    if other.graph == program.graph: return
    again = [n for n in derive(other.graph, program.sizes).graph.walk() if n.phase == "recompute" and isinstance(n.op, Contract)]
    assert again, "nothing is computed again"
    target = Target()
    kept = [sum(program.sizes.bind(b=2).value(k.bytes) for k in memory.kept(derive(p.graph, p.sizes), target)) for p in (other, program)]
    assert kept[0] < kept[1]


@pytest.mark.parametrize("chain", [*BLOCKS[:5], "attention(heads = 4, kv_heads = 2)", "attention(heads = 2, bias = false)",
                                   "reversible(repeat = 2) { f: { attention(heads = 2) }; g: { linear(8) } }",
                                   "repeat 2 { repeat 2 shared { residual { attention(heads = 2, window = 3) } } }"])
def test_products_of_one_operand_are_one(kit, chain):
    """Lowered eagerly too: values and gradients to rounding, as many multiply-adds, and three products a layer of attention become one."""
    program = kit.program(chain)
    other = replace(program, graph=joined(program.graph, program.sizes))
    x = torch.randn(2, 7, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    kit.close(results(other, x), results(program, x), 1e-12)
    def products(g): return sum(isinstance(n.op, Contract) for n in g.walk())
    attends = str(program.graph).count("name='query'")
    fewer = 1 if "lsh" in chain else 2                                             # LSH attention has queries and values only
    assert attends and products(other.graph) == products(program.graph) - fewer * attends
    assert macs(other.graph) == macs(program.graph)


def test_only_compiled_plans_join(kit):
    program = kit.program(BLOCKS[1])
    eager, fast = (plan(program.graph, program.sizes, Target(compiled=c)).graph for c in (False, True))
    assert sum(isinstance(n.op, Contract) for n in eager.walk()) == sum(isinstance(n.op, Contract) for n in fast.walk()) + 2


def test_what_can_be_recomputed(kit):
    """The two residuals of a block: each a statement; a block by itself is looked into; inside a reversible stack nothing is kept."""
    found = {(p.at, p.copies) for p in parts(kit.program(BLOCKS[1]).graph)}
    assert found == {("m/y/0", True), ("m/y/0/0", False), ("m/y/0/1", False)}
    reversible = "reversible(repeat = 2) { f: { linear(8) }; g: { linear(8) } }; linear(8)"
    assert [p.at for p in parts(kit.program(reversible).graph)] == ["m/y/1"]


@pytest.mark.parametrize("chain", ["embed(V, width = d); layer_norm; linear(V)", "embed(V, width = d); unembed(V)",
                                   "embed(V, width = d); unembed(V, bias = true)"])
@pytest.mark.parametrize("pieces", [2, 5])
def test_a_loss_is_cut_into_pieces(kit, chain, pieces):
    program = kit.program(chain, **LOSS)
    other = replace(program, loss=loss_in_pieces(program.loss, program.sizes, pieces))
    written = kit.program(chain, **{**LOSS, "loss": f"cross_entropy(y, next(x), pieces = {pieces})"})
    def regions(g): return [n.op.name for n in g.walk() if isinstance(n.op, Region)]
    assert regions(other.loss) == regions(written.loss)
    x = torch.randint(11, (2, 8))
    kit.close(results(other, x, True), results(program, x, True), 1e-12)
    # as many multiply-adds; written in pieces by hand it costs the same
    assert program.sizes.value(macs(other.loss)) == program.sizes.value(macs(written.loss))


def test_a_loss_after_a_recurrence_is_cut_too(kit):
    """A scan leaves its features in another order: a layout, no reason to keep all logits."""
    program = kit.program("embed(V, width = d); gru(8); layer_norm; unembed(V)", **LOSS)
    other = replace(program, loss=loss_in_pieces(program.loss, program.sizes, 4))
    assert "linear_cross_entropy" in {n.op.name for n in other.loss.walk() if isinstance(n.op, Region)}
    x = torch.randint(11, (2, 8))
    kit.close(results(other, x, True), results(program, x, True), 1e-12)


@pytest.mark.parametrize("chain, loss", [("embed(V, width = V)", "cross_entropy(y, next(x))"),
                                         ("embed(V, width = d); linear(V); relu", "cross_entropy(y, next(x))"),
                                         ("embed(V, width = d); linear(V)", "cross_entropy(y, next(x), pieces = 3)")])
def test_a_loss_without_an_output_layer_stays(kit, chain, loss):
    program = kit.program(chain, **{**LOSS, "loss": loss})
    assert loss_in_pieces(program.loss, program.sizes, 4) is program.loss
