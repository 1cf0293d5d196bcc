"""Random numbers are a pure function of (element number, key)."""
from __future__ import annotations

import math

import torch

from plait.compiler.lowering import tensors

KEY = torch.tensor(0x1234_5678_9ABC_DEF)


def test_uniform_and_normal_look_so():
    like = torch.zeros((), dtype=torch.float64)
    u, z = (tensors.random(fn, [200_000], KEY, like) for fn in ("uniform", "normal"))
    # the standard error of a mean of 200,000 is 1 / √(12 · 200,000) = 6.5e-4 and 1 / √200,000 = 2.2e-3: four of them
    assert abs(u.mean() - 0.5) < 4 * 6.5e-4 and abs(z.mean()) < 4 * 2.3e-3 and abs(z.var() - 1) < 0.02
    assert 0 <= u.min() and u.max() < 1 and torch.isfinite(z).all()
    assert abs((u[1:] * u[:-1]).mean() - 0.25) < 2e-3                          # neighbours do not know of each other
    tenths = torch.histc(u, 10, 0, 1)
    assert ((tenths - 20_000).square() / 20_000).sum() < 27.9                  # χ² of 9 degrees: 99.9 %


def test_keys_are_apart():
    one, two = tensors.mix(KEY, 1), tensors.mix(KEY, 2)
    keys = [KEY, KEY + 1, one, two, tensors.mix(one, 2), tensors.mix(two, 1)]
    drawn = [tensors.random("uniform", [10_000], k, None) for k in keys]
    for i, u in enumerate(drawn):
        for v in drawn[:i]: assert abs(torch.corrcoef(torch.stack((u, v)))[0, 1]) < 5 / math.sqrt(10_000)
    made = tensors.mix(KEY, torch.arange(100_000))
    assert made.unique().numel() == 100_000 and made.min() >= 0 and made.max() < 2**62
    assert torch.equal(tensors.mix(KEY, torch.tensor(7)), tensors.mix(KEY, 7))


def test_dtype_follows_the_reals_and_the_numbers_do_not():
    kinds = torch.float32, torch.float64, torch.bfloat16
    single, double, half = (tensors.random("uniform", [1000], KEY, torch.zeros((), dtype=t)) for t in kinds)
    assert (single.dtype, double.dtype, half.dtype) == (torch.float32, torch.float64, torch.bfloat16)
    assert torch.equal(single.double(), double)                                # 24 bits fit both


def test_no_global_state():
    before = torch.get_rng_state()
    tensors.random("normal", [10], KEY, None)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(tensors.random("normal", [10], KEY, None), tensors.random("normal", [10], KEY, None))
    assert torch.equal(tensors.random("uniform", [4, 5], KEY, None).flatten(), tensors.random("uniform", [20], KEY, None))


def test_made_by_hand():
    """One element worked out: scramble(scramble(3 ^ low) ^ high) of the key 2³² + 5."""
    def scramble(z):
        for _ in range(2): z = ((z ^ (z >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
        return z ^ (z >> 16)
    want = (scramble(scramble(3 ^ 5) ^ 1) >> 8) / 2**24
    assert tensors.random("uniform", [4], torch.tensor(2**32 + 5), torch.zeros((), dtype=torch.float64))[3] == want
