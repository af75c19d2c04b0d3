"""One input whose values are in order: the ranges in which conditions hold, and the best value within them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf

from ledger.books.what_if.conditions import Condition, fault
from ledger.books.what_if.sought import NEXT_REAL, Trial, Unknown
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
        """The objective as the command line has it."""
        return f"{'maximize' if self.sign == 1 else 'minimize'} {self.key}"

    def worth(self, total: Fraction | float) -> Fraction:
        """How good a total is; what differs by rounding alone is equally good."""
        return Fraction(f"{total:.12g}" if isinstance(total, float) else total) * self.sign


@dataclass(frozen=True)
class Answer:
    """The rank of the answer where it is `met`, else of what comes nearest; `goal` says which of several it is."""

    rank: int
    met: bool
    goal: str


def place(trial: Trial, conditions: Sequence[Condition], objective: Objective | None, guess: int | None) -> Answer:
    """The largest or smallest value that meets the conditions, or the best of those that do."""
    sought = trial.unknown
    ranges = [span(trial, condition, guess) for condition in conditions]
    low, high = max(interval.low for interval in ranges), min(interval.high for interval in ranges)
    goal = LARGEST if any(interval.upper for interval in ranges) else SMALLEST
    if low > high and sought.legal_values:
        holding = [rank for rank in range(sought.last + 1) if _all_hold(trial, conditions, rank)]
        low, high = (holding[0], holding[-1]) if holding else _no_value(trial, conditions, max(high, 0))
    elif low > high:
        low, high = _range_by_samples(trial, conditions, max(high, 0))
    if low > high:
        return Answer(max(high, 0), met=False, goal=goal)
    if objective is not None:
        return Answer(_best_rank(trial, conditions, (low, high), objective), met=True, goal=str(objective))
    rank = low if goal == SMALLEST else high
    if rank == sought.last and not sought.legal_values and sought.greatest == inf:
        help_text = "add a condition that grows with it, for example `fits`"
        raise fault(sought.path, 1, f"nothing limits `{sought.path}`", help_text)
    return Answer(rank, met=True, goal=goal)


def check_matters(trial: Trial, keys: Sequence[str]) -> None:
    """Raises SpecError where other values of the input leave all that is asked for as it is."""
    for pair in compared(trial.unknown):
        amounts = [
            totals for totals in map(trial, {*pair, *(() if trial.unknown.real else (0,))}) if totals is not None
        ]
        if len(amounts) > 1:
            break
    if len(amounts) > 1 and all(totals.get(key) == amounts[0].get(key) for totals in amounts for key in keys):
        moved = {key for key in amounts[0] if any(totals.get(key) != amounts[0][key] for totals in amounts)}
        raise without_effect(trial.unknown.path, keys, moved)


def without_effect(path: str, keys: Sequence[str], moved: Collection[str] = ()) -> SpecError:
    """That no value of an input changes what is asked for; of the totals that it moves, parts of those are named."""
    parts = sorted(key for key in moved for asked in keys if key.startswith(f"{asked}."))
    words = f"; {', '.join(f'`{part}`' for part in parts)} depends on it" if parts else ""
    asked = f"asked for: {', '.join(sorted(keys))}{words}"
    return fault(path, 1, f"nothing that is asked for depends on `{path}`", asked)


def _range_by_samples(trial: Trial, conditions: Sequence[Condition], nearest: int) -> tuple[int, int]:
    """The values around one that meets the conditions though the ends do not; none before `nearest`.

    What is asked for may rise on both sides of a value, or a rule may refuse those beyond it.
    """
    sought = trial.unknown
    powers = sorted(range(-SAMPLED, SAMPLED + 1), key=abs) if sought.plan_value else ()
    for power in powers:
        rank = min(sought.rank(float(sought.plan_value) * 2.0**power), sought.last)
        if _all_hold(trial, conditions, rank):
            return legal_range(lambda candidate: _all_hold(trial, conditions, candidate), rank, sought.last)
    return _no_value(trial, conditions, nearest)


def _all_hold(trial: Trial, conditions: Sequence[Condition], rank: int) -> bool:
    return all(trial.holds(condition, rank) for condition in conditions)


def _no_value(trial: Trial, conditions: Sequence[Condition], nearest: int) -> tuple[int, int]:
    """No value: of one condition, the nearest of all that were tried is the one with the least missing."""
    if len(conditions) == 1:
        slacks = {rank: slack for rank in trial.tried if (slack := trial.slack(conditions[0], rank)) is not None}
        nearest = max(slacks, key=lambda rank: (slacks[rank], rank == nearest), default=nearest)
    return nearest + 1, nearest


def _best_rank(trial: Trial, conditions: Sequence[Condition], ends: tuple[int, int], objective: Objective) -> int:
    """The rank with the most or least of a total: of all, or of ever finer samples around the best.

    Of seconds and rates that are equal but for rounding, it is the largest.
    """
    low, high = ends

    def worth(rank: int) -> tuple[Fraction, int]:
        amounts = trial(rank)
        if amounts is None or objective.key not in amounts or not _all_hold(trial, conditions, rank):
            return Fraction(-(10**40)), rank
        return objective.worth(amounts[objective.key]), rank

    while True:
        step = max(1, -(-(high - low) // TRIED))
        best: int = max([*range(low, high, step), high], key=worth)
        if step == 1:
            return best
        low, high = max(low, best - step), min(high, best + step)


# --- the ranks of values that meet a condition ---

GROWTH = 8


@dataclass(frozen=True)
class RankRange:
    """A condition holds from rank `low` to `high`, nowhere if `low` is above; `upper` where larger values break it."""

    low: int
    high: int
    upper: bool


def span(trial: Trial, bound: Condition, guess: int | None) -> RankRange:
    """Where the condition holds, taken to be monotone in the value; which way is seen from two values."""
    sought = trial.unknown
    if not _breaks_upwards(trial, bound):
        if not trial.holds(bound, sought.last) and sought.legal_values:
            return RankRange(sought.last + 1, sought.last, upper=False)

        def excess(rank: int) -> float | None:
            slack = trial.slack(bound, rank)
            return None if slack is None else -slack

        broken = _last_rank(lambda rank: not trial.holds(bound, rank), excess, sought, None)
        return RankRange(broken + 1, sought.last, upper=False)
    high = _last_rank(lambda rank: trial.holds(bound, rank), lambda rank: trial.slack(bound, rank), sought, guess)
    return RankRange(0, high, upper=True)


def _breaks_upwards(trial: Trial, condition: Condition) -> bool:
    """Whether larger values bring the condition closer to breaking: by the first pair of which both are legal."""
    for pair in compared(trial.unknown):
        before, after = (trial.slack(condition, rank) for rank in pair)
        if before is not None and after is not None:
            return after <= before
    return True


def compared(sought: Unknown) -> Iterator[tuple[int, int]]:
    """Pairs of values to compare: the first and the last of some; else what is given and its double, half, neighbours.

    Of zero, the smallest and another small one.
    """
    current = 0.0 if sought.legal_values else float(sought.plan_value)
    if not current:
        yield 0, sought.last if sought.legal_values else min(GROWTH, sought.last)
        return
    for smaller, larger in ((1, 2), (0.5, 1), (0.99, 1), (1, 1.01)):
        below, above = (min(sought.rank(times * current), sought.last) for times in (smaller, larger))
        if below < above:
            yield below, above


def legal_range(holds: Callable[[int], bool], rank: int, last: int) -> tuple[int, int]:
    """The ranks on both sides of one that holds up to which all those that were tried hold as well."""
    low = rank - _reach(lambda steps: holds(rank - steps), rank)
    return low, rank + _reach(lambda steps: holds(rank + steps), last - rank)


def _reach(holds: Callable[[int], bool], most: int) -> int:
    """The last number of steps that holds, of ever longer ones, where 0 holds."""
    reached, step = 0, 1
    while reached < most:
        further = min(reached + step, most)
        if not holds(further):
            break
        reached, step = further, step * GROWTH
    else:
        return reached
    return _last_between(reached, min(reached + step, most), holds, lambda _: None)


def _last_rank(
    holds: Callable[[int], bool], slack: Callable[[int], float | None], sought: Unknown, guess: int | None
) -> int:
    """The last rank that holds, where all before it hold and none after; -1 where none does."""
    if not holds(0):
        return -1
    low, high = 0, sought.last
    if guess is not None and low < guess <= high and holds(guess):
        low = guess
    reach = min(low + 1 if guess is not None else max(sought.rank(float(sought.plan_value)), 1), high)
    while reach < high and holds(reach):
        low, reach = reach, min((reach + 1) * GROWTH if not sought.real else reach + NEXT_REAL * GROWTH**2, high)
    if holds(reach):
        return reach
    return _last_between(low, reach, holds, slack)


def _last_between(low: int, high: int, holds: Callable[[int], bool], slack: Callable[[int], float | None]) -> int:
    """Between a rank that holds and one that does not: the secant's guess and its neighbour, then the middle."""
    while high - low > 1:
        for probe in (*_secant(low, high, slack), (low + high) // 2):
            if low < probe < high:
                low, high = (probe, high) if holds(probe) else (low, probe)
    return low


def _secant(low: int, high: int, slack: Callable[[int], float | None]) -> Iterator[int]:
    below, above = slack(low), slack(high)
    if below is not None and above is not None and below > above:
        guess = low + int((high - low) * (below / (below - above)))
        yield from (guess, guess + 1)
