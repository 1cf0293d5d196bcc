"""Every code is explained; the wrong spec of an explanation gets its code and nothing else, the right one gets nothing."""
import re
import shlex

import pytest
from typer.main import get_command

from plait import files
from plait.checking import check
from plait.cli import app
from plait.dsl.codes import CODES
from plait.dsl.errors import PlaitError
from plait.dsl.explanations import EXPLANATIONS, WIDTH, explained
from plait.dsl.printer import format

SPECS = [code for code, e in EXPLANATIONS.items() if e.right.startswith("plait 1\n")]
COMMANDS = [pytest.param(line, id=f"{code}: {line}") for code, e in EXPLANATIONS.items() if code not in SPECS
            for line in (e.wrong + e.right).splitlines() if line.startswith("plait ")]


def codes(text: str, folder) -> set[str]:
    """What a spec gets: its errors, else its warnings. It stands in a file, for the one that uses itself."""
    path = folder / "lib.plait"
    path.write_text(text, encoding="utf-8")
    try: return {d.code for d in check(files.opened(path, text=text)).warnings}
    except PlaitError as e: return {d.code for d in e.diagnostics}


def test_every_code_has_an_entry_in_its_place():
    assert list(EXPLANATIONS) == list(CODES)


@pytest.mark.parametrize("code", SPECS)
def test_wrong_is_wrong_and_right_is_right(code, tmp_path):
    assert codes(EXPLANATIONS[code].wrong, tmp_path) == {code}
    assert codes(EXPLANATIONS[code].right, tmp_path) == set()


@pytest.mark.parametrize("code", SPECS)
def test_right_is_laid_out_as_fmt_does(code):
    assert format(EXPLANATIONS[code].right, "right.plait") == EXPLANATIONS[code].right


def test_specs_show_whatever_a_spec_can_get():
    """The others are about files, modules and runs."""
    assert {c for c in CODES if c not in SPECS} == {
        "E0105", "E0106", *(c for c in CODES if "E0601" <= c < "E0631"), "E0636", "E0638", "E0640", "E0641",
        "E0660", "E0661", "E0662", "E0670", "E0671", "E0672", "E0999", "W0614"}


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_and_options_exist(line):
    known = get_command(app).commands                         # type: ignore[attr-defined]
    _, name, *rest = shlex.split(line, comments=True)
    assert {w for w in rest if w.startswith("--")} <= {o for p in known[name].params for o in p.opts}


@pytest.mark.parametrize("code", CODES)
def test_the_text(code):
    """Title, prose, examples: no line is wider than a terminal of 140 columns, the prose no wider than 100, all plain text."""
    text = explained(code)
    title, prose, *_ = text.split("\n\n")
    assert title == f"{code}: {CODES[code]}"
    assert max(map(len, prose.split("\n"))) <= WIDTH == 100
    assert " ".join(prose.split()) == EXPLANATIONS[code].why
    assert all(line.count("`") % 2 == 0 for line in prose.split("\n"))
    assert 1 <= len(re.findall(r"[.](?=\s|$)", prose)) <= 4
    assert all(c == "\n" or c.isprintable() for c in text) and max(map(len, text.split("\n"))) <= 140
    assert ("\n\nwrong:\n    " in text) == ("\n\nright:\n    " in text) == (code != "E0999")


def test_the_whole_of_one():
    assert explained("e0301") == """\
E0301: sizes that do not divide

Heads, groups and the halves of a rotation take equal parts of a width, and plait never rounds a
size. Choose sizes that divide; the help names the nearest.

wrong:
    plait 1

    dims { n = 16; d = 32 }

    model m {
      input x: stream[n, d]
      y = x { attention(heads = 5) }
      output y: [n, d]
    }

right:
    plait 1

    dims { n = 16; d = 32 }

    model m {
      input x: stream[n, d]
      y = x { attention(heads = 4) }
      output y: [n, d]
    }"""


@pytest.mark.parametrize("code, help", [("E301", "`E0301`"), ("E0300", "`E0301`"), ("W0499", "`W0401`"), ("heads", "has the code")])
def test_a_code_that_does_not_exist(code, help):
    with pytest.raises(PlaitError) as caught: explained(code)
    d, = caught.value.diagnostics
    assert d.code == "E0402" and d.message == f"there is no code `{code.upper()}`" and help in d.help
