"""Which inputs caused a change: each of them changed alone, first on top of the old plan and last before the new."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.spec.inputs import Change, mix_plans, violations

if TYPE_CHECKING:
    from ledger.books.results import Compiled, Number
    from ledger.spec.plan import Plan

MOST_INPUTS = 12  # each costs two compilations
Bundle = tuple[Change, ...]


@dataclass(frozen=True)
class Attribution:
    """What `inputs` did to a total: changed `alone` on top of the old plan, and as the `last` on the way to the new."""

    inputs: tuple[str, ...]
    alone: Number
    last: Number

    @property
    def mean(self) -> Number:
        """Of first and last: the Shapley value where there are two causes."""
        return (self.alone + self.last) / 2

    def __neg__(self) -> Attribution:
        return Attribution(self.inputs, -self.last, -self.alone)


@dataclass(frozen=True)
class BundleTotals:
    """The totals of the old plan with a bundle of inputs changed, and of the new plan with the bundle changed back."""

    inputs: tuple[str, ...]
    added: Mapping[str, Number]
    removed: Mapping[str, Number]


def bundle_inputs(old: Plan, new: Plan, changes: Sequence[Change]) -> tuple[Bundle, ...]:
    """Inputs that may be changed one by one, and together those that the rules allow only with others."""
    if len(changes) > MOST_INPUTS:
        return ()
    free = [change for change in changes if may_change_alone(old, new, change.fields)]
    tied = tuple(change for change in changes if change not in free)
    alone = tuple((change,) for change in free)
    return (*alone, tied) if tied else alone


def may_change_alone(old: Plan, new: Plan, fields: frozenset[str]) -> bool:
    """Whether the rules allow these fields both as the first to change and as the last."""
    return not violations(mix_plans(old, new, fields)) and not violations(mix_plans(new, old, fields))


def compile_between(
    old: Compiled, new: Compiled, bundles: Sequence[Bundle], compiler: Callable[[Plan], Compiled] | None
) -> tuple[BundleTotals, ...]:
    """What each bundle does; one alone does everything, and one that the rules never allow without others nothing."""
    from ledger.books import compile_plan

    close = compiler or compile_plan
    effects = []
    for bundle in bundles:
        names = tuple(change.path for change in bundle)
        fields = frozenset().union(*(change.fields for change in bundle))
        if len(bundles) == 1:
            effects.append(BundleTotals(names, new.totals, old.totals))
        elif may_change_alone(old.plan, new.plan, fields):
            with_it, without = mix_plans(old.plan, new.plan, fields), mix_plans(new.plan, old.plan, fields)
            effects.append(BundleTotals(names, close(with_it).totals, close(without).totals))
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
