"""The command line about several processes: the table of a rank's memory, and what is refused before anything is written."""
import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plait.cli import app
from plait.dsl.errors import PlaitError
from plait.runtime.ranks import Ranks, fits
from plait.runtime.recipe import Described
from plait.runtime.sources import OPTIMIZERS

SPECS = Path(__file__).parents[2] / "specs"
SPEC = str(SPECS / "shakespeare.plait")


def run(*words: str):
    return CliRunner().invoke(app, list(words))


def test_the_table_of_a_rank_as_json():
    """804,096 parameters in float32; every one of them has an axis that divides by 8. 12 sequences on 8 ranks: 2 at most."""
    row = json.loads(run("table", SPEC, "--ranks", "8", "--shard", "fsdp", "--json").output)["rows"][0]
    found = row["ranks"]
    assert (found["count"], found["shard"], found["optimizer"], found["batch"]) == (8, "fsdp", "adamw", 12)
    assert found["alone"]["parameters"]["bytes"] == 4 * 804_096 == 8 * found["each"]["parameters"]["bytes"]
    assert (found["each"]["sequences"], found["alone"]["sequences"]) == (2, 12)
    assert found["each"]["peak"]["bytes"] < found["alone"]["peak"]["bytes"]
    assert found["alone"]["traffic"]["bytes"] == 0 and found["each"].keys() == found["alone"].keys()
    assert {"exact", "order", "value", "bytes"} <= found["each"]["saved"].keys()


def test_the_table_of_a_rank_as_text_and_markdown():
    text, markdown = (run("table", SPEC, "--ranks", "2", *more).output for more in ((), ("--markdown",)))
    assert "shakespeare alone" in text and "each of 2 by ddp" in text and "3.07 MiB" in text
    assert markdown.startswith("|") and len(markdown.strip().splitlines()) == 4


def test_the_table_of_a_rank_needs_no_torch():
    code = (f"import sys; from plait.cli import app; app(['table', {SPEC!r}, '--ranks', '2'], standalone_mode=False); "
            "assert 'torch' not in sys.modules")
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)


@pytest.mark.parametrize("more", [(), ("--markdown",)])
def test_the_table_of_a_rank_says_what_it_needs(more):
    """The vocabulary of the demo is that of its data; with one, nothing is left to say."""
    demo = str(SPECS / "demo.plait")
    said = "demo: the memory of a step needs a value for V; --set V=…"
    assert said == run("table", demo, "--ranks", "8", *more).output.splitlines()[-1].strip()
    assert "needs" not in run("table", demo, "--ranks", "8", "--set", "V=65", *more).output


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_table_of_a_rank_says_which_optimizers_fsdp_refuses(optimizer):
    """As training refuses them, and only for parts of parameters."""
    words = ["table", str(SPECS / "demo.plait"), "--set", "V=65", "--set", f"train.optimizer={optimizer}", "--ranks"]
    with pytest.raises(PlaitError) if optimizer in ("adafactor", "muon") else nullcontext():
        fits(Ranks(0, 2, "fsdp"), Described(optimizer, {}))
    refused = "does not train by" in run(*words, "2", "--shard", "fsdp").output
    assert refused == (optimizer in ("adafactor", "muon"))
    for more in (("2", "--shard", "ddp"), ("1", "--shard", "fsdp")): assert "does not train" not in run(*words, *more).output


@pytest.mark.parametrize("words, said", [
    (["table", SPEC, "--shard", "fsdp"], "needs a number of ranks"), (["table", SPEC, "--ranks", "2", "--shard", "all"], "not by `all`"),
    (["table", SPEC, "--ranks", "2", "--latex"], "text, Markdown or JSON"),
    (["table", SPEC, "--ranks", "2", "--columns", "work"], "with all its columns")])
def test_what_a_table_of_ranks_is_not(words, said):
    found = run(*words)
    assert found.exit_code == 1 and said in found.output


@pytest.mark.parametrize("words, said", [
    (["--offload"], "in parts only"), (["--shard", "fsdp", "--offload", "--device", "cpu"], "this training runs on the CPU"),
    (["--shard", "zero"], "ddp or fsdp, not by `zero`")])
def test_ways_to_share_that_are_refused(words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = run("train", str(SPECS / "demo.plait"), "--out", "run", *words)
    assert found.exit_code == 1 and said in found.output and not (tmp_path / "run").exists()


def test_the_module_is_a_command():
    """For launchers that start modules: `torchrun -m plait`."""
    found = subprocess.run([sys.executable, "-m", "plait", "--version"], capture_output=True, text=True, timeout=60)
    assert found.returncode == 0 and found.stdout.strip()
