"""Tables as a person reads them: text, Markdown, HTML in a notebook, LaTeX; and as JSON and CSV for programs."""
from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import sympy as sp

from plait.compiler.costs.order import order
from plait.compiler.names import Names
from plait.compiler.quantities import QUANTITIES, Quantity
from plait.compiler.sizes import Numeric
from plait.compiler.table import PathCell, Row, as_json, number
from plait.pretty import pretty, whole

COLUMNS = ("work", "sequential", "path", "params")
LONGEST = 44                                                  # characters of an expression in a cell; longer ones show their order


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
        for c in self.columns: headings += [TITLES.get(c, c), ""]
        return [*headings, ""], [self._texts(r) for r in self.rows]

    def _texts(self, r: Row) -> list[str]:
        out = [self._label(r), *(whole(v) for v in self._at(r))]
        for c in self.columns: out += CELLS[c](r).texts()
        return [*out, note(r) if "path" in self.columns else ""]

    def _label(self, r: Row) -> str:
        indent = {"model": 0, "layer": 1, "op": 2}[r.kind] if self.by != "model" else 0
        label = r.name if r.kind != "layer" else f"{r.at.split('/', 1)[1]} {r.name}"
        if r.copies is not None and r.copies != 1: label += f" ×{pretty(r.copies)}"
        return "  " * indent + label

    def _at(self, r: Row) -> list[int | None]:
        """The values of the dims of a sweep."""
        return [r.sizes.integer(sp.Symbol(d, integer=True, positive=True)) for d in self.varied]

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

    def latex(self) -> str:
        """A tabular, with the rules of booktabs; expressions as formulas, values with thin spaces."""
        columns = [c for c in self.columns]
        head = [self.by, *self.varied, *(TITLES.get(c, c) for c in columns)]
        lines = [rf"\begin{{tabular}}{{{'l' + 'r' * len(self.varied) + 'l' * len(columns)}}}", r"\toprule",
                 " & ".join(map(_escaped, head)) + r" \\", r"\midrule"]
        for r in self.rows:
            cells = [_escaped(self._label(r).strip()), *(whole(v) for v in self._at(r)), *(CELLS[c](r).latex() for c in columns)]
            lines.append(" & ".join(cells) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])

    def csv(self) -> str:
        """A line a row: the place, the dims of a sweep, then for each cost its expression, as in JSON, and its value."""
        import csv
        import io
        out = io.StringIO()
        write = csv.writer(out, lineterminator="\n").writerow
        write(["at", "kind", "name", *self.varied, *(h for c in self.columns for h in (c, f"{c}_value"))])
        for r in self.rows:
            found = [CELLS[c](r) for c in self.columns]
            write([r.at, r.kind, r.name, *self._at(r), *(t for c in found for t in ("" if c.exact is None else c.exact, number(c.value)))])
        return out.getvalue().rstrip("\n")

    def json(self) -> dict:
        """The stable form; docs/costs.md describes its keys."""
        found = []
        for r in self.rows:
            j = as_json(r)
            if self.varied: j["set"] = dict(zip(self.varied, self._at(r)))
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


@dataclass(frozen=True)
class Cell:
    """One cost of one row: its expression and its value; None where there is none. growth: the expression is a leading order."""
    exact: sp.Expr | None
    value: Numeric | None
    growth: bool = False

    def texts(self) -> list[str]:
        """Expression and value. A plain number stands once, a long expression gives way to its order."""
        value, e = whole(self.value), self.exact
        if e is None: return ["", value]
        shown = pretty(e)
        if self.growth: return [f"O({shown})", ""]
        if not e.free_symbols: return ["" if shown == value or e.is_number else shown, value]
        growth = f"O({pretty(order(e))})" if len(shown) > LONGEST else ""
        return [growth if growth and len(growth) < len(shown) else shown, value]

    def latex(self) -> str:
        value = whole(self.value).replace(",", r"\,")
        if self.exact is None: return f"${value}$" if value else ""
        shown = sp.latex(self.exact)
        if self.growth: return rf"$O({shown})$"
        if self.texts()[0].startswith("O("): return rf"$O({sp.latex(order(self.exact))})$" + (rf", ${value}$" if value else "")
        return f"${shown}$" if not value or not self.exact.free_symbols else f"${shown} = {value}$"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\textbackslash ").replace("_", r"\_").replace("&", r"\&").replace("#", r"\#").replace("×", r"$\times$ ")


def cell(quantity: Quantity) -> Callable[[Row], Cell]:
    def of(r: Row) -> Cell:
        e = quantity(r)
        return Cell(e, None if e is None else r.sizes.bind(b=1).value(e))
    return of


def path(r: Row) -> Cell:
    """Stacked where a row is a layer that can be, else as written; the number stands where there is no closed form."""
    if not isinstance(r.path, PathCell) or not r.path.written: return Cell(None, None)
    p = r.path.stacked if r.path.stacked is not None else max(r.path.written.values(), key=lambda v: v.value or 0)
    return Cell(p.exact, p.value)


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


CELLS: dict[str, Callable[[Row], Cell]] = {
    **{name: cell(quantity) for name, quantity in QUANTITIES.items()}, "path": path,
    "order": lambda r: Cell(order(r.work["contraction"]), None, growth=True),
}
