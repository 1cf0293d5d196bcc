"""What lies between two products of LSH attention: functions of tensors, each one fused loop once compiled.

C chunks of m queries, each with the 2·m keys of the chunk before and its own. Slices are made by who calls: inside, whole tensors are
written."""
from __future__ import annotations

import torch
from torch import Tensor

FAR = -(2**28)                                 # the code of a key that nobody may see


def argmax(y: Tensor) -> Tensor:
    """argmax of (y, −y) along the last dimension but one. That the numbers of other positions lie beside each other lets it go by many
    at a time."""
    most = y.abs().amax(-2, keepdim=True)
    number = torch.arange(y.shape[-2], dtype=torch.int32, device=y.device).unsqueeze(-1)
    return torch.where(y.abs() == most, torch.where(y < 0, number + y.shape[-2], number), 2 * y.shape[-2] - 1).amin(-2)


def inverse_norm(q: Tensor) -> Tensor: return (q.square().sum(-1) + 1e-12).rsqrt()


def apart(query: Tensor, key: Tensor) -> Tensor:
    """[C, m, 2·m]: code difference neither 0 nor 1."""
    return (query.unsqueeze(-1) - key.unsqueeze(-2)).bitwise_right_shift_(1) != 0


def hidden(mine: Tensor, theirs: Tensor, mine_at: Tensor, theirs_at: Tensor, causal: bool) -> Tensor:
    """Apart in the last round, or near in one before, or later than the query (where it does not matter: the query itself)."""
    no = apart(mine[-1], theirs[-1])
    for query, key in zip(mine[:-1], theirs[:-1]): no.logical_or_(apart(query, key).logical_not_())
    i, j = mine_at.unsqueeze(-1), theirs_at.unsqueeze(-2)
    return no.logical_or_((j >= i) if causal else (j == i))


def softmax(s: Tensor, inverse: Tensor, mine: Tensor, theirs: Tensor, mine_at: Tensor, theirs_at: Tensor, top: Tensor, total: Tensor,
            causal: bool) -> None:
    """In place: raw products s [C, m, 2·m] become weights not yet divided; the maximum and the sum of each row go to top and total [C, m].
    A row that sees nothing: sum 0."""
    s.mul_(inverse.unsqueeze(-2)).masked_fill_(hidden(mine, theirs, mine_at, theirs_at, causal), float("-inf"))
    most = s.amax(-1, keepdim=True).clamp(min=-1e30)
    s.sub_(most).exp_()
    top.copy_(most.squeeze(-1))
    total.copy_(s.sum(-1))


def slopes(s: Tensor, dp: Tensor, inverse: Tensor, mine: Tensor, theirs: Tensor, mine_at: Tensor, theirs_at: Tensor, total: Tensor,
           delta: Tensor, causal: bool) -> None:
    """In place: s becomes the weights, dp the gradient of the raw products."""
    k = inverse.unsqueeze(-2)
    s.mul_(k).sub_(total.unsqueeze(-1)).exp_().masked_fill_(hidden(mine, theirs, mine_at, theirs_at, causal), 0.0)
    dp.sub_(delta.unsqueeze(-1)).mul_(s).mul_(k)


def merge(o: Tensor, top: Tensor, total: Tensor, more: Tensor, more_top: Tensor, more_total: Tensor) -> None:
    """In place, two parts of one softmax: o, top and total become those of both."""
    most = torch.maximum(top, more_top)
    a, b = (top - most).exp(), (more_top - most).exp()
    o.mul_(a[:, None]).addcmul_(more, b[:, None])
    total.copy_(total * a + more_total * b)
    top.copy_(most)


def finish(o: Tensor, top: Tensor, total: Tensor, v: Tensor, at: Tensor | None) -> tuple[Tensor, Tensor]:
    """Divided by the total; where nothing was seen in any round the row's own value, and a total of infinity. at: where rows stand."""
    if at is not None: o, top, total = o[at], top[at], total[at]
    some = total > 0
    return torch.where(some[:, None], o / torch.where(some, total, 1.0)[:, None], v), torch.where(some, top + total.log(), float("inf"))


def inner(x: Tensor, y: Tensor) -> Tensor: return (x * y).sum(-1)


def through_key(t: Tensor, rows: Tensor, inverse: Tensor) -> Tensor:
    """The gradient through a key of unit length: […, k] each, inverse […]. t becomes it."""
    k = rows * inverse.unsqueeze(-1)
    return t.sub_(k.mul_((k * t).sum(-1, keepdim=True)))


def own(to_q: Tensor, to_v: Tensor, dk: Tensor, dv: Tensor, rows: Tensor, inverse: Tensor) -> None:
    """to_q [C, m, k] has the gradient of the queries; what falls on a chunk from itself, and from the one behind it, is added.
    dk [C + 1, 2·m, k], dv likewise; to_v is written."""
    m = to_q.shape[1]
    to_q.add_(through_key(dk[:-1, m:] + dk[1:, :m], rows, inverse))
    torch.add(dv[:-1, m:], dv[1:, :m], out=to_v)


def before(to_q: Tensor, to_v: Tensor, dk: Tensor, dv: Tensor, rows: Tensor, inverse: Tensor) -> None:
    """Onto the chunk before a slab: [m, …] each."""
    to_q.add_(through_key(dk.clone(), rows, inverse))
    to_v.add_(dv)


def add(to: Tensor, by_place: Tensor, at: Tensor) -> None: to += by_place[at]
