"""A training on several processes ("ranks"): which rows each reads, how gradients and sums meet, and how it ends when one dies.

torch.distributed does the work: DistributedDataParallel, or FSDP2's `fully_shard` by the copies of repeated bodies. A launcher such as
`torchrun` sets the environment by which the processes find each other; without it a training is alone, and all of this does nothing."""
from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, OffloadPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, Shard

from plait.compiler.graph import live
from plait.compiler.lowering import tensors
from plait.dsl.errors import PlaitError, error
from plait.runtime.module import Module
from plait.runtime.recipe import Described
from plait.runtime.sources import CUTTABLE

T = TypeVar("T")
SHARDS = ("ddp", "fsdp")
TIMEOUT = 600.0                                                # seconds that a process waits for the others


@dataclass(frozen=True)
class Ranks:
    """The processes of a training, as one of them sees them. shard: `ddp`, every rank has all parameters; `fsdp`, each has a part of every
    parameter and gathers those of a copy of a repeated body while it runs. offload: its part lies in the memory of the host."""
    rank: int = 0
    count: int = 1
    shard: str = "ddp"
    offload: bool = False

    @property
    def lead(self) -> bool:
        """Does this one write and print?"""
        return self.rank == 0

    @property
    def together(self) -> bool: return self.count > 1

    @property
    def parts(self) -> bool:
        """Does a rank hold a part of each parameter only?"""
        return self.together and self.shard == "fsdp"

    # -- data ----------------------------------------------------------------------------------------------------------------
    def rows(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """This rank's rows of a batch: equally many for each, in order. A batch that does not divide is filled up with rows without a
        target (the last one, each symbol as its complement)."""
        if not self.together: return inputs
        size = -(-len(inputs[0]) // self.count)
        missing = size * self.count - len(inputs[0])
        return tuple(_filled(x, missing)[self.rank * size:(self.rank + 1) * size] for x in inputs)

    def __str__(self) -> str:
        if not self.together: return ""
        return f", {self.count:,} ranks by {self.shard}" + (", parameters on the host" if self.offload else "")

    def as_json(self) -> dict: return {"count": self.count, "shard": self.shard, "offload": self.offload}

    # -- numbers -------------------------------------------------------------------------------------------------------------
    def total(self, *numbers: Tensor | float) -> tuple[float, ...]:
        """The sums over all ranks, exact for counts below 2⁵³."""
        here = torch.stack([torch.as_tensor(x).detach().to("cpu", torch.float64) for x in numbers])
        if self.together: dist.all_reduce(here)
        return tuple(here.tolist())

    def sums(self, *here: Tensor) -> tuple[Tensor, ...]:
        """The same as tensors where these are."""
        if not self.together: return here
        return tuple(torch.as_tensor(t, dtype=x.dtype, device=x.device) for t, x in zip(self.total(*here), here))

    def any(self, here: bool) -> bool:
        """Does it hold on some rank?"""
        return self.total(float(here))[0] > 0 if self.together else here

    def all_of(self, made: object) -> list:
        """What each rank has made, by rank."""
        if not self.together: return [made]
        found: list = [None] * self.count
        dist.all_gather_object(found, made)
        return found

    def wait(self) -> None:
        if self.together: dist.barrier()

    def led(self, made: T) -> T:
        """What the first rank has made, on all."""
        if not self.together: return made
        found: list = [made]
        dist.broadcast_object_list(found)
        return found[0]

    # -- the model -----------------------------------------------------------------------------------------------------------
    def spread(self, module: nn.Module, device: torch.device) -> Spread:
        """The module on its device and over the ranks. Its parameters are parts afterwards, where ranks hold parts."""
        tensors.SHARE = self.rank, self.count
        if self.parts: self._sharded(module, device)
        else: module.to(device)
        if not self.together or self.parts: return replace(alone(module), ranks=self)
        devices = [device] if device.type == "cuda" else None
        unread = bool(_unread(module))
        return Spread(module, nn.parallel.DistributedDataParallel(Losses(module), devices, gradient_as_bucket_view=True,
                                                                  find_unused_parameters=unread), self)

    def _sharded(self, module: nn.Module, device: torch.device) -> None:
        assert isinstance(module, Module)
        mesh = init_device_mesh(device.type, (self.count,))
        policy = CPUOffloadPolicy() if self.offload else OffloadPolicy()
        module.sharded, module._home = True, device

        def cut(p: nn.Parameter) -> Shard:
            """Along the first axis that divides: query weights have their heads in front, which may be fewer than ranks."""
            return Shard(next((k for k, size in enumerate(p.shape) if size % self.count == 0), 0))
        for unit in module.units():
            fully_shard(unit, mesh=mesh, reshard_after_forward=True, offload_policy=policy, shard_placement_fn=cut)
        fully_shard(module, mesh=mesh, offload_policy=policy, shard_placement_fn=cut)
        for method in ("losses", "score"): register_fsdp_forward_method(module, method)


@dataclass(frozen=True)
class Spread:
    """A module over the ranks. losses: as the module's own, of this rank's rows; its backward brings the gradients together."""
    module: nn.Module
    losses: Callable[..., tuple[Tensor, Tensor, Tensor]]
    ranks: Ranks

    def back(self, total: Tensor) -> None:
        """The backward of a summed loss. What comes together is the mean over the ranks, so each brings as many times its own."""
        (total * self.ranks.count if self.ranks.together else total).backward()

    def settle(self) -> None:
        """After a forward that has no backward: what stands in no repeat goes back into parts."""
        if isinstance(self.module, FSDPModule): self.module.reshard()

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """All parameters whole on every rank meanwhile, for what runs the module in ways of its own, as sampling does."""
        module = self.module
        if not isinstance(module, Module) or not self.ranks.parts:
            yield
            return
        shards = [m for m in (*module.units(), module) if isinstance(m, FSDPModule)]
        for m in shards: m.unshard()
        module.sharded = False
        try: yield
        finally:
            module.sharded = True
            for m in shards: m.reshard()

    @contextmanager
    def part(self, last: bool) -> Iterator[None]:
        """One of several backwards of a step: the ranks' gradients meet in the last (where ranks hold parts, in each)."""
        with nullcontext() if last or not isinstance(self.losses, nn.parallel.DistributedDataParallel) else self.losses.no_sync(): yield


ALONE = Ranks()


def alone(module: nn.Module) -> Spread:
    return Spread(module, lambda *inputs: module.losses(*inputs), ALONE)                                  # type: ignore[operator]


class Losses(nn.Module):
    """DistributedDataParallel watches `forward` alone."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor): return self.model.losses(*inputs)                                 # type: ignore[operator]


def _filled(x: Tensor, missing: int) -> Tensor:
    if not missing: return x
    row = x[-1:]
    return torch.cat([x, torch.where(row < 0, row, ~row).expand(missing, *row.shape[1:])])


def _unread(module: nn.Module) -> list[str]:
    """Parameters that the loss does not read: no gradient comes for them, and none must be waited for."""
    graph = getattr(getattr(module, "program", None), "loss", None)
    if graph is None: return []
    outs = graph.outs[:1]
    read = {v for n in live(graph.nodes, outs) for v in n.ins}
    return [v.name for v in graph.ins if v.kind == "param" and v not in read]


def local(x: Tensor) -> Tensor:
    """The part of a tensor that lies here."""
    return x.to_local() if isinstance(x, DTensor) else x


def whole(x: Tensor) -> Tensor:
    """All of a tensor whose parts lie on the ranks. All ranks must ask."""
    return x.full_tensor() if isinstance(x, DTensor) else x


def fits(ranks: Ranks, optimizer: Described) -> None:
    """Raises PlaitError for an optimiser that needs whole matrices, where each rank has a part."""
    if ranks.parts and optimizer.kind not in CUTTABLE:
        raise error("E0636", f"the optimizer `{optimizer.kind}` cannot be trained with yet where each rank has a part of every parameter",
                    optimizer.span, help=f"--shard ddp, or an optimizer of {', '.join(CUTTABLE)}")


# ---- coming together, and ending ----------------------------------------------------------------------------------------
JOINED: list[int] = []                                         # this process's rank, once it has met others


def join(device: torch.device, shard: str = "ddp", offload: bool = False, timeout: float = TIMEOUT) -> tuple[Ranks, torch.device]:
    """Meets the other processes of this training, where the environment says that there are some (RANK and WORLD_SIZE, as `torchrun` sets
    them); gives the ranks and this one's device. Raises PlaitError where they do not come together."""
    if shard not in SHARDS: raise error("E0505", f"ranks share by {' or '.join(SHARDS)}, not by `{shard}`", help="--shard fsdp")
    if offload and shard != "fsdp":
        raise error("E0505", "parameters are kept on the host in parts only", help="--shard fsdp --offload")
    if offload and device.type != "cuda":
        raise error("E0615", "parameters kept on the host are for a GPU, and this training runs on the CPU", help="without --offload")
    told = {name: os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE")}
    if not told["WORLD_SIZE"] or told["WORLD_SIZE"] == "1": return Ranks(0, 1, shard, offload), device
    if not all(t.isdecimal() for t in told.values()) or int(told["RANK"]) >= int(told["WORLD_SIZE"]):
        raise error("E0626", f"the environment says RANK={told['RANK']} and WORLD_SIZE={told['WORLD_SIZE']}", help=HOW)
    ranks = Ranks(int(told["RANK"]), int(told["WORLD_SIZE"]), shard, offload)
    backend = "gloo"
    if device.type == "cuda":
        device, backend = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))), "cpu:gloo,cuda:nccl"
        torch.cuda.set_device(device)
    try: dist.init_process_group(backend, rank=ranks.rank, world_size=ranks.count, timeout=timedelta(seconds=timeout))
    except (RuntimeError, ValueError, OSError) as why:
        raise error("E0626", f"the {ranks.count:,} processes of this training do not come together: {_first_line(why)}", help=HOW) from None
    JOINED.append(ranks.rank)
    return ranks, device


def leave(code: object) -> None:
    """Ends this process now. An ordinary end would take the network down first, and in that a process that is left alone may wait, or
    abort."""
    for stream in (sys.stdout, sys.stderr): stream.flush()
    os._exit(code if isinstance(code, int) else 1 if code else 0)


HOW = "torchrun --nproc-per-node 2 -m plait train SPEC"
LOST = re.compile("gloo|nccl|connection|processgroup|broken pipe|timed out|store", re.IGNORECASE)


@contextmanager
def together(ranks: Ranks) -> Iterator[None]:
    """Around a training: another process that dies ends this one, too, with a sentence."""
    try: yield
    except (RuntimeError, OSError) as why:
        gone = isinstance(why, dist.DistError) or LOST.search(str(why)) is not None
        if isinstance(why, PlaitError) or not ranks.together or not gone: raise
        raise error("E0626", f"rank {ranks.rank} has lost the other processes of this training: one of them has ended, or does not answer",
                    numbers=_first_line(why), help="the first one to end says why; plait resume goes on from the last checkpoint") from None
    finally: tensors.SHARE = 0, 1


def _first_line(why: BaseException) -> str:
    return (str(why).strip().splitlines() or [type(why).__name__])[0].split(". ")[0]
