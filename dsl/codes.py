"""The codes of diagnostics, one line each. E01 text, E02 syntax, E03 sizes and shapes, E04 names, E05 arguments, E06 data and
training; W04 warnings about meaning. A package that finds a new kind of mistake adds its line here."""
from __future__ import annotations

CODES: dict[str, str] = {
    "E0101": "a number that cannot be read, or can be read in two ways",
    "E0102": "a sign of another language",
    "E0103": "a bracket or a quote that is never closed",
    "E0104": "a bracket that closes nothing, or the wrong one",
    "E0105": "not a text",
    "E0106": "too long or too deep",
    "E0201": "the first line does not say `plait 1`",
    "E0202": "something that does not fit where it stands",
    "E0203": "two statements on one line",
    "E0204": "a word of the language used as a name",
    "E0205": "a block without braces",
    "E0206": "a statement in the wrong block",
    "E0207": "a length given in bytes",
    "E0208": "a comma or a sign is missing",
    "E0401": "an override of a name that does not exist",
    "E0302": "an override outside the bound that the file sets",
    "E0999": "a mistake of plait itself",
}
