"""The page: content, drawings and scripts put into one HTML file that needs nothing else."""
from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from plait.dsl.errors import error
from plait.reporting.content import Code

SCRIPTS = ("exact.js", "sizes.js", "table.js", "graph.js", "charts.js", "crossings.js", "measured.js", "start.js")
ENDINGS = (".html", ".htm")


def checked(out: Path) -> Path:
    """A file that a page can be written into. Raises PlaitError."""
    if out.suffix.lower() not in ENDINGS:
        raise error("E0640", f"a report is written as {' or '.join(ENDINGS)}, not as `{out.name}`",
                    help=f"--out {out.stem or 'report'}.html")
    if out.is_dir(): raise error("E0640", f"`{out}` is a folder", help=f"--out {out / 'report.html'}")
    if not out.absolute().parent.is_dir():
        raise error("E0640", f"there is no folder `{out.parent}`", help=f"mkdir -p {out.parent}, or another --out")
    return out


def part(name: str) -> str:
    """The text of a file of this package."""
    return (resources.files(__package__) / name).read_text("utf-8")


def page(title: str, content: Mapping[str, Any], code: Code, drawings: Mapping[str, str]) -> str:
    """The whole file as text. drawings: model → SVG."""
    figures = "\n".join(f'<figure class="drawing" data-model="{escape(m)}"><figcaption>{escape(m)}</figcaption>\n{svg}\n</figure>'
                        for m, svg in drawings.items())
    holes = {"TITLE": escape(title), "STYLE": part("page.css"), "DRAWINGS": figures, "CONTENT": embedded(content),
             "SCRIPT": script(code, SCRIPTS)}
    return re.sub(r"<!--([A-Z]+)-->", lambda hole: holes[hole[1]], part("page.html"))


def script(code: Code, names: Iterable[str]) -> str:
    """One script, whose names are its own: a page has names of its own, too."""
    return "\n".join(["(() => {", '"use strict";', str(code), *(part(name).replace('"use strict";\n', "", 1) for name in names), "})();"])


def embedded(content: object) -> str:
    """JSON inside a script element: no text in it can end that."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")


def write(out: Path, text: str) -> None:
    """Beside, then renamed: never half a page. Raises PlaitError."""
    beside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, out)
    except (OSError, UnicodeError) as why:
        said = getattr(why, "strerror", None) or why
        raise error("E0640", f"`{out}` cannot be written: {said}", help="--out with another place") from None
    finally:
        try: beside.unlink(missing_ok=True)
        except OSError: pass
