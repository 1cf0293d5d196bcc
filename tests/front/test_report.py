"""The report: what its page computes is what the table says, at every size; its drawings, curves and mistakes."""
from __future__ import annotations

import json
import math
import random
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest
import sympy as sp
from typer.testing import CliRunner

import plait
from plait.api import Spec
from plait.cli import app
from plait.compiler.curves import curves
from plait.compiler.expand import open_file
from plait.compiler.sizes import CeilLog2, Latest, dim, evaluate
from plait.dsl import override
from plait.dsl.errors import PlaitError
from plait.pretty import whole
from plait.render import CELLS
from plait.reporting import content as contents
from plait.reporting.javascript import expression
from plait.reporting.page import part, script
from tests.front.browser import asked, needed

ROOT = Path(__file__).parents[2]
SPECS = sorted((ROOT / "specs").glob("*.plait"))
TABLE1, REFORMER = ROOT / "specs" / "table1.plait", ROOT / "specs" / "reformer.plait"
n, d, k = map(dim, "ndk")
i, j = sp.symbols("i j", integer=True)


def run(*args: object, code: int = 0) -> str:
    found = CliRunner().invoke(app, ["report", *map(str, args)])
    assert found.exit_code == code, (found.output, found.exception)
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found.output


def page(path: Path, folder: Path, *args: object) -> str:
    """The text of a report."""
    if not args and path in SPECS: return shipped(path)
    run(path, *args, "-o", folder / "report.html")
    return (folder / "report.html").read_text(encoding="utf-8")


@cache
def shipped(path: Path) -> str:
    """That of a spec that comes along, written once."""
    with tempfile.TemporaryDirectory() as folder: return plait.report(path, out=Path(folder) / "report.html").read_text(encoding="utf-8")


def rewritten(path: Path, **values: int) -> Spec:
    """A spec as if other numbers stood in the file."""
    file = plait.load(path).file
    names = plait.files.overrides({k: str(v) for k, v in values.items()})
    return Spec(path, open_file(override.apply(file.spec, names)))


# ---- the printer -----------------------------------------------------------------------------------------------------------------
def computed(cases: list[tuple[str, dict[str, int]]], folder: Path) -> list[str]:
    """JavaScript expressions at values of their dims, by a browser: `7`, `1/3`, a float's digits, or `none` and the reason."""
    code = contents.Code()
    numbers = [code._number(text) for text, _ in cases]
    at = [{k: str(v) for k, v in where.items()} for _, where in cases]
    more = f"""
      const cases = {json.dumps([list(pair) for pair in zip(numbers, at)])};
      window.found = cases.map(([e, at]) => {{
        const s = Object.fromEntries(Object.entries(at).map(([k, v]) => [k, BigInt(v)]));
        try {{
          const x = EXPRESSIONS[e](s);
          return x instanceof Ratio ? `${{x.top}}/${{x.bottom}}` : typeof x === "bigint" ? `${{x}}` : `${{x}}f`;
        }} catch (why) {{ if (!(why instanceof NoValue)) throw why; return `none ${{why.message}}`; }}
      }});"""
    text = script(code, ("exact.js",)).replace("})();", more + "})();")
    return asked(f"<!doctype html><html><body><script>{text}</script></body></html>", "return window.found", folder)


def equal(got: str, wanted: object) -> bool:
    """Whole numbers and fractions to the last digit, others as near as two libraries of functions are."""
    if got.startswith("none"): return wanted is None
    if wanted is None: return False
    if got.endswith("f"): return math.isclose(float(got[:-1].replace("Infinity", "inf")), float(wanted), rel_tol=1e-12)   # type: ignore[arg-type]
    return Fraction(got) == wanted and not isinstance(wanted, float)


def value(e: sp.Expr, at: dict[sp.Symbol, int]) -> object:
    """What the table would say; None where there is no value."""
    try: return evaluate(e, at)
    except (ArithmeticError, ValueError, TypeError): return None


@needed
def test_every_expression_of_every_spec(tmp_path):
    """At the sizes of the spec, and at two others that need mean nothing: every cost of every model and statement."""
    draw, cases, wanted, seen = random.Random(5), [], [], set()
    for r in (r for path in SPECS for r in plait.load(path).table("layer").rows):
        for e in (cell(r).exact for cell in CELLS.values()):
            if e is None or e.is_number or e in seen: continue
            seen.add(e)
            text = expression(e)
            at = {s: r.sizes.bound.get(s, 100) for s in sorted(e.free_symbols, key=str)}
            for moved in (at, *({s: draw.choice((1, 2, 3, 5, 8, 64, 1000, 65537, 10**6, 10**9)) for s in at} for _ in range(2))):
                if e.has(sp.Sum) and moved is not at: continue
                cases.append((text, {s.name: v for s, v in moved.items()}))
                wanted.append(value(e, moved))
    assert len(cases) > 2000 and sum(w is None for w in wanted) < len(cases) / 20
    assert sum(isinstance(w, int) and w > 2**53 for w in wanted) > 200
    got = computed(cases, tmp_path)
    assert [(c, g, w) for c, g, w in zip(cases, got, wanted) if not equal(g, w)] == []


FUNCTIONS = [
    n * d**2 + sp.Rational(1, 3) * k, (n + 1) / d, sp.ceiling(n / d), sp.floor(-n / d), sp.Mod(n, d), sp.Mod(-n, d), sp.Max(n, d * k, 7),
    sp.Min(n, d, k / 3), sp.sqrt(n), sp.sqrt(n**2 * k**2 + d), sp.log(n), sp.log(n) / sp.log(d), sp.exp(-n / d), sp.cos(n),
    n**sp.Rational(-1, 2), sp.Piecewise((n, n < d), (d, sp.Eq(sp.Mod(n, 2), 0)), (k, True)),
    sp.Piecewise((n, sp.And(n > 3, d <= n)), (1, sp.Or(n < 2, sp.Ne(d, k))), (2, True)),
    sp.Sum(i * n, (i, 0, d - 1)), sp.Sum(sp.Min(i, k) + j, (j, 1, i), (i, 0, 6)), sp.Sum(2**i, (i, 0, k)), sp.pi * n, sp.Float(0.25) * d,
    sp.Abs(n - d), sp.ceiling(sp.log(n) / sp.log(3)), 3 ** (n * 2), sp.Integer(2) ** -n, (n - d) ** 3 / k**2]


@needed
def test_functions(tmp_path):
    """Each kind of expression, by sympy itself."""
    points = [{n: 1, d: 1, k: 1}, {n: 7, d: 3, k: 2}, {n: 64, d: 8, k: 5}, {n: 1000, d: 37, k: 64}, {n: 243, d: 2, k: 9}]
    cases = [(expression(e), {s.name: v for s, v in at.items()}) for e in FUNCTIONS for at in points]
    wanted = [e.subs(at).doit() for e in FUNCTIONS for at in points]
    for (text, at), got, w in zip(cases, computed(cases, tmp_path), wanted):
        if w.has(sp.zoo, sp.nan): assert got.startswith("none"), (text, at, got)
        elif got.endswith("f"): assert math.isclose(float(got[:-1]), float(sp.N(w, 30)), rel_tol=1e-12), (text, at, got, w)
        else: assert sp.Rational(got) == w, (text, at, got, w)


@needed
def test_functions_of_our_own(tmp_path):
    """⌈log₂⌉ and the maximum that is kept whole; a sum of a million terms by its closed form; what has no value says so."""
    cases = [(CeilLog2(n), {"n": 2**60}), (CeilLog2(n), {"n": 2**60 + 1}), (Latest(n, d, n * d), {"n": 3, "d": 5}),
             (sp.Sum(i, (i, 0, n)), {"n": 10**12}), (1 / (n - d), {"n": 4, "d": 4}), (sp.log(n - d), {"n": 4, "d": 4}),
             (n**d, {"n": 10, "d": 10**6}), (sp.ceiling(sp.log(n) / sp.log(d)), {"n": 9, "d": 1})]
    got = computed([(expression(e), at) for e, at in cases], tmp_path)
    assert got[:4] == ["60", "61", "15", str(10**12 * (10**12 + 1) // 2)] and got[6] == "Infinityf"
    assert [g.split()[0] for g in (got[4], got[5], got[7])] == ["none"] * 3


# ---- the table ---------------------------------------------------------------------------------------------------------------------
def told(spec: Spec, by: str, rows: list[str], columns: list[str]) -> dict[str, dict[str, str]]:
    """What `plait table` says, in the words of the page."""
    found = {r.at: r for r in spec.table(by).rows}
    return {at: {c: whole(CELLS[c](found[at]).value).replace("-", "−") for c in columns} for at in rows}


MOVED = [(TABLE1, "model", {"n": 300, "d": 48, "k": 5, "r": 7}), (TABLE1, "model", {"n": 10**9, "d": 3 * 10**6}),
         (REFORMER, "layer", {"n": 4096, "g": 32, "p": 16, "d": 96, "h": 2, "L": 3}),
         (ROOT / "specs" / "images.plait", "layer", {"s": 12, "d": 32, "h": 2, "L": 7}),
         (ROOT / "specs" / "demo.plait", "layer", {"n": 1000, "V": 33, "d": 48, "L": 5}),
         (ROOT / "specs" / "imagenet64.plait", "model", {"s": 32, "d": 512, "c": 32, "p": 24})]


@needed
@pytest.mark.parametrize(("path", "by", "sizes"), MOVED, ids=lambda x: x.stem if isinstance(x, Path) else "")
def test_the_table_follows_the_sizes(path, by, sizes, tmp_path):
    """Every cell at other sizes is what the table of a file with these numbers has, to the last digit."""
    moves = " ".join(f'type("size-{name}", "{v}");' for name, v in sizes.items())
    got = asked(page(path, tmp_path), f'choose("level", "{by}"); all(); {moves} return [values(), status()]', tmp_path)
    assert got[1] == ""
    columns = [c for c in CELLS if c not in ("order", "path")]
    wanted = told(rewritten(path, **sizes), by, list(got[0]), columns)
    assert len(got[0]) == len(wanted) > 0
    assert {at: {c: row[c] or "" for c in columns} for at, row in got[0].items()} == wanted


@needed
def test_at_first_the_page_says_what_the_table_says(tmp_path):
    """Paths too, and the batch where it occurs."""
    path = ROOT / "specs" / "five_way.plait"
    got = asked(page(path, tmp_path), 'all(); const first = values(); type("size-b", "32"); return [first, values()]', tmp_path)
    spec = plait.load(path)
    columns = [c for c in CELLS if c != "order"]
    assert {at: {c: row[c] or "" for c in columns} for at, row in got[0].items()} == told(spec, "model", list(got[0]), columns)
    for r in spec.table().rows:
        wanted = r.sizes.bind(b=32).value(r.peak)
        assert got[1][r.at]["peak"] == f"{wanted:,}" != got[0][r.at]["peak"] and got[1][r.at]["work"] == got[0][r.at]["work"]


@needed
def test_paths_are_shown_where_their_form_holds(tmp_path):
    """A convolution of width 3 reaches 2 back: 500 copies for 1,000 positions, 150 for 301. Of width 1 it never connects: no number."""
    got = asked(page(TABLE1, tmp_path), """
      const path = () => Object.fromEntries(Object.entries(values()).map(([at, row]) => [at, row.path]));
      const first = path(); type("size-n", "301"); const second = path(); type("size-k", "1"); return [first, second, path()]""", tmp_path)
    assert got[0] == {"self_attention": "1", "recurrent": "1,000", "convolution": "500", "restricted": "16"}
    assert got[1] == {"self_attention": "1", "recurrent": "301", "convolution": "150", "restricted": "5"}
    assert got[2]["convolution"] == "unknown" and got[2]["recurrent"] == "301"


@needed
def test_what_a_model_does_not_allow_is_marked(tmp_path):
    """A promise that is broken, a size that is not whole, a heading that is no number: no cost is shown, and why is said."""
    got = asked(page(REFORMER, tmp_path), """
      const look = () => [values().reformer.work, status(), $$("tr.broken").length];
      const found = [look()];
      for (const moved of ["n 65537", "n 65,536", "d 1022", "h 7", "d 1024", "h 8", "h 0", "h x"]) {
        type(`size-${moved.split(" ")[0]}`, moved.split(" ")[1]);
        found.push(look());
      }
      found.push(document.getElementById("size-h").getAttribute("aria-invalid"));
      return found""", tmp_path)
    first = got[0]
    assert first[0] == "17,334,488,006,656" and first[1:] == ["", 0]
    assert got[1] == ["—", "the spec requires n % c == 0", 1] and got[2] == first
    assert got[3] == ["—", "attention splits the stream width evenly over its heads", 1]
    assert got[4] == ["—", "d/4 is not a whole number of 1 or more", 1]
    assert got[5][0] == "—" and got[6] == got[7] == got[8] == first and got[9] == "true"


@needed
def test_a_slider_stops_at_what_is_allowed(tmp_path):
    """Every place of the slider of n is a multiple of c, p and g, or is marked; arrows move it, and it says its value."""
    got = asked(page(REFORMER, tmp_path), """
      const range = document.getElementById("size-n-range"), found = [];
      for (let k = 0; k <= Number(range.max); k += 5) {
        range.value = String(k);
        range.dispatchEvent(new Event("input", {bubbles: true}));
        found.push([document.getElementById("size-n").value, $$("tr.broken").length, range.getAttribute("aria-valuetext")]);
      }
      document.getElementById("reset").click();
      return [found, document.getElementById("size-n").value]""", tmp_path)
    sizes = [int(v.replace(",", "")) for v, _, _ in got[0]]
    assert [broken == 0 for _, broken, _ in got[0]] == [v % 512 == 0 for v in sizes]
    assert sum(v % 512 == 0 for v in sizes) > 8 and all(v == said for v, _, said in got[0]) and got[1] == "65,536"


SUMS = """plait 1
dims { n = 64; d = 16; L = 3; e = d / 4 }
model m {
  input x: stream[n, d]
  y = x {
    repeat L as i { conv(d, kernel = 3, dilation = 2^i, causal = true) }
    repeat L as i { chunked(over = n, pieces = 2^i) { linear(e); linear(d) } }
  }
  output y: [n, d]
}
"""


@needed
def test_sums_over_trips(tmp_path):
    """Pieces that differ from copy to copy: sums over the index, in the work and inside the maximum of the peak."""
    (tmp_path / "m.plait").write_text(SUMS)
    text = page(tmp_path / "m.plait", tmp_path)
    assert "total(" in text
    moves = " ".join(f'type("size-{name}", "{v}");' for name, v in {"n": 256, "L": 5, "d": 32}.items())
    got = asked(text, f'choose("level", "layer"); all(); {moves} return values()', tmp_path)
    columns = [c for c in CELLS if c not in ("order", "path")]
    wanted = told(rewritten(tmp_path / "m.plait", n=256, L=5, d=32), "layer", list(got), columns)
    assert {at: {c: row[c] or "" for c in columns} for at, row in got.items()} == wanted


@pytest.mark.parametrize("name", ["imagenet64", "reformer", "reformer_table1", "chorales"])
def test_what_is_marked_is_what_the_compiler_refuses(name):
    """Sizes around those of the spec, of which some meet its promises: the rules of the page and the compiler say the same."""
    path, draw, verdicts = ROOT / "specs" / f"{name}.plait", random.Random(3), []
    file = plait.load(path).file
    programs, fixed = contents.moving(file, file.models)
    there = contents.sliders(file, programs, fixed)
    factors, steps = (1, 1, 1, 2, 4), (0,) * 15 + (1, -1)
    def near(v: int) -> int: return max(1, v * draw.choice(factors) // draw.choice(factors) + draw.choice(steps))
    for _ in range(12):
        moved = [replace(s, value=near(s.value)) for s in there if s.key != "b"]
        for model, program in programs.items():
            said = contents.broken(program, contents.values(file, model, moved))
            assert (said is not None) == _refused(path, moved, model), (said, moved)
            verdicts.append(said is None)
    assert 0 < sum(verdicts) < len(verdicts) and not fixed


def _refused(path: Path, sizes: list[contents.Slider], model: str) -> bool:
    """Does the compiler refuse a model of a file with these sizes?"""
    try: rewritten(path, **{s.key: s.value for s in sizes}).program(model, loss=True)
    except PlaitError: return True
    return False


FIXED = """plait 1
dims { n = 16; d = 32; e = 8 }
model m {
  input x: stream[n, d]
  y = x { residual { linear(e); linear(32) } }
  output y: [n, d]
}
"""


@needed
def test_a_dim_that_is_written_as_a_number_elsewhere_cannot_be_moved(tmp_path):
    """d is 32 in the width of the layer, too: another d alone is no model. e and n can be moved."""
    (tmp_path / "m.plait").write_text(FIXED)
    got = asked(page(tmp_path / "m.plait", tmp_path), """
      type("size-e", "100");
      return [...document.querySelectorAll(".slider input[type=text]")].map(b => [b.id, b.disabled]).concat([values().m.work])""", tmp_path)
    assert got == [["size-n", False], ["size-d", True], ["size-e", False], ["size-b", False], f"{16 * 2 * 32 * 100:,}"]


TWO = """
model {} {{
  dims {{ d = {} }}
  input x: stream[n, d]
  y = x {{ linear(d) }}
  output y: [n, d]
}}
"""


@needed
def test_dims_of_one_model(tmp_path):
    """A name that each model binds for itself has a slider for each."""
    (tmp_path / "two.plait").write_text("plait 1\ndims { n = 16 }\n" + "".join(TWO.format(m, d) for m, d in (("a", 4), ("c", 8))))
    got = asked(page(tmp_path / "two.plait", tmp_path), 'type("size-a.d", "10"); return values()', tmp_path)
    assert [got[m]["work"] for m in "ac"] == [f"{16 * 10 * 10:,}", f"{16 * 8 * 8:,}"]


# ---- crossings ---------------------------------------------------------------------------------------------------------------------
@needed
@pytest.mark.parametrize(("path", "x", "y", "low", "high"), [(TABLE1, "n", "work", 16, 65536), (TABLE1, "d", "work", 16, 4096),
                         (ROOT / "specs" / "reformer_table1.plait", "l", "peak", 1024, 65536),
                         (ROOT / "specs" / "duplication.plait", "n", "work", 16, 65536)])
def test_crossings(path, x, y, low, high, tmp_path):
    """Those that `plait plot` marks."""
    got = asked(page(path, tmp_path), f"""
      choose("along", "{x}"); choose("cost", "{y}"); type("from", "{low}"); type("to", "{high}"); await wait();
      const lines = $$("#crossings .found li").map(li => li.textContent);
      return [lines, $$("#crossings path.curve").length, $$("#crossings .mark").length]""", tmp_path)
    spec = plait.load(path)
    found, crossings = curves(spec.file.spec, x, [y], list(spec.models), low, high)
    assert sorted(got[0]) == sorted(f"{c.models[0]} and {c.models[1]} change places at {x} = {c.x:,}" for c in crossings)
    assert crossings and got[2] == len(crossings) and got[1] == 2 * len(found)          # each once more in the legend


# ---- drawings ------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_every_statement_is_drawn(path):
    """A box or a frame for every row of the table but those that no node shows, each box inside the frames of its places."""
    from plait.drawing import layers
    from plait.reporting.picture import columns, placed, svg
    spec = plait.load(path)
    for name in spec.models:
        program = spec.program(name)
        drawn = set(re.findall(r'data-at="([^"]+)"', svg(program)))
        wanted = {r.at for r in spec.table("layer", name).rows if r.kind == "layer" and any(v for v in r.work.values())}
        assert wanted <= drawn, wanted - drawn
        found = columns(program, layers(program))
        placed(found, [])
        for frame in (f for c in found for f in c.frames()):
            inside = list(frame.boxes())
            assert inside and all(b.at == frame.at or b.at.startswith(frame.at + "/") for b in inside)
            assert all(frame.x <= b.x and b.x + 168 <= frame.x + frame.width and frame.y <= b.y and b.y + b.height <= frame.y + frame.height
                       for b in inside)
        boxes = [b for c in found for b in c.boxes()]
        assert len({(b.x, b.y) for b in boxes}) == len(boxes)


@needed
def test_a_part_shows_what_it_costs(tmp_path):
    """A box by the keyboard, a frame by a click; the frame is the sum of what is in it, at the sizes as they stand."""
    got = asked(page(REFORMER, tmp_path), """
      const at = place => $(`.part[data-at="${place}"]`);
      const lines = () => Object.fromEntries($$("#part tr").map(r => [$("th", r).textContent, $(".v", r).textContent]));
      at("reformer/logits/2/attend/1").dispatchEvent(new FocusEvent("focus"));
      const box = lines();
      at("reformer/logits/2/attend/1").dispatchEvent(new FocusEvent("blur"));
      at("reformer/logits/2").dispatchEvent(new MouseEvent("click", {bubbles: true}));
      type("size-L", "3");
      return [box, lines(), at("reformer/logits/2").getAttribute("aria-pressed")]""", tmp_path)
    rows = {r.at: r for r in plait.load(REFORMER, {"L": 3}).table("layer").rows}
    attention = plait.load(REFORMER).table("layer").rows
    mine = next(r for r in attention if r.at == "reformer/logits/2/attend/1")
    assert got[0]["work"] == f"{mine.sizes.value(mine.work['contraction']):,}" and "scores" in got[0]
    inside = [r for at, r in rows.items() if at.startswith("reformer/logits/2")]
    assert got[1]["work"] == f"{sum(r.sizes.value(r.work['contraction']) for r in inside):,}"
    assert got[1]["parameters"] == f"{sum(r.sizes.value(r.params) for r in inside):,}" and got[2] == "true"


# ---- runs and times --------------------------------------------------------------------------------------------------------------------
def trained(folder: Path, steps: int = 4, rate: float = 1.0) -> Path:
    """A run folder as training leaves it, without weights: its rows are loss = rate / step."""
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"model": "recurrent", "planned": steps}))
    lines = [{"step": s, "split": "train", "loss": rate / s, "seconds": 0.5 * s, "tokens": 100 * s, "lr": 0.1} for s in range(1, steps + 1)]
    lines.append({"step": steps, "split": "validation", "loss": 0.75, "accuracy": 0.5, "seconds": 0.5 * steps, "count": 9})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in lines))
    return folder


TIMES = {"machine": {"name": "a machine", "cores": 2, "more": [1]}, "more": 1, "rows": [
    {"model": m, "length": length, "median": t * length, "low": 0.9 * t * length, "high": 1.1 * t * length, "work": 5}
    for m, t in (("recurrent", 1e-3), ("other", 2e-3)) for length in (16, 32, 64)]}


@needed
def test_curves_of_runs_and_times(tmp_path):
    """A run by itself, and a folder that holds two; the measure is chosen; names that a page could mistake for its own are text."""
    trained(tmp_path / "alone")
    for name in ("seed-1", "</script><b>"): trained(tmp_path / "compared" / "lr" / name.replace("/", "⁄"), 8, 2.0)
    (tmp_path / "times.json").write_text(json.dumps(TIMES))
    text = page(TABLE1, tmp_path, tmp_path / "alone", tmp_path / "compared", "--bench", tmp_path / "times.json")
    got = asked(text, """
      const drawn = within => $$(`${within} svg[role=img] path.curve`).map(p => [p.dataset.name, p.getAttribute("d").split("L").length]);
      const loss = drawn("#training"), rows = $$("#training tbody th").map(t => t.textContent);
      choose("measure", "accuracy");
      return [loss, drawn("#training"), rows, drawn("#bench"), $$("#bench .whisker").length, $("#bench .hint").textContent]""", tmp_path)
    runs = ["alone", "<⁄script><b>", "seed-1"]
    assert got[2] == runs
    assert got[0] == 2 * [pair for name, rows in zip(runs, (4, 8, 8)) for pair in ([f"{name}, training", rows], [f"{name}, validation", 1])]
    assert got[1] == 2 * [[f"{name}, validation", 1] for name in runs]
    assert got[3] == [["recurrent", 3], ["other", 3]] and got[4] == 6 and got[5] == "name: a machine, cores: 2"


def test_seconds_of_an_experiment_are_steps_times_the_median(tmp_path):
    """Not the clock of each run, by which models that ran one after another cannot be compared."""
    from plait.reporting.measured import runs
    trained(tmp_path / "x" / "runs" / "one", 4)
    trained(tmp_path / "alone", 4)
    model = json.loads((tmp_path / "alone" / "run.json").read_text())["model"]
    (tmp_path / "x" / "experiment.json").write_text(json.dumps({"step_seconds": {model: [9.0, 0.25, 0.125]}}))
    one, alone = runs([tmp_path / "x", tmp_path / "alone"])
    assert [row[:2] for row in one["train"]] == [[k, 0.25 * k] for k in (1, 2, 3, 4)] and one["in_turn"]
    assert alone["train"][0][1] == 0.5 and not alone["in_turn"]
    (tmp_path / "x" / "experiment.json").write_text("{")
    assert not runs([tmp_path / "x"])[0]["in_turn"]


def test_a_quartile_on_the_wrong_side_is_not_drawn(tmp_path):
    from plait.reporting.measured import bench
    (tmp_path / "t.json").write_text(json.dumps({"rows": [{"model": "m", "length": 8, "median": 2.0, "low": 3.0, "high": 4.0},
                                                          {"model": "m", "length": 9, "median": 2.0, "low": 1.0, "high": 1.5}]}))
    assert [sorted(row.keys() & {"low", "high"}) for row in bench(tmp_path / "t.json")["rows"]] == [["high"], ["low"]]


def test_long_curves_are_thinned_out(tmp_path):
    from plait.reporting.measured import MOST_POINTS, runs
    (found,) = runs([trained(tmp_path / "long", 4000)])
    assert 1000 < len(found["train"]) <= MOST_POINTS + 1 and found["train"][0][0] == 1 and found["train"][-1][0] == 4000


# ---- the file ----------------------------------------------------------------------------------------------------------------------------
def test_the_file_needs_nothing_else(tmp_path):
    """No address but the namespace of SVG, no script or style from elsewhere; the policy in it forbids any."""
    run(TABLE1, "-o", tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert {m for m in re.findall(r"https?://[^\s\"'`)<]*", text)} == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(link|img|iframe)\b|<script[^>]+src|url\((?!#)|@import", text)
    assert "default-src 'none'" in text and text.count("<script") == 2
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


@needed
@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark(dark, tmp_path):
    """As the system has it, and by the switch: ink on ground has a contrast of more than 7, whatever the mode."""
    got = asked(page(TABLE1, tmp_path), """
      const colours = () => [getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor];
      const found = [colours()];
      for (let k = 0; k < 3; k += 1) { document.getElementById("theme").click(); found.push(colours()); }
      return found""", tmp_path, f"--blink-settings=preferredColorScheme={0 if dark else 1}")
    def light(colour: str) -> float:
        parts = [int(p) / 255 for p in re.findall(r"\d+", colour)[:3]]
        return sum(w * (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4) for w, p in zip((0.2126, 0.7152, 0.0722), parts))
    shades = [[light(c) for c in pair] for pair in got]
    assert all((max(pair) + 0.05) / (min(pair) + 0.05) > 7 for pair in shades)
    assert [ink > ground for ink, ground in shades] == [dark, False, True, dark]


@needed
def test_labels(tmp_path):
    """Whatever can be operated has a name, and headings follow each other."""
    got = asked(page(TABLE1, tmp_path), """
      const named = e => e.getAttribute("aria-label") || e.labels?.length || e.textContent.trim();
      return [$$("input, select, button, a, [tabindex='0']").filter(e => !named(e)).map(e => e.outerHTML.slice(0, 80)),
              $$("svg[role=img], svg.graph").filter(e => !e.getAttribute("aria-label")).length,
              $$("h1, h2").map(h => h.tagName), $$("th:not([scope])").length]""", tmp_path)
    assert got == [[], 0, ["H1", *["H2"] * (len(got[2]) - 1)], 0]


def test_entry_point(tmp_path):
    """From Python: a spec or its path, one model, other numbers; the same file as the command's."""
    out = plait.report(plait.load(TABLE1), out=tmp_path / "a.html", model="recurrent", set={"n": 2000})
    assert out == tmp_path / "a.html"
    run(TABLE1, "--model", "recurrent", "--set", "n=2000", "-o", tmp_path / "b.html")
    text = out.read_text()
    assert text == (tmp_path / "b.html").read_text() and '"value": "2000"' in text and "self_attention" not in text


def test_needs_no_torch(tmp_path):
    code = (f"import plait, sys; plait.report({str(TABLE1)!r}, [{str(trained(tmp_path / 'run'))!r}], {str(tmp_path / 'r.html')!r}); "
            "assert not {'torch', 'matplotlib'} & set(sys.modules)")
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def wrong_json(folder: Path, text: str) -> Path:
    (folder / "wrong.json").write_text(text)
    return folder / "wrong.json"


ROW = '{"model": "m", "length": 16, "median": 0.1}'
MISTAKES = {
    "no such run": (lambda f: [f / "nowhere"], "there is no folder"),
    "no run in it": (lambda f: [f], "holds no run"),
    "no such times": (lambda f: ["--bench", f / "none.json"], "cannot be read"),
    "no JSON": (lambda f: ["--bench", wrong_json(f, "{")], "is not the JSON of a benchmark"),
    "no rows": (lambda f: ["--bench", wrong_json(f, "[]")], "no object with `rows`"),
    "empty rows": (lambda f: ["--bench", wrong_json(f, '{"rows": []}')], "are empty"),
    "a row without times": (lambda f: ["--bench", wrong_json(f, f'{{"rows": [{ROW}, {ROW.replace("median", "mean")}]}}')],
                            "row 2 has no `median`"),
    "a time that is none": (lambda f: ["--bench", wrong_json(f, f'{{"rows": [{ROW.replace("0.1", "NaN")}]}}')], "row 1 has no `median`"),
    "a length that is none": (lambda f: ["--bench", wrong_json(f, f'{{"rows": [{ROW.replace("16", "1.5")}]}}')], "row 1 has no `length`"),
    "another ending": (lambda f: ["-o", f / "report.pdf"], ".html or .htm"),
    "no such folder": (lambda f: ["-o", f / "none" / "r.html"], "there is no folder"),
    "a folder": (lambda f: ["-o", (f / "d.html").mkdir() or f / "d.html"], "is a folder"),
    "no such model": (lambda f: ["--model", "nobody"], "there is no model `nobody`"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_sentences_and_write_nothing(name, tmp_path):
    (tmp_path / "report.html").write_text("as it was")
    arguments, said = MISTAKES[name]
    given = arguments(tmp_path)
    if "-o" not in given: given = [*given, "-o", tmp_path / "report.html"]
    before = {p.name for p in tmp_path.iterdir()}
    assert said in run(TABLE1, *given, code=1)
    assert {p.name for p in tmp_path.iterdir()} == before and (tmp_path / "report.html").read_text() == "as it was"


def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    """A disk that is full in the middle of the file."""
    import plait.reporting.page as pages
    (tmp_path / "report.html").write_text("as it was")
    def full(self, *_, **__):
        self.touch()
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(pages.Path, "write_text", full)
    with pytest.raises(PlaitError, match="No space left on device"): plait.report(TABLE1, out=tmp_path / "report.html")
    monkeypatch.undo()
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"] and (tmp_path / "report.html").read_text() == "as it was"


def test_every_part_of_the_page_is_in_the_wheel():
    """The files beside the code are those that the package's data names, and each is used."""
    from plait.reporting.page import SCRIPTS
    there = {p.name for p in (ROOT / "plait" / "reporting").iterdir() if p.suffix in (".js", ".css", ".html")}
    assert there == {*SCRIPTS, "page.css", "page.html"} and all(part(name) for name in there)
    data = re.search(r"\[tool.setuptools.package-data\](.*?)\n\[", (ROOT / "pyproject.toml").read_text(), re.S)
    assert data is not None and all(f'"*{suffix}"' in data[1] for suffix in (".js", ".css", ".html"))
