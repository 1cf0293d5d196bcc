"""A `compare` block, read and checked. Needs no torch, so that `plait check` can use it."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from plait.compiler.file import File
from plait.dsl.errors import Diagnostic, Note, PlaitError, Span, error
from plait.dsl.parser import parse_expression, parse_override
from plait.dsl.spec import Call, Compare, Expr, List, Name, Quantity
from plait.dsl.suggest import ALIASES, suggest
from plait.runtime.arguments import number, whole
from plait.runtime.formula import Scope, Unbound
from plait.runtime.recipe import Amount, Recipe, recipe

KEYS = {"models": "models = [gru, transformer]", "fit": "fit = params(2M, by = d)", "seeds": "seeds = [1, 2, 3]",
        "budget": "budget = 4k steps", "lr": "lr = [1e-4, 3e-4, 1e-3]", "patience": "patience = 4"}
UNITS = ("steps", "minutes")
ALIKE = ("data", "batch")                                     # what the train blocks of models say alike that are compared
LISTS = ("models", "seeds", "lr")


@dataclass(frozen=True)
class Fit:
    """So many parameters for every model, by the first of these dims that it has."""
    target: int
    by: tuple[str, ...]
    span: Span | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str: return f"params({self.target:,}, by = {' or '.join(self.by)})"


@dataclass(frozen=True)
class Comparison:
    """What is compared. models, seeds, rates: empty where the block does not say: all models, the seed and the rate of their train block.
    budget: of every run; None: the stop of the train block. patience: evaluations without a better loss after which a run ends."""
    name: str = ""
    models: tuple[str, ...] = ()
    fit: Fit | None = None
    seeds: tuple[int, ...] = ()
    budget: Amount | None = None
    rates: tuple[float, ...] = ()
    patience: int | None = None
    span: Span | None = field(default=None, compare=False, repr=False)

    def as_json(self) -> dict[str, Any]:
        budget = None if self.budget is None else {"amount": self.budget.amount, "unit": self.budget.unit}
        fit = None if self.fit is None else {"params": self.fit.target, "by": list(self.fit.by)}
        return {"name": self.name, "models": list(self.models), "fit": fit, "seeds": list(self.seeds), "budget": budget,
                "lr": list(self.rates), "patience": self.patience}


def from_json(asked: Mapping[str, Any]) -> Comparison:
    """What `Comparison.as_json` gave. Raises KeyError, TypeError or ValueError for what is none."""
    fit, budget, patience = asked["fit"], asked["budget"], asked["patience"]
    if not all(isinstance(asked[k], list) for k in ("models", "seeds", "lr")): raise TypeError("a list is missing")
    size = None if fit is None else Fit(int(fit["params"]), tuple(map(str, fit["by"])))
    return Comparison(str(asked["name"]), tuple(map(str, asked["models"])), size, tuple(map(int, asked["seeds"])),
                      None if budget is None else _amount(budget), tuple(map(float, asked["lr"])),
                      None if patience is None else int(patience))


def _amount(budget: Mapping[str, Any]) -> Amount:
    if budget["unit"] not in UNITS: raise ValueError(f"no unit {budget['unit']}")
    return Amount(int(budget["amount"]) if budget["unit"] == "steps" else float(budget["amount"]), budget["unit"])


def comparison(file: File, name: str | None = None, settings: Mapping[str, str] | None = None) -> Comparison:
    """The compare block of that name, the only one where none is said; all models, where there is no block.
    settings: key → text, `{"budget": "10 minutes"}`, before what the block says. Raises PlaitError with all that is wrong."""
    block = _block(file, name)
    out: list[Diagnostic] = []
    values: dict[str, tuple[Expr, Span | None]] = {}
    for s in block.entries if block is not None else ():
        if s.name in values: out.append(Diagnostic("E0642", f"`{s.name}` is set twice", s.name_span or s.span, (Note(s.span),)))
        values[s.name] = s.value, s.name_span or s.span
    for key, text in (settings or {}).items():
        e = _asked(key, text)
        values[key] = e, e.span
    found: dict[str, Any] = {}
    for key, (e, place) in values.items():
        if key not in KEYS:
            near = suggest(key, KEYS, ALIASES)
            out.append(Diagnostic("E0642", f"a compare block has no key `{key}`", place,
                                  help=f"`{near[0]}`?" if near else f"known: {', '.join(KEYS)}"))
            continue
        try: found[key] = READERS[key](e, file)
        except PlaitError as wrong: out += wrong.diagnostics
        except Unbound as free: out.append(Diagnostic("E0638", f"`{free.name}` has no value", e.span, help=f"--set {free.name}=…"))
    if out: raise PlaitError(*out)
    made = Comparison(block.name if block is not None else "", span=block.span if block is not None else None)
    made = replace(made, **{{"lr": "rates"}.get(k, k): v for k, v in found.items()})
    can_be_compared(file, made)
    return made


def can_be_compared(file: File, wanted: Comparison) -> None:
    """One budget, the same data, and a loss to compare. Raises PlaitError."""
    found: dict[str, Recipe] = {}
    for model in wanted.models or file.models:
        try: r = recipe(file.spec, model, file.values(model))
        except PlaitError: continue                           # whoever reads the block says what is wrong in it
        if r is not None: found[model] = r
    if not found: return
    first, whole = next(iter(found.items()))
    for model, r in found.items():
        if "loss" not in r.metrics:
            raise error("E0642", f"the train block of {model} evaluates no loss, and models are compared by it", r.span,
                        help="every 250 steps { evaluate(loss) }")
        if wanted.budget is None and r.stop.unit not in ("steps", "epochs"):
            raise error("E0642", f"the train block of {model} stops by {r.stop.unit}", r.stop.span, help="budget = 4k steps")
        for key in (*ALIKE, *(() if wanted.budget is not None else ("stop",))):
            if getattr(r, key) != getattr(whole, key):
                raise error("E0642", f"{first} and {model} are not trained alike: their train blocks differ in `{key}`",
                            r.keys.get(key), help=f"one train block for both{', or a budget' if key == 'stop' else ''}")


def _asked(key: str, text: str) -> Expr:
    """An option of the command line: `--seeds 1,2`. Raises PlaitError."""
    if not text.strip(): raise error("E0642", f"--{key} is followed by a value", help=f"--{KEYS[key].replace(' = ', ' ')}")
    try: return parse_expression(f"[{text}]" if "," in text and key in LISTS else text, f"--{key}")
    except PlaitError: pass
    try: return parse_override(f"{key}={text}", f"--{key}").values[0]             # an amount with its unit is no expression
    except PlaitError as wrong:
        shown = KEYS[key].split(" = ")[1].strip("[]")
        raise error("E0642", f"--{key} cannot be read: {wrong.diagnostics[0].message}", help=f"--{key} '{shown}'") from None


def _block(file: File, name: str | None) -> Compare | None:
    named: dict[str, Compare] = {}
    for c in file.compares:
        if c.name in named: raise error("E0642", f"two compare blocks are called `{c.name}`", c.span, Note(named[c.name].span, "the first"))
        named[c.name] = c
    if name is None:
        if len(named) > 1: raise error("E0642", f"the spec has {len(named)} compare blocks", help="--name " + " or --name ".join(named))
        return next(iter(named.values()), None)
    if name not in named:
        near = suggest(name, named, {})
        known = f"`{near[0]}`?" if near else f"known: {', '.join(named) or 'none'}"
        raise error("E0642", f"there is no compare block `{name}`", help=known)
    return named[name]


# ---- the keys ----------------------------------------------------------------------------------------------------------
def _items(e: Expr) -> tuple[Expr, ...]: return e.items if isinstance(e, List) else (e,)


def _models(e: Expr, file: File) -> tuple[str, ...]:
    for item in _items(e):
        if isinstance(item, Name) and item.name in file.models: continue
        near = suggest(item.name, file.models, ALIASES) if isinstance(item, Name) else []
        raise error("E0402", f"there is no model `{item.name}`" if isinstance(item, Name) else "a model is told by its name", item.span,
                    help=f"`{near[0]}`?" if near else f"models: {', '.join(file.models)}")
    return _once(e, [item.name for item in _items(e)])                                              # type: ignore[union-attr]


def _fit(e: Expr, file: File) -> Fit:
    given = {a.name or "target": a.value for a in e.arguments} if isinstance(e, Call) else {}
    if not isinstance(e, Call) or e.name != "params" or set(given) != {"target", "by"} or len(e.arguments) != 2:
        raise error("E0642", "models are brought to one size by a number of parameters, and the dims that may change", e.span,
                    help=KEYS["fit"])
    by = [item.name for item in _items(given["by"]) if isinstance(item, Name)]
    if not by or len(by) != len(_items(given["by"])):
        raise error("E0642", "`by` takes the names of dims", given["by"].span, help=KEYS["fit"])
    known = {n for m in file.models for n, entry in file.names_of(m).entries.items() if entry.kind == "dim"}
    for item in _items(given["by"]):
        if item.name in known: continue                                                              # type: ignore[union-attr]
        near = suggest(item.name, known, {})                                                         # type: ignore[union-attr]
        raise error("E0401", f"no dim is called `{item.name}`", item.span, help=f"`{near[0]}`?" if near else KEYS["fit"])   # type: ignore[union-attr]
    return Fit(whole(1)(given["target"], _scope(file)), tuple(by), e.span)                         # type: ignore[arg-type]


def _seeds(e: Expr, file: File) -> tuple[int, ...]:
    return _once(e, [whole(0)(item, _scope(file)) for item in _items(e)])


def _budget(e: Expr, file: File) -> Amount:
    if not isinstance(e, Quantity) or e.unit not in UNITS:
        raise error("E0634", f"`budget` is counted in {' or '.join(UNITS)}", e.span, help=KEYS["budget"])
    amount = whole(1)(e.amount, _scope(file)) if e.unit == "steps" else float(number(e.amount, _scope(file)))
    if not 0 < amount < float("inf"): raise error("E0633", "a budget must be above 0", e.span, help=KEYS["budget"])     # type: ignore[operator]
    return Amount(amount, e.unit, e.span)                                                          # type: ignore[arg-type]


def _rates(e: Expr, file: File) -> tuple[float, ...]:
    rates = [float(number(item, _scope(file))) for item in _items(e)]
    for item, rate in zip(_items(e), rates):
        if not 0 < rate < float("inf"): raise error("E0633", "a learning rate must be above 0", item.span, help=KEYS["lr"])
    return _once(e, rates)


def _patience(e: Expr, file: File) -> int: return whole(1)(e, _scope(file))                        # type: ignore[return-value]


def _once(e: Expr, found: list) -> tuple:
    if not found: raise error("E0642", "this list is empty", e.span)
    twice = next((x for k, x in enumerate(found) if x in found[:k]), None)
    if twice is not None: raise error("E0642", f"{twice} stands twice in this list", e.span)
    return tuple(found)


def _scope(file: File) -> Scope:
    found = {name: file.names.sizes.value(entry.value) for name, entry in file.names.entries.items()}
    return Scope({k: v for k, v in found.items() if v is not None}, frozenset(k for k, v in found.items() if v is None))


READERS: Mapping[str, Callable[[Expr, File], Any]] = {"models": _models, "fit": _fit, "seeds": _seeds, "budget": _budget, "lr": _rates,
                                                      "patience": _patience}
