"""What `solve` answers: values with every condition at them and one step beyond, or the nearest miss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from ledger.books.results import Number
from ledger.books.verdict import headroom
from ledger.books.what_if.conditions import Condition
from ledger.books.what_if.ordered import SMALLEST, Answer, Objective
from ledger.books.what_if.sought import NEXT_REAL, Settings, Trial, Value
from ledger.numbers import with_unit
from ledger.spec.device_parts import cluster_warnings
from ledger.spec.headroom import headroom_words
from ledger.spec.plan import Plan

Totals = Mapping[str, Number]


@dataclass(frozen=True)
class Question:
    """What is asked of a plan with these totals as it is given, and what is to be said of any answer.

    `listed_totals` are totals that are told of all that is tried, beside those that are asked for.
    """

    plan: Plan
    plan_totals: Totals
    conditions: tuple[Condition, ...]
    objective: Objective | None
    notes: tuple[str, ...]
    listed_totals: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The totals that are asked for, each once."""
        limits = [key for condition in self.conditions for key in (condition.key, condition.against)]
        return tuple(dict.fromkeys(key for key in (*limits, self.objective.key if self.objective else "") if key))

    def bounds(self, here: Totals | None, beyond: Totals | None, *, met: bool) -> tuple[Bound, ...]:
        """Every condition; of an answer those bind that fail one step beyond, of a miss those that fail."""
        decides = beyond if met else here
        return tuple(
            Bound(
                condition.text,
                condition.key,
                condition.bound(here or self.plan_totals),
                self.plan_totals.get(condition.key),
                None if here is None else here.get(condition.key),
                None if beyond is None else beyond.get(condition.key),
                binds=not met if decides is None or condition.key not in decides else not condition.holds(decides),
            )
            for condition in self.conditions
        )


@dataclass(frozen=True)
class Bound:
    """A condition, with its total in the plan (`plan_value`), at the solution and one step `beyond` it."""

    text: str
    key: str
    limit: Number
    plan_value: Number | None
    at: Number | None
    beyond: Number | None
    binds: bool


@dataclass(frozen=True)
class Tried:
    """Values that were tried, with the totals that were asked for; `verdict` in a word, `why` in the user's words.

    `details` are what else there is to say of them, by what it is: a price and its date, a layout.
    """

    values: Mapping[str, Value]
    changes: Settings
    totals: Totals | None
    verdict: str
    why: str = ""
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Solution:
    """`values` of the inputs that were asked for; None where no legal ones meet the conditions: see `nearest`.

    Of one input `value` is its value alone, of several all of them by path; so with `plan_value`, `nearest` (the answer
    or a near miss) and `beyond`: the next legal value, or of choices the runner-up, None where there is none. `goal`
    says which of several solutions it is, `legal` which values there are. `changes` are what `--set` takes to get
    there. `tried` are all choices, and `counts` how many there were.
    """

    path: str
    unit: str
    plan_value: Value
    goal: str
    legal: str
    closed_form: str
    notes: tuple[str, ...]
    value: Value = None
    nearest: Value = None
    beyond: Value = None
    bounds: tuple[Bound, ...] = ()
    values: Mapping[str, Value] | None = None
    changes: Settings = field(default_factory=dict)
    tried: tuple[Tried, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()  # of plans that were tried: a cluster of another device than the plan's
    next_name: str = ""  # what `beyond` is, where it is neither one step further nor the runner-up


def solution_in_order(question: Question, trial: Trial, place: Answer, form: str) -> Solution:
    """The solution for an input whose values are in order, or the nearest miss."""
    sought, rank = trial.unknown, place.rank
    here = sought.value(rank)
    notes = (*question.notes, *_side_notes(trial, place))
    answer = Solution(sought.path, sought.unit, sought.plan_value, place.goal, sought.why, form, notes, nearest=here)
    plan = trial.draft(rank).plan
    warned = tuple(warning.message for warning in cluster_warnings(plan.warnings if plan else ()))
    answer = replace(answer, paths=(sought.path,), warnings=warned)
    if not place.met:
        refused = tuple(problem.message for problem in trial.draft(rank).problems)
        return replace(answer, bounds=question.bounds(trial(rank), None, met=False), notes=(*notes, *refused))
    answer = replace(answer, value=here, values={sought.path: here}, changes=trial.settings(rank))
    after = rank + (NEXT_REAL if sought.real else 1) * (-1 if place.goal == SMALLEST else 1)
    if not 0 <= after <= sought.last:
        return replace(answer, bounds=tuple(replace(row, binds=False) for row in _bounds(question, trial, rank, None)))
    refused = tuple(problem.message for problem in trial.draft(after).problems)
    bounds = _bounds(question, trial, rank, after)
    if refused:
        bounds = tuple(replace(row, binds=False) for row in bounds)
    notes = (*notes, *(f"one step beyond: {message}" for message in refused))
    return replace(answer, beyond=sought.value(after), bounds=bounds, notes=notes)


def _bounds(question: Question, trial: Trial, rank: int, after: int | None) -> tuple[Bound, ...]:
    return question.bounds(trial(rank), None if after is None else trial(after), met=True)


def _side_notes(trial: Trial, place: Answer) -> Iterator[str]:
    """What else the value changes in the plan, and why no larger one is tried."""
    sought = trial.unknown
    before = trial.plan.run.micro_batch
    after = trial.settings(place.rank).get("run.micro_batch", before) if sought.path == "cluster.devices" else before
    if after != before:
        yield f"micro_batch is lowered from {before} to {after} for this many devices, global_batch is kept"
    plan, here = trial.draft(place.rank).plan, trial(place.rank)
    if place.met and plan is not None and here is not None:
        yield from unasked(plan, here, (sought.path,))
    ended = place.goal == SMALLEST if not place.met else place.goal != SMALLEST and place.rank == sought.last
    if sought.cap and ended:
        yield f"the bound of the spec binds: {sought.cap}" if place.met else sought.cap


OF_LENGTH = {"run.seq_len", "serve.prompt", "serve.output"}


def unasked(plan: Plan, here: Totals, paths: tuple[str, ...]) -> Iterator[str]:
    """What was no condition and yet bounds the value: memory to keep free, and the length the model was made for."""
    asked = headroom(plan)
    free = float(plan.accelerator.memory) - float(Fraction(here.get("memory.reserved", 0)))
    if free < 0 and "memory.reserved" in here:
        needed, capacity = (
            with_unit(here["memory.reserved"], "B"),
            with_unit(plan.accelerator.memory, "B"),
        )
        yield f"it does not fit: {needed} of {capacity} are needed; `--subject-to fits` asks that it does"
    elif free < asked and "memory.reserved" in here:
        words = headroom_words(plan.assumptions.headroom)
        yield f"{with_unit(free, 'B')} stay free of the {with_unit(asked, 'B')} of {words} headroom"
    longest = plan.run.seq_len if plan.serve is None else plan.serve.prompt.longest + plan.serve.output.longest
    if OF_LENGTH & {*paths} and 0 < plan.model.max_seq_len < longest:
        yield f"the model was made for {plan.model.max_seq_len} tokens"
