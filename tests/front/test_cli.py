"""The command line: tables, checks, formats; and what bad input gets."""
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plait.cli import app

ROOT = Path(__file__).parents[2]
SPECS = sorted((ROOT / "specs").glob("*.plait"))
TABLE1 = ROOT / "specs" / "table1.plait"


def run(*args: object, code: int = 0):
    found = CliRunner().invoke(app, list(map(str, args)))
    assert found.exit_code == code, (found.output, found.exception)
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    assert "Traceback" not in found.output
    return found


def rows(*args: object) -> dict:
    return {r["at"]: r for r in json.loads(run("table", *args, "--json").stdout)["rows"]}


def test_table_1():
    """Vaswani et al. 2017, Table 1 at n = 1000, d = 512, k = 3, r = 64; exact expressions are in n, d, k, r."""
    found = rows(TABLE1)
    def column(*keys):
        out = []
        for r in found.values():
            for k in keys: r = r[k]
            out.append(r)
        return out
    assert list(found) == ["self_attention", "recurrent", "convolution", "restricted"]
    assert column("work", "value") == [1_024_000_000, 524_288_000, 786_432_000, 65_536_000]
    assert column("work", "exact") == ["2*d*n**2", "2*d**2*n", "d**2*k*n", "2*d*n*r"]
    assert column("work", "order") == ["d*n**2", "d**2*n", "d**2*k*n", "d*n*r"]
    assert column("depth", "unit", "value") == [4, 1000, 1, 4]
    assert column("path", "stacked", "value") == [1, 1000, 500, 16]
    assert column("path", "connected") == [True, True, False, False]
    assert column("params", "value") == [0, 524_288, 786_432, 0]
    assert [r["path"]["reach"]["positions"]["value"] for r in found.values()] == [1000, 1000, 3, 64]
    assert [r["symbols"] for r in found.values()] == [["b", "d", "n"], ["b", "d", "n"], ["b", "d", "k", "n"], ["b", "d", "n", "r"]]


def test_table_1_by_op():
    found = rows(TABLE1, "--by", "op")
    halves = {k: v["work"]["value"] for k, v in found.items() if v["kind"] == "op" and v["work"]["value"]}
    assert halves == {"self_attention/y/0/scores": 512_000_000, "self_attention/y/0/weighted sum": 512_000_000,
                      "recurrent/y/0/input product": 262_144_000, "recurrent/y/0/state product": 262_144_000,
                      "convolution/y/0/convolution": 786_432_000,
                      "restricted/y/0/scores": 32_768_000, "restricted/y/0/weighted sum": 32_768_000}


def test_five_way_parameters():
    found = rows(ROOT / "specs" / "five_way.plait")
    assert {k: v["params"]["value"] for k, v in found.items()} == {
        "rnn": 637_845, "lstm": 637_550, "gru": 635_835, "cnn": 639_273, "transformer": 637_156}
    assert found["cnn"]["path"]["reach"]["positions"]["value"] == 17         # 1 + 4·4


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_every_spec(path):
    """Each checks, is in canonical layout, and its layers add up to its models."""
    assert "no mistakes" in run("check", path).stdout
    run("fmt", "--check", path)
    free = {"demo": ("V=100",), "translation": ("m=24", "n=24")}
    found = rows(path, "--by", "layer", *(word for one in free.get(path.stem, ()) for word in ("--set", one)))
    for model in [r for r in found.values() if r["kind"] == "model"]:
        parts = [r for r in found.values() if r["kind"] == "layer" and r["model"] == model["model"]]
        assert sum(r["work"]["value"] for r in parts) == model["work"]["value"]
        for ledger in model["work"]["ledgers"]:
            assert sum(r["work"]["ledgers"][ledger]["value"] for r in parts) <= model["work"]["ledgers"][ledger]["value"]
        shared = model["params"]["value"] - sum(r["params"]["value"] for r in parts)
        assert shared >= 0                                                   # tables declared by `share` belong to no layer


def test_json_keys():
    r = rows(TABLE1)["convolution"]
    assert set(r) == {"model", "at", "kind", "name", "symbols", "copies", "work", "depth", "path", "params", "saved", "peak", "reuse",
                      "training"}
    assert set(r["work"]) == {"exact", "order", "value", "ledgers", "ideal", "executed"}
    assert set(r["path"]) == {"stacked", "as_written", "connected", "reach", "assumed", "streams"}
    # the padded input is kept; dX and dW are as much work as the product; both gradients stay until the update
    assert r["work"]["executed"]["exact"] == "d**2*k*n"
    assert (r["saved"]["exact"], r["saved"]["bytes"]) == ("4*b*d*k + 4*b*d*n - 4*b*d", 4 * 512 * 1002)
    assert r["training"]["work"]["exact"] == "3*d**2*k*n" and r["training"]["backward"]["exact"] == "2*d**2*k*n"
    assert r["training"]["recompute"]["value"] == 0 and r["training"]["depth"]["unit"]["value"] == 3      # the product, its adjoint, a fold
    assert r["peak"]["bytes"] >= 4 * (3 * 512 * 512 * 3 + 512 * 512 * 3 + 2 * 512 * 1000)
    document = json.loads(run("table", TABLE1, "--json").stdout)
    assert document["plait"] == 1 and document["dims"] == {"n": 1000, "d": 512, "k": 3, "r": 64}


def test_sets_and_sweeps():
    assert rows(TABLE1, "--set", "n=512")["self_attention"]["work"]["value"] == 2 * 512**3
    swept = json.loads(run("table", TABLE1, "--model", "recurrent", "--set", "n=256,1Ki", "--json").stdout)["rows"]
    assert [(r["set"], r["depth"]["unit"]["value"]) for r in swept] == [({"n": 256}, 256), ({"n": 1024}, 1024)]


def written(tmp_path, body: str, dims: str = "n = 9; d = 4", outs: str = "output y: [n, d]") -> Path:
    path = tmp_path / "spec.plait"
    path.write_text(f"plait 1\ndims {{ {dims} }}\nmodel m {{ input x: stream[n, d]\n{body}\n{outs} }}\n")
    return path


def test_the_path_of_a_model_is_that_of_its_farthest_output(tmp_path):
    """A recurrence is 9 steps from end to end, a linear map 0, whichever output comes last."""
    body, outs = "z = x { lstm(d) }\nq = x { linear(d) }", ("output z: [n, d]", "output q: [n, d]")
    for order in (outs, outs[::-1]):
        assert rows(written(tmp_path, body, outs="\n".join(order)))["m"]["path"]["as_written"]["value"] == 9


def test_indices_stay_inside_their_sums(tmp_path):
    """Six copies, windows of 2^i + j: 2·d·n·Σ(2^i + j) and 6·4·n·d²."""
    path = written(tmp_path, "y = x { repeat 2 as i { repeat 3 as j { attention(heads = 1, window = 2^i + j, bias = false) } } }")
    found = rows(path, "--by", "layer")
    windows = sum(2**i + j for i in range(2) for j in range(3))              # 1 2 3 2 3 4 = 15
    assert found["m"]["work"]["value"] == 2 * 4 * 9 * windows + 6 * 4 * 9 * 16
    assert not {"i", "j"} & set(found["m"]["symbols"])
    layer = found["m/y/0/0/0"]
    assert layer["depth"] == {"unit": None, "tree": None} and layer["path"] is None      # differ from copy to copy
    assert found["m"]["depth"]["unit"]["value"] == 6 * 6


@pytest.mark.parametrize("body", ["chunked(over = n, pieces = 4) { linear(d) }; lstm(d); attention(heads = 2, causal = true)",
                                  "lsh_attention(heads = 2, chunk = 2); relu"])
def test_a_table_and_its_sweep_have_one_expression(body, tmp_path):
    """What is not promised by `require` does not decide the form of an expression, even where the value would."""
    path = written(tmp_path, f"y = x {{ {body} }}")
    def exact(n): return {k: v for k, v in rows(path, "--set", f"n={n}")["m"].items() if k in ("work", "depth")}
    def strip(x): return {k: strip(v) for k, v in x.items() if k != "value"} if isinstance(x, dict) else x
    assert strip(exact(8)) == strip(exact(10)) == strip(exact(7))


def test_markdown_and_columns():
    text = run("table", TABLE1, "--markdown", "--columns", "work,reuse").stdout.splitlines()
    assert text[1].startswith("|---|") and len(text) == 6 and "1,024,000,000" in text[2]
    run("table", TABLE1, "--columns", "wrok", code=1)


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_golden(path):
    """The table and the graph of every shipped spec, as text. PLAIT_RECORD=1 writes them anew, to be read before they are kept."""
    for name, args in (("table", ("table", path, "--by", "layer")), ("graph", ("graph", path))):
        golden = ROOT / "tests" / "golden" / f"{path.stem}.{name}.txt"
        got = run(*args).stdout
        if os.environ.get("PLAIT_RECORD"): golden.parent.mkdir(exist_ok=True); golden.write_text(got)
        assert got == golden.read_text()


# ---- what bad input gets --------------------------------------------------------------------------------------------------
def refused(*args: object, words: str = "") -> str:
    out = run(*args, code=1).output
    assert words in out, out
    return out


def test_a_file_that_is_no_spec(tmp_path):
    refused("table", tmp_path / "nothing.plait", words="there is no file")
    refused("table", tmp_path, words="directory")
    (tmp_path / "empty.plait").write_text("")
    refused("check", tmp_path / "empty.plait", words="plait 1")
    (tmp_path / "random.plait").write_bytes(os.urandom(2**20))
    refused("check", tmp_path / "random.plait", words="not a text")
    (tmp_path / "large.plait").write_bytes(b" " * (2**20 + 1))
    refused("check", tmp_path / "large.plait", words="at most")
    (tmp_path / "deep.plait").write_text("plait 1\nmodel m { input x: stream[4, 4]\ny = x {" + " residual {" * 10_000 + "}" * 10_002)
    refused("check", tmp_path / "deep.plait")
    locked = tmp_path / "locked.plait"
    locked.write_text("plait 1\n")
    locked.chmod(0)
    if not os.access(locked, os.R_OK): refused("check", locked, words="permission")
    locked.chmod(stat.S_IRWXU)


def test_a_billion_layers_have_a_table():
    """The table prints at once; compiling refuses with a sentence."""
    text = ("plait 1\ndims { n = 8; d = 4; L = 10^9 }\nmodel m { input x: stream[n, d]\n"
            "y = x { repeat L { linear(d) } }\noutput y: [n, d] }\n")
    with open_spec(text) as path:
        assert rows(path)["m"]["params"]["value"] == 20 * 10**9


class open_spec:
    def __init__(self, text): self.text = text
    def __enter__(self):
        import tempfile
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name) / "spec.plait"
        path.write_text(self.text)
        return path
    def __exit__(self, *why): self.folder.cleanup()


def test_a_batch_that_memory_cannot_hold(tmp_path):
    out = refused("train", ROOT / "specs" / "demo.plait", "--set", "train.batch=10^9 sequences", "--out", tmp_path / "run", words="GiB")
    assert "batch" in out and not (tmp_path / "run").exists()


def test_a_file_without_end():
    """A device is read no further than the longest spec."""
    refused("check", "/dev/zero", words="at most 1,048,576 bytes")
    refused("fmt", "/dev/zero", words="at most 1,048,576 bytes")


def test_a_sweep_has_an_end():
    lists = [a for d in "ndkr" for a in ("--set", f"{d}=" + ",".join(map(str, range(2, 12))))]
    refused("table", TABLE1, *lists, words="10,000 combinations")


def test_wrong_options_end_with_1(monkeypatch, capsys):
    from plait.cli import main
    for args in (["table", "--foo", "x"], ["tabel"], ["sample", "x", "--seed", str(2**64)], ["table", str(TABLE1), "--columns", ""]):
        monkeypatch.setattr(sys, "argv", ["plait", *args])
        with pytest.raises(SystemExit) as stop: main()
        assert stop.value.code == 1 and "rror" in capsys.readouterr().err


def test_an_override_of_no_name(tmp_path):
    out = refused("table", TABLE1, "--set", "d_model=512", words="d_model")
    assert "d=512" in out and "^" in out
    refused("table", TABLE1, "--set", "n=64K", words="64Ki")
    refused("table", TABLE1, "--set", "n=", words="error")
    refused("table", TABLE1, "--model", "recurent", words="recurrent")
    refused("table", TABLE1, "--by", "row", words="layer")


def test_fmt_keeps_comments_and_refuses_what_it_cannot_read(tmp_path):
    path = tmp_path / "a.plait"
    path.write_text("plait 1\n# one\ndims {n=4 # two\n}\n")
    run("fmt", path)
    once = path.read_text()
    assert "# one" in once and "# two" in once and "n = 4" in once
    run("fmt", path)
    assert path.read_text() == once
    path.write_text("plait 1\ndims { n = }\n")
    refused("fmt", path)
    assert path.read_text() == "plait 1\ndims { n = }\n" and sorted(p.name for p in tmp_path.iterdir()) == ["a.plait"]


def test_use(tmp_path):
    (tmp_path / "parts.plait").write_text("plait 1\ndims { d = 8 }\nblock half { linear(d / 2); linear(d) }\n")
    main = tmp_path / "main.plait"
    main.write_text('plait 1\nuse "parts.plait"\ndims { n = 4 }\nmodel m { input x: stream[n, d]\ny = x { half }\noutput y: [n, d] }\n')
    assert rows(main)["m"]["params"]["value"] == 8 * 4 + 4 + 4 * 8 + 8
    main.write_text('plait 1\nuse "gone.plait"\n')
    refused("check", main, words="gone.plait")
    (tmp_path / "parts.plait").write_text('plait 1\nuse "parts.plait"\n')
    main.write_text('plait 1\nuse "parts.plait"\n')
    refused("check", main, words="used by itself")


def test_no_torch_on_the_way_to_a_table():
    code = (f"import sys; sys.argv = ['plait', 'table', {str(TABLE1)!r}]\n"
            "from plait.cli import main\ntry: main()\nexcept SystemExit: pass\n"
            "assert 'torch' not in sys.modules and 'networkx' not in sys.modules, 'too much is imported'")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_code_that_is_raised_has_a_title():
    import re

    from plait.dsl.codes import CODES
    used = {c for folder in ("dsl", "compiler", "runtime", "plait") for f in (ROOT / folder).rglob("*.py") if f.name != "codes.py"
            for c in re.findall(r'"([EW]\d{4})"', f.read_text())}
    assert used - CODES.keys() == set()
