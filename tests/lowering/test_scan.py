"""The own scan: a recurrence by its body is torch's layer, masked and backward ones included; it is compiled once whatever n is."""
from __future__ import annotations

import itertools

import pytest
import torch
import torch._dynamo
from torch.utils._python_dispatch import TorchDispatchMode

from plait.compiler.lowering import segments
from plait.compiler.lowering.loops import Trips
from plait.compiler.lowering.scan import Scan, Steps

CELLS = {"rnn": "RNN", "lstm": "LSTM", "gru": "GRU"}


def modules(m, kind: type) -> list:
    return [k for lowered in m._lowered.values() for k in lowered.modules() if isinstance(k, kind)]


def body(kit, chain: str, **how):
    return kit.module(chain, kit.bodies, **how)


def torchs(m, name: str, **how):
    """torch's layer with the weights of ours."""
    theirs = getattr(torch.nn, name)(8, 4, batch_first=True, dtype=torch.float64, **how)
    for mine, yours in zip(m.parameters(), theirs.parameters()): yours.data.copy_(mine.data.flatten(0, 1))
    return theirs


def like(kit, ours, theirs) -> None:
    kit.close(ours, (theirs[0], [g.view_as(h) for g, h in zip(theirs[1], ours[1])]), 1e-12)


@pytest.mark.parametrize("cell, both, bias, n", [*itertools.product(CELLS, (False, True), (False, True), (1, 2, 7))])
def test_it_is_torchs_layer(kit, cell, both, bias, n):
    how = f"direction = {'both' if both else 'forward'}, bias = {str(bias).lower()}"
    m = body(kit, f"{cell}(4, {how})", n=n, out=f"[n, {8 if both else 4}]")
    theirs = torchs(m, CELLS[cell], bidirectional=both, bias=bias)
    x = torch.randn(3, n, 8, dtype=torch.float64)
    ours = kit.gradients(m, list(m.parameters()), x)
    assert len(modules(m, Scan)) == 1 + both and not modules(m, Trips)
    like(kit, ours, kit.gradients(lambda x: theirs(x)[0], list(theirs.parameters()), x))


@pytest.mark.parametrize("cell, direction", [*itertools.product(CELLS, ("forward", "both"))])
def test_padding_is_torchs_packing(kit, cell, direction):
    """Where there is no symbol the state is held; torch gives zeros there, so only the symbols' outputs are weighed."""
    m = body(kit, f"{cell}(4, direction = {direction})", padded=True, out=f"[n, {8 if direction == 'both' else 4}]")
    theirs = torchs(m, CELLS[cell], bidirectional=direction == "both")
    x, lengths = torch.randn(3, 7, 8, dtype=torch.float64), torch.tensor([7, 4, 1])
    mask = torch.arange(7) < lengths[:, None]

    def packed(x):
        rows = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        return torch.nn.utils.rnn.pad_packed_sequence(theirs(rows)[0], batch_first=True)[0]
    ours = kit.gradients(lambda x: m(x, x_mask=mask) * mask[..., None], list(m.parameters()), x)
    like(kit, ours, kit.gradients(packed, list(theirs.parameters()), x))


def test_relu(kit):
    m = body(kit, "rnn(4, nonlinearity = relu)", out="[n, 4]")
    theirs = torchs(m, "RNN", nonlinearity="relu")
    x = torch.randn(3, 7, 8, dtype=torch.float64)
    like(kit, kit.gradients(m, list(m.parameters()), x), kit.gradients(lambda x: theirs(x)[0], list(theirs.parameters()), x))


# -- every way to be called --------------------------------------------------------------------------------------------------
@pytest.fixture
def pair(kit):
    """A stack of two recurrences by their bodies, and the same by torch's kernels."""
    chain = "lstm(8); gru(8)"
    return body(kit, chain), kit.module(chain), torch.randn(2, 7, 8, dtype=torch.float64)


def test_frozen_parameters(kit, pair):
    m, p, x = pair
    for k in (m, p):
        for name, q in k.named_parameters(): q.requires_grad_("state" not in name)
    kit.close(*(kit.gradients(k, list(k.parameters()), x) for k in (m, p)), 1e-12)


def test_nothing_asks_for_a_gradient(kit, pair):
    m, p, x = pair
    for k in (m, p): k.requires_grad_(False)
    assert not m(x).requires_grad and torch.allclose(m(x), p(x), rtol=1e-12)
    kit.close(*(kit.gradients(k, [], x) for k in (m, p)), 1e-12)                      # of the input only


def test_without_gradients_nothing_is_kept(pair):
    m, p, x = pair
    packed = []
    with torch.no_grad(), torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t): y = m(x)
    assert not packed and torch.allclose(y, p(x), rtol=1e-12) and not any(s.ways for s in modules(m, Scan))


def test_two_forwards_then_one_backward_and_once_more(pair):
    m, p, x = pair
    z, found = torch.randn_like(x), []
    for k in (m, p):
        loss = k(x).square().sum() + k(z).square().sum()
        first = torch.autograd.grad(loss, list(k.parameters()), retain_graph=True)
        again = torch.autograd.grad(loss, list(k.parameters()))
        assert all(torch.equal(a, b) for a, b in zip(first, again))
        found.append(first)
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(*found))


def test_autocast(kit):
    """In forward only, as it is used: backward finds it again. bfloat16 has 8 bits, 0.4 % an operation."""
    m, x = body(kit, "lstm(8); rnn(8, bias = false)", dtype=torch.float32), torch.randn(2, 7, 8)
    whole = kit.gradients(m, list(m.parameters()), x)
    def cast(x):
        with torch.autocast("cpu", dtype=torch.bfloat16): return m(x)
    y, grads = kit.gradients(cast, list(m.parameters()), x)
    assert not torch.equal(y, whole[0])
    for a, b in zip((y, *grads), (whole[0], *whole[1])): assert (a - b).norm() <= 0.03 * b.norm() + 1e-6


def test_inside_other_loops(kit):
    chain = ("repeat 2 { gru(8) }; reversible(repeat = 2) { one: { lstm(8) }; "
             "two: { layer_norm; chunked(over = n, pieces = 2) { linear(8) } } }")
    m, p, x = body(kit, chain), kit.module(chain, {**kit.bodies, "gru": "gru", "lstm": "lstm"}), torch.randn(2, 7, 8, dtype=torch.float64)
    kit.close(*(kit.gradients(k, list(k.parameters()), x) for k in (m, p)), 1e-10)
    assert modules(m, Scan)


# -- hoisting ------------------------------------------------------------------------------------------------------------------
class Products(TorchDispatchMode):
    """Counts matrix products."""
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func in (torch.ops.aten.mm.default, torch.ops.aten.bmm.default, torch.ops.aten.addmm.default)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("cell", CELLS)
def test_one_product_for_all_inputs(kit, cell):
    """Forward: of the inputs, of 7 states. Backward: of 7 states; the states' weights, by the first state and by the 6 others; the two of
    the hoisted product."""
    m, x = body(kit, f"{cell}(4)", out="[n, 4]"), torch.randn(3, 7, 8, dtype=torch.float64, requires_grad=True)
    with Products() as products: m(x).sum().backward()
    assert products.count == 1 + 7 + 7 + 2 + 2


# -- compiled ------------------------------------------------------------------------------------------------------------------
def codes(m) -> int:
    """How many steps were compiled."""
    halves = [half for scan in modules(m, Scan) for way in scan.ways.values() for half in way[1:]]
    steps = [k for half in halves for k in half.modules() if isinstance(k, Steps)]
    return sum(len(set(s.runs.values())) for s in (*modules(m, Steps), *steps))


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(segments, "BACKEND", "aot_eager")
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("n", [16, 64])
def test_as_much_is_compiled_for_any_length(kit, quick, n):
    m = body(kit, "lstm(8)", dtype=torch.float32, compile=True, n=n)
    kit.gradients(m, list(m.parameters()), torch.randn(2, n, 8))
    assert codes(m) == 2                                       # the step and its reverse


def test_other_lengths_compile_nothing(kit, quick):
    m, p = (body(kit, "lstm(8); gru(8, direction = both); linear(8)", dtype=torch.float32, compile=c, n="free") for c in (True, False))
    for n in (9, 5, 1, 30):
        x = torch.randn(2, n, 8)
        kit.close(*(kit.gradients(k, list(k.parameters()), x) for k in (m, p)), 1e-4)
        assert codes(m) == 6


def test_other_batches_share_one(kit, quick):
    m, p = (body(kit, "gru(8)", dtype=torch.float32, compile=c) for c in (True, False))
    for b in (2, 3, 4, 5, 1):
        x = torch.randn(b, 7, 8)
        kit.close(*(kit.gradients(k, list(k.parameters()), x) for k in (m, p)), 1e-4)
    assert codes(m) == 2 * 3


@pytest.mark.parametrize("cell, padded", [*itertools.product(CELLS, (False, True))])
def test_generated_code(kit, cell, padded):
    """The code that runs gives what the eager step does, packed products included, and under autocast to the 8 bits of bfloat16."""
    m, p = (body(kit, f"{cell}(8, direction = both)", dtype=torch.float32, compile=c, padded=padded, out="[n, 16]") for c in (True, False))
    x, mask = torch.randn(2, 7, 8), torch.arange(7) < torch.tensor([[7], [3]])
    given = {"x_mask": mask} if padded else {}
    kit.close(*(kit.gradients(k, list(k.parameters()), x, **given) for k in (m, p)), 1e-4)

    def cast(k):
        def run(x):
            with torch.autocast("cpu", dtype=torch.bfloat16): return k(x, **given)
        return run
    (y, grads), (z, others) = (kit.gradients(cast(k), list(k.parameters()), x) for k in (m, p))
    for a, b in zip((y, *grads), (z, *others)): assert (a - b).norm() <= 0.03 * b.norm() + 1e-6
