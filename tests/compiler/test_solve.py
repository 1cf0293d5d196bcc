"""Crossovers and limits. Values: equations solved by hand, and brute force over every value."""
from pathlib import Path

import numpy as np
import pytest
import sympy as sp

from plait import files
from plait.api import Spec
from plait.compiler.arrays import values
from plait.compiler.expand import expand, open_file
from plait.compiler.quantities import QUANTITIES
from plait.compiler.sizes import Sizes, evaluate
from plait.compiler.solve import solve
from plait.compiler.table import Row
from plait.dsl.errors import PlaitError
from plait.dsl.parser import parse, parse_expression

ROOT = Path(__file__).parents[2]
SPECS = sorted((ROOT / "specs").glob("*.plait"))
TABLE1 = ROOT / "specs" / "table1.plait"
LSH = """plait 1
dims { n = 1024; d = 1024; h = 8; m = 64; require n % 128 == 0 }
model full { input x: stream[n, d]
  y = x { attention(heads = h, head_width = 128, share_qk = true, bias = false) }
  output y: [n, d] }
model lsh { input x: stream[n, d]
  y = x { lsh_attention(heads = h, head_width = 128, chunk = 64, buckets = BUCKETS, rounds = 16, bias = false) }
  output y: [n, d] }
"""


def asked(condition: str, unknown: str, path=TABLE1, text: str | None = None, sets=(), batch: int = 1):
    file = files.opened(path, files.overrides(list(sets)), text)
    return solve(file.spec, parse_expression(condition), unknown, batch)


def test_attention_and_recurrence_cost_the_same_where_n_is_d():
    """2·n²·d = 2·n·d² (Vaswani et al. 2017, section 4)."""
    found = asked("work(self_attention) == work(recurrent)", "n")
    assert [(str(r.exact), r.value) for r in found.roots] == [("d", 512.0)]
    assert found.holds == ((512, 512),) and found.tried is None
    assert asked("work(self_attention) < work(recurrent)", "n").holds == ((1, 511),)
    assert asked("work(self_attention) >= work(recurrent)", "n").holds == ((512, None),)
    assert asked("work(self_attention) < work(recurrent)", "d").holds == ((1001, None),)
    assert asked("work(self_attention) != work(recurrent)", "n").holds == ((1, 511), (513, None))


@pytest.mark.parametrize("buckets, first", [("n / 64", 2304), ("2 * n / 64", 2432)])
def test_where_hashing_first_pays(buckets, first):
    """16 rounds: hashing n·128·buckets/2, scores and sums 2·n·128·128 each, against 2·128·n²; n a multiple of 128."""
    found = asked("work(lsh) < work(full)", "n", text=LSH.replace("BUCKETS", buckets))
    assert found.holds == ((first, None),) and found.step == 128
    def by_hand(n):
        count = eval(buckets, {"n": n})
        return 16 * (n * 128 * count // 2 + 2 * n * 128 * 128) < 2 * 128 * n * n
    assert next(n for n in range(128, 10**4, 128) if by_hand(n)) == first


def test_limits():
    """2·d² ≤ 1,000,000: d ≤ 707.1; reuse of a recurrence is the batch."""
    assert asked("params(recurrent) <= 1M", "d").holds == ((1, 707),)
    assert asked("reuse(recurrent) >= 4", "b").holds == ((4, None),)
    assert asked("params(recurrent) <= 1M", "n").holds == ((1, None),)                # n is not in it
    assert asked("params(recurrent) > 1M", "n").holds == ()


@pytest.mark.parametrize("condition", ["path(convolution) <= 16", "path(convolution) == 16", "path(restricted) < path(convolution)",
                                       "tree(self_attention) <= 30 and work(recurrent) > 10^6", "path(convolution) % 7 == 3"])
def test_searches_equal_brute_force(condition):
    found = asked(condition, "n")
    assert found.roots is None and found.tried >= 3000
    table = {}
    def cost(name):
        def of(model):
            if (name, model) not in table:
                text = TABLE1.read_text().replace("n = 1000", "n")
                program = expand(open_file(parse(text)), model)
                table[name, model] = program.sizes.resolve(QUANTITIES[name](Row(program, model, "model", model))), program.sizes.bound
            e, bound = table[name, model]
            return evaluate(e, {**bound, sp.Symbol("n", integer=True, positive=True): n})
        return of
    env = {name: cost(name) for name in QUANTITIES} | {m: m for m in ("convolution", "restricted", "self_attention", "recurrent")}
    true = []
    for n in range(1, 1200):
        if eval(condition.replace("^", "**"), env): true.append(n)
    said = [n for n in range(1, 1200) if any(a <= n and (b is None or n <= b) for a, b in found.holds)]
    assert said == true


def test_what_is_wrong():
    for condition, unknown, words in [
        ("work(lstm) < 3", "n", "no model"), ("work(recurrent)", "n", "a condition"), ("works(recurrent) < 3", "n", "no cost"),
        ("work(recurrent) < 3", "z", "no dim"), ("work() < 3", "n", "of which model"),
        ("work(recurrent, convolution) < 3", "n", "the name"),
    ]:
        with pytest.raises(PlaitError, match=words): asked(condition, unknown)
    free = TABLE1.read_text().replace("d = 512", "d")
    assert [str(r.exact) for r in asked("work(self_attention) == work(recurrent)", "n", text=free).roots] == ["d"]
    with pytest.raises(PlaitError, match="`d` has no value"): asked("tree(self_attention) < path(recurrent)", "n", text=free)


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_arrays_agree_with_exact_values(path):
    """Every cost of every spec, at its own sizes and at others, in float64 and exactly."""
    spec = Spec(path, files.opened(path))
    for name in spec.models:
        row = Row(spec.program(name), name, "model", name)
        for quantity in QUANTITIES.values():
            e = quantity(row)
            if e is None: continue
            e = row.sizes.resolve(e)
            base = [s for s in e.free_symbols if s not in row.sizes.derived]
            for k in (1, 2):
                at = {s: (row.sizes.bound.get(s) or 3) * k for s in base}
                try: exact = evaluate(e, at)
                except (ArithmeticError, TypeError): continue
                assert np.isclose(float(values(e, {s: np.asarray([float(v)]) for s, v in at.items()}).flat[0]), float(exact), rtol=1e-12)


def test_promises_of_multiples():
    """n % 128 == 0 makes n / 64 whole too, and 3·n / 128; not n / 256."""
    n, c = sp.symbols("n c", integer=True, positive=True)
    sizes = Sizes(divides=((n, sp.Integer(128)), (n, 4 * c)))
    assert sizes.quotient(n, 64) == n / 64 and sizes.quotient(3 * n, 128) == 3 * n / 128 and sizes.quotient(n, 2 * c) == n / (2 * c)
    assert sizes.quotient(n, 256) == sp.ceiling(n / 256) and sizes.quotient(n, 3) == sp.ceiling(n / 3)
