"""`--set`: dims, numbers and training settings given on the command line, put into the syntax tree as if they had been written there."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from plait.dsl.errors import Diagnostic, Note, PlaitError, Span, error
from plait.dsl.numerals import plain
from plait.dsl.spec import Dim, Dims, Let, Model, Number, Override, Setting, Spec, Train
from plait.dsl.suggest import suggest

SETTINGS = ("data", "loss", "batch", "microbatch", "optimizer", "lr", "clip", "stop", "precision", "average", "seed")


def apply(spec: Spec, overrides: tuple[Override, ...]) -> Spec:
    """The Spec with every override in it. Each has exactly one value. Raises PlaitError with all that name nothing."""
    found: list[Diagnostic] = []
    for override in overrides:
        if len(override.values) != 1:
            raise ValueError("a sweep is opened into single values before it is applied")
        try:
            spec = _set(spec, override)
        except PlaitError as problem:
            found += problem.diagnostics
    if found:
        raise PlaitError(*found)
    return spec


def _set(spec: Spec, override: Override) -> Spec:
    match override.path:
        case ("train", key):
            return _set_training(spec, key, override)
        case (name,):
            return _set_everywhere(spec, name, override)
        case (model, name):
            return _set_in_model(spec, model, name, override)
    raise error(
        "E0401",
        f"`{'.'.join(override.path)}` is too long a path: a dim is `d` or `model.d`, a setting is `train.lr`",
        _place(override),
        help="`--set train.lr=3e-4`",
    )


# ---- dims and numbers --------------------------------------------------------------------------------------------------------
def _set_everywhere(spec: Spec, name: str, override: Override) -> Spec:
    """In the file; where only models have the name, in each that has it."""
    items, hit = _bind(spec.items, name, override)
    if hit:
        return replace(spec, items=items)
    hits = False
    result = []
    for item in spec.items:
        if isinstance(item, Model):
            members, hit = _bind(item.members, name, override)
            item, hits = replace(item, members=members) if hit else item, hits or hit
        result.append(item)
    if hits:
        return replace(spec, items=tuple(result))
    known = [n for item in spec.items for n in _names(item.members if isinstance(item, Model) else (item,))]
    raise _unknown(name, known + [f"train.{key}" for key in _training_keys(spec)], override, f"no dim and no `let` is called `{name}`")


def _set_in_model(spec: Spec, model: str, name: str, override: Override) -> Spec:
    models = {item.name: item for item in spec.items if isinstance(item, Model)}
    if model not in models:
        raise _unknown(
            model, [*models, *(["train"] if _trains(spec) else [])], override, f"no model is called `{model}`", rest=f".{name}"
        )
    members, hit = _bind(models[model].members, name, override)
    if not hit:
        raise _unknown(
            name,
            _names(models[model].members),
            override,
            f"the model `{model}` sets no dim and no `let` called `{name}`",
            before=f"{model}.",
            also=name if name in _names(spec.items) else "",
        )
    return replace(
        spec, items=tuple(replace(i, members=members) if isinstance(i, Model) and i.name == model else i for i in spec.items)
    )


def _bind(members: tuple, name: str, override: Override) -> tuple[tuple, bool]:
    """`members` with the name set, and whether it was there."""
    hit = False
    result = []
    for member in members:
        if isinstance(member, Let) and member.name == name:
            member, hit = replace(member, value=override.values[0]), True
        elif isinstance(member, Dims):
            entries = []
            for entry in member.entries:
                if isinstance(entry, Dim) and entry.name == name:
                    _check_bound(entry, override)
                    entry, hit = replace(entry, relation="=", value=override.values[0]), True
                entries.append(entry)
            member = replace(member, entries=tuple(entries))
        result.append(member)
    return tuple(result), hit


def _check_bound(dim: Dim, override: Override) -> None:
    """A free dim with a bound stays within it."""
    given, bound = override.values[0], dim.value
    if dim.relation != "<=" or not isinstance(bound, Number) or not isinstance(given, Number):
        return
    assert isinstance(bound.value, int | Fraction) and isinstance(given.value, int | Fraction)
    if given.value > bound.value:
        raise error(
            "E0302",
            f"`{dim.name}` is at most {plain(bound.value)} in this file",
            given.span,
            Note(dim.span, "bounded here"),
            numbers=f"{plain(given.value)} > {plain(bound.value)}",
            help=f"`--set {dim.name}={bound.text}`, or a larger bound in the file",
        )


def _names(members: tuple) -> list[str]:
    """The dims and numbers that are set here."""
    dims = [e.name for m in members if isinstance(m, Dims) for e in m.entries if isinstance(e, Dim)]
    return dims + [m.name for m in members if isinstance(m, Let)]


# ---- training ----------------------------------------------------------------------------------------------------------------
def _trains(spec: Spec) -> bool:
    return any(isinstance(item, Train) for item in spec.items)


def _training_keys(spec: Spec) -> list[str]:
    return list(SETTINGS) if _trains(spec) else []


def _set_training(spec: Spec, key: str, override: Override) -> Spec:
    """In every train block; a known setting that is not there yet is added."""
    if not _trains(spec):
        raise error("E0401", "this file has no `train` block", _place(override), help="`train { lr = 3e-4 }` in the file")
    written = {e.name for item in spec.items if isinstance(item, Train) for e in item.entries if isinstance(e, Setting)}
    if key not in written and key not in SETTINGS:
        raise _unknown(key, [*SETTINGS, *sorted(written)], override, f"training has no setting called `{key}`", before="train.")
    return replace(spec, items=tuple(_with_setting(i, key, override) if isinstance(i, Train) else i for i in spec.items))


def _with_setting(train: Train, key: str, override: Override) -> Train:
    value = override.values[0]
    if any(isinstance(e, Setting) and e.name == key for e in train.entries):
        entries = tuple(replace(e, value=value) if isinstance(e, Setting) and e.name == key else e for e in train.entries)
    else:
        entries = (*train.entries, Setting(key, value, override.span, _place(override)))
    return replace(train, entries=entries)


# ---- what a person is told -----------------------------------------------------------------------------------------------------
def _place(override: Override) -> Span:
    """The path, under which the caret stands."""
    text = override.span.source.text
    end = text.find("=", override.span.start)
    end = end if end >= 0 else override.span.end
    return Span(
        override.span.start,
        max(override.span.start + 1, override.span.start + len(text[override.span.start : end].rstrip())),
        override.span.source,
    )


def _unknown(
    name: str, known: list[str], override: Override, message: str, before: str = "", rest: str = "", also: str = ""
) -> PlaitError:
    short = {k.removeprefix("train."): k for k in reversed(known)}  # `learning_rate` finds `train.lr`
    close = [short[s] for s in suggest(name, short)]
    close = [before + c + rest for c in close] + ([also] if also else [])
    text = override.span.source.text
    value = text[text.find("=") + 1 :].strip()
    value = value if len(value) <= 20 else "…"
    if close:
        help = "did you mean " + " or ".join(f"`--set {c}={value}`" for c in close) + "?"
    else:
        help = "names that can be set: " + ", ".join(f"`{before}{k}`" for k in list(dict.fromkeys(known))[:12]) if known else ""
    return error("E0401", message, _place(override), help=help)
