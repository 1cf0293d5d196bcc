"""LSH attention: hash, sort, attend in chunks, one softmax over the union of the rounds. Kitaev et al. 2020, section 2.

A row is what one head has of one position. Each round is a list of rows sorted by bucket and cut into chunks; `lsh_attend` is what
is done with these lists.

Who sees whom: with the code u = 2·bucket + chunk (chunk alone where buckets do not matter), which grows along the sorted list, i sees
j in a round exactly if u_i − u_j is 0 or 1. Neighbouring sequences are kept apart by a large step. A pair that several rounds have
counts in the first of them: the same union as the paper's log N, with half the tests."""
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from plait.compiler import kernels
from plait.compiler.lowering.emission import KernelCall
from plait.compiler.lowering.inverse import choose
from plait.compiler.lowering.tensors import mix, random
from plait.runtime.kernels import fused
from plait.runtime.kernels import lsh_pieces as pieces
from plait.runtime.kernels.lsh_attend import Attend, How
from plait.runtime.kernels.lsh_pieces import FAR

SLAB = {"cpu": kernels.SLAB}                   # chunks a slab: scratch that stays in the cache; on other devices few, large ones
LARGE_SLAB = 4096
HASHES = {"cpu": kernels.HASHES}               # products with rotations at hand at once, likewise
MANY_HASHES = 2**26


def lsh_attention(call: KernelCall) -> Callable:
    """q [b, n, h, k], v [b, n, h, v], a key, and a mask [b, n] where padding is possible → [b, n, h, v]."""
    told = call.region.arg
    order = "b", "n", "h"
    q_into, v_into, back = call.into(0, *order, "k"), call.into(1, *order, "v"), call.back(*order, "v")
    causal, within, dedup, shared = (bool(told(k)) for k in ("causal", "within_bucket", "dedup", "share_rotations"))

    def run(q: Tensor, v: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
        operands = (q, v, key)
        chunk, rounds = int(call.number("chunk", *operands)), int(call.number("rounds", *operands))
        factors = [int(call.value(f, *operands)) for f in told("buckets")]
        q, v = q_into(q), v_into(v)
        work = torch.promote_types(torch.promote_types(q.dtype, v.dtype), torch.float32)
        with torch.autocast(q.device.type, enabled=False):
            made = q.detach().to(work)
            bucket = choose(lambda: buckets(made, key, factors, rounds, shared, call.compiled), math.prod(factors))
            o = attend(q.to(work), v.to(work), bucket, math.prod(factors), chunk, mask, causal, within, dedup, call.compiled)
        return back(o.to(v.dtype))
    return run


# -- hashing and sorting --------------------------------------------------------------------------------------------------
@torch.no_grad()
def buckets(q: Tensor, key: Tensor, factors: list[int], rounds: int, shared: bool, compiled: bool) -> Tensor:
    """q [b, n, h, k] → the bucket of every position, [rounds, b, h, n]: argmax of (q R, −q R), a digit a factor."""
    b, n, h, k = q.shape
    rows = q.reshape(b * n, h, k)
    out, worth = torch.zeros(rounds, h, b * n, dtype=torch.int64, device=q.device), 1
    find = fused.compiled(pieces.argmax, compiled, q.dtype, q.device.type)
    for digit, f in enumerate(factors):
        rotations = random("normal", [*(() if shared else (h,)), rounds, k, f // 2], mix(key, 2 + digit), q)
        turn = rotations.mT.reshape(-1, rounds * (f // 2), k).expand(h, -1, -1)
        # The products of some positions at a time, which are looked at while they are in the cache.
        few = max(kernels.HASHED, HASHES.get(q.device.type, MANY_HASHES) // (h * rounds * (f // 2)))
        scratch = q.new_empty(h * rounds * (f // 2) * min(few, b * n))
        for a in range(0, b * n, few):
            some = rows[a:a + few].permute(1, 2, 0)
            product = scratch[:turn.shape[1] * h * some.shape[2]].view(h, -1, some.shape[2])
            torch.bmm(turn, some, out=product)
            out[:, :, a:a + few] += worth * find(product.view(h, rounds, f // 2, -1)).transpose(0, 1)
        worth *= f
    return out.view(rounds, h, b, n).transpose(1, 2)


@dataclass(frozen=True)
class Order:
    """rows [rounds, places]: the row ((b·n + position)·h + head) at each sorted place, b·n·h where padding stands; place [rounds, rows]:
    the way back; code [rounds, rows + 1] of a row as a query, seen: as a key (None: the same; FAR: nobody may see it)."""
    rows: Tensor
    place: Tensor
    code: Tensor
    seen: Tensor | None


@torch.no_grad()
def sort(bucket: Tensor, count: int, chunk: int, mask: Tensor | None, within: bool) -> Order:
    """bucket [rounds, b, h, n] of `count` buckets; what does not exist sorts last."""
    rounds, b, h, n = bucket.shape
    chunks = -(-n // chunk)
    total, rows, device = chunks * chunk, b * n * h, bucket.device
    if mask is not None: bucket = torch.where(mask[None, :, None, :], bucket, count)
    lists = rounds * b * h
    padded = F.pad(bucket, (0, total - n), value=count + 1).reshape(lists, total)
    number = torch.arange(lists, device=device)[:, None]
    # One flat stable sort for all lists: the list is the leading digit.
    perm = torch.sort((padded + number * (count + 2)).reshape(-1), stable=True)[1].view(lists, total) - number * total
    perm = perm.view(rounds, b, h, total)
    sequence = torch.arange(b * h, device=device).view(1, b, h, 1)
    at = (sequence // h * n + perm) * h + sequence % h
    at = torch.where(perm < n, at, rows).view(rounds, -1)
    place = torch.empty(rounds, rows + 1, dtype=torch.int64, device=device)
    place.scatter_(1, at, torch.arange(at.shape[1], device=device).expand(rounds, -1))
    place = place[:, :-1]
    row = torch.arange(rows, device=device)
    sequence = row // (n * h) * h + row % h
    # A chunk looks back into the list before its own at most: odd and even ones, a large step apart, keep lists from each other.
    code = place // chunk - sequence * chunks + sequence % 2 * (4 * (count + chunks) + 8)
    if within: code = code + 2 * bucket.permute(0, 1, 3, 2).reshape(rounds, -1)
    code = F.pad(code.to(torch.int32), (0, 1), value=2 * FAR)                # nothing that is there sees or is seen by what is not
    seen = None
    if mask is not None:
        there = F.pad(mask[:, :, None].expand(b, n, h).reshape(-1), (0, 1))
        seen = torch.where(there, code, FAR)
    return Order(at, place, code, seen)


def attend(q: Tensor, v: Tensor, bucket: Tensor, count: int, chunk: int, mask: Tensor | None, causal: bool, within: bool, dedup: bool,
           compiled: bool) -> Tensor:
    """q [b, n, h, k], v [b, n, h, v], bucket [rounds, b, h, n] → [b, n, h, v]."""
    b, n, h, k = q.shape
    order = sort(bucket, count, chunk, mask, within)
    how = How(chunk, h, n, causal, within, dedup, SLAB.get(q.device.type, LARGE_SLAB), compiled)
    rows = (t.reshape(b * n * h, -1) for t in (q, v))
    return Attend.apply(*rows, order.rows, order.place, order.code, order.seen, how).view(b, n, h, -1)
