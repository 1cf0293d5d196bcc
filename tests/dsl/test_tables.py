"""The kept tables are those that lark makes from the grammar."""
import subprocess
import sys

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


def test_reading_a_file_imports_neither_lark_nor_torch():
    code = ("import sys; from plait.dsl.parser import parse; parse('plait 1\\ndims { d = 3 }');"
            "assert not {'lark', 'torch', 'sympy', 'networkx'} & set(sys.modules), sorted(sys.modules)")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).returncode == 0
