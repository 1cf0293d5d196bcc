"""Compiles a spec into a torch.nn.Module and trains it in an ordinary PyTorch loop, with data of one's own.

    python examples/own_loop.py

The data are the bytes of this repository's documentation. The spec's own `train` block gives only the loss."""
from __future__ import annotations

from pathlib import Path

import torch

import plait

ROOT = Path(__file__).parent.parent
N = 64


def main(steps: int = 60) -> float:
    """Trains; gives the last loss, in nats a byte."""
    torch.manual_seed(0)
    text = b"".join(p.read_bytes() for p in sorted(ROOT.glob("docs/*.md")))
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()

    # compile = False runs eagerly: for a few steps that is quicker than compiling.
    model = plait.compile(ROOT / "specs" / "demo.plait", set={"V": 256, "n": N, "d": 64}, compile=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters")

    loss = torch.tensor(float("nan"))
    for step in range(1, steps + 1):
        starts = torch.randint(len(data) - N, (16,))
        # The loss reads its input by next(): it is given n + 1 symbols. The model itself takes n.
        windows = torch.stack([data[s:s + N + 1] for s in starts.tolist()])
        loss = model.loss(windows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0: print(f"step {step}: loss {loss.item():.3f}")

    model.eval()
    with torch.no_grad(): logits = model(windows[:1, :N])
    print(f"logits {list(logits.shape)}, the likeliest next byte: {bytes([int(logits[0, -1].argmax())])!r}")
    return loss.item()


if __name__ == "__main__": main()
