"""Two processes that share the gradients of one model: DistributedDataParallel over gloo, on this machine."""
from __future__ import annotations

import json
import subprocess
import sys

import torch

TEXT = """plait 1
dims {{ n = 6; d = 8; V = 11 }}
model m {{ input x: tokens[n] of V; y = x {{ embed(V, width = d); {stack}; layer_norm; unembed(V, bias = true) }}; output y: [n, V] }}
train m {{ data = bytes("a"); loss = cross_entropy(y, next(x), pieces = 2); stop = 1 steps }}
"""
FULL = ("reversible(repeat = 2) { a: { layer_norm; lsh_attention(heads = 2, chunk = 4, rounds = 2, buckets = 4, causal = true) }; "
        "b: { layer_norm; chunked(over = n, pieces = 2) { feed_forward(9) } } }")
SMALL = "reversible(repeat = 2) { a: { attention(heads = 2) }; b: { linear(d) } }"
# What is run → the stack, whether compiled, whether by the loss.
WAYS = {"outputs": (FULL, False, False), "loss": (FULL, False, True), "loss, compiled": (SMALL, True, True)}
# Two steps on `rows` of the batch: what a rank runs, and the single process.
STEPS = '''
import torch
from torch import nn
from plait.compiler.expand import expand, open_file
from plait.dsl.parser import parse
from plait.runtime.module import Module


class Loss(nn.Module):
    """DistributedDataParallel watches `forward` alone: of a model trained by its loss, that is the loss."""
    def __init__(self, model):
        super().__init__()
        self.model = model
    def forward(self, *inputs): return self.model.loss(*inputs)


def steps(text, compiled, by_loss, rows, around=lambda m: m):
    torch.manual_seed(0)
    model = Module(expand(open_file(parse(text)), "m", loss=True), compile=compiled, dtype=torch.float64).eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randint(0, 11, (4, 7), generator=torch.Generator().manual_seed(1))[rows]
    run = around(Loss(model) if by_loss else model)
    for _ in range(2):
        optimizer.zero_grad()
        (run(x) if by_loss else run(x[:, :-1]).square().mean()).backward()
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]
'''
RANK = STEPS + '''
import json, os, sys
import torch.distributed as dist
from plait.compiler.lowering import segments
segments.BACKEND = "aot_eager"
torch.set_num_threads(1)
rank, store, out, ways = int(sys.argv[1]), *sys.argv[2:4], json.loads(sys.argv[4])
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
found = {name: steps(*how, slice(2 * rank, 2 * rank + 2), nn.parallel.DistributedDataParallel) for name, how in ways.items()}
torch.save(found, f"{out}{rank}")
dist.barrier()
os._exit(0)          # without gloo's teardown, in which the rank that is left alone now and then aborts
'''


def test_one_step_equals_the_single_process(tmp_path):
    """5. Two ranks (gloo): one step equals the single process; no "marked ready twice". The model's outputs by its `forward`, or its loss
    by a module around it; two steps, because what is marked twice shows in the second. Gradients are returned, not set inside."""
    ways = {name: (TEXT.format(stack=stack), compiled, by_loss) for name, (stack, compiled, by_loss) in WAYS.items()}
    rest = [str(tmp_path / "store"), str(tmp_path / "out"), json.dumps(ways)]
    run = [subprocess.Popen([sys.executable, "-c", RANK, str(r), *rest], stderr=subprocess.PIPE, text=True) for r in (0, 1)]
    said = [p.communicate(timeout=120)[1] for p in run]
    assert [p.returncode for p in run] == [0, 0], said
    here: dict = {}
    exec(STEPS, here)
    found = [torch.load(tmp_path / f"out{rank}") for rank in (0, 1)]
    with torch.random.fork_rng():
        for name, (text, _, by_loss) in ways.items():
            alone = here["steps"](text, False, by_loss, slice(0, 4))
            for rank in found:
                for ours, one in zip(rank[name], alone, strict=True): assert torch.allclose(ours, one, atol=1e-12), name
