"""What the primitives are in torch: one plain function each, all of them pure, all traceable."""
from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

LOW = 0xFFFFFFFF
SHARE = 0, 1                                   # which part of the batch this process has, of how many equal ones


# -- made from nothing, on the device and in the dtype of `like` ----------------------------------------------------------
def real_type(like: Tensor | None) -> torch.dtype:
    """The dtype of reals that are made: that of a real tensor at hand, else torch's default."""
    return like.dtype if like is not None and like.is_floating_point() else torch.get_default_dtype()


def place(like: Tensor | None) -> torch.device | None:
    return None if like is None else like.device


def number(value, like: Tensor | None) -> Tensor:
    """A number as a tensor without axes: integers stay integers."""
    whole = isinstance(value, int)
    return torch.full((), value, dtype=torch.int64 if whole else real_type(like), device=place(like))


def filled(shape: Sequence[int], value, like: Tensor | None) -> Tensor:
    return torch.full(shape, value, dtype=real_type(like), device=place(like))


def positions(size: int, like: Tensor | None) -> Tensor:
    return torch.arange(size, device=place(like))


def real(x: Tensor, like: Tensor | None) -> Tensor:
    return x.to(real_type(like))


# -- randomness: a pure function of (element number, key), integers up to the last step ----------------------------------
def scramble(z):
    """32 mixed bits an element, held in int64: one multiplication stays below 2^63."""
    z = (z ^ (z >> 16)) * 0x45D9F3B & LOW
    z = (z ^ (z >> 16)) * 0x45D9F3B & LOW
    return z ^ (z >> 16)


def mix(key, other):
    """A new key of 62 bits from a key and a number, both non-negative."""
    low, high = key & LOW, key >> 32
    x = scramble(scramble(low ^ scramble(other & LOW)) ^ high ^ scramble(other >> 32))
    y = scramble(scramble(high ^ x) ^ low ^ 0x1E3779B9)
    return ((y & 0x3FFFFFFF) << 32) | x


def scrambled(z: Tensor) -> Tensor:
    """The same, in place: two of its size are alive at once."""
    for _ in range(2): z.bitwise_xor_(z >> 16).mul_(0x45D9F3B).bitwise_and_(LOW)
    return z.bitwise_xor_(z >> 16)


def bits(element: Tensor, key: Tensor) -> Tensor:
    """32 bits for each of the numbers of elements, in their place."""
    return scrambled(scrambled(element.bitwise_xor_(key & LOW)).bitwise_xor_(key >> 32))


def elements(shape: Sequence[int], batch: int | None, device: torch.device | None) -> Tensor:
    """The number of each element in the flattened shape. batch: the dimension of the batch, of which other processes have other parts;
    the numbers are those that the elements have in the whole of it."""
    part, parts = SHARE
    if batch is None or parts == 1: return torch.arange(math.prod(shape), device=device)
    mine = math.prod(shape[batch:])
    around = torch.arange(math.prod(shape[:batch]), device=device).mul_(mine * parts)
    return (around[:, None] + torch.arange(part * mine, (part + 1) * mine, device=device)).flatten()


def random(fn: str, shape: Sequence[int], key: Tensor, like: Tensor | None, batch: int | None = None) -> Tensor:
    """Uniform on [0, 1) in steps of 2⁻²⁴, or normal; an element is a function of its number (see `elements`) and the key.

    The steps are exact in float32, so the numbers do not depend on the dtype but for rounding of the last function."""
    z = bits(elements(shape, batch, place(like) or key.device), key.to(place(like)) if like is not None else key)
    made = real_type(like)
    work = torch.float64 if made == torch.float64 else torch.float32
    if fn == "uniform": u = z.bitwise_right_shift_(8).to(work).mul_(2.0**-24)
    elif fn == "normal": u = z.bitwise_right_shift_(9).to(work).mul_(2.0**-22).sub_(1 - 2.0**-23).erfinv_().mul_(math.sqrt(2))
    else: raise ValueError(f"no random function {fn}")
    return u.to(made).view(shape)


# -- element by element ----------------------------------------------------------------------------------------------------
def maximum(x, y):
    if not isinstance(x, Tensor): x, y = y, x
    if isinstance(y, Tensor): return torch.maximum(x, y)
    return torch.clamp(x, min=max(y, torch.finfo(x.dtype).min) if x.is_floating_point() else y)     # float16 ends at −65,504


def either(mask, x, y, like: Tensor | None) -> Tensor:
    """`where` between two numbers: a real."""
    return torch.where(mask, filled((), x, like), y)


def shifted(x: Tensor, by: Tensor) -> Tensor:
    """A parameter added, in the dtype of what it is added to: under autocast a product is shorter than a bias, and stays so."""
    return x + by.to(x.dtype)


def rsqrt(x: Tensor) -> Tensor:
    """1 / √x. What keeps x from 0 may itself be 0 in float16, which ends at 6e-8."""
    return torch.rsqrt(x.clamp(min=torch.finfo(x.dtype).tiny) if x.dtype == torch.float16 else x)


def step(x: Tensor) -> Tensor: return (x > 0).to(x.dtype)


def gelu_slope(x: Tensor) -> Tensor:
    return 0.5 * (1 + torch.erf(x / 2**0.5)) + x * torch.exp(-x * x / 2) / (2 * torch.pi) ** 0.5


def silu_slope(x: Tensor) -> Tensor:
    s = torch.sigmoid(x)
    return s * (1 + x * (1 - s))


MAPS: dict[str, Callable] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "neg": operator.neg,
    "relu": torch.relu, "step": step, "where": torch.where, "floordiv": operator.floordiv, "mod": operator.mod, "maximum": maximum,
    "and": operator.and_, "or": operator.or_, "not": torch.logical_not, "mix": mix,
    "exp": torch.exp, "log": torch.log, "sin": torch.sin, "cos": torch.cos, "tanh": torch.tanh, "sigmoid": torch.sigmoid,
    "gelu": F.gelu, "gelu_slope": gelu_slope, "silu": F.silu, "silu_slope": silu_slope, "rsqrt": rsqrt,
    "tanh_slope": lambda y: 1 - y * y, "sigmoid_slope": lambda y: y * (1 - y),
    "le": operator.le, "lt": operator.lt, "eq": operator.eq,
}
# Functions whose result is a real even where all operands are integers.
REAL = {"div", "exp", "log", "sin", "cos", "tanh", "tanh_slope", "sigmoid", "sigmoid_slope", "gelu", "gelu_slope", "silu", "silu_slope",
        "rsqrt"}


# -- reductions and movement ----------------------------------------------------------------------------------------------
def largest(x: Tensor, dims: list[int]) -> Tensor:
    return torch.any(x, dim=dims) if x.dtype == torch.bool else torch.amax(x, dims)


def stable_order(x: Tensor, dim: int) -> Tensor:
    return torch.sort(x, dim=dim, stable=True)[1]


def pad(x: Tensor, dim: int, before: int, after: int) -> Tensor:
    return F.pad(x, [0, 0] * (x.dim() - 1 - dim) + [before, after])


def window(x: Tensor, dim: int, width: int, left: int, dilation: int) -> Tensor:
    """[…, n, …] → […, n, width, …]: out[t, j] = x[t + (j − left)·dilation], zero outside. A view of the padded input."""
    n, span = x.shape[dim], (width - 1) * dilation
    before = left * dilation
    x = pad(x, dim, before, max(0, span - before))
    x = x.unfold(dim, span + 1, 1)[..., ::dilation]                    # unfold puts the window last
    return x.narrow(dim, 0, n).movedim(-1, dim + 1)


def fold(x: Tensor, dim: int, at: int, left: int, dilation: int) -> Tensor:
    """Adjoint of `window`; `at` is the window's dimension."""
    n, out = x.shape[dim], None
    d = dim - (at < dim)
    for j, part in enumerate(x.unbind(at)):
        by = (j - left) * dilation                                     # part[t] belongs to position t + by
        keep = part.narrow(d, min(n, max(0, -by)), n - min(n, abs(by)))
        moved = pad(keep, d, min(n, by), 0) if by > 0 else pad(keep, d, 0, min(n, -by))
        out = moved if out is None else out + moved
    assert out is not None
    return out


def gather(x: Tensor, index: Tensor, shared: int) -> Tensor:
    """x [shared…, A, rest…], index [shared…, own…] → [shared…, own…, rest…]"""
    own, rest = index.shape[shared:], x.shape[shared + 1:]
    if shared == 0:
        if len(rest) == 1 and x.is_floating_point(): return F.embedding(index, x)
        return x.index_select(0, index.reshape(-1)).reshape(*own, *rest)
    both = x.shape[:shared]
    count, wide = math.prod(both), math.prod(rest)                     # Size.numel() would settle a size that torch.export leaves open
    flat = x.reshape(count, x.shape[shared], wide)
    where = index.reshape(count, math.prod(own), 1).expand(-1, -1, wide)
    return flat.gather(1, where).reshape(*both, *own, *rest)


def scatter(x: Tensor, index: Tensor, shared: int, size: int) -> Tensor:
    """x [shared…, own…, rest…], index [shared…, own…] → [shared…, size, rest…], adding up"""
    both, own, rest = index.shape[:shared], index.shape[shared:], x.shape[index.dim():]
    count, many, wide = math.prod(both), math.prod(own), math.prod(rest)
    where = index.reshape(count, many, 1).expand(-1, -1, wide)
    zero = x.new_zeros(count, size, wide)
    return zero.scatter_add(1, where, x.reshape(count, many, wide)).reshape(*both, size, *rest)


def size(x: Tensor, dim: int) -> int:
    return x.shape[dim]
