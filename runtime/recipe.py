"""A train block, read and checked: what `plait.runtime.train` follows. Needs no torch, so that `plait check` can use it."""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plait.dsl.errors import Diagnostic, Note, PlaitError, Span
from plait.dsl.spec import Binary, Call, Dims, Every, Expr, Model, Name, Quantity, Setting, Spec, Train
from plait.dsl.spec import Dim as DimEntry
from plait.dsl.suggest import ALIASES, suggest
from plait.runtime.arguments import Waiting, arguments, read, real, whole, word
from plait.runtime.formula import Formula, Numeric, Scope, Unbound, faults
from plait.runtime.sources import ACTIONS, METRICS, METRICS_BUILT, OPTIMIZERS, SOURCES, Entry

KEYS = ("data", "loss", "batch", "microbatch", "optimizer", "lr", "clip", "stop", "precision", "average", "seed")
NEEDED = ("data", "loss", "batch", "lr", "stop")
HELP = {"data": 'data = text("FILE")', "loss": "loss = cross_entropy(logits, next(text))", "batch": "batch = 32 sequences",
        "lr": "lr = 3e-4", "stop": "stop = 1k steps"}


@dataclass(frozen=True)
class Described:
    """A named thing with its arguments: a data source, an optimiser, an action of `every`. Defaults are filled in."""
    kind: str
    arguments: Mapping[str, object]
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def metrics(self) -> tuple[str, ...]:
        """What an action has to measure."""
        if self.kind == "evaluate": return self.arguments["metrics"]                         # type: ignore[return-value]
        best = self.arguments.get("best") if self.kind == "checkpoint" else None
        return (str(best),) if best else ()


@dataclass(frozen=True)
class Amount:
    """`8 sequences`, `100k steps`."""
    amount: Numeric | Waiting
    unit: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Periodic:
    """`every N steps { … }`; an `evaluate` has its metrics under `metrics`."""
    period: int
    actions: tuple[Described, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Recipe:
    """How one model is trained. `loss` stays an expression: the compiler has made the loss graph from it.
    `waiting`: free dims that some value waits for. `keys`: where each key was set."""
    model: str
    data: Described
    loss: Call
    batch: Amount
    lr: Formula
    stop: Amount
    optimizer: Described
    microbatch: Amount | None = None
    clip: float | None = None
    precision: str = "fp32"
    average: float | None = None
    seed: int = 0
    every: tuple[Periodic, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)
    keys: Mapping[str, Span] = field(default_factory=dict, compare=False, repr=False)

    def actions(self, kind: str) -> list[Described]:
        """All actions of a kind, whatever their period."""
        return [a for e in self.every for a in e.actions if a.kind == kind]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that any action asks for, in the order of METRICS; none where nothing is evaluated."""
        asked = {m for e in self.every for a in e.actions for m in a.metrics}
        return tuple(m for m in METRICS if m in asked)

    @property
    def best(self) -> str | None:
        """The metric whose best checkpoint is kept."""
        return next((str(m) for a in self.actions("checkpoint") if (m := a.arguments["best"])), None)


def recipe(spec: Spec, model: str, names: Mapping[str, Numeric]) -> Recipe | None:
    """The train block of a model, read: the one that names it, else one that names none; else None.

    `names`: the values of dims and lets. A dim of the spec without a value there is free: what needs it waits (`Recipe.waiting`).
    Raises PlaitError with all that is wrong."""
    trains = [t for t in spec.items if isinstance(t, Train)]
    blocks = [t for t in trains if any(m.name == model for m in t.models)] or [t for t in trains if not t.models]
    if not blocks: return None
    out: list[Diagnostic] = []
    if len(blocks) > 1:
        first = Note(blocks[0].span, "the first")
        out.append(Diagnostic("E0637", f"two train blocks are for the model `{model}`", blocks[1].span, (first,)))
    scope = Scope(dict(names), _free(spec, model) - names.keys())
    block = blocks[0]
    settings = _settings(block, out)
    values: dict[str, Any] = {key: READERS[key](s.value, scope, out) for key, s in settings.items()}
    every = tuple(_periodic(e, scope, out) for e in block.entries if isinstance(e, Every))
    _agree(settings, values, every, out)
    if out: raise PlaitError(*out)
    waiting = tuple(_waiting([*values.values(), *every]))
    return Recipe(model=model, every=every, waiting=waiting, span=block.span,
                  keys={key: _placed(s) for key, s in settings.items()}, **{"optimizer": _default_optimizer(scope), **values})


def _placed(s: Setting) -> Span:
    """Where a key was set: in the file, or by the override that its value came from."""
    return s.value.span if s.value.span.source is not s.span.source else s.span


def trainable(recipe: Recipe) -> None:
    """Raises PlaitError where the recipe asks for something that this version reads but cannot run, or waits for a free dim."""
    out: list[Diagnostic] = []

    def refuse(what: str, span: Span | None, works: str) -> None:
        out.append(Diagnostic("E0636", f"{what} cannot be trained with yet", span, help=f"today: {works}"))

    data, optimizer = recipe.data, recipe.optimizer
    if not SOURCES[data.kind].built: refuse(f"data from `{data.kind}`", data.span, _built(SOURCES))
    if not OPTIMIZERS[optimizer.kind].built: refuse(f"the optimizer `{optimizer.kind}`", optimizer.span, _built(OPTIMIZERS))
    for action in recipe.actions("evaluate"):
        for metric in set(action.arguments["metrics"]) - set(METRICS_BUILT):                     # type: ignore[call-overload]
            refuse(f"the metric `{metric}`", action.span, ", ".join(METRICS_BUILT))
    for action in recipe.actions("checkpoint"):
        if action.arguments["best"] not in (None, *METRICS_BUILT):
            refuse(f"the metric `{action.arguments['best']}`", action.span, ", ".join(METRICS_BUILT))
    for missing in recipe.waiting:
        out.append(Diagnostic("E0638", f"`{missing.dim}` has no value", missing.span, help=f"--set {missing.dim}=…"))
    if out: raise PlaitError(*out)


def _built(entries: Mapping[str, Entry]) -> str:
    return ", ".join(name for name, entry in entries.items() if entry.built)


# ---- the keys ----------------------------------------------------------------------------------------------------------
def _settings(block: Train, out: list[Diagnostic]) -> dict[str, Setting]:
    """key → setting, each known and given once; says which needed ones are missing."""
    found: dict[str, Setting] = {}
    for s in block.entries:
        if not isinstance(s, Setting): continue
        place = s.name_span or s.span
        if s.name not in KEYS:
            close = suggest(s.name, [*KEYS, "every"], ALIASES)
            help = " or ".join(f"`{k}`" for k in close) + "?" if close else f"known: {', '.join(KEYS)}, every"
            out.append(Diagnostic("E0631", f"a train block has no key `{s.name}`", place, help=help))
        elif s.name in found:
            out.append(Diagnostic("E0631", f"`{s.name}` is set twice", place, (Note(found[s.name].span),)))
        else:
            found[s.name] = s
    for key in NEEDED:
        if key not in found: out.append(Diagnostic("E0631", f"the train block does not say `{key}`", block.span, help=HELP[key]))
    return found


def _chosen(entries: Mapping[str, Entry], noun: str) -> Callable[[Expr, Scope, list[Diagnostic]], Described | None]:
    """Reads a call by a table of entries."""
    def reader(e: Expr, scope: Scope, out: list[Diagnostic]) -> Described | None:
        if not isinstance(e, Call | Name):
            out.append(Diagnostic("E0632", f"{noun} is needed here", e.span, help=f"known: {', '.join(entries)}"))
        elif e.name not in entries:
            close = suggest(e.name, list(entries), ALIASES)
            help = " or ".join(f"`{n}`" for n in close) + "?" if close else f"known: {', '.join(entries)}"
            place = getattr(e, "name_span", None) or e.span
            out.append(Diagnostic("E0632", f"there is no {noun.split(' ', 1)[1]} `{e.name}`", place, help=help))
        else:
            return Described(e.name, arguments(e, entries[e.name].parameters, scope, out), e.span)
        return None
    return reader


def _amount(what: str, units: Sequence[str], whole_units: Sequence[str]) -> Callable[[Expr, Scope, list[Diagnostic]], Amount | None]:
    """Reads `8 sequences`: the unit must be one of `units`; amounts are above 0, and whole in `whole_units`."""
    above = real(lambda x: 0 < x < math.inf, "above 0")
    whole_number = whole(1)

    def reader(e: Expr, scope: Scope, out: list[Diagnostic]) -> Amount | None:
        if not isinstance(e, Quantity) or e.unit not in units:
            counted = " or ".join(units)
            said = f"`{what}` is counted in {counted}" + (f", not in {e.unit}" if isinstance(e, Quantity) else ": its unit is missing")
            shown = e.amount if isinstance(e, Quantity) else e
            out.append(Diagnostic("E0634", said, e.span, help=f"{what} = {_written(shown)} {units[0]}"))
            return None
        amount = read(whole_number if e.unit in whole_units else above, e.amount, scope, out)
        return None if amount is None else Amount(amount, e.unit, e.span)                     # type: ignore[arg-type]
    return reader


def _written(e: Expr) -> str:
    return e.span.source.text[e.span.start:e.span.end]


def _formula(e: Expr, scope: Scope, out: list[Diagnostic]) -> Formula | None:
    found = list(faults(e, scope, schedule=True))
    out.extend(found)
    return None if found else Formula(e, scope)


def _loss(e: Expr, scope: Scope, out: list[Diagnostic]) -> Call | None:
    if isinstance(e, Call): return e
    out.append(Diagnostic("E0633", "a loss is a call", e.span, help=HELP["loss"].removeprefix("loss = ")))
    return None


def _plainly(reader) -> Callable[[Expr, Scope, list[Diagnostic]], object]:
    return lambda e, scope, out: read(reader, e, scope, out)


READERS: dict[str, Callable[[Expr, Scope, list[Diagnostic]], object]] = {
    "data": _chosen(SOURCES, "a data source"),
    "loss": _loss,
    "batch": _amount("batch", ("sequences", "tokens"), ("sequences", "tokens")),
    "microbatch": _amount("microbatch", ("sequences", "tokens"), ("sequences", "tokens")),
    "optimizer": _chosen(OPTIMIZERS, "an optimizer"),
    "lr": _formula,
    "clip": _plainly(real(lambda x: 0 < x < math.inf, "above 0")),
    "stop": _amount("stop", ("steps", "epochs", "tokens", "minutes"), ("steps", "tokens")),
    "precision": _plainly(word("fp32", "bf16")),
    "average": _plainly(real(lambda x: 0 < x < 1, "above 0 and below 1")),
    "seed": _plainly(whole(0, 2**63 - 1)),
}


def _default_optimizer(scope: Scope) -> Described:
    return Described("adam", {name: p.default for name, p in OPTIMIZERS["adam"].parameters.items()})


# ---- every -------------------------------------------------------------------------------------------------------------
def _periodic(e: Every, scope: Scope, out: list[Diagnostic]) -> Periodic:
    period = _amount("every", ("steps",), ("steps",))(e.period, scope, out)
    actions = tuple(a for a in (_action(c, scope, out) for c in e.actions) if a)
    if not e.actions: out.append(Diagnostic("E0633", "`every` has nothing to do", e.span, help="every 100 steps { evaluate(loss) }"))
    return Periodic(period.amount if period else 0, actions, e.span)                          # type: ignore[arg-type]


def _action(call: Call, scope: Scope, out: list[Diagnostic]) -> Described | None:
    if call.name != "evaluate": return _chosen(ACTIONS, "an action")(call, scope, out)
    metrics = []
    for a in call.arguments:
        if a.name is None and isinstance(a.value, Name) and a.value.name in METRICS: metrics.append(a.value.name)
        else:
            close = suggest(a.value.name, list(METRICS), ALIASES) if isinstance(a.value, Name) else []
            help = " or ".join(f"`{n}`" for n in close) + "?" if close else f"known: {', '.join(METRICS)}"
            out.append(Diagnostic("E0632", "`evaluate` takes metrics", a.span, help=help))
    return Described("evaluate", {"metrics": tuple(dict.fromkeys(metrics)) or ("loss",)}, call.span)


# ---- what must fit together --------------------------------------------------------------------------------------------
def _agree(settings: Mapping[str, Setting], values: Mapping[str, object], every: Sequence[Periodic], out: list[Diagnostic]) -> None:
    batch, micro, stop, lr, optimizer = (values.get(k) for k in ("batch", "microbatch", "stop", "lr", "optimizer"))
    given = optimizer.arguments if isinstance(optimizer, Described) and optimizer.kind == "sgd" else {}
    if isinstance(optimizer, Described) and given.get("nesterov") and given["momentum"] == 0:
        out.append(Diagnostic("E0633", "`nesterov` looks ahead by the momentum, and there is none", optimizer.span,
                              help="sgd(momentum = 0.9, nesterov = true)"))
    bests = [a for e in every for a in e.actions if a.kind == "checkpoint" and a.arguments["best"]]
    if other := next((a for a in bests if a.arguments["best"] != bests[0].arguments["best"]), None):
        first = (Note(bests[0].span, "the first"),) if bests[0].span else ()
        out.append(Diagnostic("E0633", "one metric says which checkpoint is the best", other.span, first))
    if isinstance(batch, Amount) and isinstance(micro, Amount): _micro_fits(batch, micro, out)
    if isinstance(lr, Formula) and (stop is None or isinstance(stop, Amount)):
        in_steps = stop is not None and stop.unit == "steps" and isinstance(stop.amount, int)
        last = stop.amount if in_steps else 1000                                             # type: ignore[union-attr]
        _rate_is_sound(lr, last, in_steps, settings["lr"].value, out)                        # type: ignore[arg-type]


def _micro_fits(batch: Amount, micro: Amount, out: list[Diagnostic]) -> None:
    if batch.unit != micro.unit:
        out.append(Diagnostic("E0634", f"`batch` is in {batch.unit} and `microbatch` in {micro.unit}", micro.span))
    elif isinstance(batch.amount, int) and isinstance(micro.amount, int) and batch.amount % micro.amount:
        out.append(Diagnostic("E0633", "the batch must be a whole number of microbatches", micro.span,
                              numbers=f"batch / microbatch = {batch.amount:,} / {micro.amount:,} leaves {batch.amount % micro.amount:,}"))


def _rate_is_sound(lr: Formula, last: int, known: bool, written: Expr, out: list[Diagnostic]) -> None:
    """The rate must be a number and not negative, at the first step, half way, and at the last."""
    for step in sorted({1, max(1, last // 2), last} if known else {1, last}):
        try: rate = lr(step, last)
        except Unbound: return
        if not (math.isfinite(rate) and rate >= 0):
            what = "negative" if rate < 0 else "not a number"
            out.append(Diagnostic("E0635", f"the learning rate is {what} at step {step:,}", written.span,
                                  numbers=f"lr({step:,}) = {rate:g}"))
            return


def _free(spec: Spec, model: str) -> frozenset[str]:
    """The dims of the file and of the model, bound or not."""
    own = [m for item in spec.items if isinstance(item, Model) and item.name == model for m in item.members]
    blocks = [d for d in [*spec.items, *own] if isinstance(d, Dims)]
    return frozenset(entry.name for block in blocks for entry in block.entries if isinstance(entry, DimEntry))


def _waiting(values: Sequence[object]) -> list[Waiting]:
    """Every Waiting in a tree of values, and the free dims of formulas."""
    found: list[Waiting] = []
    for v in values:
        if isinstance(v, Waiting): found.append(v)
        elif isinstance(v, Formula): found += [Waiting(n.name, n.span) for n in _names(v.expression) if n.name in v.scope.free]
        elif isinstance(v, Described): found += _waiting(list(v.arguments.values()))
        elif isinstance(v, Amount): found += _waiting([v.amount])
        elif isinstance(v, Periodic): found += _waiting([v.period, *v.actions])
        elif isinstance(v, tuple): found += _waiting(list(v))
    return found


def _names(e: Expr) -> list[Name]:
    if isinstance(e, Name): return [e]
    if isinstance(e, Call): return [n for a in e.arguments for n in _names(a.value)]
    if isinstance(e, Binary): return _names(e.left) + _names(e.right)
    return _names(e.operand) if hasattr(e, "operand") else []
