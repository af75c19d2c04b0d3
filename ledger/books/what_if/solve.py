"""A plan solved for one of its inputs: the largest, smallest or best value under which every condition holds.

Where memory limits a size, the closed form is solved for it. The answer is always verified by the exact books of the
value itself and of the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf

import sympy

from ledger.books.results import Number
from ledger.books.verdict import HEADROOM
from ledger.books.what_if.conditions import FITS, Condition, condition, fault
from ledger.books.what_if.inversion import closed_forms, first_limit
from ledger.books.what_if.trial import BARE, Trial, totals
from ledger.books.what_if.unknowns import FINE, Unknown, unknown
from ledger.numbers import said
from ledger.spec.inputs import violations
from ledger.spec.plan import Plan

SMALLEST, LARGEST = "smallest", "largest"
GROWTH = 8
TRIED = 17  # values in each round of a search for the best
NEXT_REAL = round(0.01 / FINE)  # one per cent further is one step beyond
MEMORY = ("memory.peak", "memory.reserved")


@dataclass(frozen=True)
class Bound:
    """A condition with its total as the plan is `given`, `at` the solution and one step `beyond` it."""

    text: str
    key: str
    limit: Number
    given: Number | None
    at: Number | None
    beyond: Number | None
    binds: bool


@dataclass(frozen=True)
class Solution:
    """`value` of the input at `path`; None where no legal value meets the conditions: then `nearest` is a near miss.

    `beyond` is the next legal value, None where there is none; `goal` says which of several solutions it is, `legal`
    which values there are.
    """

    path: str
    unit: str
    given: Number
    goal: str
    legal: str
    closed_form: str
    notes: tuple[str, ...]
    value: Number | None = None
    nearest: Number | None = None
    beyond: Number | None = None
    bounds: tuple[Bound, ...] = ()


@dataclass(frozen=True)
class Range:
    """A condition holds from rank `low` to `high`, nowhere if `low` is above; `upper` where larger values break it."""

    low: int
    high: int
    upper: bool


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
    form, guess = _inverted(plan, sought, conditions)
    ranges = [_range(trial, one, guess) for one in conditions]
    low, high = max(one.low for one in ranges), min(one.high for one in ranges)
    goal = LARGEST if any(one.upper for one in ranges) else SMALLEST
    notes = (BARE,) if plan.model.bare else ()
    blank = Solution(sought.path, sought.unit, sought.given, goal, sought.why, form, notes)
    if low > high and sought.some:
        low, high = _searched(trial, conditions, max(high, 0))
    if low > high:
        return _told(trial, conditions, blank, max(high, 0))
    rank = low if goal == SMALLEST else high
    if maximize or minimize:
        blank = replace(blank, goal=f"maximize {maximize}" if maximize else f"minimize {minimize}")
        rank = _best(trial, conditions, (low, high), maximize or minimize, sign=1 if maximize else -1)
    elif rank == sought.last and not sought.some and sought.greatest == inf:
        raise fault(path, 1, f"nothing limits `{path}`", "add a condition that grows with it, for example `fits`")
    return _told(trial, conditions, replace(blank, value=sought.value(rank)), rank)


def _matters(trial: Trial, keys: AbstractSet[str]) -> None:
    """Raises SpecError where other values of the input leave all that is asked for as it is."""
    ranks = {*_ends(trial.sought), *(() if trial.sought.real else (0,))}
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


# --- the range of one condition -----------------------------------------------------------------


def _range(trial: Trial, one: Condition, guess: int | None) -> Range:
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
    """Whether larger values bring the condition closer to breaking."""
    sought = trial.sought
    before, after = (trial.slack(one, rank) for rank in _ends(sought))
    return before is None or after is None or after <= before


def _ends(sought: Unknown) -> tuple[int, int]:
    """Two values to compare: the first and the last of some, else what is given and its double."""
    if sought.some:
        return 0, sought.last
    given = float(sought.given)
    return min(sought.rank(given), sought.last), min(sought.rank(2 * given), sought.last)


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


def _inverted(plan: Plan, sought: Unknown, conditions: Sequence[Condition]) -> tuple[str, int | None]:
    """The closed form of memory that is first to reach a limit, and the rank it gives; nothing where there is none."""
    limits = [_peak_limit(plan, one) for one in conditions if one.key in MEMORY and one.relation in {"<", "<="}]
    if sought.sign is None or not limits:
        return "", None
    if plan.model.bare:
        if sought.path != "model.parameters":
            return "", None
        rate = Fraction(totals(plan)["memory.static"]) / Fraction(sought.given)
        return f"memory.static = {rate}*{sought.sign}", sought.rank(float(min(limits) / rate))
    found = first_limit(closed_forms(plan, sought.sign), sympy.Rational(min(limits)))
    if found is None or found[1] == inf:
        return "", None
    form, root = found
    return f"memory.peak = {form.text}, at the limit where {sought.sign} = {root:.6g}", sought.rank(root)


def _peak_limit(plan: Plan, one: Condition) -> Fraction:
    """The most bytes alive that a condition on memory allows."""
    limit = Fraction(plan.accelerator.memory) if one.against else one.limit
    if one.key == "memory.peak" or plan.model.bare:
        return limit
    return (limit - plan.stack.context) / Fraction(plan.stack.fragmentation)


# --- the answer ---------------------------------------------------------------------------------


def _best(trial: Trial, conditions: Sequence[Condition], ends: tuple[int, int], key: str, *, sign: int) -> int:
    """The rank with the most (`sign` 1) or least of a total: of all, or of ever finer samples around the best."""
    low, high = ends

    def worth(rank: int) -> Fraction:
        found = trial(rank)
        met = found is not None and all(one.holds(found) for one in conditions)
        return Fraction(found[key]) * sign if found is not None and met else Fraction(-(10**40))

    while True:
        step = max(1, -(-(high - low) // TRIED))
        best: int = max([*range(low, high, step), high], key=worth)
        if step == 1:
            return best
        low, high = max(low, best - step), min(high, best + step)


def _told(trial: Trial, conditions: Sequence[Condition], blank: Solution, rank: int) -> Solution:
    """The solution, or the nearest miss, with every condition at it and one step beyond."""
    sought = trial.sought
    nearest = sought.value(rank)
    blank = replace(blank, notes=(*blank.notes, *_asides(trial, blank, rank)))
    if blank.value is None:
        bounds = (_bound(one, trial, (rank, None), binds=not trial.holds(one, rank)) for one in conditions)
        return replace(blank, nearest=nearest, bounds=tuple(bounds))
    after = rank + (NEXT_REAL if sought.real else 1) * (-1 if blank.goal == SMALLEST else 1)
    if not 0 <= after <= sought.last:
        bounds = (_bound(one, trial, (rank, None), binds=False) for one in conditions)
        return replace(blank, nearest=nearest, bounds=tuple(bounds))
    legal = trial(after) is not None
    bounds = (_bound(one, trial, (rank, after), binds=legal and not trial.holds(one, after)) for one in conditions)
    refused = tuple(problem.message for problem in violations(trial.with_value(after)))
    notes = (*blank.notes, *(f"one step beyond: {message}" for message in refused))
    return replace(blank, nearest=nearest, beyond=sought.value(after), bounds=tuple(bounds), notes=notes)


def _asides(trial: Trial, blank: Solution, rank: int) -> Iterator[str]:
    """What else the value changes in the plan, and why no larger one is tried."""
    before, after = trial.plan.run.micro_batch, trial.with_value(rank).run.micro_batch
    if blank.path == "cluster.devices" and after != before:
        yield f"micro_batch is lowered from {before} to {after} for this many devices, global_batch is kept"
    ended = blank.goal == SMALLEST if blank.value is None else blank.goal != SMALLEST and rank == trial.sought.last
    yield from _unasked(trial, blank, rank)
    if trial.sought.cap and ended:
        yield trial.sought.cap if blank.value is None else f"the bound of the spec binds: {trial.sought.cap}"


def _unasked(trial: Trial, blank: Solution, rank: int) -> Iterator[str]:
    """What was no condition and yet bounds the value: memory to keep free, and the length the model was made for."""
    plan, found = trial.with_value(rank), trial(rank)
    if blank.value is None or found is None:
        return
    wanted = HEADROOM[plan.assumptions.headroom]
    free = float(plan.accelerator.memory) - float(found.get("memory.reserved", 0))
    if free < wanted and "memory.reserved" in found:
        yield f"{said(free, 'B')} stay free of the {said(wanted, 'B')} of {plan.assumptions.headroom} headroom"
    if blank.path == "run.seq_len" and 0 < plan.model.max_seq_len < plan.run.seq_len:
        yield f"the model was made for {plan.model.max_seq_len} tokens"


def _bound(one: Condition, trial: Trial, ranks: tuple[int, int | None], *, binds: bool) -> Bound:
    given = totals(trial.plan)
    at, beyond = ((trial(rank) if rank is not None else None) or {} for rank in ranks)
    limit = one.bound(at or given)
    return Bound(one.text, one.key, limit, given.get(one.key), at.get(one.key), beyond.get(one.key), binds)
