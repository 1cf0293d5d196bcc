"""Autocast, whole modules in half precision, and two processes with the gradients of one."""
from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
import torch

CHAINS = ["attention(heads = 2, causal = true, dropout = 0.1)", "attention(heads = 2, window = 3)", "lsh_attention(heads = 2, chunk = 4)",
          "gru(8)", "rnn(8); rms_norm", "conv(8, kernel = 3); layer_norm", "positions(sinusoidal); linear(8)",
          "positions(rotary); attention(heads = 2)",
          "reversible(repeat = 2) { a: { layer_norm; lsh_attention(heads = 2, chunk = 4) }; "
          "b: { chunked(over = n, pieces = 2) { feed_forward(9) } } }"]


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("body", [False, True])
def test_bfloat16(kit, chain, body):
    forced = kit.bodies if body else {}
    x = torch.randn(2, 7, 8, generator=torch.Generator().manual_seed(0))
    m = kit.module(chain, forced, dtype=torch.float32)
    y, wanted = kit.gradients(m, list(m.parameters()), x)
    with torch.autocast("cpu", dtype=torch.bfloat16): cast, found = kit.gradients(m, list(m.parameters()), x)
    # bfloat16 has 8 bits: 0.4 % an operation, ten of them in a row
    assert (cast - y).norm() < 0.04 * y.norm()
    most = max(b.norm() for b in wanted)                     # a bias of keys has no gradient but rounding
    slack = 0.2 if "lsh" in chain else 0.01                  # queries rounded otherwise may hash otherwise
    for a, b in zip(found, wanted): assert (a - b).norm() < 0.06 * b.norm() + slack * most
    half = kit.module(chain, forced, dtype=torch.bfloat16)
    assert half(x.bfloat16()).dtype == torch.bfloat16


RANK = """
    import os, sys, torch, torch.distributed as dist
    from plait.compiler.expand import expand, open_file
    from plait.dsl.parser import parse
    from plait.runtime.module import Module
    torch.set_num_threads(1)
    rank, store, text, out = int(sys.argv[1]), *sys.argv[2:]
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(0)
    m = Module(expand(open_file(parse(text)), "m"), compile=False, dtype=torch.float64).eval()
    x = torch.randn(4, 6, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    both = torch.nn.parallel.DistributedDataParallel(m)
    both(x[2 * rank:2 * rank + 2]).square().mean().backward()
    if rank == 0: torch.save([p.grad for p in m.parameters()], out)
    dist.barrier()
    os._exit(0)          # without gloo's teardown, in which the rank that is left alone now and then aborts
"""


def test_two_processes(tmp_path):
    from plait.compiler.expand import expand, open_file
    from plait.dsl.parser import parse
    from plait.runtime.module import Module
    text = ("plait 1\ndims {\n n = 6\n d = 8\n}\nmodel m {\n input x: stream[n, d]\n y = x { reversible(repeat = 2) "
            "{ a: { layer_norm; attention(heads = 2) }; b: { layer_norm; feed_forward(9) } } }\n output y: [n, d]\n}\n")
    rest = [str(tmp_path / "store"), text, str(tmp_path / "out")]
    run = [subprocess.Popen([sys.executable, "-c", textwrap.dedent(RANK), str(r), *rest]) for r in (0, 1)]
    assert [p.wait(timeout=120) for p in run] == [0, 0]
    torch.manual_seed(0)
    m = Module(expand(open_file(parse(text)), "m"), compile=False, dtype=torch.float64).eval()
    x = torch.randn(4, 6, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    m(x).square().mean().backward()
    for ours, alone in zip(torch.load(tmp_path / "out"), m.parameters()): assert torch.allclose(ours, alone.grad, atol=1e-12)
