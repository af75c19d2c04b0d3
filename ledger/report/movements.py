"""How totals of a plan moved between two versions of it, and what each changed input adds or takes away."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.spec.inputs import Change, mix_plans, violations
from ledger.spec.paths import part_of
from ledger.spec.plan import Plan

if TYPE_CHECKING:
    from ledger.books.results import Number


RUN_SECONDS = ("time.calendar", "time.run")  # the first that a plan has
NEGLIGIBLE = 1e-6  # part of a total below which a cause is one of rounding


@dataclass(frozen=True)
class Measure:
    """What a change is weighed by: the first of `keys` that a plan has, as it is written, and with a sign."""

    name: str
    keys: tuple[str, ...]
    written: Callable[[Number], str]
    signed: Callable[[Number], str]

    def key(self, totals: Mapping[str, Number]) -> str:
        """The total that stands for it; empty where the plan has none."""
        return next((key for key in self.keys if key in totals), "")


DOLLARS = Measure("dollars", ("cost.run", "cost.per_million_tokens"), numbers.brief_money, numbers.signed_brief_money)
STEPS = ("time.step", "serve.time_per_token")
SECONDS = Measure("seconds", (*RUN_SECONDS, *STEPS), numbers.duration, numbers.signed_duration)
BYTES = Measure("bytes", ("memory.reserved",), numbers.size, numbers.signed_size)
MEASURES = (DOLLARS, SECONDS, BYTES)


@dataclass(frozen=True)
class Contribution:
    """What `inputs` add to a total, or take away: the mean of what they do first and last. None are named: jointly."""

    inputs: tuple[str, ...]
    amount: Number


@dataclass(frozen=True)
class Movement:
    """A total before and after; its causes sum to the change."""

    measure: str
    key: str
    old: Number
    new: Number
    causes: tuple[Contribution, ...] = ()

    @property
    def by(self) -> Number:
        """New less old; nothing where that is a matter of rounding."""
        change = self.new - self.old
        return change if abs(float(change)) > NEGLIGIBLE * abs(float(self.old)) else 0


def movements(
    old: Mapping[str, Number],
    new: Mapping[str, Number],
    effects: Sequence[BundleTotals],
    measures: Iterable[Measure] = MEASURES,
) -> Iterator[Movement]:
    """The measures that both plans have, with their causes; what the causes make together comes last."""
    for measure in measures:
        key = measure.key(new)
        if not key or key != measure.key(old):
            continue
        limit = NEGLIGIBLE * abs(float(old[key]))
        causes = [
            Contribution(attribution.inputs, attribution.mean)
            for attribution in attribute(key, old[key], new[key], effects)
        ]
        causes = [cause for cause in causes if abs(float(cause.amount)) > limit]
        joint = new[key] - old[key] - sum(cause.amount for cause in causes)
        if abs(float(joint)) > limit:
            causes.append(Contribution((), joint))
        yield Movement(measure.name, key, old[key], new[key], tuple(causes))


def amounts_by_cause(moved: Iterable[Movement]) -> dict[tuple[str, ...], dict[str, Number]]:
    """What each cause does to each measure, the largest first by the first measure that moves; jointly at the end."""
    amounts: dict[tuple[str, ...], dict[str, Number]] = {}
    for movement in moved:
        for cause in movement.causes:
            amounts.setdefault(cause.inputs, {})[movement.measure] = cause.amount
    return dict(sorted(amounts.items(), key=lambda item: not item[0]))


# --- causes of a change ---

MOST_INPUTS = 12  # that are changed one by one: each costs two compilations
MOST_NAMED = 4  # inputs that are named one by one where they change together; of more, the parts of the plan
Bundle = tuple[Change, ...]
TotalsOf = Callable[[Plan], "Mapping[str, Number]"]
PlanTotals = tuple[Plan, "Mapping[str, Number]"]


@dataclass(frozen=True)
class Attribution:
    """What `inputs` did to a total: changed `alone` on top of the old plan, and as the `last` on the way to the new."""

    inputs: tuple[str, ...]
    alone: Number
    last: Number

    @property
    def mean(self) -> Number:
        """The mean of first and last: the Shapley value where there are two causes."""
        return (self.alone + self.last) / 2

    def __neg__(self) -> Attribution:
        return Attribution(self.inputs, -self.last, -self.alone)


@dataclass(frozen=True)
class BundleTotals:
    """`changed_plan` is the old plan with the change, `unchanged_plan` the new one without it; the totals of both."""

    inputs: tuple[str, ...]
    changed_plan: Plan
    unchanged_plan: Plan
    added: Mapping[str, Number]
    removed: Mapping[str, Number]


def bundle_inputs(old: Plan, new: Plan, changes: Sequence[Change]) -> tuple[Bundle, ...]:
    """Inputs that may be changed one by one, and together those that the rules allow only with others.

    Where there are more than MOST_INPUTS, those of a part of the plan are changed together.
    """
    bundles: list[Bundle] = [(change,) for change in changes]
    if len(changes) > MOST_INPUTS:
        parts = dict.fromkeys(part_of(change.path) for change in changes)
        bundles = [tuple(change for change in changes if part_of(change.path) == part) for part in parts]
    free = [bundle for bundle in bundles if may_change_alone(old, new, changed_fields(bundle))]
    tied = tuple(change for bundle in bundles if bundle not in free for change in bundle)
    return (*free, tied) if tied else tuple(free)


def changed_fields(bundle: Bundle) -> frozenset[str]:
    """The paths in a plan that a bundle of changes stands for."""
    return frozenset().union(*(change.fields for change in bundle))


def may_change_alone(old: Plan, new: Plan, fields: frozenset[str]) -> bool:
    """Whether the rules allow these fields both as the first to change and as the last."""
    return not violations(mix_plans(old, new, fields)) and not violations(mix_plans(new, old, fields))


def compile_between(
    old: PlanTotals, new: PlanTotals, bundles: Sequence[Bundle], totals_of: TotalsOf
) -> tuple[BundleTotals, ...]:
    """What each bundle does; one alone does everything, and one that the rules never allow without others nothing."""
    effects = []
    for bundle in bundles:
        paths, fields = tuple(change.path for change in bundle), changed_fields(bundle)
        names = paths if len(paths) <= MOST_NAMED else tuple(dict.fromkeys(map(part_of, paths)))
        if len(bundles) == 1:
            effects.append(BundleTotals(names, new[0], old[0], new[1], old[1]))
        elif may_change_alone(old[0], new[0], fields):
            with_it, without = mix_plans(old[0], new[0], fields), mix_plans(new[0], old[0], fields)
            effects.append(BundleTotals(names, with_it, without, totals_of(with_it), totals_of(without)))
    return tuple(effects)


def attribute(
    key: str, old: Number | None, new: Number | None, effects: Sequence[BundleTotals]
) -> Iterator[Attribution]:
    """The bundles that change this total, the largest first; nothing where a plan lacks the total."""
    if old is None or new is None:
        return
    shared = [effect for effect in effects if key in effect.added and key in effect.removed]
    attributions = [Attribution(effect.inputs, effect.added[key] - old, new - effect.removed[key]) for effect in shared]
    attributions = [cause for cause in attributions if cause.alone or cause.last]
    yield from sorted(attributions, key=lambda cause: (-abs(float(cause.alone)) - abs(float(cause.last)), cause.inputs))
