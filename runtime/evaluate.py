"""What a model is worth on the whole validation part."""
from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import torch
from torch import nn

from plait.dsl.errors import error
from plait.runtime.data import Dataset
from plait.runtime.generate.beam import Beam
from plait.runtime.generate.bleu import bleu
from plait.runtime.ranks import ALONE, Ranks
from plait.runtime.sources import METRICS


def mix(seed: int, *at: int) -> int:
    """A seed for one step, or one part of a step, unlike that of any other and of any other seed."""
    return int.from_bytes(hashlib.sha256(":".join(map(str, (seed, *at))).encode()).digest()[:8]) >> 1


def evaluate(module: nn.Module, dataset: Dataset, metrics: Sequence[str] = ("loss",), *, batch: int | None = None,
             device: torch.device | str = "cpu", seed: int = 0, beam: Beam | None = None, ranks: Ranks = ALONE) -> dict[str, float | int]:
    """The metrics asked for (of loss in nats, bits_per_token, accuracy), and `count`, the targets they are taken over:
    each target of the validation part once. The loss is plain, whatever smoothing the module is trained with. bleu: translations by a
    `beam` (default 4 wide, α = 0.6) against the references, with sacrebleu's signature as `bleu_signature`.

    batch: sequences at a time, which the ranks share; None: as many as the dataset's own batches have. The module is left in the mode it
    was in, and its random layers (hashing) are seeded with `seed`.
    Raises PlaitError for a metric that is not there, and where the validation part has no target."""
    for m in metrics:
        if m not in METRICS: raise error("E0632", f"there is no metric `{m}`", help=f"known: {', '.join(METRICS)}")
    training, total, count, correct = module.training, 0.0, 0, 0
    module.eval()
    torch.manual_seed(mix(seed, 0))
    try:
        with torch.no_grad():
            for inputs in dataset.validation(batch):
                given = tuple(t.to(device) for t in ranks.rows(inputs))
                part, n, right = module.score(*given)                                      # type: ignore[operator]
                total, count, correct = total + float(part), count + int(n), correct + int(right)
    finally: module.train(training)
    total, *counted = ranks.total(total, count, correct)
    count, correct = map(int, counted)
    if count == 0: raise error("E0611", "the validation part has no symbol to predict")
    if not math.isfinite(total): raise error("E0622", f"the loss over the validation part is not finite: {total:g}")
    loss = total / count
    known = {"loss": loss, "bits_per_token": loss / math.log(2), "accuracy": correct / count}
    if "bleu" not in metrics: return {**{m: known[m] for m in metrics}, "count": count}
    found = bleu(module, dataset, beam)
    known["bleu"] = found.score
    return {**{m: known[m] for m in metrics}, "bleu_signature": found.signature, "count": count}      # type: ignore[dict-item]
