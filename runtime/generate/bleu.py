"""BLEU of a model on the validation part, by sacrebleu (Papineni et al. 2002; Post 2018)."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from plait.dsl.errors import error
from plait.runtime.generate.beam import Beam
from plait.runtime.generate.translate import translated


@dataclass(frozen=True)
class Bleu:
    """The score, from 0 to 100, and sacrebleu's signature, which says how it was counted."""
    score: float
    signature: str
    sentences: int


def bleu_of(texts: Sequence[str], references: Sequence[str]) -> Bleu:
    """The score of texts against one reference each. Raises PlaitError where sacrebleu is not installed."""
    try:
        from sacrebleu.metrics import BLEU
    except ImportError:
        raise error("E0636", "BLEU is counted by sacrebleu, which is not installed", help="pip install 'plait[translation]'") from None
    metric = BLEU()
    found = metric.corpus_score(list(texts), [list(references)])
    return Bleu(float(found.score), str(metric.get_signature()), len(texts))


def bleu(module: nn.Module, dataset, beam: Beam | None = None, batch: int = 32) -> Bleu:
    """Every validation sentence translated, against its reference.

    dataset: one with `references(size)` and a codec with an `end`. Raises PlaitError for another, and where sacrebleu is missing."""
    bleu_of(["a"], ["a"])                                                    # said before a long search, not after it
    if not hasattr(dataset, "references"):
        raise error("E0614", "BLEU compares translations with their references, and this data has none",
                    help='data = parallel_text("FILE", "FILE")')
    texts: list[str] = []
    references: list[str] = []
    for sources, there in dataset.references(batch):
        texts += translated(module, dataset.codec, sources, beam)
        references += there
    if not texts: raise error("E0611", "the validation part has no sentence")
    return bleu_of(texts, references)
