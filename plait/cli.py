"""The command line: all commands of `plait.commands`, on one application. Thin: each reads its arguments, calls one function and prints."""
from __future__ import annotations

import sys

import plait.commands  # noqa: F401 (puts every command on the application)
from plait.command import app


def main() -> None:
    """The console script. A mistake in the options ends like every other one, with exit code 1."""
    code: object = 0
    try: app()
    except SystemExit as e: code = 1 if e.code == 2 else e.code
    ranks = sys.modules.get("plait.runtime.ranks")
    if ranks is not None and ranks.JOINED: ranks.leave(code)
    sys.exit(code)                                                                                   # type: ignore[arg-type]
