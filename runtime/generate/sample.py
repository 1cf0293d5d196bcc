"""New text from a trained model, one symbol at a time."""
from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from plait.compiler.program import Program
from plait.dsl.errors import PlaitError, error
from plait.runtime.codec import Codec
from plait.runtime.generate.beam import Beam, search
from plait.runtime.generate.steps import Stepper, stepper

# a byte model may well say something to the terminal: everything but line ends and tabs becomes U+FFFD
CONTROL = {c: "\N{REPLACEMENT CHARACTER}" for c in (*range(32), 127, *range(128, 160)) if chr(c) not in "\n\t"}


def sample(module: nn.Module, codec: Codec, prompt: str = "", length: int = 200, temperature: float = 1.0,
           top_k: int | None = None, seed: int = 0, top_p: float | None = None, say: Callable[[str], None] | None = None,
           beam: Beam | None = None) -> Iterator[str]:
    """Yields the text that continues the prompt, piece by piece, `length` symbols in all. Temperature 0 takes the likeliest symbol.

    top_k: only among the k likeliest; top_p: only among the likeliest that together have this probability (Holtzman et al. 2020); beam: the
    likeliest continuation that beam search finds, nothing is drawn. Each step computes the new position only (see `steps`). A model of n
    positions reads its last n symbols: beyond these, all n anew for each symbol. An empty prompt starts from a line end, or from symbol 0.
    `say` is told, once, of what is computed anew.
    Raises PlaitError at once for a model that gives no tokens or looks ahead, and for a prompt with characters it does not know."""
    program: Program = module.program                                                      # type: ignore[assignment]
    (given, *more) = program.inputs
    if more or given.kind != "tokens":
        raise error("E0625", "only a model with one input of tokens can continue a text", given.span,
                    help="plait translate" if len(program.inputs) == 2 and more[0].kind == given.kind == "tokens" else "")
    if length < 1 or temperature < 0 or (top_k is not None and top_k < 1) or (top_p is not None and not 0 < top_p <= 1):
        raise error("E0625", "sampling needs a length and a top-k of at least 1, a temperature of at least 0, and a top-p above 0 that is "
                             "at most 1")
    ids = codec.encode(prompt) if prompt else [_start(codec)]
    fixed = program.sizes.integer(given.value.axes[1].size)
    if beam is not None: return iter([codec.decode(_likeliest(module, codec, ids, length, fixed, beam, say)).translate(CONTROL)])
    random = torch.Generator().manual_seed(seed % 2**63)
    numbers = _numbers(module, stepper(module, say), ids, length, fixed, say,
                       lambda logits: pick(logits[:codec.size], temperature, top_k, top_p, random))      # V may be larger than the data's
    return _text(codec, numbers)


def _likeliest(module: nn.Module, codec: Codec, ids: list[int], length: int, fixed: int | None, beam: Beam,
               say: Callable[[str], None] | None) -> tuple[int, ...]:
    """The continuation that a beam search finds, up to the end symbol where the vocabulary has one."""
    run, training = stepper(module, say), module.training
    if fixed is not None and len(ids) + length - (not run.delayed) > fixed:
        raise error("E0625", f"beam search reads all from the prompt on, and the model reads {fixed} symbols",
                    numbers=f"{len(ids)} of the prompt and {length} to make", help="a smaller --length")
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    module.eval()
    try: found, = search(run, torch.tensor([ids], device=device), {}, [length], beam, getattr(codec, "end", None), codec.size)
    finally: module.train(training)
    return found.symbols


def _start(codec: Codec) -> int:
    try: return (codec.encode("\n") or [0])[0]
    except PlaitError: return 0


def _text(codec: Codec, numbers: Iterator[int]) -> Iterator[str]:
    waiting: list[int] = []
    for symbol in numbers:
        waiting.append(symbol)
        text = codec.decode(waiting)
        if text.endswith("\N{REPLACEMENT CHARACTER}") and len(waiting) < 4: continue       # a character may be several bytes
        waiting.clear()
        yield text.translate(CONTROL)
    if waiting: yield codec.decode(waiting).translate(CONTROL)


def _numbers(module: nn.Module, run: Stepper, ids: list[int], length: int, fixed: int | None, say: Callable[[str], None] | None,
             choose: Callable[[Tensor], int]) -> Iterator[int]:
    training = module.training
    module.eval()
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    given = [0, *ids] if run.delayed else list(ids)                                        # what stands at each position
    at, full = None, False
    try:
        for _ in range(length):
            if at is None or fixed is not None and at.past == fixed:
                if at is not None and not full and say is not None:
                    say(f"the model reads {fixed} symbols: from here on its last {fixed} are read anew for every symbol")
                full, at = at is not None, run.begin(1)
                new = given if fixed is None else _last(given, fixed, run.delayed)
            else: new = given[-1:]
            logits, at = run.step(torch.tensor([new], device=device), at)
            symbol = choose(finite(logits[0, -1]))
            given.append(symbol)
            yield symbol
    finally: module.train(training)


def _last(given: list[int], n: int, delayed: bool) -> list[int]:
    """The last n positions; symbol 0 stands before the first where a position is given the symbol before it."""
    if len(given) <= n: return given
    return [0, *given[len(given) - n + 1:]] if delayed else given[-n:]


def finite(logits: Tensor) -> Tensor:
    """In double precision, on the CPU."""
    found = logits.double().cpu()
    if found.isnan().any() or (found == torch.inf).any():
        raise error("E0622", "the model's output is not finite", help="train again with a smaller lr, or clip = 1.0")
    return found


def pick(logits: Tensor, temperature: float, top_k: int | None, top_p: float | None, random: torch.Generator) -> int:
    """A symbol by its logits [V]."""
    if temperature == 0: return int(logits.argmax())
    if top_k is not None and top_k < len(logits):
        logits = logits.masked_fill(logits < logits.topk(top_k).values[-1], -torch.inf)
    p = ((logits - logits.max()) / temperature).softmax(-1)
    if top_p is not None:
        sorted_p, order = p.sort(descending=True)
        beyond = sorted_p.cumsum(-1) - sorted_p >= top_p                                   # what stands before has enough already
        p[order[beyond]] = 0
    return int(torch.multinomial(p, 1, generator=random))
