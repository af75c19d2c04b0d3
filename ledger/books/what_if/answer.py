"""What `solve` answers: a value with every condition at it and one step beyond, or the nearest miss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ledger.books.results import Number
from ledger.books.verdict import HEADROOM
from ledger.books.what_if.conditions import Condition
from ledger.books.what_if.sought import NEXT_REAL
from ledger.books.what_if.trial import Trial, totals
from ledger.numbers import said
from ledger.spec.inputs import violations

SMALLEST, LARGEST = "smallest", "largest"


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


def told(trial: Trial, conditions: Sequence[Condition], blank: Solution, rank: int) -> Solution:
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
