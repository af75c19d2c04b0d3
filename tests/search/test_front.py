"""Fronts of points, against their definition."""

from __future__ import annotations

import numpy as np
import pytest

from ledger.search.found import beaten, front_places


def by_definition(points: np.ndarray, order: np.ndarray) -> list[int]:
    """Points that no other beats, the first of equal ones."""
    kept = []
    for place, one in enumerate(points):
        if np.isnan(one).any():
            continue
        no_worse = (points <= one).all(axis=1)
        better = no_worse & (points < one).any(axis=1)
        equal = (points == one).all(axis=1)
        if not better.any() and order[place] == order[equal].min():
            kept.append(place)
    return kept


@pytest.mark.parametrize("coordinates", [1, 2, 3, 4])
@pytest.mark.parametrize("values", [3, 40, 10**6])
def test_a_front_is_what_nothing_beats(coordinates: int, values: int) -> None:
    """With many equal points and with none, and with totals that a layout does not have."""
    drawn = np.random.default_rng(coordinates * values)
    for _ in range(5):
        points = drawn.integers(values, size=(700, coordinates)).astype(float)
        points[drawn.integers(700, size=20), 0] = np.nan
        order = drawn.permutation(700)
        assert sorted(front_places(points, order)) == by_definition(points, order)


@pytest.mark.parametrize("coordinates", [2, 3])
def test_what_a_front_beats_is_on_no_front(coordinates: int) -> None:
    """An equal point is not beaten, and of two coordinates all that are beaten are found."""
    drawn = np.random.default_rng(7)
    front, points = (drawn.integers(20, size=(count, coordinates)).astype(float) for count in (30, 400))
    said = beaten(points, front)
    for one, there in zip(points, said, strict=True):
        truth = bool(((front <= one).all(axis=1) & (front < one).any(axis=1)).any())
        assert not there or truth
        assert there == truth or coordinates > 2
