"""What the code of a diagnostic means, as `plait explain E0301` prints it."""
from __future__ import annotations

import re
from dataclasses import dataclass
from textwrap import fill, indent

from plait.dsl.codes import CODES
from plait.dsl.errors import error
from plait.dsl.explained_language import LANGUAGE
from plait.dsl.explained_runs import RUNS
from plait.dsl.suggest import suggest

WIDTH = 100                                                    # columns of the prose


@dataclass(frozen=True)
class Explanation:
    """What a code means. `why`: the rule, its reason and what to do, in a few sentences. `wrong`: an example that gets the code, a
    complete spec where a spec can, else commands or lines of Python; empty where nothing a person writes shows it. `right`: the
    same, mended."""
    why: str
    wrong: str = ""
    right: str = ""


EXPLANATIONS: dict[str, Explanation] = {code: Explanation(*entry) for code, entry in (LANGUAGE | RUNS).items()}


def explained(code: str) -> str:
    """The text of a code: its title, the prose, the two examples. Raises PlaitError for a code that does not exist."""
    code = code.strip().upper()
    if code not in EXPLANATIONS:
        near = " or ".join(f"`{c}`" for c in suggest(code, EXPLANATIONS, {}))
        raise error("E0402", f"there is no code `{code}`", help=f"{near}?" if near else "`error[E0301]` has the code E0301")
    it = EXPLANATIONS[code]
    examples = [f"{name}:\n{indent(text.rstrip(), '    ')}" for name, text in (("wrong", it.wrong), ("right", it.right)) if text]
    return "\n\n".join([f"{code}: {CODES[code]}", _wrapped(it.why), *examples])


def _wrapped(prose: str) -> str:
    """Lines of at most WIDTH columns; what stands in backticks stays on one."""
    kept = re.sub("`[^`]*`", lambda quoted: quoted[0].replace(" ", "\N{NO-BREAK SPACE}"), prose)
    return fill(kept, WIDTH, break_on_hyphens=False).replace("\N{NO-BREAK SPACE}", " ")
