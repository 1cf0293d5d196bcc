"""The sources beside texts: tasks, lists, images, number sequences. Values are from arithmetic and from independent code."""
from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from plait import files
from plait.compiler.expand import expand
from plait.dsl.errors import PlaitError
from plait.runtime import data
from plait.runtime.codec import Alphabet, Numbers, Pair, Words, from_facts
from plait.runtime.data.dataset import in_epochs
from plait.runtime.data.listops import nested, value_of
from plait.runtime.data.need import Slot
from plait.runtime.data.opening import READERS
from plait.runtime.recipe import Amount, Described, recipe
from plait.runtime.sources import SOURCES

LOGITS = "logits = {0} {{ embed(V, width = 8); unembed(V) }}; output logits: [n, V]"
SCORES = "logits = {0} {{ embed(V, width = 8); pool(mean); linear(C) }}; output logits: [C]"


def spec(written: str, inputs: str, loss: str, body: str = LOGITS, dims: str = "V; n = 8; C = 10") -> str:
    first = inputs.split()[1].rstrip(":")
    return (f"plait 1\ndims {{ {dims} }}\nmodel m {{ {inputs}; {body.format(first)} }}\n"
            f"train m {{\n  data = {written}\n  loss = {loss}\n  batch = 4 sequences\n  lr = 1e-3\n  stop = 3 steps\n  seed = 3\n}}\n")


def opened(folder, text: str, **sets):
    file = files.opened(Path("spec.plait"), files.overrides(sets), text)
    program, found = expand(file, "m", loss=True), recipe(file.spec, "m", file.values("m"))
    return data.open_for(program, found.data, folder, found.seed)


def refused(folder, text: str, **sets):
    with pytest.raises(PlaitError) as caught: opened(folder, text, **sets)
    (found,) = caught.value.diagnostics
    assert found.span is not None
    return found


ONE = "input x: tokens[n] of V"
NEXT = "cross_entropy(logits, next(x))"
SAME = "cross_entropy(logits, x)"
LABELLED = f"{ONE}; input y: class of C"
LISTS = f"{ONE} padded; input y: class of C"
LABEL = "cross_entropy(logits, y)"


def test_every_source_has_its_reader():
    assert READERS.keys() == SOURCES.keys()


# ---- reverse, listops --------------------------------------------------------------------------------------------------
def test_reverse_turns_the_word_round(tmp_path):
    (x,) = opened(tmp_path, spec("reverse(symbols = 5, length = n)", ONE, NEXT)).batch(1, 64)
    symbols = torch.where(x < 0, -1 - x, x)[:, :8]
    assert (symbols[:, 3] == 0).all() and (symbols[:, 7] == 0).all() and torch.equal(symbols[:, :3].flip(1), symbols[:, 4:7])
    assert [bool(c) for c in (x[:, 1:] >= 0).all(0)] == [False] * 3 + [True] * 4 + [False]


def evaluated(text: str) -> int:
    """The value of an expression, by another way: it becomes a Python expression."""
    for name in ("MIN", "MAX", "MED", "SM"): text = text.replace(f"[{name} ", f"{name}([")
    known = {"MIN": min, "MAX": max, "MED": lambda a: int(np.floor(np.median(a))), "SM": lambda a: sum(a) % 10}
    return eval(text.replace(" ]", "])").replace(" ", ","), known)                         # the project's own text, not a file's


def test_lists_have_their_values_and_lengths(tmp_path):
    d = opened(tmp_path, spec("listops(length = 60, depth = 4, arguments = 5)", LISTS, LABEL, SCORES, "V; n = 64; C = 10"))
    x, y = d.batch(1, 200)
    assert x.shape == (200, 64) and d.classes == (15, 10)
    lengths = (x >= 0).sum(1)
    assert lengths.min() >= 15 and lengths.max() <= 60
    values = []
    for row, value in zip(x, y):
        text = d.codec.decode(row[row >= 0].tolist()).strip()
        assert evaluated(text) == value, text
        depth = np.cumsum([(w[0] == "[") - (w == "]") for w in text.split()])
        assert depth.max() <= 4 and depth[-1] == 0 and depth[:-1].min() == 1
        values.append(int(value))
    assert set(values) == set(range(10))
    assert d.tokens((x, y)) == int(lengths.sum())


@pytest.mark.parametrize("operator, values, result", [(0, [4, 2, 7], 2), (1, [4, 2, 7], 7), (2, [9, 1, 4], 4), (2, [1, 2, 4, 9], 3),
                                                      (2, [2, 5], 3), (3, [9, 9, 5], 3)])
def test_operators(operator, values, result): assert value_of(operator, values) == result


def test_a_list_that_is_too_long_is_none():
    assert nested(iter([0.0] * 99).__next__, [], 1, 5, 4) == 0                   # [MIN 0 0 ]
    assert nested(iter([0.0] * 99).__next__, [], 1, 5, 3) is None


def test_free_lengths_of_lists_come_in_steps_of_eight(tmp_path):
    text = spec("listops(length = 30, depth = 3, arguments = 4)", LISTS, LABEL, SCORES, "V; n; C = 10")
    x, _ = opened(tmp_path, text).batch(1, 3)
    assert x.shape[1] % 8 == 0 and x.shape[1] - 8 < int((x >= 0).sum(1).max()) <= x.shape[1]


@pytest.mark.parametrize("text, part", [
    (spec("listops(length = 60)", LABELLED, LABEL, SCORES), "is not padded"),
    (spec("listops(length = 60)", LISTS, LABEL, SCORES), "up to 60 symbols, the model reads 8"),
    (spec("listops(length = n)", LISTS, LABEL, SCORES, "V; n; C = 10"), "`n` has no value"),
    (spec("listops(length = 8)", ONE, NEXT), "fills two inputs, the model has 1"),
    (spec("listops(length = 60, depth = 1, arguments = 3)", LISTS, LABEL, SCORES, "V; n = 64; C = 10"), "shorter than a quarter")])
def test_lists_that_do_not_fit(tmp_path, text, part): assert part in refused(tmp_path, text).message


@pytest.mark.parametrize("source", SOURCES)
def test_a_model_of_too_many_inputs_is_told_which_there_are(tmp_path, source):
    """The number of inputs is looked at before the data is."""
    slots = (Slot("tokens", 8), Slot("tokens", 8), Slot("tokens", 8))
    with pytest.raises(PlaitError) as caught: data.open(Described(source, {}), tmp_path, 8, 0, slots=slots)
    found = caught.value.diagnostics[0]
    assert found.code == "E0614" and "has 3" in found.message
    assert found.help == f"inputs of `{source}`: " + " or ".join(" and ".join(f) for f in READERS[source].fills)


# ---- images ------------------------------------------------------------------------------------------------------------
@pytest.fixture
def images(tmp_path):
    """20 images of 3 × 3 points in 6 levels, whose first point is their label, in every form."""
    values = np.random.default_rng(0).integers(0, 6, (20, 9)).astype(np.uint8)
    values[0, 1], labels = 5, values[:, 0] % 3
    lines = "".join(",".join(map(str, [*row, label])) + "\n" for row, label in zip(values, labels))
    (tmp_path / "a.csv").write_text(lines)
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"names,of,columns\n" + lines.encode()))
    np.savez(tmp_path / "c.npz", images=values.reshape(20, 3, 3), labels=labels)
    np.savez_compressed(tmp_path / "d.npz", x=np.asfortranarray(values.astype(np.float32)), y=labels.astype(np.int16)[:, None])
    np.save(tmp_path / "e.npy", values.reshape(20, 3, 3))
    return tmp_path, values.astype(np.int64), labels.astype(np.int64)


NINE = "V; n = 9; C = 10"


@pytest.mark.parametrize("name", ["a.csv", "b.csv.gz", "c.npz", "d.npz", "e.npy"])
def test_every_form_of_images_gives_the_same(images, name):
    folder, values, labels = images
    d = opened(folder, spec(f'images("{name}")', ONE, SAME, dims=NINE))
    assert d.classes == (6,) and d.length == 9 and d.symbols == 18 * 9
    seen = torch.cat([*(d.batch(s, 6)[0] for s in (1, 2, 3)), *(x for (x,) in d.validation(1))])
    assert sorted(seen.tolist()) == sorted(values.tolist())                       # an epoch and the validation part are all, once
    if name == "e.npy": assert isinstance(d.values.base, np.memmap); return
    d = opened(folder, spec(f'images("{name}")', LABELLED, LABEL, SCORES, NINE))
    assert d.classes == (6, 3)
    x, y = d.batch(1, 7)
    assert torch.equal(x[:, 0] % 3, y)


def test_images_read_ahead_have_no_target_behind_the_last_value(images):
    (x,) = opened(images[0], spec('images("c.npz")', ONE, NEXT, dims=NINE)).batch(1, 4)
    assert x.shape == (4, 10) and (x[:, -1] == -1).all() and (x[:, :-1] >= 0).all()


def test_a_label_column_is_known_by_what_the_model_reads(images):
    (x,) = opened(images[0], spec('images("a.csv")', ONE, SAME, dims="V; n = 10; C = 10")).batch(1, 4)
    assert x.shape == (4, 10)
    (x,) = opened(images[0], spec('images("a.csv")', ONE, SAME, dims="V; n; C = 10")).batch(1, 4)
    assert x.shape == (4, 9)                                                      # 9 fill a square, 10 do not


def test_parts_of_an_archive_are_used_and_colours_are_interleaved(tmp_path):
    train, valid = np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3), np.arange(12, dtype=np.uint8).reshape(1, 2, 2, 3)
    np.savez(tmp_path / "a.npz", train=train, valid=valid)
    d = opened(tmp_path, spec('images("a.npz")', ONE, SAME, dims="V; n = 12; C = 10"))
    (x,) = next(d.validation(9))
    assert x.tolist() == [list(range(12))] and len(d.train) == 2                  # red, green, blue of a point, then the next


def test_pictures_of_a_folder(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    points = {}
    for kind in ("cat", "dog"):
        (tmp_path / "pets" / kind).mkdir(parents=True)
        for i in range(5):
            a = np.random.default_rng(len(points)).integers(0, 256, (2, 3)).astype(np.uint8)
            points[tuple(a.ravel().tolist())] = int(kind == "dog")
            Image.fromarray(a).save(tmp_path / "pets" / kind / f"{i}.png")
    text = spec('images("pets", split = (0.6, 0.4))', LABELLED, LABEL, SCORES, "V; n = 6; C = 10")
    d = opened(tmp_path, text)
    assert d.classes == (256, 2) and len(d.train) == 6
    for x, y in [d.batch(1, 6), *d.validation(3)]: assert [points[tuple(row)] for row in x.tolist()] == y.tolist()
    Image.fromarray(np.zeros((3, 3), np.uint8)).save(tmp_path / "pets" / "cat" / "9.png")
    assert refused(tmp_path, text).message == "the pictures of `pets` are not of one size"
    (tmp_path / "pets" / "cat" / "9.png").write_bytes(b"no picture")
    assert "cannot be opened" in refused(tmp_path, text).message


def test_digits_come_with_scikit_learn_or_a_sentence(tmp_path, monkeypatch):
    text = spec('images("digits")', LABELLED, LABEL, SCORES, "V; n = 64; C = 10")
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    found = refused(tmp_path, text)
    assert found.code == "E0610" and 'images("digits.csv.gz")' in found.help
    values, labels = np.arange(1280.0).reshape(20, 64) % 17, np.arange(20) % 10
    monkeypatch.setitem(sys.modules, "sklearn.datasets", SimpleNamespace(load_digits=lambda return_X_y: (values, labels)))
    assert opened(tmp_path, text).classes == (17, 10)


def archive(**arrays) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


IMAGES = [
    ("a.csv", None, "E0610", "there is no file"), ("a.csv", b"", "E0611", "is empty"),
    ("a.csv", b"1,2\n1,2,3\n", "E0612", "not of one size"), ("a.csv", b"1,2,3\n1,x,3\n", "E0612", "line 2"),
    ("a.csv", b"1,2.5,3\n", "E0612", "whole numbers"), ("a.csv", b"1,nan\n", "E0612", "whole"),
    ("a.csv", b"a,b\n", "E0611", "no line of numbers"), ("a.csv", b"1\xff", "E0612", "not UTF-8"),
    ("a.csv", b"-1,2,3,4\n" * 9, "E0613", "levels"),
    ("a.csv.gz", gzip.compress(b"1,2\n" * 99, mtime=0)[:-9], "E0612", "cannot be unpacked"),
    ("a.txt", b"1,2", "E0612", "reads a folder"), ("a.npz", b"PK nonsense", "E0612", "no sound .npz"),
    ("a.npz", archive(images=np.ones((9, 9)))[:-30], "E0612", "no sound .npz"),
    ("a.npz", archive(images=np.ones((4, 9)), labels=np.arange(3)), "E0612", "4 images and 3 labels"),
    ("a.npz", archive(images=np.array([None])), "E0612", "objects"),
    ("a.npz", archive(a=np.ones(3), b=np.ones(3)), "E0612", "no `images`"), ("a.npz", archive(images=np.ones(9)), "E0612", "are [9]"),
    ("a.npz", archive(images=np.full((9, 9), 0.5)), "E0612", "whole numbers"),
    ("a.npz", archive(images=np.ones((9, 8), int)), "E0614", "have 8 values"),
    ("a.npz", archive(images=np.ones((1, 9), int)), "E0611", "no image"),
    ("a.npz", archive(train=np.ones((2, 9), int), test=np.ones((2, 8), int)), "E0612", "not of one size"),
    ("a.npz", archive(images=np.full((9, 9), 10**6)), "E0613", "levels"), ("a.npy", b"\x93NUMPY nonsense", "E0612", "no sound .npy"),
    ("folder", "dir", "E0611", "no picture"),
    *(("a.npz", archive(images=np.zeros(shape)), "E0611", "no image" if not shape[0] else "no values")
      for shape in ((0, 9), (0, 3, 3), (0, 3, 3, 1), (9, 0), (9, 0, 3))),
    ("a.npz", archive(train=np.ones((9, 9)), valid=np.ones((0, 9))), "E0611", "validation part"),
    ("a.npz", archive(train=np.ones((0, 9)), valid=np.ones((9, 9))), "E0611", "training part"),
    ("a.npz", archive(images=np.ones((9, 9)), labels=np.ones(0)), "E0612", "0 labels"),
]


@pytest.mark.parametrize("name, content, code, part", IMAGES)
def test_images_that_cannot_be_read(tmp_path, name, content, code, part):
    if content == "dir": (tmp_path / name).mkdir()
    elif content is not None: (tmp_path / name).write_bytes(content)
    found = refused(tmp_path, spec(f'images("{name}")', ONE, SAME, dims=NINE))
    assert found.code == code and part in found.message, found


HUGE = [2**32 + 1, 2**33, 2**16, 2**31, -2**32 + 1, 2**53 + 2, 2**63 - 1, 2**63 + 1, 2**64 - 1, 1e300]


@pytest.mark.parametrize("huge", HUGE)
@pytest.mark.parametrize("labelled", [True, False])
def test_a_number_that_would_wrap_is_refused(tmp_path, huge, labelled):
    """In every form and every type of numbers that can hold it: as a value, and as a label."""
    dtypes = [t for t in (np.int64, np.uint64, np.float64) if np.dtype(t).kind == "f" or np.iinfo(t).min <= huge <= np.iinfo(t).max]
    text = spec('images("{}")', LABELLED, LABEL, SCORES, NINE) if labelled else spec('images("{}")', ONE, SAME, dims=NINE)
    for dtype in dtypes:
        values, labels = np.ones((9, 9), dtype), np.ones(9, dtype)
        (labels if labelled else values)[0] = huge
        np.savez(tmp_path / "a.npz", images=values, labels=labels)
        assert refused(tmp_path, text.replace("{}", "a.npz")).code == "E0613", dtype
    row = ["1"] * 9 + ["1"] * labelled
    row[-1] = f"{huge:.0f}"
    (tmp_path / "a.csv").write_text(",".join(row) + "\n" + (",".join(["1"] * len(row)) + "\n") * 9)
    assert refused(tmp_path, text.replace("{}", "a.csv")).code == "E0613"
    if not labelled:
        np.savez(tmp_path / "b.npz", np.array([1, huge] * 20, dtypes[0]))
        (tmp_path / "b.json").write_text(json.dumps([1, int(huge)] * 20))
        for name in ("b.npz", "b.json") if abs(huge) > 2**20 else ():
            assert refused(tmp_path, spec(f'sequences("{name}")', ONE, NEXT)).code in ("E0612", "E0613")


def test_what_images_do_not_fill(images):
    assert "is a class" in refused(images[0], spec('images("e.npy")', LABELLED, LABEL, SCORES, NINE)).message
    assert refused(images[0], spec('images("c.npz")', ONE, SAME, dims=NINE), V="5").code == "E0613"
    assert "only 2" in refused(images[0], spec('images("c.npz")', LABELLED, LABEL, SCORES, NINE), C="2").message
    two = f"{ONE}; input y: tokens[n] of V"
    assert "gives a class, but the input `y` is tokens" in refused(images[0], spec('images("c.npz")', two, SAME, dims=NINE)).message
    assert "targets of its own" in refused(images[0], spec('images("c.npz")', LABELLED, NEXT, dims=NINE)).message


# ---- sequences ---------------------------------------------------------------------------------------------------------
def music(folder, name="a.json", **parts):
    (folder / name).write_text(json.dumps(parts))
    return folder


STEPS = [[60, 64], [62], [], [61, 65]]


def test_voices_follow_one_another_and_silence_is_a_rest(tmp_path):
    d = opened(music(tmp_path, train=[STEPS, [[60, 60]] * 6], valid=[STEPS], test=[[[70, 70]]]),
               spec('sequences("a.json")', ONE, NEXT, dims="V; n = 8; C = 10"))
    assert d.voices == 2 and d.codec.names == ("-", *map(str, range(60, 71)))     # the test part has symbols, too
    (x,) = next(d.validation(4))
    assert d.codec.decode(x[0, :8].tolist()) == " 60 64 62 - - - 61 65" and x[0, 8] == -1
    assert d.codec.encode("60 - 65") == [1, 0, 6]
    assert d.symbols == 7 + 11


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("voices", [1, 2, 3])
@pytest.mark.parametrize("length", [3, 4, 7, 8, 100])
def test_validation_predicts_each_symbol_of_each_piece_once(tmp_path, length, voices, ahead):
    """Pieces of distinct numbers: the targets are all of them, but the first of a piece where it is read ahead."""
    pieces, first = [], 0
    for steps in (1, 2, 5, 9, 20):
        pieces.append(np.arange(first, first + steps * voices).reshape(steps, voices).tolist())
        first += steps * voices
    d = opened(music(tmp_path, train=pieces, valid=pieces),
               spec('sequences("a.json")', ONE, NEXT if ahead else SAME, dims=f"V; n = {length}; C = 10"))
    targets, starts = [], []
    for (x,) in d.validation(3):
        assert x.shape[1] == length + ahead
        targets += [t for t in x[:, ahead:].flatten().tolist() if t >= 0]
        read = torch.where(x < 0, -1 - x, x)
        starts += read[:, 0].tolist()
    firsts = {p[0][0] for p in pieces if ahead}
    assert targets == [t for t in range(first) if t not in firsts]
    begin = np.concatenate([[p[0][0]] * np.size(p) for p in pieces])
    assert all((s - begin[s]) % voices == 0 for s in starts), "a window begins with a step"
    seen = {int(t) for s in range(1, 200) for t in d.batch(s, 8)[0].flatten() if t >= 0}
    assert seen == set(range(first)) - ({0} if voices == 1 and ahead else set()), "training reaches every symbol"


def test_a_batch_stays_within_a_piece(tmp_path):
    d = opened(music(tmp_path, train=[[1] * 5, [2] * 30, [3] * 9], valid=[[1] * 9]), spec('sequences("a.json")', ONE, NEXT))
    x = torch.cat([d.batch(s, 16)[0] for s in range(1, 9)])
    assert torch.equal(d.batch(3, 16)[0], x[32:48])
    for row in x.tolist(): assert len({t for t in row if t >= 0}) == 1
    assert {(row >= 0).sum().item() for row in x if row[0] == 0} == {5}


def test_arrays_with_their_parts(tmp_path):
    pieces = np.empty(3, object)
    for i in range(3): pieces[i] = np.array([[60, 64], [np.nan, 62]] * (i + 3), np.float16)
    np.savez(tmp_path / "a.npz", train=pieces, valid=pieces[:1])
    d = opened(tmp_path, spec('sequences("a.npz")', ONE, NEXT))
    assert d.codec.names == ("-", "60", "61", "62", "63", "64")
    assert d.codec.decode(next(d.validation(1))[0][0, :6].tolist()) == " 60 64 - 62 60 64"


def test_other_numbers_are_read_by_the_vocabulary_of_a_run(tmp_path):
    """Rests and 60 to 70 then, 62 to 64 and no rests now: 62 stays symbol 3."""
    def reads(*pieces):
        music(tmp_path, train=pieces, valid=pieces)
        text = spec('sequences("a.json")', ONE, NEXT)
        found = recipe(files.opened(Path("spec.plait"), (), text).spec, "m", {})
        return data.open(found.data, tmp_path, 8, 3, codec=codec)

    codec = Words(("-", *map(str, range(60, 71))))
    d = reads([62, 64] * 9)
    assert d.codec == codec and set(d.train.symbols.tolist()) == {3, 5}
    for piece, part in (([62, 71], "the number 71"), ([-1, 62], "rests")):
        if part == "rests": codec = Words(codec.names[1:])
        with pytest.raises(PlaitError, match=part): reads(piece * 9)


def test_a_single_sequence_is_cut_in_place(tmp_path):
    np.savez(tmp_path / "a.npz", np.arange(100))
    d = opened(tmp_path, spec('sequences("a.npz")', ONE, NEXT))
    assert d.train.symbols.tolist() == list(range(90)) and d.held_out.symbols.tolist() == list(range(90, 100))


class Evil:
    def __reduce__(self): return os.system, ("false",)


def pickled() -> bytes:
    """An array of objects, of which one is a call of a program."""
    member, file = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(member, {"descr": "|O", "fortran_order": False, "shape": (1,)})
    with zipfile.ZipFile(file, "w") as z: z.writestr("train.npy", member.getvalue() + pickle.dumps(Evil()))
    return file.getvalue()


SEQUENCES = [
    ("a.json", None, "E0610", "there is no file"), ("a.json", b"", "E0611", "is empty"), ("a.json", b'{"train": [', "E0612", "not JSON"),
    ("a.json", b"[" * 99_999, "E0612", "not JSON"), ("a.json", b"3", "E0612", "no list of pieces"),
    ("a.json", b'[[1, "a"]]', "E0612", "piece 0"), ("a.json", b'[[1, 2], [1.5]]', "E0612", "piece 1"),
    ("a.json", json.dumps([[-5, 3]] * 20).encode(), "E0612", "the number -5"),
    ("a.json", json.dumps([[0, 9999999]] * 20).encode(), "E0613", "9,999,999"), ("a.json", b"[[], []]", "E0611", "no piece"),
    ("a.json", b'{"a": [], "b": []}', "E0612", "no `train`"), ("a.json", b"\xff\xfe", "E0612", "not JSON"),
    ("a.json", b'{"train": [[-1, -1, -1]], "test": [[-1, -1]]}', "E0611", "nothing but rests"),
    ("a.mid", b"MThd", "E0612", "reads .npz and .json"), ("a.json", json.dumps([[list(range(9))] * 9] * 9).encode(), "E0611", "9 voices"),
    ("a.npz", pickled(), "E0612", "which is no array"), ("a.npz", archive(train=np.ones((3, 9)))[:99], "E0612", "no sound .npz"),
    ("a.npz", archive(train=np.array(["a"])), "E0612", "piece 0"), ("a.npz", archive(train=np.float64(3)), "E0612", "no list of pieces"),
]


@pytest.mark.parametrize("name, content, code, part", SEQUENCES)
def test_sequences_that_cannot_be_read(tmp_path, name, content, code, part):
    if content is not None: (tmp_path / name).write_bytes(content)
    found = refused(tmp_path, spec(f'sequences("{name}")', ONE, NEXT))
    assert found.code == code and part in found.message, found


MARKED = [("a.txt", b"abcabd" * 20, spec('text("a.txt")', ONE, NEXT)),
          ("a.csv", b"".join(b"%d,1,2,3,4,5,6,7,8\n" % (k % 5) for k in range(20)), spec('images("a.csv")', ONE, SAME, dims=NINE)),
          ("a.csv.gz", gzip.compress(b"1,2,3,4,5,6,7,8,9\n" * 20, mtime=0), spec('images("a.csv.gz")', ONE, SAME, dims="V; n = 9; C = 10")),
          ("a.json", json.dumps([[1, 2, 3]] * 20).encode(), spec('sequences("a.json")', ONE, NEXT))]


@pytest.mark.parametrize("name, content, text", MARKED, ids=[name for name, *_ in MARKED])
def test_the_mark_before_a_text_is_no_part_of_it(tmp_path, name, content, text):
    """A byte-order mark: the data is the same with it and without."""
    (tmp_path / name).write_bytes(content)
    plain = opened(tmp_path, text)
    mark = b"\xef\xbb\xbf"
    (tmp_path / name).write_bytes(gzip.compress(mark + gzip.decompress(content)) if name.endswith(".gz") else mark + content)
    marked = opened(tmp_path, text)
    assert marked.codec == plain.codec and marked.content == plain.content and marked.symbols == plain.symbols
    (tmp_path / name).write_bytes(gzip.compress(mark) if name.endswith(".gz") else mark)
    assert refused(tmp_path, text).code in ("E0611", "E0612")


def test_a_wrong_byte_is_counted_with_the_mark(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfab\n\xff" + b"a" * 99)
    assert refused(tmp_path, spec('text("a.txt")', ONE, NEXT)).numbers == "byte 6 (line 2) is 0xff"
    d = opened(tmp_path, spec('bytes("a.txt")', ONE, NEXT))
    assert d.train[:3].tolist() == [0xef, 0xbb, 0xbf]                             # bytes are the file's, all of them


# ---- what all have in common -------------------------------------------------------------------------------------------
def test_an_epoch_is_a_shuffle_and_batches_run_through():
    whole = np.concatenate([in_epochs(5, step, 4, 10) for step in range(1, 6)])   # 20 places: two epochs
    assert sorted(whole[:10]) == sorted(whole[10:]) == list(range(10)) and (whole[:10] != whole[10:]).any()
    assert (in_epochs(6, 1, 10, 10) != whole[:10]).any() and in_epochs(5, 1, 20, 10).tolist() == whole.tolist()


@pytest.mark.parametrize("text", [
    spec("reverse(symbols = 5, length = n)", ONE, NEXT), spec('images("c.npz")', ONE, SAME, dims=NINE),
    spec('images("c.npz")', LABELLED, LABEL, SCORES, NINE), spec("listops(length = 30)", LISTS, LABEL, SCORES, "V; n = 32; C = 10"),
    spec('sequences("a.json")', ONE, NEXT)], ids=["reverse", "image", "label", "listops", "sequences"])
def test_batches_follow_the_recipe_and_the_run_keeps_the_codec(images, text):
    folder = music(images[0], train=[list(range(20))] * 3, valid=[[3, 4, 5]])
    d, again = opened(folder, text), opened(folder, text)
    by, length = d.by(Amount(3, "sequences")), d.length
    assert all(torch.equal(a, b) for a, b in zip(by.batch(5), again.batch(5, 3), strict=True))
    assert len(d.by(Amount(2 * length + 1, "tokens")).batch(1)[0]) == 2
    assert from_facts(json.loads(json.dumps(d.codec.facts()))) == d.codec
    for part in (by.batch(1), *by.validation(100)):
        for x, size in zip(part, d.classes, strict=True): assert x.dtype == torch.int64 and x.max() < size
    assert by.tokens(by.batch(1)) > 0 and by.codec.end is None and not by.notes


BPE = Pair("bpe", ("a", "b", "ab"), (("a", "b"),))


@pytest.mark.parametrize("codec, ids, text", [
    (Alphabet("abc"), [0, -1, 3, 2], "a??c"), (Alphabet(None), [97, -1, 256, 98], "a??b"), (Words(("x", "y")), [1, -1, 2, 0], " y ? ? x"),
    (Pair("characters", ("a", "b")), [3, -1, 2, 99, 4], "a???b"), (Pair("words", ("a", "b")), [3, -2, 4], "a ? b"),
    (BPE, [5, -1, 2, 3, 99], "ab??a?")], ids=["characters", "bytes", "names", "pair", "words", "bpe"])
def test_numbers_that_are_no_symbols_are_decoded(codec, ids, text):
    if codec is BPE: pytest.importorskip("tokenizers")
    assert codec.decode(ids) == text.replace("?", "\N{REPLACEMENT CHARACTER}")


@pytest.mark.parametrize("codec", [Alphabet("abc"), Alphabet(None), Numbers(3), Words(("x", "y")), Pair("words", ("a",)), BPE])
@pytest.mark.parametrize("text", [5, None, b"ab", ["a"]])
def test_what_is_no_text_is_not_encoded(codec, text):
    with pytest.raises(PlaitError) as caught: codec.encode(text)
    assert caught.value.diagnostics[0].code == "E0505"


DATA = os.environ.get("PLAIT_DATA", "")


@pytest.mark.skipif(not DATA, reason="PLAIT_DATA names no folder of corpora")
def test_the_corpora():
    """1,797 digits, 9 of 10 for training; 229 and 76 chorales of 55,228 and 18,408 moments, 4 voices."""
    d = opened(Path(DATA).resolve(), spec('images("digits/digits.csv.gz")', LABELLED, LABEL, SCORES, "V; n = 64; C = 10"))
    assert d.classes == (17, 10) and (len(d.train), len(d.held_out)) == (1617, 180)
    d = opened(Path(DATA).resolve(), spec('sequences("jsb/Jsb16thSeparated.npz")', ONE, NEXT))
    assert d.codec.names == ("-", *map(str, range(36, 82))) and d.symbols == 4 * 55_228 - 229
    assert sum(int((x[:, 1:] >= 0).sum()) for (x,) in d.validation(500)) == 4 * 18_408 - 76
    d = opened(Path(DATA).resolve(), spec('sequences("jsb/jsb-chorales-quarter.json")', ONE, NEXT))
    assert d.codec.names == ("-", *map(str, range(43, 97))) and len(d.train.starts) == 230
