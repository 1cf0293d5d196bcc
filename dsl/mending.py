from __future__ import annotations


def mend(parser) -> bool:
    t = parser.tokens[parser.at]
    parser.out.add("E0202", f"unexpected {t.text!r}; {sorted(parser.expected())}", t.start, t.end)
    return False
