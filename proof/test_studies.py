"""The studies of `examples/` in their short forms: that they run. What they show stands in their result/ folders."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

STUDIES = sorted((Path(__file__).parents[1] / "examples").glob("*/study.py"))


@pytest.mark.parametrize("study", STUDIES, ids=lambda p: p.parent.name)
def test_short_form(study):
    done = subprocess.run([sys.executable, str(study), "--short"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout, "it says what it found"


def test_there_are_studies(): assert len(STUDIES) >= 8
