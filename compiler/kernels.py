"""What a kernel is before torch: the region it claims, when it is available, and whether the compiler may look inside.

The emission, which needs torch, is an entry of the same name in `plait.runtime.kernels`."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import sympy as sp

from plait.compiler.prims import Region
from plait.compiler.sizes import ceil_log2


@dataclass(frozen=True)
class Target:
    """What a plan is made for. `torch` is the installed version as (major, minor); compiled: runs of primitives become generated code."""
    device: str = "cpu"
    dtype: str = "float32"
    torch: tuple[int, int] = (2, 13)
    compiled: bool = False


@dataclass(frozen=True)
class Kernel:
    """One way to run a region. `opaque`: the emission cannot be traced into a compiled graph (a library call with its own
    autograd, a Python loop): it runs between compiled pieces. `available` never looks at the value of a free dim; `needs` says the
    same in words. `unasked`: does it run where nobody asks for it? Not where the body is faster."""
    name: str
    region: str
    available: Callable[[Region, Target], bool] = lambda region, target: True
    opaque: bool = False
    needs: str = "is there always"
    unasked: Callable[[Target], bool] = lambda target: True


def _without(*switches: str) -> Callable[[Region, Target], bool]:
    """Available while the region is called without these arguments."""
    return lambda region, target: not any(region.arg(s) for s in switches)


def _one_chunk_back(region: Region, target: Target) -> bool:
    """LSH attention as the paper has it: a chunk and the one before it."""
    return region.arg("look_back") == 1 and _without("dropout", "wrap", "look_ahead")(region, target)


def _one_table(region: Region, target: Target) -> bool:
    """An output layer of one matrix, and one bias at most."""
    x, _, _, *weights = region.body.ins
    return [len(w.axes) for w in weights] in ([2], [2, 1]) and x.has("d") and weights[0].has("d")


def _but_on_cpu(target: Target) -> bool:
    """There the own scan of the body is faster than the library (`make bench`, recurrent)."""
    return (target.device, target.dtype) != ("cpu", "float32")


BLOCK_ROWS = 128                                              # rows a block of row-wise attention: its scores stay in the cache
SLAB = 64                                                     # chunks that LSH attention has at hand at once on a CPU: likewise

HASHES = 2**20                                                # numbers of the products with its rotations that it has at hand, likewise
HASHED = 64                                                   # positions of these at least, which are a product of their own


def band(window) -> sp.Expr:
    """Queries a block of banded attention: the next power of two of the window, from 32 to 64: with smaller blocks more of the products
    count, larger ones are faster."""
    return sp.Max(32, sp.Min(64, 2 ** ceil_log2(window)))


BAND_SLAB = 16                                                # blocks that banded attention has at hand at once


# In order of preference: the first that is available claims the region; else its body runs.
KERNELS: tuple[Kernel, ...] = (
    Kernel("softmax", "softmax"),
    Kernel("layer_norm", "layer_norm"),
    Kernel("rms_norm", "rms_norm"),
    Kernel("scaled_dot_product_attention", "attention", _without("dropout"), needs="takes no dropout"),
    Kernel("rowwise_attention", "attention", opaque=True),
    Kernel("banded_attention", "windowed_attention", _without("dropout"), opaque=True, needs="takes no dropout"),
    Kernel("conv1d", "convolution"),
    Kernel("lsh_attention", "lsh_attention", _one_chunk_back, opaque=True,
           needs="looks back one chunk, with no dropout, wrap or look_ahead"),
    Kernel("rnn", "rnn", _without("masked"), opaque=True, needs="takes no padding", unasked=_but_on_cpu),
    Kernel("lstm", "lstm", _without("masked"), opaque=True, needs="takes no padding"),
    Kernel("gru", "gru", _without("masked"), opaque=True, needs="takes no padding", unasked=_but_on_cpu),
    Kernel("cross_entropy", "cross_entropy"),
    Kernel("linear_cross_entropy", "linear_cross_entropy", _one_table, opaque=True, needs="takes one matrix and one bias at most"),
)
