"""`python -m benchmarks.gpu [--out FILE] [--budget SECONDS]`: one run on a GPU: step times, rates and memory of what plait makes.

Training steps under bfloat16 autocast, with AdamW; what stays float32 in products is TF32. Every point stands by itself: one that fails,
or that does not fit into the time left, is noted as such, and the file is written after each."""
from __future__ import annotations

import argparse
import importlib.metadata
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks import harness
from benchmarks.peers.reformer import hugging_face, lucid
from benchmarks.peers.transformer import Decoder
from benchmarks.transformer import SYMBOLS, ours, products
from plait import files
from plait.compiler.expand import expand
from plait.runtime.module import Module

BUDGET = 420.0                                 # seconds; a run of 8 minutes has time left for its start and its last point
STEPS, WARM = 5, 2
FIVE_WAY = Path(__file__).parents[1] / "specs" / "five_way.plait"
PACKAGES = ("torch", "transformers", "reformer-pytorch")


@dataclass(frozen=True)
class Sizes:
    """What is measured. tokens: symbols a step, the same at every length; square: of the matrix product that gives the peak rate."""
    width: int = 512
    heads: int = 8
    layers: int = 6
    deep: int = 24
    tokens: int = 65_536
    short: int = 1024
    lengths: tuple[int, ...] = (4096, 8192, 16_384, 32_768, 65_536)
    window: int = 256
    chunk: int = 64
    rounds: int = 4
    square: int = 8192
    batch: int = 32                            # of the five-way models
    layer: tuple[tuple[int, int], ...] = ((4096, 1), (16_384, 1), (4096, 4), (16_384, 4))     # (n, rounds) of the layer beside its peers


@dataclass
class Point:
    """One line of the results. found: numbers by name, or `error` or `skipped` with the reason."""
    what: str
    found: dict[str, object] = field(default_factory=dict)

    def line(self) -> str:
        return f"{self.what}: {', '.join(f'{k} {v:,.4g}' if isinstance(v, float) else f'{k} {v}' for k, v in self.found.items())}"


@dataclass
class Machine:
    """Where it runs. peak: multiply-adds a second of `torch.mm` in bfloat16, measured in this run."""
    device: torch.device
    compile: bool
    sizes: Sizes
    peak: float = float("nan")

    def settled(self) -> None:
        if self.device.type == "cuda": torch.cuda.synchronize(self.device)

    def seconds(self, run: Callable[[], object], steps: int = STEPS, warm: int = WARM) -> float:
        """The median time of a call, until the device is done."""
        for _ in range(warm): run()
        found = []
        for _ in range(steps):
            self.settled()
            start = time.perf_counter()
            run()
            self.settled()
            found.append(time.perf_counter() - start)
        return statistics.median(found)

    def memory(self, run: Callable[[], object]) -> int | None:
        """The most bytes that tensors held during a call, with what was there before it. None where the device does not tell."""
        if self.device.type != "cuda": return None
        torch.cuda.reset_peak_memory_stats(self.device)
        run()
        self.settled()
        return torch.cuda.max_memory_allocated(self.device)

    def half(self, enabled: bool = True): return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=enabled)

    def text(self, n: int, batch: int, symbols: int = SYMBOLS) -> Tensor:
        return torch.randint(symbols, (batch, n + 1), generator=torch.Generator().manual_seed(0)).to(self.device)

    def training(self, module: nn.Module, loss: Callable[[], Tensor], cast: bool = True) -> Callable[[], None]:
        """A training step: gradients gone, forward, backward, AdamW. Nothing in it waits for the device."""
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=True)

        def run() -> None:
            optimizer.zero_grad(set_to_none=True)
            with self.half(cast): value = loss()
            value.backward()
            optimizer.step()
        return run

    def step(self, module: nn.Module, n: int, batch: int, cast: bool = True, symbols: int = SYMBOLS) -> dict[str, object]:
        """Time, rate and memory of a training step on `batch` sequences of n symbols."""
        text = self.text(n, batch, symbols)
        run = self.training(module, lambda: module.loss(text), cast)                       # type: ignore[operator]
        start = time.perf_counter()
        run()
        self.settled()
        first = time.perf_counter() - start
        spent = self.seconds(run)
        found: dict[str, object] = {"ms": 1e3 * spent, "tokens/s": batch * n / spent, "first step s": first}
        if isinstance(module, Module) and cast: found["share of the peak rate"] = multiply_adds(module, n, batch) / spent / self.peak
        if (most := self.memory(run)) is not None: found["peak MiB"] = most / 2**20
        return found


def multiply_adds(module: Module, n: int, batch: int) -> int:
    """Of the matrix products of a step, derived; n as it is called with."""
    return products(module, batch, n=n)


# ---- what is measured ------------------------------------------------------------------------------------------------------
# A name, about how many seconds it takes with what it compiles, and how it is measured.
Measure = tuple[str, float, Callable[[], dict[str, object]]]


def decoder(m: Machine, attention: str, layers: int, how: str = "repeat") -> Module:
    """A decoder whose length is free, so that one compilation serves all lengths."""
    s = m.sizes
    attend, feed = attention, "feed_forward(4 * d, activation = gelu)"
    body = (f"repeat {layers} {{ residual {{ {attend} }}; residual {{ {feed} }} }}" if how == "repeat" else
            f"reversible(repeat = {layers}) {{ attend: {{ layer_norm; {attend} }}; feed: {{ layer_norm; {feed} }} }}")
    return harness.model(f"""dims {{ n; d = {s.width}; V = {SYMBOLS} }}

model m {{
  input text: tokens[n] of V
  logits = text {{
    embed(V, width = d)
    positions(sinusoidal)
    {body}
    layer_norm
    unembed(V, bias = true)
  }}
  output logits: [n, V]
}}
""" + harness.LOSS, m.compile, device=m.device)


def attentions(s: Sizes) -> dict[str, str]:
    return {"LSH": f"lsh_attention(heads = {s.heads}, chunk = {s.chunk}, rounds = {s.rounds}, causal = true)",
            f"window {s.window}": f"attention(heads = {s.heads}, window = {s.window}, causal = true)",
            "full": f"attention(heads = {s.heads}, causal = true)"}


def decoders(m: Machine) -> Iterator[Measure]:
    """(a) A decoder of a known length."""
    s = m.sizes
    batch = max(1, s.tokens // s.short)
    yield (f"decoder, n = {s.short:,}, batch {batch}", 60,
           lambda: m.step(ours(s.short, s.width, s.heads, s.layers, m.compile).to(m.device), s.short, batch))


def lengths(m: Machine) -> Iterator[Measure]:
    """(b), (c) LSH and windowed attention beside full attention, at a fixed number of symbols a step."""
    s = m.sizes
    for name, attention in attentions(s).items():
        made: list[Module] = []

        def measured(n: int, batch: int, made: list[Module] = made, attention: str = attention) -> dict[str, object]:
            if not made: made.append(decoder(m, attention, s.layers))
            return m.step(made[0], n, batch)
        for k, n in enumerate(s.lengths):
            batch = max(1, s.tokens // n)
            yield (f"{name} decoder, n = {n:,}, batch {batch}", 15 if k else 60, lambda n=n, batch=batch, fn=measured: fn(n, batch))


def reversible(m: Machine) -> Iterator[Measure]:
    """(d) A reversible stack beside a plain one, at two depths."""
    s = m.sizes
    n, batch = s.lengths[0], max(1, s.tokens // s.lengths[0])
    for depth in (s.layers, s.deep):
        for how, name in (("reversible", "reversible"), ("repeat", "plain")):
            yield (f"{name} decoder, L = {depth}, n = {n:,}, batch {batch}", 45,
                   lambda depth=depth, how=how: m.step(decoder(m, attentions(s)["full"], depth, how), n, batch))


def five_way(m: Machine) -> Iterator[Measure]:
    """(e) Five models of one size."""
    file = files.opened(FIVE_WAY)
    for name in file.models:
        def measured(name: str = name) -> dict[str, object]:
            torch.manual_seed(0)
            module = Module(expand(file, name, loss=True), m.device, m.compile)
            n, symbols = (int(module.program.sizes.integer(e)) for e in (module.program.inputs[0].value.axes[1].size,  # type: ignore[arg-type]
                                                                         module.program.inputs[0].classes))
            single, half = (m.step(module, n, m.sizes.batch, cast, symbols) for cast in (False, True))
            return {"fp32 ms": single["ms"], "bf16 ms": half["ms"], "fp32 tokens/s": single["tokens/s"], "bf16 tokens/s": half["tokens/s"]}
        yield f"five_way {name}, batch {m.sizes.batch}", 40, measured


def layers(m: Machine) -> Iterator[Measure]:
    """(f) The LSH layer with its projections beside Hugging Face's and reformer-pytorch's."""
    s = m.sizes
    width, heads = s.width // 2, max(1, s.heads // 2)
    for n, rounds in s.layer:
        def makers(n: int = n, rounds: int = rounds) -> dict[str, Callable[[], nn.Module]]:
            chain = f"lsh_attention(heads = {heads}, chunk = {s.chunk}, rounds = {rounds}, causal = true)"
            return {"plait": lambda: harness.layer(chain, n, width, m.compile, device=m.device),
                    "Hugging Face": lambda: hugging_face(n, width, heads, s.chunk, rounds).to(m.device),
                    "reformer-pytorch": lambda: lucid(width, heads, s.chunk, rounds).to(m.device)}
        yield f"LSH layer, n = {n:,}, rounds {rounds}, width {width}", 30, lambda n=n, makers=makers: beside(m, makers(), n, width)


def beside(m: Machine, makers: dict[str, Callable[[], nn.Module]], n: int, width: int) -> dict[str, object]:
    """Forward and backward of each layer, ms and peak MiB; a peer that is not installed, or that fails, is noted."""
    x = torch.randn(1, n, width, generator=torch.Generator().manual_seed(0)).to(m.device)
    found: dict[str, object] = {}
    for name, make in makers.items():
        try:
            inner = harness.back_and_forth(make(), x)

            def run(inner: Callable[[], None] = inner) -> None:
                with m.half(): inner()
            found[f"{name} ms"] = 1e3 * m.seconds(run)
            if (most := m.memory(run)) is not None: found[f"{name} peak MiB"] = most / 2**20
        except ImportError: found[name] = "not installed"
        except Exception as e: found[name] = reason(e)
    return found


def by_hand(m: Machine) -> Iterator[Measure]:
    """The decoder of (a) in plain PyTorch, eager and compiled."""
    s = m.sizes
    batch = max(1, s.tokens // s.short)

    def measured(compiled: bool) -> dict[str, object]:
        module = Decoder(SYMBOLS, s.short, s.width, s.heads, s.layers).to(m.device)
        if compiled and m.compile: module.loss = torch.compile(module.loss)                # type: ignore[method-assign]
        return m.step(module, s.short, batch)
    for compiled in (False, True):
        yield (f"decoder by hand, {'compiled' if compiled else 'eager'}, n = {s.short:,}, batch {batch}", 60 if compiled else 10,
               lambda compiled=compiled: measured(compiled))


GROUPS: tuple[Callable[[Machine], Iterator[Measure]], ...] = (decoders, lengths, reversible, five_way, layers, by_hand)


# ---- how it is run ---------------------------------------------------------------------------------------------------------
def reason(e: BaseException) -> str:
    """In one line: what went wrong."""
    if isinstance(e, torch.OutOfMemoryError): return "out of memory"
    return f"{type(e).__name__}: {(str(e).strip().splitlines() or [''])[0][:200]}"


def rate_of_products(m: Machine) -> float:
    """Multiply-adds a second of `torch.mm` in bfloat16."""
    n = m.sizes.square
    square = torch.randn(n, n, device=m.device, dtype=torch.bfloat16)
    return n ** 3 / m.seconds(lambda: torch.mm(square, square))


def measured(name: str, cost: float, fn: Callable[[], dict[str, object]], left: float) -> Point:
    """The point, or why there is none."""
    if cost > left: return Point(name, {"skipped": f"about {cost:.0f} s, and {max(0.0, left):.0f} s are left"})
    try: return Point(name, fn())
    except Exception as e: return Point(name, {"error": reason(e)})


def rows(device: str = "cuda", sizes: Sizes | None = None, compile: bool = True, budget: float = BUDGET) -> Iterator[Point]:
    """All points, one after another: the peak rate first."""
    started = time.perf_counter()
    m = Machine(torch.device(device), compile, sizes or Sizes())
    m.peak = rate_of_products(m)
    yield Point(f"torch.mm, bfloat16, {m.sizes.square:,} × {m.sizes.square:,}", {"TFLOP/s": 2e-12 * m.peak})
    for group in GROUPS:
        for name, cost, fn in group(m):
            yield measured(name, cost if compile else 0, fn, budget - (time.perf_counter() - started))
            if m.device.type == "cuda": torch.cuda.empty_cache()


def where() -> dict[str, object]:
    versions = {}
    for package in PACKAGES:
        try: versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError: versions[package] = "not installed"
    return {"card": torch.cuda.get_device_name(), "python": sys.version.split()[0], "cuda": torch.version.cuda, **versions}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.splitlines()[0])              # type: ignore[union-attr]
    parser.add_argument("--out", type=Path, help="a file for the results, as JSON")
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds; what would not fit is skipped")
    told = parser.parse_args(arguments)
    if not torch.cuda.is_available(): sys.exit("error: torch sees no GPU here, and this measures one")
    torch.set_float32_matmul_precision("high")
    about, points = where(), []
    print(about, flush=True)
    for point in rows(budget=told.budget):
        points.append(asdict(point))
        print(point.line(), flush=True)
        if not told.out: continue
        told.out.write_text(json.dumps({**about, "sizes": asdict(Sizes()), "points": points}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__": main()
