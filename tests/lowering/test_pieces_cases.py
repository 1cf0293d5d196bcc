"""Chunked feed-forward and loss where public implementations went wrong: by kernels and by bodies, eager and compiled."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from plait.runtime.audit.measure import held

from .conftest import WAYS

N, V = 65, 11
WORDS = dict(kind="tokens[n] of V", out="[n, V]", V=V)


def text(n: int, b: int = 3) -> Tensor: return torch.randint(0, V, (b, n + 1), generator=torch.Generator().manual_seed(1))


def stream() -> Tensor: return torch.randn(2, N, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def words(way, pieces: int, n: int = 7):
    return way.module("embed(V, width = d); linear(V)", loss=f"cross_entropy(y, next(x), pieces = {pieces})", n=n, **WORDS)


def slopes(m, loss: Tensor) -> list[Tensor]: return list(torch.autograd.grad(loss, list(m.parameters())))


def ways(*pieces: int):
    """Numbers of pieces: all of them eager, the second one compiled (by kernels, for the sake of time)."""
    pairs = [(w, p) for w in WAYS for p in (pieces if "eager" in w else pieces[1:2])]
    return pytest.mark.parametrize("way, pieces", pairs, indirect=["way"])


@ways(1, 7, 32, N)                                                             # of 65, 10, 3 and 1 positions; two end ragged
def test_pieces_of_a_feed_forward(kit, way, pieces):
    """23. 1, 7, 32 and l pieces: same loss, same gradients; ragged last piece (l = 65, pieces of 32)."""
    whole = kit.module("feed_forward(12)", way.forced, n=N)
    cut = way.module(f"chunked(over = n, pieces = {pieces}) {{ feed_forward(12) }}", n=N)
    kit.close(*(kit.gradients(k, list(k.parameters()), stream()) for k in (whole, cut)), 1e-12)


@ways(1, 7, 32, N)
def test_pieces_of_a_loss(kit, way, pieces):
    """23. … the same of the loss, with targets that do not count, none of which in the last piece."""
    x = text(N)
    x[0, 3:], x[:, -1] = -1 - x[0, 3:], -1 - x[:, -1]
    whole, cut = (kit.module("embed(V, width = d); linear(V)", way.forced, loss="cross_entropy(y, next(x))", n=N, **WORDS),
                  words(way, pieces, N))
    kit.close(*((loss, slopes(m, loss)) for m in (whole, cut) for loss in [m.loss(x)]), 1e-12)
    assert [t.item() for t in cut.losses(x)[1:]] == pytest.approx([t.item() for t in whole.losses(x)[1:]], rel=1e-12)


@pytest.mark.parametrize("way", WAYS, indirect=True)
def test_pieces_with_dropout(kit, way):
    """Dropout in pieces is made again alike: gradients equal those of pieces that keep everything."""
    chain = "chunked(over = n, pieces = 4) { linear(12); gelu; dropout(0.5); linear(d) }"
    m, p = way.module(chain, n=N), way.plain(chain, n=N)
    kit.close(*(kit.gradients(k, list(k.parameters()), stream()) for k in (m, p)), 1e-12)


@ways(1, 3)
def test_targets_that_do_not_count(kit, way, pieces):
    """24. Ignored targets leave the denominator; all ignored: loss 0 tied to the parameters, zero gradients."""
    m, x = words(way, pieces), text(7)
    x[0, 3:], x[1, 0] = -1 - x[0, 3:], -1 - x[1, 0]
    mean, total, count = m.losses(x)
    logits = m(torch.where(x < 0, -1 - x, x)[:, :-1])
    wanted = F.cross_entropy(logits.flatten(0, 1), torch.where(x < 0, -100, x)[:, 1:].flatten(), ignore_index=-100)
    assert count == 2 + 7 + 7 and torch.allclose(mean, wanted) and torch.allclose(total, 16 * wanted)       # of the first row targets 1, 2
    kit.close((mean, slopes(m, mean)), (wanted, slopes(m, wanted)), 1e-12)
    none, total, count = m.losses(-1 - torch.where(x < 0, -1 - x, x))
    assert none == total == count == 0 and none.requires_grad and all((g == 0).all() for g in slopes(m, none))


@ways(1, 3)
def test_weights_of_tokens(kit, way, pieces):
    """24. … `reduction = none` under a per-token weight: the loss of one token alone is the sum where no other counts."""
    m, x = words(way, pieces), text(7)
    weight = torch.rand(3, 7, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    ours = torch.zeros((), dtype=torch.float64)
    for row, at in torch.cartesian_prod(torch.arange(3), torch.arange(1, 8)).tolist():
        alone = -1 - x
        alone[row, at] = x[row, at]
        ours = ours + weight[row, at - 1] * m.losses(alone)[1]
    each = F.cross_entropy(m(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten(), reduction="none").view(3, 7)
    theirs = (weight * each).sum()
    kit.close((ours, slopes(m, ours)), (theirs, slopes(m, theirs)), 1e-12)


@pytest.mark.parametrize("way", WAYS, indirect=True)
@pytest.mark.parametrize("pieces", [1, 3])
def test_two_unequal_micro_batches(kit, way, pieces):
    """25. Two unequal micro-batches equal the one batch: their sums over what counts in both."""
    m, x = words(way, pieces), text(7)
    x[0, 3:] = -1 - x[0, 3:]
    whole = m.loss(x)
    (_, first, count), (_, second, other) = m.losses(x[:1]), m.losses(x[1:])
    assert (count, other) == (2, 14)
    both = (first + second) / (count + other)
    kit.close((whole, slopes(m, whole)), (both, slopes(m, both)), 1e-12)


def test_saved_bytes(kit):
    """26. Eight pieces: saved bytes below a quarter of one piece's, where one piece is the layer as it stands: a chunked feed-forward keeps
    its input, n · 8 numbers, beside two hidden n · 64; a loss in pieces n · 8 beside logits n · V."""
    x = torch.randn(2, 64, 8)
    whole, cut = (held(kit.module(c, dtype=torch.float32, n=64), (x,), False)
                  for c in ("linear(d); feed_forward(64)", "linear(d); chunked(over = n, pieces = 8) { feed_forward(64) }"))
    assert 0 < cut < whole / 4
    x = torch.randint(0, 256, (2, 65))
    whole, cut = (held(kit.module("embed(V, width = d); linear(V)", dtype=torch.float32, n=64, V=256, kind="tokens[n] of V", out="[n, V]",
                                  loss=f"cross_entropy(y, next(x), pieces = {p})"), (x,), True) for p in (1, 8))
    assert 0 < cut < whole / 4


@pytest.mark.parametrize("way", WAYS, indirect=True)
@pytest.mark.parametrize("n", [10, "free"])
def test_axial_positions_are_cropped(way, n):
    """27. Axial positions: … training at n smaller than the grid works (cropped). Of a grid of 4 × 4, ten places: rows 0, 1 and half of
    row 2. (A grid that does not cover n, widths that do not add up, both reported at once: tests/compiler/test_mistakes.py.)"""
    m, x = way.module("positions(axial, grid = (4, 4), widths = (3, 5))", n=n), stream()[:, :10]
    row, column = m.parameters()
    y = m(x)
    at = torch.arange(10)
    assert torch.allclose(y - x, torch.cat((row[at // 4], column[at % 4]), -1).expand(2, -1, -1), atol=1e-12)
    y.sum().backward()
    # 2 sequences · places of a row, of a column
    assert torch.equal(row.grad, torch.tensor([8., 8, 4, 0], dtype=torch.float64)[:, None].expand(4, 3))
    assert torch.equal(column.grad, torch.tensor([6., 6, 4, 4], dtype=torch.float64)[:, None].expand(4, 5))
