"""The kept tables are those that lark makes from the grammar."""
import ast
import subprocess
import sys
from pathlib import Path

from plait.dsl import made
from plait.dsl.builder import Builder
from plait.dsl.tables import checksum, grammar, load, make, module, read, write


def test_the_kept_tables_fit_the_grammar():
    """Otherwise: `python -m plait.dsl.tables`."""
    assert made.GRAMMAR == checksum(grammar())
    assert read(made.TABLE) == make(grammar())
    assert f'TABLE = """{made.TABLE}"""' in module(grammar())


def test_what_is_written_is_read():
    table = load()
    assert read(write(table)) == table


def test_every_rule_has_its_method():
    assert all(method in ("", "=") or hasattr(Builder, method) for _, _, method, _ in load().rules)


def test_reading_a_file_does_not_import_lark():
    code = "import sys; from plait.dsl.parser import parse; parse('plait 1\\ndims { d = 3 }'); assert 'lark' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_the_language_knows_nothing_of_the_compiler():
    for path in Path(made.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            found = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            for name in found + ([node.module] if isinstance(node, ast.ImportFrom) else []):
                assert name.split(".")[0] not in ("torch", "sympy", "networkx", "numpy"), path
                assert not name.startswith("plait") or name.startswith("plait.dsl"), path
