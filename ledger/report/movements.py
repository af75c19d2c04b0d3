"""How totals of a plan moved between two versions of it, and what each changed input adds or takes away."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.report.causes import BundleTotals, attribute

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
        causes = [Contribution(one.inputs, one.mean) for one in attribute(key, old[key], new[key], effects)]
        causes = [cause for cause in causes if abs(float(cause.amount)) > limit]
        joint = new[key] - old[key] - sum(cause.amount for cause in causes)
        if abs(float(joint)) > limit:
            causes.append(Contribution((), joint))
        yield Movement(measure.name, key, old[key], new[key], tuple(causes))


def amounts_by_cause(moved: Iterable[Movement]) -> dict[tuple[str, ...], dict[str, Number]]:
    """What each cause does to each measure, the largest first by the first measure that moves; jointly at the end."""
    found: dict[tuple[str, ...], dict[str, Number]] = {}
    for movement in moved:
        for cause in movement.causes:
            found.setdefault(cause.inputs, {})[movement.measure] = cause.amount
    return dict(sorted(found.items(), key=lambda item: not item[0]))
