"""The result for a part of a search space: counts, best layouts, Pareto front and nearest miss; two can be added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ledger.search.batches import Batch
from ledger.search.density import Density, add_densities
from ledger.search.question import MEMORY, Limit, Question


@dataclass(frozen=True)
class Rows:
    """Some layouts: the task and the row that each was found at, its choices (a column each), its totals."""

    tasks: np.ndarray
    numbers: np.ndarray
    choices: np.ndarray
    totals: np.ndarray
    excess: np.ndarray  # how far each misses what it is held to, as a share of the limit that it misses most

    def __len__(self) -> int:
        return len(self.tasks)

    def rows_at(self, places: Any) -> Rows:
        """The rows at these places."""
        return Rows(*(getattr(self, name)[places] for name in ROWS))


ROWS = ("tasks", "numbers", "choices", "totals", "excess")


def no_rows(keys: int) -> Rows:
    """No layouts, with so many totals each."""
    no_integers = np.zeros(0, np.int64)
    return Rows(no_integers, no_integers, np.zeros((0, 0), np.int32), np.zeros((0, keys)), np.zeros(0))


def concatenated_rows(parts: Sequence[Rows]) -> Rows:
    """The layouts of several parts, one after the other."""
    parts = [part for part in parts if len(part)] or parts[:1]
    return Rows(*(np.concatenate([getattr(part, name) for part in parts]) for name in ROWS))


@dataclass(frozen=True)
class SearchResult:
    """The result of one task or of several. `legal`, `fitting` and `meeting` count; `complete`: all was priced.

    `used` counts the legal layouts by the values of keys that were named.
    """

    best: Rows
    front: Rows
    nearest: Rows
    legal: int = 0
    fitting: int = 0
    meeting: int = 0
    complete: bool = True
    used: Mapping[str, np.ndarray] = field(default_factory=dict)
    density: Density | None = None


def nothing(question: Question) -> SearchResult:
    """The result before any layout is priced."""
    empty = no_rows(len(question.keys))
    return SearchResult(empty, empty, empty)


def add_batch(
    batch: Batch, task: int, question: Question, limits: Sequence[Limit], so_far: SearchResult
) -> SearchResult:
    """The result so far with a batch added: rows that cannot be among the best are not sorted again."""
    count = len(batch)
    missed = np.zeros(count)
    fits = np.zeros(count, bool)
    for place, limit in enumerate(limits):
        excess = limit.excess(batch.totals[limit.key])
        fits = excess == 0 if place == 0 else fits
        missed = np.maximum(missed, excess)
    meets = missed == 0
    meeting = np.flatnonzero(meets)
    nearest = so_far.nearest
    if not len(meeting) and not so_far.meeting:
        nearest = concatenated_rows([nearest, _rows(batch, task, np.array([np.argmin(missed)]), missed, question)])
    best = _rows(batch, task, _best_places(batch, meeting, question, so_far.best), missed, question)
    front = _rows(batch, task, _front_in_batch(batch, meeting, question, so_far.front), missed, question)
    return replace(
        so_far,
        best=best_of([so_far.best, best], question),
        front=front_of([so_far.front, front], question),
        nearest=nearest_of([nearest]),
        legal=so_far.legal + count,
        fitting=so_far.fitting + int(np.count_nonzero(fits)),
        meeting=so_far.meeting + len(meeting),
    )


def add(first: SearchResult, second: SearchResult, question: Question) -> SearchResult:
    """The result of both parts, whichever was first."""
    used = {key: np.asarray(first.used.get(key, 0) + second.used.get(key, 0)) for key in {**first.used, **second.used}}
    return SearchResult(
        best=best_of([first.best, second.best], question),
        front=front_of([first.front, second.front], question),
        nearest=nearest_of([first.nearest, second.nearest]),
        legal=first.legal + second.legal,
        fitting=first.fitting + second.fitting,
        meeting=first.meeting + second.meeting,
        complete=first.complete and second.complete,
        used=used,
        density=add_densities(first.density, second.density),
    )


def best_of(parts: Sequence[Rows], question: Question) -> Rows:
    """The best of several by the objective; of equal ones those with less memory, then the first of the space."""
    rows = concatenated_rows(parts)
    keys = question.keys
    objective = rows.totals[:, keys.index(question.objective)] * (-1 if question.largest else 1)
    memory = rows.totals[:, keys.index(MEMORY)]
    order = np.lexsort((rows.numbers, rows.tasks, memory, objective))[: question.top]
    return rows.rows_at(order[~np.isnan(objective[order])])


def front_of(parts: Sequence[Rows], question: Question) -> Rows:
    """The front of several, in the order of its first key; of equal points the first of the space."""
    rows = concatenated_rows(parts)
    order = np.empty(len(rows), np.int64)
    order[np.lexsort((rows.numbers, rows.tasks))] = np.arange(len(rows))
    points = _points(rows.totals, question)
    places = front_places(points, order)
    return rows.rows_at(places[np.lexsort(points[places].T[::-1])])


def nearest_of(parts: Sequence[Rows]) -> Rows:
    """The layout that misses its limits least; of equal ones the first."""
    rows = concatenated_rows(parts)
    return rows.rows_at(np.lexsort((rows.numbers, rows.tasks, rows.excess))[:1])


def _points(totals: np.ndarray, question: Question) -> np.ndarray:
    signs = question.signs
    return np.stack([totals[:, question.keys.index(key)] * signs[key] for key in question.front], axis=1)


def _best_places(batch: Batch, meeting: np.ndarray, question: Question, so_far: Rows) -> np.ndarray:
    """Places among which the best of a batch are."""
    values = batch.totals[question.objective][meeting] * (-1 if question.largest else 1)
    if len(so_far) >= question.top:
        worst = so_far.totals[-1, question.keys.index(question.objective)] * (-1 if question.largest else 1)
        meeting, values = meeting[values <= worst], values[values <= worst]
    if len(meeting) > question.top:
        is_among = values <= np.partition(values, question.top - 1)[question.top - 1]
        meeting, values = meeting[is_among], values[is_among]
    order = np.lexsort((meeting, batch.totals[MEMORY][meeting], values))[: question.top]
    return np.asarray(meeting[order])


def _front_in_batch(batch: Batch, meeting: np.ndarray, question: Question, so_far: Rows) -> np.ndarray:
    """Places of the front of a batch, without points that the front so far beats."""
    points = np.stack([batch.totals[key][meeting] * sign for key, sign in question.signs.items()], axis=1)
    is_unbeaten = ~beaten(points, _points(so_far.totals, question))
    meeting, points = meeting[is_unbeaten], points[is_unbeaten]
    return np.asarray(meeting[front_places(points, meeting)])


def _rows(batch: Batch, task: int, places: np.ndarray, missed: np.ndarray, question: Question) -> Rows:
    return Rows(
        np.full(len(places), task, np.int64),
        batch.first + places.astype(np.int64),
        np.stack([batch.choices[key][places] for key in batch.space.keys], axis=1).astype(np.int32),
        np.stack([batch.totals[key][places] for key in question.keys], axis=1),
        missed[places],
    )


# --- Pareto fronts of points as arrays ---

SAMPLED = 64  # of so many points one stands in the first, rough front
SIEVE = 48  # points of a front that many points are held against at once, where there are more than two coordinates


def front_places(points: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The places of the front of points (rows, smaller is better), sorted; of equal points the first in `order`.

    `order` has a number for each point. A point without a number (NaN) in some coordinate is on no front.
    """
    places: np.ndarray = np.flatnonzero(~np.isnan(points).any(axis=1))
    if len(places) > 4 * SAMPLED:
        rough = _front_of_numbers(points[places[::SAMPLED]], order[places[::SAMPLED]])
        places = places[~beaten(points[places], points[places[::SAMPLED]][rough])]
    return np.asarray(places[_front_of_numbers(points[places], order[places])])


def beaten(points: np.ndarray, front: np.ndarray) -> np.ndarray:
    """Whether a point of the front beats each point: is nowhere worse, and somewhere better.

    Where there are more than two coordinates, only some points of a long front are asked.
    """
    if not len(front) or not len(points):
        return np.zeros(len(points), bool)
    if points.shape[1] == 2:
        return _beaten_in_two(points, front)
    is_beaten = np.zeros(len(points), bool)
    for point in front[np.linspace(0, len(front) - 1, min(len(front), SIEVE)).astype(int)]:
        is_beaten |= (point <= points).all(axis=1) & (point < points).any(axis=1)
    return is_beaten


def _beaten_in_two(points: np.ndarray, front: np.ndarray) -> np.ndarray:
    """`beaten` in two coordinates: by the least second one of the front's points that are no worse in the first."""
    front = front[np.lexsort((front[:, 1], front[:, 0]))]
    least = np.minimum.accumulate(front[:, 1])
    place = np.searchsorted(front[:, 0], points[:, 0], side="right") - 1
    at_or_before = np.maximum(place, 0)
    lower, equal = least[at_or_before] < points[:, 1], least[at_or_before] == points[:, 1]
    # The least first coordinate with this second one.
    first = front[np.searchsorted(-least, -least[at_or_before], side="left"), 0]
    return np.asarray((place >= 0) & (lower | (equal & (first < points[:, 0]))))


def _front_of_numbers(points: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Places of the front of points that all have numbers."""
    sequence = np.lexsort((order, *points.T[::-1]))
    ordered = points[sequence]
    if points.shape[1] <= 2:
        last = ordered[:, -1]
        least_before = np.concatenate(([np.inf], np.minimum.accumulate(last)[:-1]))
        return np.asarray(sequence[last < least_before] if points.shape[1] == 2 else sequence[:1])
    front = []
    remaining = np.arange(len(ordered))
    while len(remaining):  # once for each point of the front: the first that is left is beaten by none
        first = remaining[0]
        front.append(sequence[first])
        remaining = remaining[(ordered[remaining] < ordered[first]).any(axis=1)]
    return np.array(front, np.int64)
