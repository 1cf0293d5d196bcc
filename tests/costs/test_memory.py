"""Memory of a step: worked values, arithmetic beside each. (That these are what torch keeps is the audit's business.)"""
from pathlib import Path

import pytest
import sympy as sp

from plait import files
from plait.compiler.costs import memory
from plait.compiler.expand import expand
from plait.compiler.kernels import Target
from plait.compiler.sizes import dim
from plait.compiler.step import Step

SPECS = Path(__file__).parents[2] / "specs"
HALF = Target(dtype="bfloat16")
b, n, d, h, L, p, f = map(dim, ("b", "n", "d", "h", "L", "p", "f"))


def step(chain: str, dims: str = "n; d; h; L; p; f; require n % p == 0", target: Target = Target()) -> Step:      # noqa: B008 (frozen)
    text = f"plait 1\ndims {{ {dims} }}\nmodel m {{\n  input x: stream[n, d]\n  y = x {{ {chain} }}\n  output y: [n, d]\n}}\n"
    program = expand(files.opened(SPECS / "m.plait", text=text), "m")
    return Step(lambda: program, target)


def saved(chain: str, **how) -> sp.Expr: return sp.expand(step(chain, **how).saved())


def test_a_row_of_linears():
    """Linear 1024 → 1024 applied 100 times to 10,240 positions, fp32: 100 inputs of 40 MiB, the first of them the caller's."""
    found = saved("repeat L shared { linear(d, bias = false) }")
    assert sp.simplify(found - 4 * (L - 1) * b * n * d) == 0
    assert found.subs({L: 100, b: 1, n: 10_240, d: 1024}) == 99 * 40 * 2**20


def test_fused_attention_in_two_bytes():
    """x, q, k, v and the output, 2 bytes each, and a float32 log-sum-exp a row: 10·s·b·width + 4·s·b·heads."""
    found = saved("linear(d, bias = false); attention(heads = h, bias = false)", target=HALF)
    assert sp.expand(found - (10 * n * b * d + 4 * n * b * h)) == 0
    assert found.subs({n: 128, b: 2, d: 64, h: 4}) == 167_936


def test_a_dense_layer_in_two_bytes():
    """Pre-norm, GELU, hidden 4·width, scores held, 1-byte dropout masks: 34·s·b·width + 5·heads·s²·b, and two statistics in each of two
    norms (Korthikanti et al. 2022, section 4.1)."""
    layer = ("linear(d, bias = false); residual(dropout = 0.1) { attention(heads = h, dropout = 0.1, kernel = body, bias = false) }; "
             "residual(dropout = 0.1) { feed_forward(4 * d, activation = gelu, bias = false) }")
    found = saved(layer, target=HALF)
    assert sp.expand(found - (34 * n * b * d + 5 * h * n**2 * b + 2 * 4 * n * b)) == 0
    assert found.subs({n: 128, b: 2, d: 64, h: 4}) == 1_212_416 + 2_048


def test_scores_of_long_sequences():
    """65,536 tokens × 1,024 × batch 8 in float32 is 2 GiB; a 65,536² score matrix 16 GiB (Kitaev et al. 2020, section 1)."""
    kept = {str(k.bytes): k.bytes for k in step("linear(d, bias = false); attention(heads = 1, kernel = body, bias = false)").kept}
    at = {b: 1, n: 65_536, d: 1024}
    assert 16 * 2**30 in [e.subs(at) for e in kept.values()]
    assert all(e.subs({b: 8, n: 65_536, d: 1024}) in (2 * 2**30, 8 * 16 * 2**30) for e in kept.values())


def test_reversible_does_not_grow_with_its_layers():
    """The two streams; of LSH also the buckets, 2 bytes for each layer, round, head and position."""
    stack = "reversible(repeat = L) {{ one: {{ layer_norm; {} }}; two: {{ layer_norm; feed_forward(f) }} }}"
    assert saved(stack.format("attention(heads = h)")) == 8 * b * n * d
    found = saved(stack.format("lsh_attention(heads = h, chunk = 64, rounds = 8)"), dims="n = 64Ki; d; h; L; f")
    assert found.coeff(L, 1).subs({n: 64 * 1024, b: 1, h: 1}).doit() == 8 * 65_536 * 2 + 8
    plain = saved("repeat L { residual { attention(heads = h) }; residual { feed_forward(f) } }")
    assert sp.degree(plain, L) == 1 and plain.coeff(b * n * d * L) == 32


@pytest.mark.parametrize("times", [1, 3])
def test_a_reversible_copy_adds_its_buckets_and_its_gradients_to_the_peak(times):
    """2 bytes for each of 3 rounds, 4 heads and 4,096 positions. Gradients in float32 of the copy: two norms of 2·d; query, value and
    output matrices with their biases, 3·(d² + d); the feed-forward, 2·d·f + f + d. Of a stack that is repeated, every buffer is held when
    backward begins, and its last repetition's gradients are the first."""
    stack = ("reversible(repeat = L) { one: { layer_norm; lsh_attention(heads = 4, chunk = 64, rounds = 3) }; "
             "two: { layer_norm; feed_forward(f) } }")
    s = step(stack if times == 1 else f"repeat {times} {{ {stack} }}", dims="n; d; L; f")
    def at(e: sp.Expr, copies: int) -> int: return int(s.program.sizes.bind(n=4096, d=32, f=64, b=1, L=copies).value(e))
    peak = memory.peak(s.joint, s.target)
    gradients = 4 * (2 * 2 * 32 + 3 * (32 * 32 + 32) + 2 * 32 * 64 + 64 + 32)
    buckets = 2 * 3 * 4 * 4096
    assert [at(peak, L + 1) - at(peak, L) for L in (3, 8, 1000)] == [times * buckets + gradients] * 3
    assert buckets <= (at(s.saved(), 4) - at(s.saved(), 3)) / times <= buckets + 8              # and what it kept of the number of its trip


def test_chunks_divide_the_hidden_buffer():
    """Saved are the inputs; alive at the peak is the hidden layer of one piece."""
    whole, chunked = (step(c) for c in ("linear(d); feed_forward(f)", "linear(d); chunked(over = n, pieces = p) { feed_forward(f) }"))
    assert whole.saved().coeff(b * f * n) == 4 and not chunked.saved().has(f)            # ReLU keeps its output, no input
    at = {b: 1, n: 4096, d: 8, f: 8192, h: 1, L: 1}
    def peak(s: Step, pieces: int) -> int:
        return int(s.program.sizes.bind(**{str(k): v for k, v in at.items()}, p=pieces).value(memory.peak(s.joint, s.target)))
    hidden = 4 * 4096 * 8192
    assert peak(whole, 1) > 2 * hidden and peak(chunked, 16) < hidden / 2 < peak(chunked, 2)


def test_parameters_and_what_adam_remembers():
    """0.5 G parameters are 2 GB in float32; with gradients and two moments 8."""
    found = step("linear(d, bias = false)", dims="n = 1; d = 22361")
    assert found.program.sizes.bind(b=1).value(found.peak) >= 4 * 4 * 22_361**2 > 7.9e9


@pytest.mark.parametrize("chain", ["attention(heads = h)", "gru(d)", "residual { feed_forward(f) }", "conv(d, kernel = 3)",
                                   "repeat L { linear(d); relu }", "chunked(over = n, pieces = p) { feed_forward(f) }",
                                   "reversible(repeat = L) { one: { linear(d) }; two: { gru(d) } }"])
def test_the_peak_holds_what_is_saved(chain):
    """Whatever the sizes: nothing is saved that is not alive when backward starts."""
    s = step(chain)
    for k in range(1, 5):
        at = s.program.sizes.bind(n=4 * k, d=8 * k, h=2, L=2 * k, p=2, f=16 * k, b=k)
        assert at.value(memory.peak(s.joint, s.target)) >= at.value(s.saved())
