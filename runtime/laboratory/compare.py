"""An experiment: several models, learning rates and seeds on one budget, each a run in one folder; and what came of them.

Seconds are steps times the median time of a step of each model, measured in turn before the runs: the time of a run by itself tells how
the machine was that hour."""
from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from plait.compiler.equal import Equal, equal
from plait.compiler.expand import expand
from plait.compiler.file import File, open_file
from plait.dsl import override
from plait.dsl.errors import PlaitError, error
from plait.dsl.parser import parse, parse_override
from plait.dsl.printer import render
from plait.dsl.spec import Spec
from plait.runtime import record
from plait.runtime.batch import part, sequences
from plait.runtime.comparison import Comparison
from plait.runtime.folder import rows
from plait.runtime.laboratory.steps import Subject, step_of
from plait.runtime.laboratory.turns import Times, in_turn, unsteady, waiting
from plait.runtime.listing import listed
from plait.runtime.prepare import How, Prepared, prepare
from plait.runtime.recipe import Recipe
from plait.runtime.train import resume, train

EXPERIMENT, RUNS, FORM = "experiment.json", "runs", 1


@dataclass(frozen=True)
class Point:
    """One validation: loss and the other metrics, where it stands in steps, and in seconds of steps measured in turn."""
    step: int
    seconds: float
    loss: float
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Trained:
    """One run of an experiment and its validations."""
    model: str
    rate: float | None
    seed: int
    folder: Path
    curve: tuple[Point, ...]

    @property
    def best(self) -> Point:
        """Its own minimum."""
        return min(self.curve, key=lambda p: p.loss)


@dataclass(frozen=True)
class Compared:
    """runs: all, in the order in which they were made. equals: model → its size; times: model → seconds of a step, measured in turn."""
    comparison: Comparison
    folder: Path
    equals: Mapping[str, Equal]
    times: Mapping[str, Times]
    runs: tuple[Trained, ...]

    def chosen(self, model: str) -> list[Trained]:
        """The runs of a model at its best learning rate: the one with the lowest loss of the first seed."""
        own = [r for r in self.runs if r.model == model]
        rate = min((r for r in own if r.seed == own[0].seed), key=lambda r: r.best.loss).rate
        return [r for r in own if r.rate == rate]

    @property
    def ranking(self) -> list[str]:
        """The models by the mean of their best validation losses."""
        return sorted(self.equals, key=lambda m: statistics.mean(r.best.loss for r in self.chosen(m)))

    @property
    def unsteady(self) -> float:
        all_ = list(self.times.values())
        return unsteady([(t, all_[-1]) for t in all_[:-1]])


@dataclass(frozen=True)
class One:
    """A run that is wanted: a spec whose seed, rate and stop are set."""
    model: str
    rate: float | None
    seed: int
    spec: Spec

    @property
    def name(self) -> str:
        return f"{self.model}{'' if self.rate is None else f'-lr{self.rate:g}'}-seed{self.seed}"


class Experiment:
    """A folder in which runs are made one after another. What is there already is not made again.

    file: the spec; source: the folder where its data starts; rounds: in which step times are measured; say: is told what is done."""

    def __init__(self, file: File, source: Path, comparison: Comparison, folder: Path, *, device: torch.device, compile: bool = True,
                 kernels: Mapping[str, str] | None = None, rounds: int = 25, say: Callable[[str], None] = lambda line: None):
        self.file, self.source, self.comparison, self.folder = file, source, comparison, folder
        self.device, self.compile, self.how, self.rounds, self.say = device, compile, How(dict(kernels or {})), rounds, say
        self.equals: dict[str, Equal] = {}

    def run(self) -> Compared:
        """Makes what is missing. Raises PlaitError where a model cannot be trained, and where the folder holds another experiment."""
        kept = self._begun()
        made = {m: self._sized(m) for m in self.comparison.models or self.file.models}
        times = self._times(kept, made)
        found: list[Trained] = []
        seeds = self.comparison.seeds or (next(iter(made.values())).recipe.seed,)
        for model in made:
            first = [self._trained(self._one(model, rate, seeds[0], times), times) for rate in self.comparison.rates or (None,)]
            best = min(first, key=lambda r: r.best.loss).rate
            found += [*first, *(self._trained(self._one(model, best, seed, times), times) for seed in seeds[1:])]
        return Compared(self.comparison, self.folder, self.equals, times, tuple(found))

    # -- the folder --------------------------------------------------------------------------------------------------------------------
    def _facts(self) -> dict[str, Any]:
        return {"plait": FORM, "spec": render(self.file.spec), "comparison": self.comparison.as_json(), "kernels": dict(self.how.kernels),
                "compiled": self.compile}

    def _begun(self) -> dict[str, Any]:
        """What the folder holds of this experiment. Raises PlaitError where it is another one's."""
        path = self.folder / EXPERIMENT
        if not path.exists():
            if self.folder.exists() and any(self.folder.iterdir()):
                raise error("E0642", f"`{self.folder}` holds something else than an experiment", help="--out with another folder")
            return {}
        kept = experiment(self.folder)
        changed = [k for k, v in self._facts().items() if kept.get(k) != v]
        if changed:
            raise error("E0642", f"`{self.folder}` holds another experiment: its {' and '.join(changed)} differ",
                        help=f"plait compare {self.folder} goes on with that one; --out with another folder begins this one")
        return kept

    def _keep(self, content: Mapping[str, Any]) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            beside = self.folder / f".{EXPERIMENT}.new"
            beside.write_text(json.dumps(content, indent=1) + "\n")
            os.replace(beside, self.folder / EXPERIMENT)
        except OSError as why:
            raise error("E0620", f"the experiment cannot be kept in `{self.folder}`: {why.strerror or why}", help="--out FOLDER") from None

    # -- before the runs ---------------------------------------------------------------------------------------------------------------
    def _sized(self, model: str) -> Prepared:
        """A model as it is to be trained: with the vocabulary that its data has, brought to the size that is asked for."""
        made, fit = self._prepared(self.file.spec, model), self.comparison.fit
        self._can_be_compared(model, made.recipe)
        spec, by = parse(made.spec_text), None
        if fit is not None:
            found = equal(open_file(spec), model, fit.target, fit.by)
            spec, by = found.spec, found.by
            if by is not None: made = self._prepared(spec, model)
        self.equals[model] = Equal(model, spec, by, sum(p.numel() for p in made.module.parameters()))
        self.say(f"{model}: {self.equals[model].count:,} parameters" + ("" if by is None else f" with {by[0]} = {by[1]:,}"))
        return made

    def _prepared(self, spec: Spec, model: str) -> Prepared:
        return prepare(spec, model, self.source, device=self.device, compile=self.compile, how=self.how)

    def _can_be_compared(self, model: str, recipe: Recipe) -> None:
        if "loss" not in recipe.metrics:
            raise error("E0642", f"the train block of {model} evaluates no loss, and models are compared by it", recipe.span,
                        help="every 250 steps { evaluate(loss) }")
        if self.comparison.budget is None and recipe.stop.unit not in ("steps", "epochs"):
            raise error("E0642", f"the train block of {model} stops by {recipe.stop.unit}", recipe.stop.span, help="budget = 4k steps")

    def _times(self, kept: Mapping[str, Any], made: Mapping[str, Prepared]) -> dict[str, Times]:
        """Of a step of every model, in turn; those of the folder, where it has them."""
        if "step_seconds" in kept: return {m: Times(tuple(t)) for m, t in kept["step_seconds"].items()}
        self.say(f"a step of each model, {self.rounds} rounds in turn")
        steps = {}
        for m, p in made.items():
            file = open_file(parse(p.spec_text))
            batch = sequences(p.recipe, p.dataset.length)
            subject = Subject(file, expand(file, m, loss=True), batch, self.how.kernels, self.compile)
            steps[m] = step_of(subject, self.device, part(p.recipe, p.dataset.length))
        times = in_turn(steps, self.rounds, wait=waiting(self.device))
        sizes = {m: {"params": e.count, "by": None if e.by is None else {e.by[0]: e.by[1]}} for m, e in self.equals.items()}
        self._keep({**self._facts(), "source": str(self.source.absolute()), "models": sizes, "machine": record.machine(self.device),
                    "step_seconds": {m: list(t.each) for m, t in times.items()}})
        for m, t in times.items(): self.say(f"  {m}: {1e3 * t.median:.1f} ms a step")
        return times

    def _one(self, model: str, rate: float | None, seed: int, times: Mapping[str, Times]) -> One:
        settings = [f"train.seed={seed}"]
        if rate is not None: settings.append(f"train.lr={rate!r}")
        budget = self.comparison.budget
        if budget is not None:
            steps = budget.amount if budget.unit == "steps" else max(1, int(60 * float(budget.amount) / times[model].median))  # type: ignore[arg-type]
            settings.append(f"train.stop={steps} steps")
        return One(model, rate, seed, override.apply(self.equals[model].spec, tuple(map(parse_override, settings))))

    # -- a run -------------------------------------------------------------------------------------------------------------------------
    def _trained(self, one: One, times: Mapping[str, Times]) -> Trained:
        """Made, or gone on with where it stands. One that diverged counts with what it reached."""
        folder = self.folder / RUNS / one.name
        patience = Patience(folder, self.comparison.patience)
        if not ((folder / record.SPEC).exists() and (patience.spent() or listed(folder).state == "finished")):
            try: self._go(one, folder, patience)
            except PlaitError as wrong:
                if wrong.diagnostics[0].code != "E0622" or not curve(folder, 1.0): raise
                self.say(f"{one.name}: {wrong.diagnostics[0].message}")
        found = Trained(one.model, one.rate, one.seed, folder, curve(folder, times[one.model].median))
        if not found.curve:
            raise error("E0642", f"the run {one.name} ended without an evaluation", help="a larger budget, or `every` fewer steps")
        best = found.best
        self.say(f"{one.name}: best loss {best.loss:.4f} at step {best.step:,}, {best.seconds:,.0f} s of steps")
        return found

    def _go(self, one: One, folder: Path, patience: Patience) -> None:
        made = self._prepared(one.spec, one.model)
        if (folder / record.SPEC).exists():
            done = resume(made.module, made.recipe, made.dataset, folder, device=self.device, enough=patience.spent)
        else:
            done = train(made.module, made.recipe, made.dataset, folder, spec_text=made.spec_text, device=self.device,
                         plan={**made.how.as_json(), "compiled": self.compile}, enough=patience.spent)
        if done.interrupted: raise KeyboardInterrupt


@dataclass(frozen=True)
class Patience:
    """Ends a run after so many evaluations without a better loss; None: never."""
    folder: Path
    evaluations: int | None

    def spent(self) -> bool:
        if self.evaluations is None: return False
        losses = [p.loss for p in curve(self.folder, 1.0)]
        return bool(losses) and len(losses) - 1 - losses.index(min(losses)) >= self.evaluations


def curve(folder: Path, seconds: float) -> tuple[Point, ...]:
    """The validations of a run. seconds: of a step."""
    found = []
    for r in rows(folder):
        loss = r.get("loss")
        if r.get("split") != "validation" or not isinstance(loss, float | int) or not math.isfinite(loss): continue
        others = {k: float(v) for k, v in r.items() if k in ("accuracy", "bits_per_token", "bleu") and isinstance(v, float | int)}
        found.append(Point(r["step"], r["step"] * seconds, float(loss), others))
    return tuple(found)


def experiment(folder: Path) -> dict[str, Any]:
    """What a folder says of its experiment. Raises PlaitError where it holds none."""
    try: found = json.loads((folder / EXPERIMENT).read_bytes())
    except OSError: raise error("E0642", f"`{folder}` holds no experiment", help="plait compare SPEC --out FOLDER makes one") from None
    except (ValueError, RecursionError): found = None
    if not isinstance(found, dict) or found.get("plait") != FORM:
        raise error("E0642", f"{EXPERIMENT} in `{folder}` cannot be used: it is damaged, or of another version of plait")
    return found
