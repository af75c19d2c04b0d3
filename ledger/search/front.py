"""Pareto fronts of points as arrays: those that no other point beats in one coordinate without losing in another."""

from __future__ import annotations

import numpy as np

SAMPLED = 64  # of so many points one stands in the first, rough front
SIEVE = 48  # points of a front that many points are held against at once, where there are more than two coordinates


def front_places(points: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The places of the front of points (rows, smaller is better), sorted; of equal points the first in `order`.

    `order` has a number for each point. A point without a number (NaN) in some coordinate is on no front.
    """
    places: np.ndarray = np.flatnonzero(~np.isnan(points).any(axis=1))
    if len(places) > 4 * SAMPLED:
        rough = _front(points[places[::SAMPLED]], order[places[::SAMPLED]])
        places = places[~beaten(points[places], points[places[::SAMPLED]][rough])]
    return np.asarray(places[_front(points[places], order[places])])


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


def _front(points: np.ndarray, order: np.ndarray) -> np.ndarray:
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
