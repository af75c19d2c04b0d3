"""A plan solved for one of its inputs: the largest, smallest or best value under which every condition holds.

Where memory limits a size, the closed form is solved for it. The answer is always verified by the exact books of the
value itself and of the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from fractions import Fraction
from math import inf

from ledger.books.what_if.answer import LARGEST, SMALLEST, Solution, told
from ledger.books.what_if.conditions import FITS, Condition, condition, fault
from ledger.books.what_if.inversion import inverted
from ledger.books.what_if.ranges import compared, span
from ledger.books.what_if.trial import BARE, Trial, totals
from ledger.books.what_if.unknowns import unknown
from ledger.spec.plan import Plan

TRIED = 17  # values in each round of a search for the best


def solve(plan: Plan, path: str, subject_to: Sequence[str] = (), *, maximize: str = "", minimize: str = "") -> Solution:
    """The value of the input at `path` under the conditions (`fits` where there are none), the best for an objective.

    Raises SpecError for an input, a condition or an objective that the plan does not know, and where nothing ends
    the search.
    """
    sought, known = unknown(plan, path), totals(plan)
    conditions = [condition(text, known) for text in subject_to or [FITS]]
    for text in (maximize, minimize):
        if text:
            condition(f"{text} > 0", known)
    trial = Trial(plan, sought, {})
    _matters(trial, {*(key for one in conditions for key in (one.key, one.against)), maximize, minimize} - {""})
    form, guess = inverted(plan, sought, conditions)
    ranges = [span(trial, one, guess) for one in conditions]
    low, high = max(one.low for one in ranges), min(one.high for one in ranges)
    goal = LARGEST if any(one.upper for one in ranges) else SMALLEST
    notes = (BARE,) if plan.model.bare else ()
    blank = Solution(sought.path, sought.unit, sought.given, goal, sought.why, form, notes)
    if low > high and sought.some:
        low, high = _searched(trial, conditions, max(high, 0))
    if low > high:
        return told(trial, conditions, blank, max(high, 0))
    rank = low if goal == SMALLEST else high
    if maximize or minimize:
        blank = replace(blank, goal=f"maximize {maximize}" if maximize else f"minimize {minimize}")
        rank = _best(trial, conditions, (low, high), maximize or minimize, sign=1 if maximize else -1)
    elif rank == sought.last and not sought.some and sought.greatest == inf:
        raise fault(path, 1, f"nothing limits `{path}`", "add a condition that grows with it, for example `fits`")
    return told(trial, conditions, replace(blank, value=sought.value(rank)), rank)


def _matters(trial: Trial, keys: AbstractSet[str]) -> None:
    """Raises SpecError where other values of the input leave all that is asked for as it is."""
    ranks = {*compared(trial.sought), *(() if trial.sought.real else (0,))}
    found = [totals for totals in map(trial, ranks) if totals is not None]
    if len(found) > 1 and all(totals[key] == found[0][key] for totals in found for key in keys):
        path = trial.sought.path
        raise fault(path, 1, f"nothing that is asked for depends on `{path}`", f"asked for: {', '.join(sorted(keys))}")


def _searched(trial: Trial, conditions: Sequence[Condition], nearest: int) -> tuple[int, int]:
    """The first and the last value that meets the conditions, of few that all are tried; none before `nearest`."""
    ranks = range(trial.sought.last + 1)
    held = [rank for rank in ranks if all(trial.holds(one, rank) for one in conditions)]
    if held:
        return held[0], held[-1]
    if len(conditions) == 1:
        slacks = {rank: slack for rank in ranks if (slack := trial.slack(conditions[0], rank)) is not None}
        nearest = max(slacks, key=lambda rank: slacks[rank], default=nearest)
    return nearest + 1, nearest


def _best(trial: Trial, conditions: Sequence[Condition], ends: tuple[int, int], key: str, *, sign: int) -> int:
    """The rank with the most (`sign` 1) or least of a total: of all, or of ever finer samples around the best.

    Of seconds and rates that are equal but for rounding, it is the largest.
    """
    low, high = ends

    def worth(rank: int) -> tuple[Fraction, int]:
        found = trial(rank)
        met = found is not None and all(one.holds(found) for one in conditions)
        if found is None or not met:
            return Fraction(-(10**40)), rank
        total = found[key]
        return Fraction(f"{total:.12g}" if isinstance(total, float) else total) * sign, rank

    while True:
        step = max(1, -(-(high - low) // TRIED))
        best: int = max([*range(low, high, step), high], key=worth)
        if step == 1:
            return best
        low, high = max(low, best - step), min(high, best + step)
