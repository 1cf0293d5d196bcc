"""Arguments as written → arguments as a layer's signature wants them, with an error for every way to get this wrong."""
from __future__ import annotations

from collections.abc import Mapping

import sympy as sp

from plait.compiler.layer import Argument, Layer, Stream
from plait.compiler.names import Names, text
from plait.dsl import spec as ast
from plait.dsl.errors import Diagnostic, PlaitError, Span, error
from plait.dsl.suggest import ALIASES, suggest

MOST_COUNTED = 256                                            # of a count that is written out in the graph
KIND_WORDS = {
    "size": "a size", "count": "a whole number", "number": "a number", "probability": "a probability", "table": "a shared table",
    "stream": "a stream", "pair": "a pair of sizes", "flag": "true or false",
}


def pair_up(name: str, arguments: tuple[Argument, ...], given: tuple[ast.Argument, ...], span: Span) -> dict[str, ast.Argument]:
    """Which written argument is which of the signature's. Raises PlaitError with all that is wrong."""
    found: list[Diagnostic] = []
    out: dict[str, ast.Argument] = {}
    places = [a.name for a in arguments if a.positional]
    for k, a in enumerate([a for a in given if a.name is None]):
        flag = next((x for x in arguments if "flag" in x.kinds and isinstance(a.value, ast.Name) and a.value.name == x.name), None)
        if flag is not None:
            found += error("E0505", f"`{flag.name}` needs a value", a.span, help=f"{flag.name} = true").diagnostics
            continue
        if k >= 1 or not places:
            how = f"`{places[0]}` may stand without its name" if places else f"{name} takes no argument without a name"
            names = [x.name for x in arguments if x.name not in out]
            found += error("E0505", f"{name}: at most one argument stands without its name" if places else how, a.span,
                           help=f"{names[0]} = {text(a.value)}" if names else "").diagnostics
        else: out[places[0]] = a
    for a in given:
        if a.name is None: continue
        if a.name in out: found += error("E0505", f"`{a.name}` is given twice", a.span).diagnostics
        elif a.name in {x.name for x in arguments}: out[a.name] = a
        else: found += unknown(name, a, arguments).diagnostics
    if not found:
        for x in arguments:
            if x.required and x.name not in out:
                found += error("E0502", f"{name} needs `{x.name}`: {describe(x)}", span,
                               help=f"{name}({x.name} = …)" if not x.positional else f"{name}(…)").diagnostics
    if found: raise PlaitError(*found)
    return out


def unknown(owner: str, a: ast.Argument, arguments: tuple[Argument, ...]) -> PlaitError:
    """There is no such argument; perhaps it is called otherwise here."""
    name, known = a.name or "", [x.name for x in arguments]
    near = suggest(name, known, ALIASES)
    at = a.name_span or a.span
    if name in ALIASES and near:
        other = next(x for x in arguments if x.name == near[0])
        fits = not other.choices or isinstance(a.value, ast.Name) and a.value.name in other.choices or bool(other.kinds)
        value = text(a.value) if fits else " or ".join(other.choices)
        return error("E0501", f"`{name}` is called `{near[0]}` here", at, help=f"{near[0]} = {value}")
    return error("E0501", f"{owner} has no argument `{name}`", at,
                 help=" or ".join(f"`{n}`" for n in near) + "?" if near else f"it takes {', '.join(known)}" if known else "it takes none")


def describe(x: Argument) -> str:
    """`a size, or none, auto`: what an argument may be."""
    words = [KIND_WORDS[k] for k in x.kinds]
    return ", or ".join(words + (["one of " + ", ".join(x.choices)] if x.choices else [])) or "nothing"


def bind(layer: Layer, given: tuple[ast.Argument, ...], names: Names, streams: Mapping[str, Stream],
         span: Span) -> tuple[dict, dict[str, ast.Argument]]:
    """Keyword arguments for the layer's function, and where each was written."""
    written = pair_up(layer.name, layer.arguments, given, span)
    found: list[Diagnostic] = []
    out = {}
    for x in layer.arguments:
        if x.name not in written: continue
        try: out[x.name] = convert(layer.name, x, written[x.name].value, names, streams)
        except PlaitError as wrong: found += wrong.diagnostics
    if found: raise PlaitError(*found)
    return out, written


def convert(owner: str, x: Argument, e: ast.Expr, names: Names, streams: Mapping[str, Stream]):
    """The value of one argument, by the kinds its signature allows."""
    word = e.name if isinstance(e, ast.Name) else None
    if word is not None and word in x.choices: return word
    if "flag" in x.kinds and word in ("true", "false"): return word == "true"
    if "stream" in x.kinds:
        if word is not None and word in streams: return streams[word]
        near = suggest(word or "", streams, ALIASES)
        raise error("E0402", f"`{text(e)}` is no stream above this line", e.span,
                    help=" or ".join(f"`{n}`" for n in near) + "?" if near else f"streams: {', '.join(streams)}")
    if "table" in x.kinds and word is not None and word in names.shares: return names.table(word)
    if "pair" in x.kinds and isinstance(e, ast.Tuple):
        if len(e.items) != 2: raise error("E0501", f"`{x.name}` of {owner} takes two sizes, here {len(e.items)}", e.span)
        return tuple(names.size(i) for i in e.items)
    if word is not None and x.choices:
        named = word in names.entries and bool(set(x.kinds) & {"size", "count", "number", "probability"})
        if not named: raise _choice(owner, x, word, e, names)
    if "size" in x.kinds: return names.size(e)
    if "count" in x.kinds: return _count(owner, x, e, names)
    if "number" in x.kinds: return names.number(e)
    if "probability" in x.kinds: return _probability(owner, x, e, names)
    raise error("E0501", f"`{x.name}` of {owner} is {describe(x)}, not {text(e)}", e.span, help=_example(x))


def _choice(owner: str, x: Argument, word: str, e: ast.Expr, names: Names) -> PlaitError:
    near = suggest(word, [*x.choices, *(names.entries if x.kinds else ())], ALIASES)
    return error("E0501", f"`{x.name}` of {owner} is {describe(x)}, not `{word}`", e.span,
                 help=" or ".join(f"`{n}`" for n in near) + "?" if near else _example(x))


def _count(owner: str, x: Argument, e: ast.Expr, names: Names) -> int:
    found = names.number(e)
    value = names.sizes.integer(found)
    if value is None:
        raise error("E0501", f"`{x.name}` of {owner} shapes the graph: its value must be a known whole number", e.span, *names.notes(found))
    if value > MOST_COUNTED:
        rule = f"`{x.name}` of {owner} shapes the graph: it is at most {MOST_COUNTED}, here {value:,}"
        raise error("E0503", rule, e.span, *names.notes(found))
    return value


def _probability(owner: str, x: Argument, e: ast.Expr, names: Names) -> sp.Expr:
    found = names.number(e)
    value = names.sizes.value(found)
    if value is None: raise error("E0501", f"`{x.name}` of {owner} must be a known number", e.span, *names.notes(found))
    if not 0 <= value < 1:
        rule = f"`{x.name}` of {owner} is a probability, at least 0 and below 1, here {float(value):g}"
        raise error("E0503", rule, e.span, *names.notes(found))
    return sp.sympify(value)


def _example(x: Argument) -> str:
    if x.choices: return f"{x.name} = {' or '.join(x.choices)}"
    return {"flag": f"{x.name} = true or {x.name} = false", "pair": f"{x.name} = (128, 512)"}.get(x.kinds[0] if x.kinds else "", "")
