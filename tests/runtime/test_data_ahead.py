"""Batches that are made while a step runs, and texts that are larger than memory is meant to hold."""
from __future__ import annotations

import gzip
import threading
import time
import tracemalloc

import numpy as np
import pytest
import torch

from plait.dsl.errors import PlaitError
from plait.runtime import files
from plait.runtime.data import text
from plait.runtime.data.ahead import ahead
from plait.runtime.recipe import Amount

from .test_data import opened, refused


def workers() -> int: return sum(t.name.startswith("plait-data") for t in threading.enumerate())


@pytest.fixture(autouse=True)
def no_thread_stays():
    yield
    assert workers() == 0


class Slow:
    """Batch `step` is the step; `bad` fails. Notes when each was begun."""
    def __init__(self, bad: int = 0): self.bad, self.begun = bad, []

    def batch(self, step: int, size: int | None = None):
        self.begun.append(step)
        time.sleep(0.01)
        if step == self.bad: raise OSError("the disk is gone")
        return (torch.tensor([step]),)


def test_it_gives_what_the_dataset_gives(corpus):
    d = opened(corpus).by(Amount(3, "sequences"))
    found = list(ahead(d, 4, 9))
    assert [s for s, _ in found] == [4, 5, 6, 7, 8, 9]
    assert all(torch.equal(x, d.batch(s)[0]) for s, (x,) in found)
    assert len(next(ahead(d, 1, 1, size=5))[1][0]) == 5 and list(ahead(d, 3, 2)) == []


def test_the_next_one_is_made_meanwhile_and_no_more():
    d = Slow()
    for step, _ in ahead(d, 1, 4):
        time.sleep(0.03)
        assert d.begun == list(range(1, min(step + 1, 4) + 1))


def test_what_goes_wrong_is_raised_at_its_step():
    seen = []
    with pytest.raises(OSError, match="the disk is gone"):
        for step, _ in ahead(Slow(bad=3), 1, 9): seen.append(step)
    assert seen == [1, 2]


@pytest.mark.parametrize("why", [KeyboardInterrupt, ValueError])
def test_it_ends_with_the_loop(why):
    steps = ahead(Slow(), 1, 99)
    with pytest.raises(why):
        for step, _ in steps:
            if step == 2: raise why
    steps.close()                                             # the traceback holds it; without one it is closed by itself
    for step, _ in ahead(Slow(), 1, 99):
        if step == 2: break


# ---- large texts -------------------------------------------------------------------------------------------------------
@pytest.fixture
def large(tmp_path, monkeypatch):
    """A text of 1.2 MB in 5 characters of one, two, three and four bytes, and limits below it."""
    content = ("añ字\N{MUSICAL SYMBOL G CLEF}\n" * 110_000)
    (tmp_path / "f").write_text(content)
    (tmp_path / "f.gz").write_bytes(gzip.compress(content.encode()))
    whole = opened(tmp_path, 'text("f")')
    monkeypatch.setattr(files, "IN_MEMORY", 2**16)
    monkeypatch.setattr(text, "PIECE", 2**13 + 1)             # cuts characters in two
    return tmp_path, content, whole


def test_a_large_text_is_numbered_in_a_mapped_file(large):
    folder, content, whole = large
    for name in ("f", "f.gz"):
        d = opened(folder, f'text("{name}")')
        assert isinstance(d.train, np.memmap) and d.train.dtype == np.uint8
        assert d.codec == whole.codec and np.array_equal(d.train, whole.train) and np.array_equal(d.held_out, whole.held_out)
        assert d.codec.decode(d.train[:5].tolist()) == content[:5] and d.content == whole.content
    assert isinstance(opened(folder, 'bytes("f.gz")').train, np.memmap)


def test_it_takes_little_memory(large):
    """1.2 MB of text, 0.6 MB of symbols: no more than the tables of all characters (1.1 MB each) and some pieces are ever held."""
    folder, _, _ = large
    (folder / "g").write_bytes((folder / "f").read_bytes() * 8)
    peaks = []
    for name in ("f", "g"):
        tracemalloc.start()
        opened(folder, f'text("{name}")')
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0], peaks


def test_a_broken_byte_of_a_large_text_is_placed(large):
    folder, content, _ = large
    raw = content.encode()
    (folder / "f").write_bytes(raw[:-1] + b"\xf0")            # begins a character that never ends
    found = refused(folder, 'text("f")')
    assert found.code == "E0612" and found.numbers == f"byte {len(raw) - 1:,} (line 110,000) is 0xf0"
    at = raw.index(b"\n", 900_000) + 1
    (folder / "f").write_bytes(raw[:at] + b"\x80" + raw[at + 1:])
    line = raw[:at].count(b"\n") + 1
    assert refused(folder, 'text("f")').numbers == f"byte {at:,} (line {line:,}) is 0x80"


def test_a_folder_for_temporary_files_that_is_full(large, monkeypatch):
    class Full:
        def __enter__(self): return self
        def __exit__(self, *_): return None
        def write(self, _): raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.tempfile, "TemporaryFile", lambda **_: Full())
    found = refused(large[0], 'text("f")')
    assert found.code == "E0610" and "No space left on device" in found.message and "TMPDIR" in found.help


def test_lines_are_found_across_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "PIECE", 3)
    for content, want in ((b"ab\ncdefg\r\n\nh", ["ab", "cdefg", "", "h"]), (b"a\n", ["a"]), ("ü\nöä".encode(), ["ü", "öä"])):
        assert list(files.lines(np.frombuffer(content, np.uint8), "f", None)) == want
    with pytest.raises(PlaitError) as caught: list(files.lines(np.frombuffer(b"ab\ncd\xffe\n", np.uint8), "f", None))
    assert caught.value.diagnostics[0].numbers == "byte 5 (line 2) is 0xff"
