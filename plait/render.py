"""Tables as a person reads them: text, Markdown, HTML in a notebook; and as JSON."""
from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import sympy as sp

from plait.compiler.costs.order import order
from plait.compiler.names import Names
from plait.compiler.sizes import CeilLog2, Latest, Sizes
from plait.compiler.table import PathCell, Row, as_json

SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
COLUMNS = ("work", "sequential", "path", "params")
MORE = ("order", "pointwise", "transcendental", "comparisons", "movement", "tree", "reuse", "ideal")
LONGEST = 44                                                  # characters of an expression in a cell; longer ones show their order


# ---- expressions -----------------------------------------------------------------------------------------------------------
def pretty(e: sp.Expr) -> str:
    """`2·d·n²`, `⌈(n − 1)/(k − 1)⌉`: an expression in one line."""
    if isinstance(e, sp.Add):
        parts = [pretty(a) for a in e.as_ordered_terms()]
        return parts[0] + "".join(f" − {p[1:]}" if p.startswith("−") else f" + {p}" for p in parts[1:])
    if isinstance(e, sp.Mul): return _product(e)
    if isinstance(e, sp.Pow):
        if e.exp == sp.Rational(1, 2): return f"√{_grouped(e.base)}"
        if e.exp.is_Integer and e.exp > 0:
            base = f"({pretty(e.base)})" if isinstance(e.base, sp.log) else _grouped(e.base)
            return base + str(e.exp).translate(SUPERSCRIPT)
        if e.exp.is_number and e.exp < 0: return f"1/{_grouped(1 / e)}"
        return f"{_grouped(e.base)}^{_grouped(e.exp)}"
    if isinstance(e, CeilLog2): return f"⌈log₂ {_grouped(e.args[0])}⌉"
    if isinstance(e, sp.ceiling): return f"⌈{pretty(sp.together(e.args[0]))}⌉"
    if isinstance(e, sp.floor): return f"⌊{pretty(sp.together(e.args[0]))}⌋"
    if isinstance(e, sp.log): return f"log {_grouped(e.args[0])}"
    if isinstance(e, Latest): return f"max({', '.join(map(pretty, e.args))})"
    if isinstance(e, sp.Max | sp.Min): return f"{type(e).__name__.lower()}({', '.join(map(pretty, e.args))})"
    if isinstance(e, sp.Sum): return f"Σ_{e.limits[0][0]} {_grouped(e.function)}"
    if isinstance(e, sp.Piecewise): return pretty(e.args[0][0])
    if e == sp.oo: return "∞"
    return str(e).replace("-", "−")


def _product(e: sp.Mul) -> str:
    top, bottom = sp.fraction(e)
    if bottom != 1: return f"{_grouped(top, mul=True)}/{_grouped(bottom)}"
    c, rest = e.as_coeff_Mul()
    factors = [_grouped(f) for f in rest.as_ordered_factors()] if rest != 1 else []
    if c == -1: return "−" + "·".join(factors)
    return "·".join(([str(c).replace("-", "−")] if c != 1 else []) + factors)


def _grouped(e: sp.Expr, mul: bool = False) -> str:
    text = pretty(e)
    return f"({text})" if isinstance(e, sp.Add) or isinstance(e, sp.Mul) and not mul else text


def whole(v) -> str:
    return "" if v is None else f"{int(v):,}" if int(v) == v else f"{float(v):,.4g}"


def shown_dims(names: Names) -> dict[str, int | None]:
    """The dims of a file with their values; None: free."""
    return {k: (None if (v := names.sizes.integer(e.value)) is None else v) for k, e in names.entries.items() if e.kind == "dim"}


# ---- the table ---------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Table:
    """Rows of derived costs. Prints as text; `.markdown()`, `.json()`; renders in a notebook."""
    file: str
    by: str
    rows: tuple[Row, ...]
    dims: dict[str, int | None]
    columns: tuple[str, ...] = COLUMNS
    varied: tuple[str, ...] = ()                              # dims of a sweep: a column each

    def head(self) -> str:
        """`# n = 1,000, d = 512, L free`"""
        return "# " + ", ".join(f"{k} free" if v is None else f"{k} = {v:,}" for k, v in self.dims.items() if k not in self.varied)

    def grid(self) -> tuple[list[str], list[list[str]]]:
        """Headings and cells: two columns, expression and value, for each cost."""
        headings = [self.by if self.by != "model" else "model", *self.varied]
        for c in self.columns: headings += [TITLES.get(c, c), ""] if c != "note" else [c]
        return [*headings, ""], [self._cells(r) for r in self.rows]

    def _cells(self, r: Row) -> list[str]:
        indent = {"model": 0, "layer": 1, "op": 2}[r.kind] if self.by != "model" else 0
        label = r.name if r.kind != "layer" else f"{r.at.split('/', 1)[1]} {r.name}"
        if r.copies is not None and r.copies != 1: label += f" ×{pretty(r.copies)}"
        out = ["  " * indent + label, *(whole(r.sizes.value(sp.Symbol(d, integer=True, positive=True))) for d in self.varied)]
        for c in self.columns: out += CELLS[c](r)
        return [*out, note(r) if "path" in self.columns else ""]

    def __str__(self) -> str:
        headings, cells = self.grid()
        widths = [max(len(line[k]) for line in [headings, *cells]) for k in range(len(headings))]
        first = 1 + len(self.varied)
        left = [k == 0 or k >= first and (k - first) % 2 == 0 for k in range(len(headings))]
        def line(row: list[str]) -> str:
            return "  ".join(t.ljust(w) if l else t.rjust(w) for t, w, l in zip(row, widths, left)).rstrip()
        return "\n".join([self.head(), line(headings), *map(line, cells)])

    def markdown(self) -> str:
        headings, cells = self.grid()
        rule = "|" + "|".join("---" for _ in headings) + "|"
        def row(line: list[str]) -> str: return "| " + " | ".join(t.strip().replace("|", "\\|") for t in line) + " |"
        return "\n".join([row(headings), rule, *map(row, cells)])

    def json(self) -> dict:
        """The stable form; docs/costs.md describes its keys."""
        found = []
        for r in self.rows:
            j = as_json(r)
            if self.varied: j["set"] = {d: r.sizes.integer(sp.Symbol(d, integer=True, positive=True)) for d in self.varied}
            found.append(j)
        return {"plait": 1, "file": self.file, "dims": self.dims, "rows": found}

    def _repr_html_(self) -> str:
        from html import escape
        headings, cells = self.grid()
        def row(line: list[str], tag: str) -> str: return "<tr>" + "".join(f"<{tag}>{escape(t)}</{tag}>" for t in line) + "</tr>"
        return f"<p>{escape(self.head())}</p><table>{row(headings, 'th')}{''.join(row(c, 'td') for c in cells)}</table>"

    def dumps(self) -> str:
        return json.dumps(self.json(), indent=1, ensure_ascii=False)


TITLES = {"sequential": "sequential", "params": "parameters", "work": "work (multiply-adds)"}


def cost(e: sp.Expr | None, sizes: Sizes) -> list[str]:
    """Expression and value; a long expression gives way to its order, a plain number stands once."""
    if e is None: return ["", ""]
    value = whole(sizes.value(e))
    if not e.free_symbols: return ["", value] if e != 0 else ["", "0"]
    shown = pretty(e)
    growth = f"O({pretty(order(e))})" if len(shown) > LONGEST else ""
    return [growth if growth and len(growth) < len(shown) else shown, value]


def path(r: Row) -> list[str]:
    """Stacked where a row is a layer that can be, else as written."""
    if not isinstance(r.path, PathCell): return ["", ""]
    p = r.path.stacked if r.path.stacked is not None else max(r.path.written.values(), key=lambda v: v.value or 0)
    if p.exact is None: return ["", whole(p.value)]
    shown = pretty(p.exact)
    return ["" if shown == whole(p.value) else shown, whole(p.value)]


def note(r: Row) -> str:
    """What the path does not say: a stack that falls short, a reach that is assumed."""
    if not isinstance(r.path, PathCell): return ""
    out = []
    for name, p in r.path.written.items():
        if p.connected is False and p.reach:
            n, total = p.reach["positions"]["value"], r.path.lengths[name]
            which = "" if total is None else f" of {total:,}"
            stream = f" ({name})" if len(r.path.written) > 1 else ""
            out.append(f"as written: reaches {n:,}{which}{stream}" if n is not None else f"as written: not connected{stream}")
    if any(p.assumed for p in r.path.written.values()): out.append("reach assumed: it depends on the data")
    return "; ".join(out)


def worked(ledger: str) -> Callable[[Row], list[str]]:
    return lambda r: cost(r.work[ledger], r.sizes)


CELLS: dict[str, Callable[[Row], list[str]]] = {
    "work": worked("contraction"), "sequential": lambda r: cost(r.unit, r.sizes), "path": path,
    "params": lambda r: cost(r.params, r.sizes), "tree": lambda r: cost(r.tree, r.sizes),
    "reuse": lambda r: cost(r.reuse, r.sizes.bind(b=1)), "ideal": lambda r: cost(r.ideal, r.sizes),
    "order": lambda r: [f"O({pretty(order(r.work['contraction']))})", ""],
    **{ledger: worked(ledger) for ledger in ("pointwise", "transcendental", "comparisons", "movement")},
}
