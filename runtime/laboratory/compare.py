"""An experiment: several models, learning rates and seeds on one budget, each a run in one folder.

Seconds are steps times the median time of a step of each model, measured in turn before the runs: the time of a run by itself tells how
the machine was that hour."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from plait.compiler.equal import Equal, equal
from plait.compiler.expand import expand
from plait.compiler.file import File, open_file
from plait.dsl import override
from plait.dsl.errors import PlaitError, error
from plait.dsl.parser import parse, parse_override
from plait.dsl.printer import expression, render
from plait.dsl.spec import Spec
from plait.runtime import checkpoint, record
from plait.runtime.batch import Stop, part, sequences
from plait.runtime.comparison import Comparison, can_be_compared
from plait.runtime.folder import EXPERIMENT, RUNS, rows
from plait.runtime.laboratory import experiment
from plait.runtime.laboratory.experiment import FORM, Kept
from plait.runtime.laboratory.outcome import Compared, Patience, Trained, curve
from plait.runtime.laboratory.steps import Subject, step_of
from plait.runtime.laboratory.turns import Times, in_turn, waiting
from plait.runtime.listing import listed
from plait.runtime.prepare import How, Prepared, prepare
from plait.runtime.surroundings import repeatable
from plait.runtime.train import resume, train

NEAR = 0.1                                                    # how far from the size that is asked for a model may be


@dataclass(frozen=True)
class One:
    """A run that is wanted: a spec whose seed, rate and stop are set."""
    model: str
    rate: float | None
    seed: int
    spec: Spec

    @property
    def name(self) -> str:
        return f"{self.model}{'' if self.rate is None else f'-lr{self.rate!r}'}-seed{self.seed}"


class Experiment:
    """A folder in which runs are made one after another. What is there already is not made again.

    file: the spec; source: the folder where its data starts; rounds: in which step times are measured; say: is told what is done;
    costs: what a run folder keeps of what was derived of its model."""

    def __init__(self, file: File, source: Path, comparison: Comparison, folder: Path, *, device: torch.device, compile: bool = True,
                 kernels: Mapping[str, str] | None = None, rounds: int = 25, say: Callable[[str], None] = lambda line: None,
                 costs: Callable[[Prepared], Mapping[str, Any]] | None = None):
        self.file, self.source, self.comparison, self.folder = file, source, comparison, folder
        self.device, self.compile, self.how, self.rounds, self.say = device, compile, How(dict(kernels or {})), rounds, say
        self.costs = costs
        self.equals: dict[str, Equal] = {}
        self.made: dict[str, Prepared] = {}
        self.formulas: dict[tuple[str, float], str] = {}

    def run(self) -> Compared:
        """Makes what is missing. Raises PlaitError where a model cannot be trained, and where the folder holds another experiment."""
        can_be_compared(self.file, self.comparison)
        kept = self._begun()
        made = self.made = {m: self._sized(m) for m in self.comparison.models or self.file.models}
        data = {m: record.data_facts(p.dataset) for m, p in made.items()}
        times = self._measured(made, data) if kept is None else self._as_before(kept, data)
        self.say(f"the experiment is in {self.folder}; `plait compare {self.folder}` goes on with it where it is stopped")
        self.formulas = {(m, rate): self._formula(m, rate, times) for m in made for rate in self.comparison.rates}
        found: list[Trained] = []
        seeds = self.comparison.seeds or (next(iter(made.values())).recipe.seed,)
        self._tell_how_long(times, max(1, len(self.comparison.rates)) + len(seeds) - 1)
        for model in made:
            first = [self._trained(self._one(model, rate, seeds[0], times), times) for rate in self.comparison.rates or (None,)]
            best = min(first, key=lambda r: r.best.loss).rate
            found += [*first, *(self._trained(self._one(model, best, seed, times), times) for seed in seeds[1:])]
        return Compared(self.comparison, self.folder, self.equals, times, tuple(found))

    # -- the folder --------------------------------------------------------------------------------------------------------------------
    def _facts(self) -> dict[str, Any]:
        return {"plait": FORM, "spec": render(self.file.spec), "comparison": self.comparison.as_json(), "kernels": dict(self.how.kernels),
                "compiled": self.compile}

    def _begun(self) -> Kept | None:
        """What the folder holds of this experiment. Raises PlaitError where it is another one's."""
        if not (self.folder / EXPERIMENT).exists():
            experiment.empty(self.folder)
            return None
        kept = experiment.read(self.folder)
        names = {"spec": "spec", "comparison": "compare block", "kernels": "kernels", "compiled": "--eager"}
        changed = [name for k, name in names.items() if kept.content.get(k) != self._facts()[k]]
        if not changed: return self._here(kept)
        raise error("E0642", f"`{self.folder}` holds another experiment: it differs in {' and '.join(changed)}",
                    help=f"plait compare {self.folder} goes on with that one; --out with another folder begins this one")

    def _here(self, kept: Kept) -> Kept:
        """Raises PlaitError where its steps were timed on a device of another kind: seconds would be those of no machine."""
        machine = kept.content.get("machine")
        timed = str(machine.get("device", self.device) if isinstance(machine, dict) else self.device).partition(":")[0]
        if timed == self.device.type: return kept
        raise error("E0642", f"the steps of the experiment `{self.folder}` were timed on {timed}, and it would go on on {self.device.type}",
                    help=f"--device {timed}; or --out with another folder begins this one")

    def _as_before(self, kept: Kept, data: Mapping[str, Any]) -> Mapping[str, Times]:
        """The times of the folder. Raises PlaitError where the data is not what its runs were made on."""
        changed = [m for m, facts in data.items() if kept.data.get(m) != facts]
        if changed:
            raise error("E0614", f"the data of {' and '.join(changed)} is not what the experiment `{self.folder}` began with",
                        help="put the old file back, or --out with another folder")
        missing = [m for m in data if m not in kept.times]
        if missing: raise experiment.damaged(self.folder, f"it has no step time of {' and '.join(missing)}")
        self.say(f"a step of each model, as measured when the experiment began, {len(next(iter(kept.times.values())).each)} rounds in turn")
        return kept.times

    # -- before the runs ---------------------------------------------------------------------------------------------------------------
    def _sized(self, model: str) -> Prepared:
        """A model as it is to be trained: with the vocabulary that its data has, brought to the size that is asked for."""
        made, fit = self._prepared(self.file.spec, model), self.comparison.fit
        spec, by = parse(made.spec_text), None
        if fit is not None:
            found = equal(open_file(spec), model, fit.target, fit.by)
            spec, by = found.spec, found.by
            if by is not None: made = self._prepared(spec, model)
            if abs(found.count - fit.target) > NEAR * fit.target:
                near = f"the nearest that it can have by {by[0]} is {found.count:,}" if by else f"they do not depend on {', '.join(fit.by)}"
                raise error("E0642", f"{model} cannot be brought to {fit.target:,} parameters: {near}", fit.span,
                            help="another number, or other dims")
        self.equals[model] = Equal(model, spec, by, sum(p.numel() for p in made.module.parameters()))
        self.say(f"{model}: {self.equals[model].count:,} parameters" + ("" if by is None else f" with {by[0]} = {by[1]:,}"))
        return made

    def _prepared(self, spec: Spec, model: str) -> Prepared:
        return prepare(spec, model, self.source, device=self.device, compile=self.compile, how=self.how)

    def _measured(self, made: Mapping[str, Prepared], data: Mapping[str, Any]) -> Mapping[str, Times]:
        """Of a step of every model, in turn."""
        self.say(f"a step of each model, {self.rounds} rounds in turn")
        steps = {}
        for m, p in made.items():
            file = open_file(parse(p.spec_text))
            subject = Subject(file, expand(file, m, loss=True), sequences(p.recipe, p.dataset.length), self.how.kernels, self.compile)
            steps[m] = step_of(subject, self.device, part(p.recipe, p.dataset.length))
        with repeatable(self.device): times = in_turn(steps, self.rounds, wait=waiting(self.device))
        sizes = {m: {"params": e.count, "by": None if e.by is None else {e.by[0]: e.by[1]}} for m, e in self.equals.items()}
        experiment.keep(self.folder, {**self._facts(), "source": str(self.source.absolute()), "models": sizes, "data": data,
                                      "machine": record.machine(self.device), "step_seconds": {m: list(t.each) for m, t in times.items()}})
        for m, t in times.items(): self.say(f"  {m}: {1e3 * t.median:.1f} ms a step")
        return times

    def _tell_how_long(self, times: Mapping[str, Times], runs: int) -> None:
        """runs: of each model."""
        seconds = runs * sum(self._steps(m, times) * times[m].median for m in self.made)
        most = " at most" if self.comparison.patience else ""
        self.say(f"{runs * len(self.made)} runs, of {seconds / 60:,.1f} minutes of steps together{most}")

    def _one(self, model: str, rate: float | None, seed: int, times: Mapping[str, Times]) -> One:
        settings = [f"train.seed={seed}"]
        if rate is not None: settings.append(f"train.lr={self.formulas[model, rate]}")
        if self.comparison.budget is not None: settings.append(f"train.stop={self._steps(model, times)} steps")
        return One(model, rate, seed, override.apply(self.equals[model].spec, tuple(map(parse_override, settings))))

    def _formula(self, model: str, rate: float, times: Mapping[str, Times]) -> str:
        """The formula of the train block, scaled so that its highest rate is this one. Raises PlaitError where it has none above 0."""
        recipe = self.made[model].recipe
        if recipe.lr.constant: return repr(rate)
        highest = recipe.lr.highest(self._steps(model, times))
        if not highest > 0: raise error("E0642", f"the rate of {model} is nowhere above 0, and cannot be scaled", recipe.keys.get("lr"),
                                        help="lr = cosine(1e-3, 1e-4, 100)")
        text = expression(recipe.lr.with_numbers())            # a setting goes into every train block, and names may be one model's
        return text if rate == highest else f"{rate!r} / {highest!r} * ({text})"

    def _steps(self, model: str, times: Mapping[str, Times]) -> int:
        """Of a run. Raises PlaitError where the budget has room for none."""
        budget = self.comparison.budget
        if budget is None: return Stop(self.made[model].recipe, self.made[model].dataset).planned or 0
        if budget.unit == "steps": return int(budget.amount)                                        # type: ignore[arg-type]
        found = int(60 * float(budget.amount) / times[model].median)                                # type: ignore[arg-type]
        if found: return found
        raise error("E0642", f"a step of {model} takes {times[model].median:.2g} s, longer than the budget", budget.span,
                    help="a larger budget; it may be in steps")

    # -- a run -------------------------------------------------------------------------------------------------------------------------
    def _trained(self, one: One, times: Mapping[str, Times]) -> Trained:
        """Made, or gone on with where it stands. One that diverged counts with what it reached."""
        folder, diverged = self.folder / RUNS / one.name, False
        patience = Patience(folder, self.comparison.patience)
        if not self._is_done(one, folder, patience):
            try: self._go(one, folder, patience)
            except PlaitError as wrong:
                first = wrong.diagnostics[0]
                if first.code == "E0623":                     # a run goes on by itself, an experiment as a whole
                    raise PlaitError(replace(first, help=f"make room, then plait compare {self.folder}")) from None
                if first.code != "E0622": raise
                self.say(f"{one.name}: {first.message}")
                diverged = True
        found = Trained(one.model, one.rate, one.seed, folder, curve(folder, times[one.model].median), diverged)
        if not found.curve and not diverged:
            raise error("E0642", f"the rows of the run `{folder}` are lost", help="remove its folder, and go on")
        best = found.best
        if found.curve: self.say(f"{one.name}: best loss {best.loss:.4f} at step {best.step:,}, {best.seconds:,.0f} s of steps")
        return found

    def _is_done(self, one: One, folder: Path, patience: Patience) -> bool:
        """Has it come to its end, and is the end saved? Raises PlaitError where the folder holds another run."""
        if not (folder / record.SPEC).exists(): return False
        if record.spec_text(folder) != render(one.spec):
            raise error("E0642", f"`{folder}` holds another run than {one.name} of this experiment", help="remove it, and go on")
        last = max((r["step"] for r in rows(folder)), default=0)
        saved = checkpoint.steps(folder)[-1:] == [last]
        return saved and (patience.spent() or listed(folder).state == "finished")

    def _go(self, one: One, folder: Path, patience: Patience) -> None:
        made = self._prepared(one.spec, one.model)
        if (folder / record.SPEC).exists():
            done = resume(made.module, made.recipe, made.dataset, folder, device=self.device, enough=patience.spent)
        else:
            done = train(made.module, made.recipe, made.dataset, folder, spec_text=made.spec_text, device=self.device,
                         table=None if self.costs is None else dict(self.costs(made)),
                         plan={**made.how.as_json(), "compiled": self.compile}, enough=patience.spent)
        if done.interrupted: raise KeyboardInterrupt
