"""One input whose values are in order: the ranges in which conditions hold, and the best value within them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf

from ledger.books.what_if.conditions import Condition, fault
from ledger.books.what_if.ranges import around, compared, span
from ledger.books.what_if.trial import Trial
from ledger.spec.problems import SpecError

SAMPLED = 10  # powers of two below and above the given value
TRIED = 17  # values in each round of a search for the best
SMALLEST, LARGEST = "smallest", "largest"


@dataclass(frozen=True)
class Objective:
    """A total of which the most (`sign` 1) or the least (-1) is the best."""

    key: str
    sign: int

    def __str__(self) -> str:
        """As the command line has it."""
        return f"{'maximize' if self.sign == 1 else 'minimize'} {self.key}"

    def worth(self, total: Fraction | float) -> Fraction:
        """How good a total is; what differs by rounding alone is equally good."""
        return Fraction(f"{total:.12g}" if isinstance(total, float) else total) * self.sign


@dataclass(frozen=True)
class Place:
    """The rank of the answer where it is `met`, else of what comes nearest; `goal` says which of several it is."""

    rank: int
    met: bool
    goal: str


def place(trial: Trial, conditions: Sequence[Condition], objective: Objective | None, guess: int | None) -> Place:
    """The largest or smallest value that meets the conditions, or the best of those that do."""
    sought = trial.sought
    ranges = [span(trial, one, guess) for one in conditions]
    low, high = max(one.low for one in ranges), min(one.high for one in ranges)
    goal = LARGEST if any(one.upper for one in ranges) else SMALLEST
    if low > high and sought.some:
        low, high = _searched(trial, conditions, max(high, 0))
    elif low > high:
        low, high = _sampled(trial, conditions, max(high, 0))
    if low > high:
        return Place(max(high, 0), met=False, goal=goal)
    if objective is not None:
        return Place(_best(trial, conditions, (low, high), objective), met=True, goal=str(objective))
    rank = low if goal == SMALLEST else high
    if rank == sought.last and not sought.some and sought.greatest == inf:
        help_text = "add a condition that grows with it, for example `fits`"
        raise fault(sought.path, 1, f"nothing limits `{sought.path}`", help_text)
    return Place(rank, met=True, goal=goal)


def check_matters(trial: Trial, keys: Sequence[str]) -> None:
    """Raises SpecError where other values of the input leave all that is asked for as it is."""
    for pair in compared(trial.sought):
        found = [totals for totals in map(trial, {*pair, *(() if trial.sought.real else (0,))}) if totals is not None]
        if len(found) > 1:
            break
    if len(found) > 1 and all(totals.get(key) == found[0].get(key) for totals in found for key in keys):
        moved = {key for key in found[0] if any(totals.get(key) != found[0][key] for totals in found)}
        raise without_effect(trial.sought.path, keys, moved)


def without_effect(path: str, keys: Sequence[str], moved: Collection[str] = ()) -> SpecError:
    """That no value of an input changes what is asked for; of the totals that it moves, parts of those are named."""
    parts = sorted(key for key in moved for asked in keys if key.startswith(f"{asked}."))
    words = f"; {', '.join(f'`{part}`' for part in parts)} depends on it" if parts else ""
    asked = f"asked for: {', '.join(sorted(keys))}{words}"
    return fault(path, 1, f"nothing that is asked for depends on `{path}`", asked)


def _searched(trial: Trial, conditions: Sequence[Condition], nearest: int) -> tuple[int, int]:
    """The first and the last value that meets the conditions, of few that all are tried; none before `nearest`."""
    held = [rank for rank in range(trial.sought.last + 1) if _holds(trial, conditions, rank)]
    return (held[0], held[-1]) if held else _none(trial, conditions, nearest)


def _sampled(trial: Trial, conditions: Sequence[Condition], nearest: int) -> tuple[int, int]:
    """The values around one that meets the conditions though the ends do not; none before `nearest`.

    What is asked for may rise on both sides of a value, or a rule may refuse those beyond it.
    """
    sought = trial.sought
    powers = sorted(range(-SAMPLED, SAMPLED + 1), key=abs) if sought.given else ()
    for power in powers:
        rank = min(sought.rank(float(sought.given) * 2.0**power), sought.last)
        if _holds(trial, conditions, rank):
            return around(lambda other: _holds(trial, conditions, other), rank, sought.last)
    return _none(trial, conditions, nearest)


def _holds(trial: Trial, conditions: Sequence[Condition], rank: int) -> bool:
    return all(trial.holds(one, rank) for one in conditions)


def _none(trial: Trial, conditions: Sequence[Condition], nearest: int) -> tuple[int, int]:
    """No value: of one condition, the nearest of all that were tried is the one with the least missing."""
    if len(conditions) == 1:
        slacks = {rank: slack for rank in trial.tried if (slack := trial.slack(conditions[0], rank)) is not None}
        nearest = max(slacks, key=lambda rank: (slacks[rank], rank == nearest), default=nearest)
    return nearest + 1, nearest


def _best(trial: Trial, conditions: Sequence[Condition], ends: tuple[int, int], objective: Objective) -> int:
    """The rank with the most or least of a total: of all, or of ever finer samples around the best.

    Of seconds and rates that are equal but for rounding, it is the largest.
    """
    low, high = ends

    def worth(rank: int) -> tuple[Fraction, int]:
        found = trial(rank)
        if found is None or objective.key not in found or not all(trial.holds(one, rank) for one in conditions):
            return Fraction(-(10**40)), rank
        return objective.worth(found[objective.key]), rank

    while True:
        step = max(1, -(-(high - low) // TRIED))
        best: int = max([*range(low, high, step), high], key=worth)
        if step == 1:
            return best
        low, high = max(low, best - step), min(high, best + step)
