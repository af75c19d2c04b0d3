"""What one part of a space has: counts, its best layouts, its front, its nearest miss; two of them are added."""

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

    def taken(self, places: Any) -> Rows:
        """Those at these places."""
        return Rows(*(getattr(self, name)[places] for name in ROWS))


ROWS = ("tasks", "numbers", "choices", "totals", "excess")


def no_rows(keys: int) -> Rows:
    """No layouts, with so many totals each."""
    whole = np.zeros(0, np.int64)
    return Rows(whole, whole, np.zeros((0, 0), np.int32), np.zeros((0, keys)), np.zeros(0))


def joined(parts: Sequence[Rows]) -> Rows:
    """The layouts of several; of none where none has any."""
    parts = [part for part in parts if len(part)] or parts[:1]
    return Rows(*(np.concatenate([getattr(part, name) for part in parts]) for name in ROWS))


@dataclass(frozen=True)
class Found:
    """What a task, or several, found. `legal`, `fitting` and `meeting` count; `complete`: nothing was left out.

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


def nothing(question: Question) -> Found:
    """What is found before anything is looked at."""
    empty = no_rows(len(question.keys))
    return Found(empty, empty, empty)


def found_in(batch: Batch, task: int, question: Question, limits: Sequence[Limit], so_far: Found) -> Found:
    """What a batch adds to what was found of its task: rows that cannot be among the best are not looked at twice."""
    count = len(batch)
    missed = np.zeros(count)
    fits = np.zeros(count, bool)
    for place, limit in enumerate(limits):
        by = limit.excess(batch.totals[limit.key])
        fits = by == 0 if place == 0 else fits
        missed = np.maximum(missed, by)
    meets = missed == 0
    there = np.flatnonzero(meets)
    nearest = so_far.nearest
    if not len(there) and not so_far.meeting:
        nearest = joined([nearest, _rows(batch, task, np.array([np.argmin(missed)]), missed, question)])
    return replace(
        so_far,
        best=best_of(
            [so_far.best, _rows(batch, task, _best(batch, there, question, so_far.best), missed, question)], question
        ),
        front=front_of(
            [so_far.front, _rows(batch, task, _front(batch, there, question, so_far.front), missed, question)], question
        ),
        nearest=nearest_of([nearest]),
        legal=so_far.legal + count,
        fitting=so_far.fitting + int(np.count_nonzero(fits)),
        meeting=so_far.meeting + len(there),
    )


def add(one: Found, other: Found, question: Question) -> Found:
    """What both found, whichever was first."""
    used = {key: np.asarray(one.used.get(key, 0) + other.used.get(key, 0)) for key in {**one.used, **other.used}}
    return Found(
        best=best_of([one.best, other.best], question),
        front=front_of([one.front, other.front], question),
        nearest=nearest_of([one.nearest, other.nearest]),
        legal=one.legal + other.legal,
        fitting=one.fitting + other.fitting,
        meeting=one.meeting + other.meeting,
        complete=one.complete and other.complete,
        used=used,
        density=add_densities(one.density, other.density),
    )


def best_of(parts: Sequence[Rows], question: Question) -> Rows:
    """The best of several by the objective; of equal ones those with less memory, then the first of the space."""
    rows = joined(parts)
    keys = question.keys
    objective = rows.totals[:, keys.index(question.objective)] * (-1 if question.largest else 1)
    memory = rows.totals[:, keys.index(MEMORY)]
    order = np.lexsort((rows.numbers, rows.tasks, memory, objective))[: question.top]
    return rows.taken(order[~np.isnan(objective[order])])


def front_of(parts: Sequence[Rows], question: Question) -> Rows:
    """The front of several, in the order of its first key; of equal points the first of the space."""
    rows = joined(parts)
    order = np.empty(len(rows), np.int64)
    order[np.lexsort((rows.numbers, rows.tasks))] = np.arange(len(rows))
    points = _points(rows.totals, question)
    places = front_places(points, order)
    return rows.taken(places[np.lexsort(points[places].T[::-1])])


def nearest_of(parts: Sequence[Rows]) -> Rows:
    """The one that misses least, the first of several."""
    rows = joined(parts)
    return rows.taken(np.lexsort((rows.numbers, rows.tasks, rows.excess))[:1])


def _points(totals: np.ndarray, question: Question) -> np.ndarray:
    signs = question.signs
    return np.stack([totals[:, question.keys.index(key)] * signs[key] for key in question.front], axis=1)


def _best(batch: Batch, there: np.ndarray, question: Question, so_far: Rows) -> np.ndarray:
    """Places among which the best of a batch are."""
    values = batch.totals[question.objective][there] * (-1 if question.largest else 1)
    if len(so_far) >= question.top:
        worst = so_far.totals[-1, question.keys.index(question.objective)] * (-1 if question.largest else 1)
        there, values = there[values <= worst], values[values <= worst]
    if len(there) > question.top:
        kept = values <= np.partition(values, question.top - 1)[question.top - 1]
        there, values = there[kept], values[kept]
    order = np.lexsort((there, batch.totals[MEMORY][there], values))[: question.top]
    return np.asarray(there[order])


def _front(batch: Batch, there: np.ndarray, question: Question, so_far: Rows) -> np.ndarray:
    """Places of the front of a batch, as far as what was found before does not beat it."""
    points = np.stack([batch.totals[key][there] * sign for key, sign in question.signs.items()], axis=1)
    left = ~beaten(points, _points(so_far.totals, question))
    there, points = there[left], points[left]
    return np.asarray(there[front_places(points, there)])


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
        rough = _of_points(points[places[::SAMPLED]], order[places[::SAMPLED]])
        places = places[~beaten(points[places], points[places[::SAMPLED]][rough])]
    return np.asarray(places[_of_points(points[places], order[places])])


def beaten(points: np.ndarray, front: np.ndarray) -> np.ndarray:
    """Whether a point of the front beats each point: is nowhere worse, and somewhere better.

    Where there are more than two coordinates, only some points of a long front are asked.
    """
    if not len(front) or not len(points):
        return np.zeros(len(points), bool)
    if points.shape[1] == 2:
        return _beaten_in_two(points, front)
    found = np.zeros(len(points), bool)
    for one in front[np.linspace(0, len(front) - 1, min(len(front), SIEVE)).astype(int)]:
        found |= (one <= points).all(axis=1) & (one < points).any(axis=1)
    return found


def _beaten_in_two(points: np.ndarray, front: np.ndarray) -> np.ndarray:
    """The same in two coordinates, by the best second one of those of the front that are no worse in the first."""
    front = front[np.lexsort((front[:, 1], front[:, 0]))]
    least = np.minimum.accumulate(front[:, 1])
    place = np.searchsorted(front[:, 0], points[:, 0], side="right") - 1
    there = np.maximum(place, 0)
    lower, equal = least[there] < points[:, 1], least[there] == points[:, 1]
    first = front[np.searchsorted(-least, -least[there], side="left"), 0]  # the least that has this second coordinate
    return np.asarray((place >= 0) & (lower | (equal & (first < points[:, 0]))))


def _of_points(points: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Places of the front of points that all have numbers."""
    sequence = np.lexsort((order, *points.T[::-1]))
    ordered = points[sequence]
    if points.shape[1] <= 2:
        last = ordered[:, -1]
        before = np.concatenate(([np.inf], np.minimum.accumulate(last)[:-1]))
        return np.asarray(sequence[last < before] if points.shape[1] == 2 else sequence[:1])
    kept = []
    left = np.arange(len(ordered))
    while len(left):  # once for each point of the front: the first that is left is beaten by none
        one = left[0]
        kept.append(sequence[one])
        left = left[(ordered[left] < ordered[one]).any(axis=1)]
    return np.array(kept, np.int64)
