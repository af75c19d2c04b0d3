"""Which of several plans is recommended, under a rule that the recommendation states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.books.absent import absent
from ledger.books.names import no_total
from ledger.books.results import ENDS
from ledger.books.verdict import shortfall
from ledger.books.what_if.conditions import Condition, check_consistent, condition, fault
from ledger.report.compare.plans import ComparedPlan, PlanDifference
from ledger.report.gates import free_bytes
from ledger.units import is_more_better, unit_of

if TYPE_CHECKING:
    from ledger.books.results import Number

HEADROOM = "headroom"
FOR = "--for "
# The first that every plan which may be chosen has.
USUAL = ("cost.run", "time.calendar", "time.step", "cost.per_million_tokens", "serve.time_per_token")
NEVER_ENDS, UNKNOWN = "its run never ends", "only a parameter count is known"

OF_A_STEP = ("time.", "flops.", "comm.", "traffic.")  # totals that grow with what a step trains
STEP_SIZES = ("run.global_batch", "run.seq_len")


@dataclass(frozen=True)
class Requirement:
    """What a plan must meet besides running to its end: a condition on a total, or (without one) its headroom."""

    text: str
    condition: Condition | None = None

    def holds(self, plan: ComparedPlan) -> bool:
        """Whether the plan meets it; one that lacks the total does not."""
        if self.condition is None:
            return plan.outcome.keeps_headroom
        totals = plan.compiled.totals
        return self.condition.key in totals and self.condition.holds(totals)


@dataclass(frozen=True)
class ChoiceRule:
    """The least, or most, of `total` among plans that run and meet every requirement; empty: the first of USUAL."""

    total: str
    requirements: tuple[Requirement, ...]


@dataclass(frozen=True)
class RankedPlan:
    """A plan that may be chosen: its `amount` of the total, and the ends that hold 80 of 100 runs, where known."""

    label: str
    amount: Number
    ends: tuple[Number, Number] | None = None

    def overlap(self, other: RankedPlan) -> Number | None:
        """The length that both ranges share; None where they share nothing, or one is not known."""
        if self.ends is None or other.ends is None:
            return None
        shared = min(self.ends[1], other.ends[1]) - max(self.ends[0], other.ends[0])
        return shared if shared >= 0 else None


@dataclass(frozen=True)
class PlanChoice:
    """What is recommended of `count` plans: the first of `candidates`, best first, unless some differ in `work`.

    `total` is what they were chosen by, `stated` whether the user named it. `left_out`: why others may not be chosen.
    `work`: plans that do not do the work of the plan named `first`, and by which inputs.
    """

    count: int
    first: str
    total: str
    stated: bool
    requirements: tuple[str, ...]
    candidates: tuple[RankedPlan, ...]
    left_out: tuple[tuple[str, str], ...]
    has_all: bool  # whether all that meet the rule have the total
    work: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def chosen(self) -> RankedPlan | None:
        """The recommended plan; None where none may be chosen, and where no total was named for unlike work."""
        return self.candidates[0] if self.candidates and (self.stated or not self.work) else None

    @property
    def rivals(self) -> tuple[tuple[RankedPlan, Number], ...]:
        """The candidates from which evidence does not part the chosen one, and by how much their ranges overlap."""
        best = self.chosen
        pairs = [(other, best.overlap(other)) for other in self.candidates if best and other is not best]
        return tuple((other, shared) for other, shared in pairs if shared is not None)


def read_rule(total: str, conditions: Sequence[str], plans: Sequence[ComparedPlan]) -> ChoiceRule:
    """The rule of texts about totals that any of the plans has; raises SpecError."""
    known = frozenset(key for one in plans for key in one.compiled.totals)
    first = plans[0].compiled.plan
    if total and total not in known:
        raise fault(f"{FOR}{total}", len(FOR) + 1, *no_total(first, total, known))
    found = [
        Requirement(text.strip(), None if text.strip() == HEADROOM else condition(text, known, first))
        for text in conditions or [HEADROOM]
    ]
    check_consistent([one.condition for one in found if one.condition])
    return ChoiceRule(total, tuple(found))


def choose(plans: Sequence[ComparedPlan], differences: Sequence[PlanDifference], rule: ChoiceRule) -> PlanChoice:
    """The candidates under a rule, best first; of equal ones that which was named first."""
    faults = {one.label: next(why_not(one, rule), "") for one in plans}
    free = [one for one in plans if not faults[one.label]]
    total = rule.total or next((key for key in USUAL if all(key in one.compiled.totals for one in free)), USUAL[-1])
    without = {one.label: lacking(one, total) for one in free if total not in one.compiled.totals}
    sign = -1 if is_more_better(total) else 1
    ranked = sorted(
        (candidate(one, total) for one in free if one.label not in without), key=lambda one: sign * float(one.amount)
    )
    return PlanChoice(
        count=len(plans),
        first=plans[0].label,
        total=total,
        stated=bool(rule.total),
        requirements=tuple(one.text for one in rule.requirements),
        candidates=tuple(ranked),
        has_all=not without,
        left_out=tuple((label, why) for label, why in {**faults, **without}.items() if why),
        work=tuple((one.label, paths) for one in differences if (paths := unlike(one, total))),
    )


def unlike(difference: PlanDifference, total: str) -> tuple[str, ...]:
    """The inputs by which a total of two plans is of unlike work; of a step also those that say how much one trains."""
    of_a_step = total.startswith(OF_A_STEP) and not total.startswith(("time.run", "time.calendar", "flops.run"))
    sizes = (change.path for change in difference.inputs if of_a_step and change.path in STEP_SIZES)
    return (*difference.work, *sizes)


def why_not(plan: ComparedPlan, rule: ChoiceRule) -> Iterator[str]:
    """Why a plan may not be chosen, in words."""
    totals = plan.compiled.totals
    if not plan.is_known:
        yield UNKNOWN
    elif not plan.compiled.verdict.fits:
        yield f"{numbers.size(-free_bytes(plan.outcome))} missing"
    elif not plan.runs:
        yield NEVER_ENDS
    for one in rule.requirements:
        if one.holds(plan):
            continue
        if one.condition is None:
            yield shortfall(plan.compiled.plan, totals)
        elif one.condition.key in totals:
            yield f"not `{one.text}`: {numbers.written(totals[one.condition.key], unit_of(one.condition.key))}"
        else:
            yield lacking(plan, one.condition.key)


def lacking(plan: ComparedPlan, key: str) -> str:
    """That a plan lacks a total, and why where that is known."""
    found = absent(plan.compiled.plan, key)
    return found.message if found else f"it has no `{key}`"


def candidate(plan: ComparedPlan, total: str) -> RankedPlan:
    """A plan by a total that it has."""
    totals = plan.compiled.totals
    ends = [totals[f"{total}.{end}"] for end in ENDS if f"{total}.{end}" in totals]
    return RankedPlan(plan.label, totals[total], (ends[0], ends[1]) if len(ends) == 2 else None)
