"""What the documents say is run: every spec in them is checked, every command with an output gives that output, the examples work."""
from __future__ import annotations

import os
import re
import runpy
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plait import files
from plait.api import Spec
from plait.checking import check
from plait.cli import app
from plait.compiler.expand import open_file
from plait.compiler.layer import LAYERS
from plait.dsl.parser import parse
from plait.runtime.sources import SOURCES

ROOT = Path(__file__).parent.parent
PAGES = {p.relative_to(ROOT).as_posix(): p.read_text(encoding="utf-8") for p in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}
WRONG = {"bad.plait"}                                         # shown for its message
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
NAMED = re.compile(r"`(\w+\.plait)`:\n\n```plait\n(.*?)^```$", re.M | re.S)


def blocks(kind: str) -> list:
    return [pytest.param(page, m[2], id=f"{page}:{text.count(chr(10), 0, m.start()) + 1}")
            for page, text in PAGES.items() for m in BLOCK.finditer(text) if m[1] == kind]


def shown(page: str) -> dict[str, str]:
    """The specs that a page gives a name to."""
    return {m[1]: m[2] for m in NAMED.finditer(PAGES[page])}


@pytest.mark.parametrize(("page", "text"), blocks("plait"))
def test_specs(page: str, text: str):
    """A complete file has no mistakes; a fragment is made of items."""
    if not text.startswith("plait 1"): parse("plait 1\n\n" + text); return
    if text in [t for name, t in shown(page).items() if name in WRONG]: parse(text); return
    check(files.opened(ROOT / "specs" / "shown.plait", text=text))


def ran(page: str, line: str, at: Path, monkeypatch) -> str:
    """What a command line of a page prints, in a folder that has the repository's specs and the page's own."""
    for name, text in shown(page).items(): (at / name).write_text(text, encoding="utf-8")
    if not (at / "specs").exists(): (at / "specs").symlink_to(ROOT / "specs")
    monkeypatch.chdir(at)
    words = shlex.split(line, comments=True)
    assert words[0] == "plait"
    found = CliRunner().invoke(app, words[1:])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    assert found.exit_code == any(w in WRONG for w in words), found.output
    return found.output


@pytest.mark.parametrize(("page", "text"), blocks("console"))
def test_outputs(page: str, text: str, tmp_path, monkeypatch):
    """`$ command`, then what it prints, to the letter. PLAIT_RECORD writes it into the page, to be read before it is kept."""
    command, output = text.removeprefix("$ ").split("\n", 1)
    found = ran(page, command, tmp_path, monkeypatch).rstrip()
    if os.environ.get("PLAIT_RECORD"):
        now = (ROOT / page).read_text(encoding="utf-8")
        (ROOT / page).write_text(now.replace(text, f"$ {command}\n{found}\n"), encoding="utf-8")
    else: assert found == output.rstrip()


LINES = [pytest.param(page, line, id=line.split("#")[0].strip()) for page, text in PAGES.items()
         for m in BLOCK.finditer(text) if m[1] == "sh" for line in m[2].splitlines() if re.match(r"plait (table|check)\b", line)]


@pytest.mark.parametrize(("page", "line"), LINES)
def test_commands(page: str, line: str, tmp_path, monkeypatch):
    assert ran(page, line, tmp_path, monkeypatch)


def test_commands_exist():
    """No page names a command that is not there, or an option that it does not take."""
    from typer.main import get_command
    known = get_command(app).commands                         # type: ignore[attr-defined]
    for page, text in PAGES.items():
        for line in [line for m in BLOCK.finditer(text) if m[1] in ("sh", "console") for line in m[2].splitlines()]:
            words = re.match(r"(?:\$ )?plait (.*)", line)
            if not words: continue
            name, *rest = shlex.split(words[1], comments=True)
            assert name in known, f"{page}: plait {name}"
            options = {o for p in known[name].params for o in p.opts}
            assert {w for w in rest if w.startswith("--")} <= options, f"{page}: {line}"


def test_python_of_the_readme(monkeypatch, capsys):
    """It runs from the root. 804,096 parameters: 65·128 symbols, 64·128 positions, 4 · (12·128² + 2·128) and a last norm of 128."""
    monkeypatch.chdir(ROOT)
    code = next(m[2] for m in BLOCK.finditer(PAGES["README.md"]) if m[1] == "python")
    exec(code, {})
    assert capsys.readouterr().out.splitlines()[-1] == str(65 * 128 + 64 * 128 + 4 * (12 * 128**2 + 2 * 128) + 128)


def test_python_of_the_data_page(monkeypatch, capsys):
    """Three steps of the demo: 24 windows of 64 symbols, and one more."""
    monkeypatch.chdir(ROOT)
    exec(next(m[2] for m in BLOCK.finditer(PAGES["docs/data.md"]) if m[1] == "python"), {})
    assert capsys.readouterr().out == "".join(f"{step} [(24, 65)]\n" for step in (1, 2, 3))


def test_every_source_is_there():
    """docs/data.md has every source, and every argument of it."""
    for name, entry in SOURCES.items():
        row = next(line for line in PAGES["docs/data.md"].splitlines() if line.startswith("| `") and f"`{name}" in line)
        for argument, p in entry.parameters.items():
            assert argument in row or p.positional or name in ("reverse", "copy"), (name, argument)


def test_runs_seen_from_outside(tmp_path, monkeypatch, capsys):
    """docs/interop.md, from the run that it trains to the last program that it loads: 20 steps, 32 symbols."""
    page = "docs/interop.md"
    lines = [line for m in BLOCK.finditer(PAGES[page]) if m[1] == "sh" for line in m[2].splitlines()]
    wanted = [line for line in lines if line.startswith(("plait train", "plait export", "plait runs  "))]
    assert len(wanted) == 5
    for line in sorted(wanted, key=lambda line: not line.startswith("plait train")): ran(page, line, tmp_path, monkeypatch)
    for code in [m[2] for m in BLOCK.finditer(PAGES[page]) if m[1] == "python"]:
        found: dict = {}
        exec(code, found)
        if "logits" in found: assert found["logits"].shape[1] == 32
    assert capsys.readouterr().out.split()[-1] == "20"


def test_python_of_generation(monkeypatch, capsys):
    """It runs from the root: 20 symbols, and the logits of three texts."""
    monkeypatch.chdir(ROOT)
    code, found = next(m[2] for m in BLOCK.finditer(PAGES["docs/generation.md"]) if m[1] == "python"), {}
    exec(code, found)
    assert len(capsys.readouterr().out) == 20 + 1 and found["logits"].shape == (3, 1, 65) and found["at"].past == 4


def test_every_layer_is_there():
    """docs/language.md has every layer, with its signature and the first line of its documentation."""
    page = PAGES["docs/language.md"]
    for layer in LAYERS.values():
        signature = layer.signature if layer.arguments else layer.name
        first = layer.doc.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        assert f"| `{signature}` | {first} |" in page, layer.name


def test_a_new_layer():
    """The layer that docs/architecture.md adds works as the page says."""
    source = next(m[2] for m in BLOCK.finditer(PAGES["docs/architecture.md"]) if m[1] == "python" and "@layer" in m[2])
    try:
        exec(source, {"__name__": "plait.compiler.layers.scale"})
        assert LAYERS["scale"].signature == "scale(by = 1)"
        text = "plait 1\n\ndims { n = 5; d = 4 }\n\nmodel m { input x: stream[n, d]; y = x { scale(by = 2) }; output y: [n, d] }\n"
        row, = Spec("scale.plait", open_file(parse(text))).table().rows
        assert str(row.params) == "d" and str(row.work["pointwise"]) == "2*d*n"
    finally: LAYERS.pop("scale", None)


def test_example_table_one(capsys):
    """2·d·n² = 2·d²·n at n = d; 2 · 512 · 4096² = 17,179,869,184."""
    runpy.run_path(str(ROOT / "examples" / "table_one.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "as much work as a recurrence at n = d" in printed and "17,179,869,184" in printed


def test_example_own_loop(capsys):
    """Three steps from the start: a loss near that of equal chances, ln 256 = 5.5."""
    loss = runpy.run_path(str(ROOT / "examples" / "own_loop.py"))["main"](steps=3)
    assert 3 < loss < 7
    assert "logits [1, 64, 256]" in capsys.readouterr().out


def test_every_spec_that_comes_along_is_named():
    text = PAGES["README.md"].partition("## The specs that come along\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"`(\w+)`", text)) == {p.stem for p in (ROOT / "specs").glob("*.plait")}
