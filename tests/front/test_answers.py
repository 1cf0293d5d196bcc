"""What `explain`, `solve` and `plot` print; derivations add up to their cells."""
import json

import pytest
import sympy as sp

from plait import files
from plait.api import Spec
from plait.compiler.costs.work import LEDGERS
from plait.compiler.explain import derivation
from plait.compiler.quantities import QUANTITIES
from plait.compiler.table import rows

from .test_cli import SPECS, TABLE1, run

LSH = """plait 1
dims { n = 1024; d = 1024; h = 8; require n % 128 == 0 }
model full { input x: stream[n, d]
  y = x { attention(heads = h, head_width = 128, share_qk = true) }
  output y: [n, d] }
model lsh { input x: stream[n, d]
  y = x { lsh_attention(heads = h, head_width = 128, chunk = 64, buckets = n / 64, rounds = 16) }
  output y: [n, d] }
"""


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_derivations_add_up(path):
    """Work, every ledger and parameters are the sum of their lines; a depth is that of its chain."""
    spec = Spec(path, files.opened(path))
    for model in spec.models:
        for row in rows(spec.program(model), "op"):
            for name in ("work", *(k for k in LEDGERS if k != "contraction"), "params"):
                total = QUANTITIES[name](row)
                if total is not None: assert sp.expand(sp.Add(*(x.share for x in derivation(row, name))) - total) == 0, (row.at, name)
            depth = row.sizes.value(row.unit) if row.unit is not None else None
            if depth is not None: assert sum(row.sizes.value(x.share) for x in derivation(row, "sequential")) == depth, row.at
            derivation(row, "path"), derivation(row, "reuse"), derivation(row, "tree")


def test_explain():
    found = run("explain", TABLE1, "self_attention", "work").stdout
    assert "scores" in found and "weighted sum" in found and "1,024,000,000" in found
    assert run("explain", "E0301").stdout.startswith("E0301: sizes that do not divide")
    assert "nothing stands at" in run("explain", TABLE1, "recurrent/z/9", "work", code=1).stderr
    assert "no cost" in run("explain", TABLE1, "recurrent", "wrok", code=1).stderr


def test_solve():
    assert "equal at n = d = 512" in run("solve", TABLE1, "work(self_attention) == work(recurrent)", "--for", "n").stdout
    found = json.loads(run("solve", TABLE1, "params(recurrent) <= 1M", "--for", "d", "--json").stdout)
    assert (found["first"], found["last"], found["method"]) == (1, 707, "symbolic")
    assert "never closed" in run("solve", TABLE1, "(work(recurrent) < 3", "--for", "n", code=1).stderr


@pytest.mark.parametrize("suffix, first", [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_plot(suffix, first, tmp_path):
    """Work of attention and recurrence cross where n = d; hashing pays from 2,304 on."""
    out = tmp_path / f"a.{suffix}"
    found = run("plot", TABLE1, "--x", "n", "--y", "work,path", "--out", out).stdout
    assert "self_attention and recurrent change places at n = 512" in found
    assert out.read_bytes().startswith(first) and [p.name for p in tmp_path.iterdir()] == [out.name]
    (tmp_path / "l.plait").write_text(LSH)
    assert "n = 2,304" in run("plot", tmp_path / "l.plait", "--x", "n", "--out", out).stdout


def test_what_cannot_be_drawn(tmp_path):
    for arguments, words in [(("--x", "n", "--y", "wrok"), "no cost"), (("--x", "z"), "no dim"), (("--x", "n", "--out", "a.txt"), ".svg"),
                             (("--x", "n", "--out", str(tmp_path / "no" / "a.svg")), "there is no folder")]:
        assert words in run("plot", TABLE1, *arguments, code=1).stderr


def test_latex_and_csv():
    found = run("table", TABLE1, "--latex").stdout
    assert r"self\_attention & $2 d n^{2} = 1\,024\,000\,000$ & $4$ & $1$ & $0$ \\" in found and r"\begin{tabular}{lllll}" in found
    lines = run("table", TABLE1, "--csv", "--set", "n=10,20").stdout.splitlines()
    assert lines[0] == "at,kind,name,n,work,work_value,sequential,sequential_value,path,path_value,params,params_value"
    assert lines[1] == "self_attention,model,self_attention,10,2*d*n**2,102400,4,4,1,1,0,0"
    assert "one form" in run("table", TABLE1, "--csv", "--latex", code=1).stderr
    assert "$O(d n^{2})$" in run("table", TABLE1, "--latex", "--columns", "order,tree").stdout


def test_an_unknown_code():
    assert "E0301" in run("explain", "E0391", code=1).stderr
