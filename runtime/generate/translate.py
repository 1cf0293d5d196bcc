"""Sentences to sentences, by a model with an encoder and a decoder."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import torch
from torch import Tensor, nn

from plait.compiler.program import Input, Program, broken
from plait.dsl.errors import error
from plait.runtime.codec import Codec
from plait.runtime.generate.beam import Beam, search
from plait.runtime.generate.steps import Stepper, stepper

MORE = 50                                      # symbols that a translation may be longer than its source (Vaswani et al. 2017, section 6.1)


def translate(module: nn.Module, codec: Codec, lines: Iterable[str], beam: Beam | None = None, batch: int = 32,
              say: Callable[[str], None] | None = None) -> Iterator[str]:
    """A translation for each line, in order; an empty line for an empty one.

    Raises PlaitError at once for a model that is no encoder and decoder of tokens, and for a vocabulary without an end symbol."""
    source, run = _made(module, codec, say)
    return _translated(module, codec, source, run, lines, beam or Beam(), batch)


def translated(module: nn.Module, codec: Codec, sources: Tensor, beam: Beam | None = None,
               say: Callable[[str], None] | None = None) -> list[str]:
    """A translation for each row of sources [b, m], padded with −1."""
    source, run = _made(module, codec, say)
    return _batch(module, codec, source, run, sources, beam or Beam())


def _made(module: nn.Module, codec: Codec, say) -> tuple[Input, Stepper]:
    program: Program = module.program                                                      # type: ignore[assignment]
    if [i.kind for i in program.inputs] != ["tokens", "tokens"]:
        raise error("E0625", "translation needs a model with two inputs of tokens, the source and the target", program.inputs[0].span,
                    help="plait sample continues a text" if len(program.inputs) == 1 else "")
    if getattr(codec, "end", None) is None: raise error("E0625", "the vocabulary of this model has no symbol that ends a sentence")
    return program.inputs[0], stepper(module, say)


def _translated(module, codec, source: Input, run: Stepper, lines: Iterable[str], beam: Beam, batch: int) -> Iterator[str]:
    waiting = iter(lines)
    while some := [line.rstrip("\r\n") for line in islice(waiting, batch)]:
        encoded = [codec.encode(line) if line.strip() else [] for line in some]
        there = [k for k, ids in enumerate(encoded) if ids]
        texts = [""] * len(some)
        if there:
            found = _batch(module, codec, source, run, padded([encoded[k] for k in there]), beam)
            for k, text in zip(there, found): texts[k] = text
        yield from texts


def padded(rows: Sequence[Sequence[int]]) -> Tensor:
    """[b, longest], −1 behind the end."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[-1] * (longest - len(row))] for row in rows])


def _batch(module: nn.Module, codec: Codec, source: Input, run: Stepper, sources: Tensor, beam: Beam) -> list[str]:
    program: Program = module.program                                                      # type: ignore[assignment]
    lengths = (sources >= 0).sum(1).tolist()
    sources = _fitting(program, source, sources, lengths)
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    limits = [_longest(program, length + MORE) for length in lengths]
    training = module.training
    module.eval()
    try:
        start = torch.zeros((len(sources), 0), dtype=torch.int64, device=device)
        found = search(run, start, {source.name: sources.to(device)}, limits, beam, codec.end, codec.size)
    finally: module.train(training)
    return [codec.decode(f.symbols) for f in found]


def _fitting(program: Program, source: Input, x: Tensor, lengths: list[int]) -> Tensor:
    """The sources as long as the model reads them."""
    m = program.sizes.integer(source.value.axes[1].size)
    if source.mask is None and (len(set(lengths)) > 1 or m is not None and max(lengths) != m):
        raise error("E0625", f"the input {source.name} is not padded: all sentences need one length", source.span,
                    help=f"input {source.name}: tokens[…] of … padded")
    if m is None: return x[:, :max(lengths)]
    if max(lengths) > m:
        raise error("E0625", f"a sentence has {max(lengths)} symbols, and the model reads {m}", source.span)
    return nn.functional.pad(x[:, :m], (0, max(0, m - x.shape[1])), value=-1)


def _longest(program: Program, wanted: int) -> int:
    """As many symbols as wanted, or as the target may have."""
    size = program.sizes.resolve(program.inputs[1].value.axes[1].size)
    fixed = program.sizes.integer(size)
    if fixed is not None: return min(wanted, fixed)
    while wanted > 1 and broken(program, {size: wanted}): wanted -= 1
    return wanted
