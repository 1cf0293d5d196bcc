"""New text from a trained model, one symbol at a time."""
from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from plait.compiler.program import Program
from plait.dsl.errors import PlaitError, error
from plait.runtime.codec import Codec

# a byte model may well say something to the terminal: everything but line ends and tabs becomes U+FFFD
CONTROL = {c: "\N{REPLACEMENT CHARACTER}" for c in (*range(32), 127, *range(128, 160)) if chr(c) not in "\n\t"}


def sample(module: nn.Module, codec: Codec, prompt: str = "", length: int = 200, temperature: float = 1.0,
           top_k: int | None = None, seed: int = 0) -> Iterator[str]:
    """Yields the text that continues the prompt, piece by piece, `length` symbols in all. Temperature 0 takes the likeliest symbol.

    The model reads at most its last n symbols each time, or all where n is free. Where there are fewer, zeros follow on the right,
    which a causal model does not see. An empty prompt starts from a line end, or from symbol 0.
    Raises PlaitError at once for a model that gives no tokens, and for a prompt with characters it does not know."""
    program: Program = module.program                                                      # type: ignore[assignment]
    (given, *more) = program.inputs
    if more or given.kind != "tokens":
        raise error("E0625", "only a model with one input of tokens can continue a text", given.span)
    if length < 1 or temperature < 0 or (top_k is not None and top_k < 1):
        raise error("E0625", "sampling needs a length and a top-k of at least 1, and a temperature of at least 0")
    ids = codec.encode(prompt) if prompt else [_start(codec)]
    fixed = program.sizes.integer(given.value.axes[1].size)
    return _continue(module, codec, ids, length, temperature, top_k, seed, fixed, given.ahead)


def _start(codec: Codec) -> int:
    try: return (codec.encode("\n") or [0])[0]
    except PlaitError: return 0


def _continue(module: nn.Module, codec: Codec, ids: list[int], length: int, temperature: float, top_k: int | None, seed: int,
              fixed: int | None, ahead: bool) -> Iterator[str]:
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    random = torch.Generator().manual_seed(seed % 2**63)
    training = module.training
    module.eval()
    waiting: list[int] = []
    try:
        for _ in range(length):
            logits = _next_logits(module, ids, fixed, ahead, device)
            symbol = _pick(logits[:codec.size], temperature, top_k, random)       # V may be larger than the data's
            ids.append(symbol)
            waiting.append(symbol)
            text = codec.decode(waiting)
            if text.endswith("\N{REPLACEMENT CHARACTER}") and len(waiting) < 4: continue   # a character may be several bytes
            waiting.clear()
            yield text.translate(CONTROL)
        if waiting: yield codec.decode(waiting).translate(CONTROL)
    finally: module.train(training)


def _next_logits(module: nn.Module, ids: list[int], fixed: int | None, ahead: bool, device: torch.device) -> Tensor:
    """[V]. A model that reads ahead predicts symbol t + 1 at t; one that shifts its input predicts symbol t at t."""
    n = fixed or len(ids) + 1
    read = ids[-n:] if ahead else [*ids[-(n - 1):], 0] if n > 1 else [0]
    at = len(read) - 1
    if fixed: read = read + [0] * (n - len(read))
    with torch.no_grad(): out = module(torch.tensor([read], device=device))
    logits = out[0] if isinstance(out, tuple | list) else out
    if logits.dim() != 3: raise error("E0625", f"the model's output has {logits.dim() - 1} axes, not [n, V]: it gives no tokens")
    found = logits[0, at].double().cpu()
    if found.isnan().any() or (found == torch.inf).any():
        raise error("E0622", "the model's output is not finite", help="train again with a smaller lr, or clip = 1.0")
    return found


def _pick(logits: Tensor, temperature: float, top_k: int | None, random: torch.Generator) -> int:
    if temperature == 0: return int(logits.argmax())
    if top_k is not None and top_k < len(logits):
        logits = logits.masked_fill(logits < logits.topk(top_k).values[-1], -torch.inf)
    return int(torch.multinomial(((logits - logits.max()) / temperature).softmax(-1), 1, generator=random))
