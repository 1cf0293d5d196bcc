"""The command that lists what was trained."""
from __future__ import annotations

import json as js
from pathlib import Path
from typing import Annotated

import typer

from plait.command import Json, command


@command
def runs(folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="a folder of run folders")] = Path("runs"),
         json: Json = False) -> None:
    """List the runs in a folder: how far each is, and what it reached."""
    from plait.runtime.listing import as_json, told
    from plait.runtime.listing import runs as found_in
    found = found_in(folder)
    typer.echo(js.dumps(as_json(folder, found), indent=1, ensure_ascii=False) if json else told(folder, found))
