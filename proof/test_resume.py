"""Kills at random moments, and half precision by generated code: what takes too long for every change."""
import pytest

from tests.runtime.test_train import timeless
from tests.runtime.test_train_resume import killed_until_done, memory
from tests.runtime.tiny import FAMILIES, spec, trained


@pytest.mark.parametrize("family", FAMILIES)
def test_twenty_kills(family, tmp_path):
    """Twenty in all families together: two or three each, anywhere from the first step to the last."""
    (tmp_path / "corpus.txt").write_text("abcd\n" * 200)
    number = list(FAMILIES).index(family)
    text = spec(FAMILIES[family], "every 5 steps { evaluate(loss); checkpoint(keep = 2, best = loss) }", stop="120 steps",
                microbatch="2 sequences", batch="6 sequences", average="0.9", optimizer="muon")
    died = killed_until_done(tmp_path, text, 3 if number < 4 else 2, seed=number, longest=2.0)
    print(f"\n{family}: {died} died in the middle")
    trained(text, tmp_path, "whole")
    assert memory(tmp_path, "run", 120) == memory(tmp_path, "whole", 120)
    assert timeless(tmp_path / "run") == timeless(tmp_path / "whole")


@pytest.mark.parametrize("family", ["stack", "gru", "reversible"])
def test_bf16_by_generated_code(family, tmp_path):
    (tmp_path / "corpus.txt").write_text("abcd\n" * 200)
    text = spec(FAMILIES[family], precision="bf16", stop="20 steps", every="")
    run, _ = trained(text, tmp_path, "compiled", compile=True)
    eager, _ = trained(text, tmp_path, "eager")
    assert run.loss == pytest.approx(eager.loss, abs=5e-2)                   # from ln 5 on; numbers are rounded elsewhere
