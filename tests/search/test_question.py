"""What is asked: conditions that exclude each other, limits, and which totals more is better of."""

from __future__ import annotations

import numpy as np
import pytest

from ledger.books.what_if.conditions import condition
from ledger.search.question import Limit, contradictions
from ledger.units import is_more_better

KNOWN = ("time.step", "mfu", "memory.peak")


@pytest.mark.parametrize(
    ("texts", "excluded"),
    [
        (("time.step < 1 s", "time.step > 2 s"), True),
        (("time.step < 1 s", "time.step > 1 s"), True),
        (("time.step <= 1 s", "time.step >= 1 s"), False),
        (("time.step == 1 s", "time.step != 1 s"), True),
        (("time.step > 1 s", "time.step < 2 s"), False),
        (("time.step < 1 s", "mfu > 0.5"), False),
        (("fits", "memory.peak > 1 TB"), False),
    ],
)
def test_conditions_that_exclude_each_other_are_seen_before_work_begins(texts: tuple[str, str], excluded: bool) -> None:
    """A value at each limit, between and beyond them is all that two limits on one total tell apart."""
    asked = [condition(text, KNOWN) for text in texts]
    assert bool(list(contradictions(asked))) is excluded


@pytest.mark.parametrize(
    ("relation", "missed"),
    [("<=", [0, 0, 0.5]), ("<", [0, 1, 0.5]), (">=", [0.5, 0, 0]), (">", [0.5, 1, 0]), ("==", [0.5, 0, 0.5])],
)
def test_a_limit_is_missed_by_a_share_of_it(relation: str, missed: list[float]) -> None:
    """What is at a limit that excludes it misses it by next to nothing; a total that is not there misses any."""
    found = Limit("", "time.step", relation, 2.0).excess(np.array([1.0, 2.0, 3.0, np.nan]))
    assert found[:3] == pytest.approx([0 if one == 1 else one for one in missed], abs=1e-9)
    assert list(found[:3] > 0) == [one > 0 for one in missed]
    assert np.isinf(found[3])


@pytest.mark.parametrize(
    ("key", "more"),
    [("mfu", True), ("hfu", True), ("tokens_per_second", True), ("goodput", True), ("time.step", False)],
)
def test_rates_and_shares_are_better_when_there_is_more(key: str, more: bool) -> None:
    """By the unit of the total; of all else a front has least."""
    assert is_more_better(key) is more
