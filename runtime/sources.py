"""What may stand behind `data`, `optimizer` and `every` in a train block: one entry each, with its arguments. Needs no torch.

A new data source is an entry here and one in `plait.runtime.data.opening`; a new optimiser one here and one in `plait.runtime.optim`."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from plait.dsl.errors import error
from plait.dsl.spec import Call, Expr, Name
from plait.runtime.arguments import Parameter, arguments, betas, flag, names, real, split, text, whole, word
from plait.runtime.formula import Scope


@dataclass(frozen=True)
class Entry:
    """The arguments of one source, optimiser or action."""
    parameters: Mapping[str, Parameter]


def tokenizer(e: Expr, scope: Scope) -> object:
    """`characters`, `words`, or ("bpe", V)."""
    if isinstance(e, Call) and e.name == "bpe":
        wrong: list = []
        size = arguments(e, {"vocabulary": Parameter(whole(1), positional=True)}, scope, wrong)["vocabulary"]
        if wrong: raise error(wrong[0].code, wrong[0].message, wrong[0].span, help="bpe(V)")
        return "bpe", size
    if isinstance(e, Name) and e.name in ("characters", "words"): return e.name
    raise error("E0633", "`characters`, `words` or `bpe(V)` is needed here", e.span)


SPLIT = Parameter(split, (Fraction(9, 10), Fraction(1, 10)))
FILE = Parameter(text, positional=True)
SYMBOLS = Parameter(whole(1), 127)
LENGTH = Parameter(whole(4), 1024)

SOURCES: dict[str, Entry] = {
    "text": Entry({"file": FILE, "tokens": Parameter(word("characters", "bytes"), "characters"), "split": SPLIT}),
    "bytes": Entry({"file": FILE, "split": SPLIT}),
    "duplicate": Entry({"symbols": SYMBOLS, "length": LENGTH}),
    "copy": Entry({"symbols": SYMBOLS, "length": LENGTH}),
    "reverse": Entry({"symbols": SYMBOLS, "length": LENGTH}),
    "listops": Entry({"length": LENGTH, "depth": Parameter(whole(1, 100), 10), "arguments": Parameter(whole(2, 100), 10)}),
    "parallel_text": Entry({"source": FILE, "target": FILE, "tokenizer": Parameter(tokenizer, "characters"),
                            "validation": Parameter(names, None), "split": Parameter(split, (Fraction(98, 100), Fraction(2, 100)))}),
    "images": Entry({"file": FILE, "split": SPLIT}),
    "sequences": Entry({"file": FILE, "split": SPLIT}),
}

EPS = Parameter(real(lambda x: x > 0, "above 0"), 1e-8)
BETAS = Parameter(betas, (0.9, 0.999))
DECAY_ALL = Parameter(flag, False)
MOMENTUM = real(lambda x: 0 <= x < 1, "at least 0 and below 1")
NOT_NEGATIVE = real(lambda x: 0 <= x < float("inf"), "at least 0")


def _decay(default: float) -> Parameter:
    return Parameter(NOT_NEGATIVE, default)


OPTIMIZERS: dict[str, Entry] = {
    "adam": Entry({"betas": BETAS, "eps": EPS, "decay": _decay(0.0), "decay_all": DECAY_ALL}),
    "adamw": Entry({"betas": BETAS, "eps": EPS, "decay": _decay(0.01), "decay_all": DECAY_ALL}),
    "adafactor": Entry({"clip": Parameter(real(lambda x: x > 0, "above 0"), 1.0), "decay": _decay(0.0), "decay_all": DECAY_ALL}),
    "sgd": Entry({"momentum": Parameter(MOMENTUM, 0.0), "nesterov": DECAY_ALL, "decay": _decay(0.0), "decay_all": DECAY_ALL}),
    "muon": Entry({"momentum": Parameter(MOMENTUM, 0.95), "nesterov": Parameter(flag, True), "decay": _decay(0.1), "betas": BETAS,
                   "eps": EPS, "decay_all": DECAY_ALL}),
}
CUTTABLE = ("adam", "adamw", "sgd")                                  # which take each number of a parameter by itself, wherever it lies

METRICS = ("loss", "bits_per_token", "accuracy", "bleu")
GROWING = ("accuracy", "bleu")                                       # the more the better

ACTIONS: dict[str, Entry] = {
    "evaluate": Entry({}),                                           # its arguments are metrics, read by `recipe`
    "checkpoint": Entry({"keep": Parameter(whole(1), 2), "best": Parameter(word(*METRICS), None)}),
    "sample": Entry({"prompt": Parameter(text, "", positional=True), "length": Parameter(whole(1), 200),
                     "temperature": Parameter(NOT_NEGATIVE, 1.0), "top_k": Parameter(whole(1), None),
                     "top_p": Parameter(real(lambda x: 0 < x <= 1, "above 0, at most 1"), None)}),
}
