"""The plans that are compared: what each comes to, and in what it differs from the first, by cause."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.books import compile_plan, compile_totals
from ledger.books.what_if.conditions import fault
from ledger.report.diff import together_notes
from ledger.report.gates import PlanOutcome, compiled_outcome
from ledger.report.movements import (
    BYTES,
    DOLLARS,
    RUN_SECONDS,
    Measure,
    Movement,
    bundle_inputs,
    compile_between,
    movements,
)
from ledger.report.pull_request.comparison import flips
from ledger.report.pull_request.pairs import Flip, plan_labels
from ledger.spec.git import printable
from ledger.spec.inputs import Change, changes
from ledger.spec.load import load_plan
from ledger.spec.overrides import read_overrides
from ledger.spec.paths import part_of
from ledger.spec.problems import SpecError, collect_results
from ledger.spec.sources import YAML

if TYPE_CHECKING:
    from ledger.books.compiled import Compiled
    from ledger.report.recommendations import Recommendations
    from ledger.spec.plan import Plan

    Search = Callable[[Plan], Recommendations | None]

LONGEST_NAME = 80  # letters of the name of a file
MOST = 8  # plans that stand side by side on a page
WORK = ("model", "train")  # parts of a plan that say what is trained
ANSWERED = ("run.tokens", "serve.prompt", "serve.output", "serve.prefix")  # inputs that say how much of it
CALENDAR = Measure("run_seconds", RUN_SECONDS, numbers.duration, numbers.signed_duration)
STEP = Measure("step_seconds", ("time.step",), numbers.duration, numbers.signed_duration)
ALIKE = (STEP, BYTES)  # what plans have that do not run, too
MEASURES = (DOLLARS, CALENDAR, *ALIKE)


@dataclass(frozen=True)
class ComparedPlan:
    """One of the plans: what tells it from the others, as it was typed, and what it comes to.

    `search`: what its other layouts recommend, of a plan that does not run where they were searched.
    """

    label: str
    spec: str
    compiled: Compiled
    outcome: PlanOutcome
    search: Recommendations | None = None

    @property
    def is_known(self) -> bool:
        """Whether its plan says enough for its memory to be known."""
        return "memory.reserved" in self.compiled.totals

    @property
    def runs(self) -> bool:
        """Whether it is known to run to its end, so that its days and dollars mean something."""
        return self.is_known and self.compiled.verdict.runs


@dataclass(frozen=True)
class PlanDifference:
    """A plan against the first: inputs that differ, and what they do to each measure that both plans have.

    `flips`: the word of the verdict in which the two differ, and the inputs that turn it.
    """

    label: str
    inputs: tuple[Change, ...]
    movements: tuple[Movement, ...]
    flips: tuple[Flip, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def work(self) -> tuple[str, ...]:
        """The inputs by which the two train another thing: tokens, the model, or which weights are trained."""
        paths = (change.path for change in self.inputs)
        return tuple(path for path in paths if path.startswith(ANSWERED) or part_of(path) in WORK)


def require_several(specs: Sequence[str]) -> None:
    """Raises SpecError for plans that are too few or too many to compare, and for one that is named twice."""
    _require_different(specs, specs)
    if not 2 <= len(specs) <= MOST:
        count = "one plan is" if len(specs) == 1 else f"{len(specs)} plans are"
        help_text = f"name two to {MOST} plans; `ledger sweep` compares the layouts of one"
        raise fault(" ".join(specs), 1, f"{count} named", help_text)


def compile_named(specs: Sequence[str], overrides: Sequence[str]) -> list[Compiled]:
    """Each of the plans with its books closed; raises SpecError with the problems of all of them."""
    require_several(specs)
    plans = collect_results(partial(load_named, spec, overrides) for spec in specs)
    _require_different(specs, [_plan_file(plan, spec) for plan, spec in zip(plans, specs, strict=True)])
    return collect_results(partial(compile_plan, plan) for plan in plans)


def _require_different(specs: Sequence[str], meanings: Sequence[Hashable]) -> None:
    """Raises SpecError where two of the specs mean the same."""
    place = next((place for place, meaning in enumerate(meanings) if meaning in meanings[:place]), None)
    if place is not None:
        first = specs[meanings.index(meanings[place])]
        again = "" if first == specs[place] else f", as `{first}` too"
        raise fault(specs[place], 1, f"`{specs[place]}` is named twice{again}", "name each plan once")


def _plan_file(plan: Plan, spec: str) -> Hashable:
    """The file that a plan was read from, whatever its spelling; the spec itself of one of a revision or of no file."""
    source = plan.reading.source if plan.reading else None
    if source is None or source.revision is not None or not Path(source.file).is_file():
        return spec
    return Path(source.file).resolve()


def load_named(spec: str, overrides: Sequence[str]) -> Plan:
    """A plan with what is set over all of them; a problem of what was typed says of which plan it is one."""
    try:
        return load_plan(spec, overrides)
    except SpecError as error:
        typed = {override.text for override in read_overrides(overrides)}
        problems = (
            replace(problem, message=f"of `{spec}`: {problem.message}") if problem.where.file in typed else problem
            for problem in error.problems
        )
        raise SpecError(problems, error.sources) from error


def compared_plans(specs: Sequence[str], plans: Sequence[Compiled]) -> tuple[ComparedPlan, ...]:
    """The compiled plans of specs under labels of their own."""
    labelled = zip(unique_labels(specs), specs, plans, strict=True)
    return tuple(
        ComparedPlan(label, printable(spec), compiled, compiled_outcome(compiled)) for label, spec, compiled in labelled
    )


def with_search(plans: Sequence[ComparedPlan], search: Search) -> tuple[ComparedPlan, ...]:
    """The plans, those that do not fit with what a search of their layouts recommends."""
    fitting = (plan.compiled.verdict.fits or not plan.is_known for plan in plans)
    return tuple(
        plan if fits else replace(plan, search=search(plan.compiled.plan))
        for plan, fits in zip(plans, fitting, strict=True)
    )


def unique_labels(specs: Sequence[str]) -> tuple[str, ...]:
    """What each plan is called: the name of its file, with folders where two share it, else as it was typed."""
    paths = ["stdin.yaml" if spec == "-" else spec if spec.endswith(YAML) else f"{spec}.yaml" for spec in specs]
    labels = plan_labels(paths)
    short_labels = tuple(labels[path] for path in paths)
    return short_labels if len({*short_labels}) == len(short_labels) else tuple(map(printable, specs))


def difference(first: ComparedPlan, plan: ComparedPlan) -> PlanDifference:
    """In what a plan differs from the first, and which inputs cause it; amounts of causes sum to each change."""
    old, new = first.compiled, plan.compiled
    inputs = changes(old.plan, new.plan)
    bundles = bundle_inputs(old.plan, new.plan, inputs)
    effects = compile_between((old.plan, old.totals), (new.plan, new.totals), bundles, compile_totals)
    measures = MEASURES if first.runs and plan.runs else ALIKE
    moved = tuple(movements(old.totals, new.totals, effects, measures))
    turned = tuple(flips(first.outcome, plan.outcome, effects))
    return PlanDifference(plan.label, inputs, moved, turned, together_notes(bundles, inputs))


def file_name(labels: Sequence[str]) -> str:
    """What the files of a comparison are called, by the plans; of many, by the first and a digest of all."""
    names = [re.sub(r"[^\w.+-]+", "-", label).strip("-.") or "plan" for label in labels]
    full_name = "-vs-".join(names)
    if len(full_name) <= LONGEST_NAME:
        return full_name
    digest = sha256("\0".join(labels).encode()).hexdigest()[:8]
    return f"{names[0][:LONGEST_NAME]}-vs-{len(labels) - 1}-others-{digest}"
