"""Several plans compared, and which of them is recommended under a rule that the recommendation states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.books.names import absent, no_total
from ledger.books.results import ENDS, Number
from ledger.books.verdict import shortfall
from ledger.books.what_if.conditions import Condition, check_consistent, condition, fault
from ledger.report.compare.plans import ComparedPlan, PlanDifference, compared_plans, difference, with_search
from ledger.report.compare.plans import file_name as name_of_files
from ledger.report.gates import free_bytes
from ledger.units import is_more_better, unit_of

if TYPE_CHECKING:
    from ledger.books.compiled import Compiled
    from ledger.report.compare.plans import Search


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
        pairs = [(rival, best.overlap(rival)) for rival in self.candidates if best and rival is not best]
        return tuple((rival, shared) for rival, shared in pairs if shared is not None)


def read_rule(total: str, conditions: Sequence[str], plans: Sequence[ComparedPlan]) -> ChoiceRule:
    """The rule of texts about totals that any of the plans has; raises SpecError."""
    total_keys = frozenset(key for plan in plans for key in plan.compiled.totals)
    first = plans[0].compiled.plan
    if total and total not in total_keys:
        raise fault(f"{FOR}{total}", len(FOR) + 1, *no_total(first, total, total_keys))
    requirements = [
        Requirement(text.strip(), None if text.strip() == HEADROOM else condition(text, total_keys, first))
        for text in conditions or [HEADROOM]
    ]
    check_consistent([requirement.condition for requirement in requirements if requirement.condition])
    return ChoiceRule(total, tuple(requirements))


def choose(plans: Sequence[ComparedPlan], differences: Sequence[PlanDifference], rule: ChoiceRule) -> PlanChoice:
    """The candidates under a rule, best first; of equal ones that which was named first."""
    faults = {plan.label: next(why_not(plan, rule), "") for plan in plans}
    free = [plan for plan in plans if not faults[plan.label]]
    total = rule.total or next((key for key in USUAL if all(key in plan.compiled.totals for plan in free)), USUAL[-1])
    without = {plan.label: reason_of_lacking(plan, total) for plan in free if total not in plan.compiled.totals}
    sign = -1 if is_more_better(total) else 1
    candidates = sorted(
        (ranked_plan(plan, total) for plan in free if plan.label not in without),
        key=lambda ranked: sign * float(ranked.amount),
    )
    return PlanChoice(
        count=len(plans),
        first=plans[0].label,
        total=total,
        stated=bool(rule.total),
        requirements=tuple(requirement.text for requirement in rule.requirements),
        candidates=tuple(candidates),
        has_all=not without,
        left_out=tuple((label, why) for label, why in {**faults, **without}.items() if why),
        work=tuple((difference.label, paths) for difference in differences if (paths := unlike(difference, total))),
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
    for requirement in rule.requirements:
        if requirement.holds(plan):
            continue
        if requirement.condition is None:
            yield shortfall(plan.compiled.plan, totals)
        elif requirement.condition.key in totals:
            key = requirement.condition.key
            yield f"not `{requirement.text}`: {numbers.amount_text(totals[key], unit_of(key))}"
        else:
            yield reason_of_lacking(plan, requirement.condition.key)


def reason_of_lacking(plan: ComparedPlan, key: str) -> str:
    """That a plan lacks a total, and why where that is known."""
    problem = absent(plan.compiled.plan, key)
    return problem.message if problem else f"it has no `{key}`"


def ranked_plan(plan: ComparedPlan, total: str) -> RankedPlan:
    """A plan by a total that it has."""
    totals = plan.compiled.totals
    ends = [totals[f"{total}.{end}"] for end in ENDS if f"{total}.{end}" in totals]
    return RankedPlan(plan.label, totals[total], (ends[0], ends[1]) if len(ends) == 2 else None)


# --- the recommendation in words; `mark` sets off names ---

Mark = Callable[[str], str]
SUPERLATIVES: Mapping[str, str] = {
    "cost.run": "cheapest",
    "time.calendar": "soonest to end",
    "time.step": "fastest",
    "tokens_per_second": "fastest",
    "cost.per_million_tokens": "cheapest",
    "serve.time_per_token": "fastest",
    "serve.tokens_per_second": "fastest",
}
MOST_RIVALS = 3  # that are named with their ranges


def backticked(name: str) -> str:
    """A name as messages on a terminal set it off."""
    return f"`{name}`"


def rule_text(choice: PlanChoice, mark: Mark = backticked) -> str:
    """The rule: what is least or most, and of which plans."""
    return f"{superlative(choice.total, mark)} of those that {requirement_text(choice, mark)}"


def superlative(total: str, mark: Mark) -> str:
    """What makes one plan better than another by a total."""
    extreme = "most" if is_more_better(total) else "least"
    return (
        f"the {word} ({mark(total)})" if (word := SUPERLATIVES.get(total)) else f"the one with {extreme} {mark(total)}"
    )


def requirement_text(choice: PlanChoice, mark: Mark, *, one: bool = False) -> str:
    """What plans that may be chosen do, or the `one` does."""
    headroom = ["keeps its headroom" if one else "keep their headroom"] if HEADROOM in choice.requirements else []
    met = [mark(text) for text in choice.requirements if text != HEADROOM]
    conditions = [f"{'meets' if one else 'meet'} {' and '.join(met)}"] if met else []
    lacked = [] if choice.has_all else [f"{'has' if one else 'have'} {mark(choice.total)}"]
    return enumeration(["fits" if one else "fit", *headroom, *conditions, *lacked])


def choice_sentences(choice: PlanChoice, mark: Mark = backticked) -> tuple[str, ...]:
    """The recommendation, what evidence says of it, which plans were left out: a sentence each."""
    return tuple(f"{sentence}." for sentence in _sentences(choice, mark))


def _sentences(choice: PlanChoice, mark: Mark) -> Iterator[str]:
    best = choice.chosen
    if best is not None:
        yield recommended(choice, best, mark)
        yield from evidence(choice, best, mark)
    elif choice.candidates:
        yield f"No plan is recommended, as they do not do the same work; {mark('--for')} names what to choose by"
    else:
        yield f"No plan is recommended: none of the {choice.count} {requirement_text(choice, mark, one=True)}"
    labels_by_inputs: dict[str, list[str]] = {}
    for label, paths in choice.work:
        labels_by_inputs.setdefault(work_text(paths, mark), []).append(label)
    for inputs, labels in labels_by_inputs.items():
        verb = "do" if labels[1:] else "does"
        yield f"{enumeration([*map(mark, labels)])} {verb} not do the work of {mark(choice.first)}: {inputs}"
    if choice.left_out:
        reasons = (f"{mark(label)} ({with_marked_names(why, mark)})" for label, why in choice.left_out)
        yield f"Left out: {', '.join(reasons)}"


def recommended(choice: PlanChoice, best: RankedPlan, mark: Mark) -> str:
    """Which plan, why by the rule, and by how much it is ahead of the next."""
    unit, next_plans = unit_of(choice.total), choice.candidates[1:]
    amount = numbers.amount_text(best.amount, unit)
    if not next_plans:
        reason = f"the only one of {choice.count} that {requirement_text(choice, mark, one=True)}"
        return f"{mark(best.label)} is recommended: {reason}; {mark(choice.total)} {amount}"
    number = f"the {len(choice.candidates)}" + (f" of {choice.count}" if choice.left_out else "")
    said = f"{superlative(choice.total, mark)} of {number} that {requirement_text(choice, mark)}, {amount}"
    return f"{mark(best.label)} is recommended: {said}{lead_text(choice, best, mark)}"


def lead_text(choice: PlanChoice, best: RankedPlan, mark: Mark) -> str:
    """By how much the best is better than the next, after a comma; or which plans come to the same."""
    equal = [plan.label for plan in choice.candidates[1:] if plan.amount == best.amount]
    if equal:
        labels = enumeration([*map(mark, equal)])
        return f"; {labels} {'come' if equal[1:] else 'comes'} to the same, and it was named first"
    next_best = choice.candidates[1]
    by: Number = next_best.amount - best.amount
    compared = f"{amount_text(max(by, -by), unit_of(choice.total))} {'less' if by > 0 else 'more'}"
    return f", {compared} than {mark(next_best.label)}"


def evidence(choice: PlanChoice, best: RankedPlan, mark: Mark) -> Iterator[str]:
    """Whether the ranges that hold 80 of 100 runs part the best from the others, and by how much they overlap."""
    other_plans = [plan for plan in choice.candidates if plan.amount != best.amount]
    if not other_plans:
        return
    if best.ends is None:
        yield f"How far {mark(choice.total)} of a plan may be off is not known"
        return
    unit, best_range = unit_of(choice.total), range_text(best, unit_of(choice.total))
    rivals = [(rival, shared) for rival, shared in choice.rivals if rival in other_plans]
    if not rivals:
        next_best = f"{mark(other_plans[0].label)} ({range_text(other_plans[0], unit)})"
        yield f"The ranges that hold 80 of 100 runs part it ({best_range}) from the next, {next_best}"
        return
    named = [
        f"{mark(rival.label)} ({range_text(rival, unit)}, {amount_text(shared, unit)} of overlap)"
        for rival, shared in rivals[:MOST_RIVALS]
    ]
    more = [f"{len(rivals) - MOST_RIVALS} more"] if rivals[MOST_RIVALS:] else []
    unparted = enumeration([*named, *more])
    yield f"The ranges that hold 80 of 100 runs overlap: evidence does not part it ({best_range}) from {unparted}"


def range_text(plan: RankedPlan, unit: str) -> str:
    """The ends of a range."""
    return " to ".join(numbers.amount_text(end, unit) for end in plan.ends or ())


def amount_text(value: Number, unit: str) -> str:
    """An amount that is compared: dollars to three figures."""
    return numbers.brief_money(value) if unit == "USD" else numbers.amount_text(value, unit)


def work_text(inputs: Sequence[str], mark: Mark) -> str:
    """The inputs by which plans train other things, of many the parts that they belong to."""
    parts = tuple(dict.fromkeys(path if path == "run.tokens" else path.partition(".")[0] for path in inputs))
    return enumeration([mark(name) for name in (inputs if len(inputs) <= MOST_RIVALS else parts)])


def enumeration(parts: Sequence[str]) -> str:
    """`a, b and c`."""
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def with_marked_names(text: str, mark: Mark) -> str:
    """A text in which what stands in backticks is marked."""
    return "".join(mark(part) if place % 2 else part for place, part in enumerate(text.split("`")))


# --- the comparison of several plans ---


@dataclass(frozen=True)
class PlanComparison:
    """Plans in the order in which they were named; the others against the first, and which is recommended."""

    plans: tuple[ComparedPlan, ...]
    differences: tuple[PlanDifference, ...]
    choice: PlanChoice

    @property
    def file_name(self) -> str:
        """The stem that the files of the comparison share."""
        return name_of_files([plan.label for plan in self.plans])


@dataclass(frozen=True)
class WrittenRule:
    """What a plan is chosen by: the `total` (empty: the usual ones) and conditions (none: its headroom), as typed."""

    total: str = ""
    conditions: tuple[str, ...] = ()


def compare_plans(
    specs: Sequence[str], plans: Sequence[Compiled], asked: WrittenRule, search: Search | None = None
) -> PlanComparison:
    """The compiled plans of specs compared; raises SpecError for a total or a condition that no plan knows.

    `search` is asked what would make those plans run that do not.
    """
    compared = compared_plans(specs, plans)
    rule = read_rule(asked.total, asked.conditions, compared)
    compared = with_search(compared, search) if search else compared
    differences = tuple(difference(compared[0], plan) for plan in compared[1:])
    return PlanComparison(compared, differences, choose(compared, differences, rule))
