"""`--set`: what is set, and what a name that does not exist gets."""
import pytest

from plait.dsl.errors import PlaitError, render
from plait.dsl.override import apply
from plait.dsl.parser import parse, parse_override
from plait.dsl.printer import render as text_of

FILE = """plait 1
dims { d = 64; n <= 512; m }
let p = 0.1
model a { dims { k = 3; d = 32 } }
model b { dims { k = 4 } }
train a { lr = 1e-3 }
train b { lr = 2e-3; seed = 1 }
"""


def put(*texts, file=FILE):
    return apply(parse(file, "file.plait"), tuple(parse_override(t) for t in texts))


def same(spec, *changes):
    text = FILE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return spec == parse(text)


def refuse(*texts, file=FILE):
    with pytest.raises(PlaitError) as caught:
        put(*texts, file=file)
    return caught.value.diagnostics


def test_nothing_to_set_changes_nothing():
    assert put() == parse(FILE)


def test_a_dim_of_the_file_wins_over_those_of_models():
    assert same(put("d=128"), ("{ d = 64", "{ d = 128"))


def test_a_dim_that_only_models_have_is_set_in_each():
    assert same(put("k=5"), ("k = 3", "k = 5"), ("k = 4", "k = 5"))


def test_a_path_names_one_model():
    assert same(put("a.d=16"), ("d = 32", "d = 16"))
    assert same(put("b.k=5"), ("k = 4", "k = 5"))


def test_free_dims_become_bound_and_lets_are_set():
    assert same(put("n=512", "m=7", "p=0.2"), ("n <= 512", "n = 512"), ("; m }", "; m = 7 }"), ("p = 0.1", "p = 0.2"))


def test_settings_are_set_in_every_train_block_and_added_where_missing():
    assert same(put("train.lr=3e-4"), ("lr = 1e-3", "lr = 3e-4"), ("lr = 2e-3", "lr = 3e-4"))
    assert same(put("train.clip=1"), ("lr = 1e-3 }", "lr = 1e-3; clip = 1 }"), ("seed = 1 }", "seed = 1; clip = 1 }"))


def test_the_result_is_a_valid_file():
    spec = put("n=1 + 255", 'train.data=text("FILE")')
    assert parse(text_of(spec)) == spec


def test_a_bound_holds():
    [found] = refuse("n=1Ki")
    assert found.numbers == "1,024 > 512"
    assert found.span.source.name == "--set" and found.notes[0].span.source.name == "file.plait"


def test_an_unknown_name_has_the_caret_under_it_and_a_suggestion():
    [found] = refuse("d_model=512")
    assert render(found) == """\
error[E0401]: no dim and no `let` is called `d_model`
 --> --set:1:1
  |
1 | d_model=512
  | ^^^^^^^
  = help: did you mean `--set d=512`?"""


@pytest.mark.parametrize("text, help", [
    ("learning_rate=3", "did you mean `--set train.lr=3`?"),
    ("train.optimiser=adam", "did you mean `--set train.optimizer=adam`?"),
    ("c.k=3", ""),
    ("b.d=3", "did you mean `--set d=3`?"),
    ("xyzzy=3", ""),
    ("a.b.c=3", ""),
])
def test_names_that_do_not_exist(text, help):
    [found] = refuse(text)
    assert found.code == "E0401" and (not help or found.help == help)


def test_without_a_train_block_there_is_nothing_to_train():
    [found] = refuse("train.lr=1", file="plait 1\n")
    assert "train" in found.message


def test_all_bad_overrides_are_told_at_once():
    assert len(refuse("x=1", "y=2", "d=3")) == 2


def test_a_sweep_is_the_callers_to_open():
    with pytest.raises(ValueError):
        put("d=1,2")
