"""Curves of derived costs, and of learning rates, as PNG or SVG. Drawing is matplotlib's work; it comes with `pip install plait[plot]`."""
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.compiler.curves import Crossing, Curve
from plait.dsl.errors import error
from plait.schedule import Schedule

if TYPE_CHECKING:
    from plait.runtime.laboratory.bench import Bench
    from plait.runtime.laboratory.outcome import Compared

UNITS = {"work": "multiply-adds", "sequential": "operations that wait for each other", "path": "steps between the farthest positions",
         "params": "parameters", "saved": "bytes", "peak": "bytes"}
STROKES = ("-", "--", ":")
FORMATS = (".png", ".svg", ".pdf")


def pyplot() -> Any:
    """matplotlib's pyplot, drawing into files. Raises PlaitError where it is not installed."""
    try:
        from matplotlib import pyplot as plt
    except ImportError:
        raise error("E0640", "plots need matplotlib, which is not installed", help="pip install 'plait[plot]'") from None
    plt.switch_backend("Agg")
    return plt


def checked(out: Path) -> Path:
    """A file that can be drawn into. Raises PlaitError for an ending that no drawing has."""
    if out.suffix.lower() not in FORMATS:
        raise error("E0640", f"a plot is written as {', '.join(FORMATS)}, not as `{out.name}`", help=f"--out {out.stem or 'plot'}.svg")
    if not out.absolute().parent.is_dir():
        raise error("E0640", f"there is no folder `{out.parent}`", help=f"mkdir -p {out.parent}, or another --out")
    return out


def draw(found: Sequence[Curve], crossings: Sequence[Crossing], unknown: str, out: Path, title: str) -> None:
    """One panel a quantity, both axes logarithmic, crossings marked."""
    plt = pyplot()
    quantities = list(dict.fromkeys(c.quantity for c in found))
    figure, panels = plt.subplots(1, len(quantities), figsize=(6.0 * len(quantities), 4.5), squeeze=False)
    try:
        for panel, quantity in zip(panels[0], quantities):
            for c in found:
                if c.quantity == quantity: panel.plot(c.x, c.y, label=c.model)
            for x in crossings:
                if x.quantity != quantity: continue
                panel.plot([x.x], [x.y], "o", color="black", markersize=4)
                panel.annotate(f"{unknown} = {x.x:,}", (x.x, x.y), textcoords="offset points", xytext=(6, -10), fontsize=8)
            panel.set(xscale="log", yscale="log" if _positive(found, quantity) else "linear", xlabel=unknown,
                      ylabel=UNITS.get(quantity, quantity), title=quantity)
            panel.grid(alpha=0.3)
            panel.legend(fontsize=8)
        _written(figure, out, title)
    finally: plt.close(figure)


def draw_schedules(found: Sequence[Schedule], out: Path, title: str) -> None:
    """The learning rate of every model over the steps."""
    plt = pyplot()
    figure, panel = plt.subplots(figsize=(6.0, 4.5))
    try:
        for s in found: panel.plot(s.steps, s.rates, label=s.model)
        panel.set(xlabel="step", ylabel="learning rate", ylim=(0, None))
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8)
        _written(figure, out, title)
    finally: plt.close(figure)


def draw_comparison(found: Compared, out: Path) -> None:
    """Validation loss of an experiment against steps and against seconds, a colour a model, each run's own minimum marked.
    Raises ImportError where matplotlib is not there."""
    from matplotlib import pyplot as plt
    plt.switch_backend("Agg")
    figure, panels = plt.subplots(1, 2, figsize=(12.0, 4.5), sharey=True)
    try:
        for k, m in enumerate(found.ranking):
            for run in found.chosen(m):
                for panel, at in zip(panels, ("step", "seconds")):
                    panel.plot([getattr(p, at) for p in run.curve], [p.loss for p in run.curve], color=f"C{k}", alpha=0.8,
                               label=m if run is found.chosen(m)[0] else None)
                    if run.curve: panel.plot([getattr(run.best, at)], [run.best.loss], "o", color=f"C{k}", markersize=4)
        for panel, name in zip(panels, ("step", "seconds of steps")): panel.set(xlabel=name); panel.grid(alpha=0.3)
        panels[0].set(ylabel="validation loss")
        panels[0].legend(fontsize=8)
        _written(figure, out, found.comparison.name or found.folder.name)
    finally: plt.close(figure)


def draw_bench(found: Bench, out: Path) -> None:
    """Milliseconds a step against the length, medians with their quartiles, both axes logarithmic; a colour a model, a stroke a way.
    Raises ImportError where matplotlib is not there."""
    from matplotlib import pyplot as plt
    from matplotlib.ticker import LogLocator
    plt.switch_backend("Agg")
    models, ways = (list(dict.fromkeys(getattr(r, k) for r in found.rows)) for k in ("model", "way"))
    figure, panel = plt.subplots(figsize=(6.0, 4.5))
    try:
        for name in found.names:
            rows = [found.of(name, n) for n in found.lengths]
            middle, low, high = ([1e3 * getattr(r.times, k) for r in rows] for k in ("median", "low", "high"))
            panel.errorbar(found.lengths, middle, [[m - x for m, x in zip(middle, low)], [x - m for m, x in zip(middle, high)]], label=name,
                           color=f"C{models.index(rows[0].model)}", linestyle=STROKES[ways.index(rows[0].way) % len(STROKES)],
                           marker="o", markersize=3, capsize=2)
        panel.set(xscale="log", yscale="log", xlabel="length", ylabel="milliseconds a training step")
        panel.set_xticks(found.lengths, [f"{n:,}" for n in found.lengths])
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter("{x:,g}")
        panel.minorticks_off()
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8)
        _written(figure, out, f"{found.rounds} rounds in turn")
    finally: plt.close(figure)


def _written(figure: Any, out: Path, title: str) -> None:
    """Beside, then renamed. The same drawing is the same file."""
    from matplotlib import rc_context
    figure.suptitle(title)
    figure.tight_layout()
    beside = out.with_name(f".{out.stem}.new{out.suffix}")
    with rc_context({"svg.hashsalt": "plait"}):
        figure.savefig(beside, dpi=150, metadata={"Date": None} if out.suffix == ".svg" else None)
    beside.replace(out)


def _positive(found: Sequence[Curve], quantity: str) -> bool:
    return all((c.y[c.y == c.y] > 0).all() for c in found if c.quantity == quantity)
