import bz2
import gzip
import os
import socket
from pathlib import Path

import numpy as np
import pytest
import torch

from plait.dsl.errors import PlaitError
from plait.runtime import data

from .conftest import made, source

DATA = Path(__file__).parents[3] / "shared" / "data"                  # beside the project, never inside it


def opened(folder, written='text("corpus.txt")', length=8, seed=3, **more):
    return data.open(made(source(data=written)).data, folder, length, seed, **more)


def refused(folder, written='text("corpus.txt")', **more):
    with pytest.raises(PlaitError) as caught: opened(folder, written, **more)
    (found,) = caught.value.diagnostics
    assert found.span is not None
    return found


# ---- files -------------------------------------------------------------------------------------------------------------
def test_characters_are_numbered_in_order_and_split_exactly(corpus):
    d = opened(corpus)
    assert d.codec.characters == "\nabcd" and d.codec.size == 5
    assert (len(d.train), len(d.held_out)) == (900, 100)
    assert d.codec.encode("dab\n") == [4, 1, 2, 0] and d.codec.decode([4, 1, 2, 0, 7]) == "dab\n\N{REPLACEMENT CHARACTER}"
    assert d.codec.decode(d.train[:5].tolist()) == "abcd\n"


@pytest.mark.parametrize("size, train, held_out", [(1_115_394, 1_003_854, 111_540), (75_353, 67_817, 7_536)])
def test_the_cuts_of_the_published_corpora(tmp_path, size, train, held_out):
    """int(0.9 · n): in floating point 0.9 · n may fall below a whole number, here it is exact."""
    (tmp_path / "f").write_bytes(bytes(size))
    d = opened(tmp_path, 'bytes("f")')
    assert (len(d.train), len(d.held_out)) == (train, held_out)


def test_three_parts_leave_the_last_unseen(tmp_path):
    (tmp_path / "f").write_bytes(bytes(range(100)))
    d = opened(tmp_path, 'bytes("f", split = (0.5, 0.25, 0.25))')
    assert d.train.tolist() == list(range(50)) and d.held_out.tolist() == list(range(50, 75))


def test_bytes_are_mapped_and_texts_may_be_packed(tmp_path):
    text = ("grün\r\n" * 50).encode()
    (tmp_path / "f").write_bytes(text)
    (tmp_path / "f.gz").write_bytes(gzip.compress(text))
    (tmp_path / "f.bz2").write_bytes(bz2.compress(text))
    plain = opened(tmp_path, 'bytes("f")')
    assert isinstance(plain.train, np.memmap) and plain.codec.size == 256
    for name in ("f.gz", "f.bz2"):
        assert np.array_equal(opened(tmp_path, f'text("{name}", tokens = bytes)').train, plain.train)
        assert opened(tmp_path, f'text("{name}")').codec.characters == "\n\rgnrü"       # line ends are not translated


def test_the_embedded_text(tmp_path):
    d = opened(tmp_path, 'text("builtin:python_docs")')
    assert d.symbols > 300_000 and "a" in d.codec.characters


@pytest.mark.parametrize("name, content, code, part", [
    ("absent.txt", None, "E0610", "there is no file"), ("folder", "dir", "E0610", "is a folder"), ("f", b"", "E0611", "is empty"),
    ("f", b"abcdefgh", "E0611", "training part has 7 symbols"), ("f", b"a" * 20 + b"\n\xff" + b"a" * 100, "E0612", "is not UTF-8"),
    ("f.gz", b"nonsense", "E0612", "cannot be unpacked"), ("f.gz", gzip.compress(b"a" * 999, mtime=0)[:-9], "E0612", "cannot be unpacked"),
    ("builtin:python_doc", None, "E0610", "no built-in text"), ("f", b"a" * 80, "E0611", "validation part has 8 symbols"),
])
def test_what_cannot_be_read(tmp_path, name, content, code, part):
    if content == "dir": (tmp_path / name).mkdir()
    elif content is not None: (tmp_path / name).write_bytes(content)
    found = refused(tmp_path, f'text("{name}")')
    assert found.code == code and part in found.message, found


@pytest.mark.parametrize("path, said", [("/proc/cpuinfo", "made by the system"), ("/dev/null", "a device"), ("/dev/zero", "a device"),
                                        ("pipe", "a pipe"), ("socket", "a socket"), ("pipe.gz", "a pipe")])
def test_what_is_no_plain_file_is_told_of_as_what_it_is(tmp_path, path, said):
    if path.startswith("pipe"): os.mkfifo(tmp_path / path)
    if path == "socket":
        with socket.socket(socket.AF_UNIX) as s: s.bind(str(tmp_path / path))
    if path.startswith("/") and not os.path.exists(path): pytest.skip(f"this system has no {path}")
    found = refused(tmp_path, f'text("{path}")')
    assert found.code == "E0610" and said in found.message and "copy" in found.help


def test_a_broken_byte_is_placed(tmp_path):
    (tmp_path / "f").write_bytes(b"a" * 20 + b"\n\xff" + b"a" * 100)
    assert refused(tmp_path, 'text("f")').numbers == "byte 21 (line 2) is 0xff"


@pytest.mark.skipif(os.geteuid() == 0, reason="everything is readable to root")
def test_a_file_without_permission(corpus):
    (corpus / "corpus.txt").chmod(0)
    assert refused(corpus).code == "E0610"


def test_a_vocabulary_that_is_too_small_says_both_numbers(corpus):
    assert refused(corpus, classes=4).message == "the data has 5 symbols, the model's vocabulary only 4"
    assert opened(corpus, classes=9).codec.size == 5


def test_a_strange_character_in_a_prompt(corpus):
    with pytest.raises(PlaitError, match="'é'"): opened(corpus).codec.encode("abé")


# ---- windows -----------------------------------------------------------------------------------------------------------
def test_a_batch_is_a_function_of_seed_and_step(corpus):
    d, again, other = opened(corpus), opened(corpus), opened(corpus, seed=4)
    (x,) = d.batch(5, 4)
    assert x.shape == (4, 9) and x.dtype == torch.int64
    assert torch.equal(x, again.batch(5, 4)[0])
    assert not torch.equal(x, d.batch(6, 4)[0]) and not torch.equal(x, other.batch(5, 4)[0])


def test_windows_reach_both_ends_of_the_training_part(tmp_path):
    (tmp_path / "f").write_bytes(bytes(range(20)))
    d = opened(tmp_path, 'bytes("f", split = (0.5, 0.5))', length=8)
    assert {int(d.batch(s, 4)[0][0, 0]) for s in range(40)} == {0, 1}            # 10 symbols hold two windows of 9


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("length", [7, 8, 9, 10, 11, 99])
def test_validation_predicts_each_symbol_once(tmp_path, size, ahead, length):
    """100 symbols, 99 targets where they are read ahead: lengths that divide the one, the other, and none."""
    (tmp_path / "f").write_bytes(bytes(range(200)))
    d = opened(tmp_path, 'bytes("f", split = (0.5, 0.5))', length=length, ahead=ahead)
    windows = torch.cat([x for (x,) in d.validation(size)])
    assert windows.shape[1] == length + ahead
    targets = (windows[:, 1:] if ahead else windows).flatten()
    assert targets[targets >= 0].tolist() == list(range(100 + ahead, 200))
    read = torch.where(windows < 0, -1 - windows, windows)
    assert (read.diff(dim=1) == 1).all(), "what is no target is read all the same"


# ---- synthetic tasks ---------------------------------------------------------------------------------------------------
def test_duplicate_is_0w0w_and_its_second_half_counts(tmp_path):
    d = opened(tmp_path, "duplicate(symbols = 5, length = 8)")
    (x,) = d.batch(1, 64)
    assert d.codec.size == 6 and x.shape == (64, 9)
    symbols = torch.where(x < 0, -1 - x, x)[:, :8]
    assert (symbols[:, 0] == 0).all() and torch.equal(symbols[:, :4], symbols[:, 4:])
    w = symbols[:, 1:4]
    assert w.min() == 1 and w.max() == 5
    targets = x[:, 1:]
    assert (targets[:, :3] < 0).all() and (targets[:, 3:7] >= 0).all() and (targets[:, 7] == -1).all()


def test_copy_counts_what_stands_behind_the_separator(tmp_path):
    (x,) = opened(tmp_path, "copy(symbols = 5, length = 8)").batch(1, 64)
    symbols = torch.where(x < 0, -1 - x, x)[:, :8]
    assert (symbols[:, 3] == 0).all() and (symbols[:, 7] == 0).all() and torch.equal(symbols[:, :3], symbols[:, 4:7])
    assert [bool(c) for c in (x[:, 1:] >= 0).all(0)] == [False] * 3 + [True] * 4 + [False]


def test_two_inputs_are_symbols_and_targets(tmp_path):
    one, two = (opened(tmp_path, "duplicate(symbols = 5, length = 8)", inputs=i) for i in (1, 2))
    (marked,), (symbols, targets) = one.batch(3, 4), two.batch(3, 4)
    assert torch.equal(symbols, torch.where(marked < 0, -1 - marked, marked)[:, :8])
    assert torch.equal(targets, marked[:, 1:].clamp(min=-1))


def test_validation_of_a_task_does_not_depend_on_the_batch(tmp_path):
    d = opened(tmp_path, "duplicate(symbols = 5, length = 8)")
    parts = [torch.cat([x for (x,) in d.validation(size)]) for size in (7, 256)]
    assert torch.equal(*parts) and len(parts[0]) == 256


@pytest.mark.parametrize("written, length, part", [
    ("duplicate(symbols = 5, length = 9)", 9, "even length"), ("duplicate(symbols = 5, length = 16)", 8, "16 symbols, the model reads 8")])
def test_a_task_that_does_not_fit(tmp_path, written, length, part):
    assert part in refused(tmp_path, written, length=length).message


def test_a_prompt_of_a_task_is_numbers(tmp_path):
    d = opened(tmp_path, "duplicate(symbols = 5, length = 8)")
    assert d.codec.encode("0 5 1") == [0, 5, 1] and d.codec.decode([0, 5]) == " 0 5"
    for text in ("a", "6"):
        with pytest.raises(PlaitError): d.codec.encode(text)


@pytest.mark.skipif(not DATA.exists(), reason="the corpora lie beside the project")
def test_tiny_shakespeare():
    d = opened(DATA / "tinyshakespeare", 'text("input.txt")', length=64)
    assert d.codec.size == 65 and (len(d.train), len(d.held_out)) == (1_003_854, 111_540)


def test_a_packed_file_has_an_end(tmp_path, monkeypatch):
    """What unpacks to more than is read into memory is refused, not read on."""
    import gzip

    from plait.runtime import files
    monkeypatch.setattr(files, "LARGEST", 1000)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(5000)))
    (tmp_path / "fine.gz").write_bytes(gzip.compress(bytes(1000)))
    with pytest.raises(PlaitError, match="unpacks to more than"): files.raw_bytes("bomb.gz", tmp_path, None)
    assert len(files.raw_bytes("fine.gz", tmp_path, None)) == 1000
