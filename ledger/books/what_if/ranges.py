"""Where a condition holds: the ranks of values from the first to the last that meet it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ledger.books.what_if.conditions import Condition
from ledger.books.what_if.sought import NEXT_REAL, Unknown
from ledger.books.what_if.trial import Trial

GROWTH = 8


@dataclass(frozen=True)
class Range:
    """A condition holds from rank `low` to `high`, nowhere if `low` is above; `upper` where larger values break it."""

    low: int
    high: int
    upper: bool


def span(trial: Trial, one: Condition, guess: int | None) -> Range:
    """Where the condition holds, taken to be monotone in the value; which way is seen from two values."""
    sought = trial.sought
    if not _upper(trial, one):
        if not trial.holds(one, sought.last) and sought.some:
            return Range(sought.last + 1, sought.last, upper=False)
        broken = _last(lambda rank: not trial.holds(one, rank), lambda rank: _negative(trial, one, rank), sought, None)
        return Range(broken + 1, sought.last, upper=False)
    high = _last(lambda rank: trial.holds(one, rank), lambda rank: trial.slack(one, rank), sought, guess)
    return Range(0, high, upper=True)


def _negative(trial: Trial, one: Condition, rank: int) -> float | None:
    slack = trial.slack(one, rank)
    return None if slack is None else -slack


def _upper(trial: Trial, one: Condition) -> bool:
    """Whether larger values bring the condition closer to breaking: by the first pair of which both are legal."""
    for pair in compared(trial.sought):
        before, after = (trial.slack(one, rank) for rank in pair)
        if before is not None and after is not None:
            return after <= before
    return True


def compared(sought: Unknown) -> Iterator[tuple[int, int]]:
    """Pairs of values to compare: the first and the last of some; else what is given and its double, half, neighbours.

    Of zero, the smallest and another small one.
    """
    given = 0.0 if sought.some else float(sought.given)
    if not given:
        yield 0, sought.last if sought.some else min(GROWTH, sought.last)
        return
    for smaller, larger in ((1, 2), (0.5, 1), (0.99, 1), (1, 1.01)):
        below, above = (min(sought.rank(times * given), sought.last) for times in (smaller, larger))
        if below < above:
            yield below, above


def around(holds: Callable[[int], bool], rank: int, last: int) -> tuple[int, int]:
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
    return _between(reached, min(reached + step, most), holds, lambda _: None)


def _last(
    holds: Callable[[int], bool], slack: Callable[[int], float | None], sought: Unknown, guess: int | None
) -> int:
    """The last rank that holds, where all before it hold and none after; -1 where none does."""
    if not holds(0):
        return -1
    low, high = 0, sought.last
    if guess is not None and low < guess <= high and holds(guess):
        low = guess
    reach = min(low + 1 if guess is not None else max(sought.rank(float(sought.given)), 1), high)
    while reach < high and holds(reach):
        low, reach = reach, min((reach + 1) * GROWTH if not sought.real else reach + NEXT_REAL * GROWTH**2, high)
    if holds(reach):
        return reach
    return _between(low, reach, holds, slack)


def _between(low: int, high: int, holds: Callable[[int], bool], slack: Callable[[int], float | None]) -> int:
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
