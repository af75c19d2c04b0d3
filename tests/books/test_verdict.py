"""The checklist: what passes, and what a person should look at."""

from __future__ import annotations

import pytest

import ledger
from ledger.books.compiled import Compiled
from ledger.books.results import Check
from ledger.books.verdict import ASTRAY
from ledger.numbers import integer, with_unit


def check(compiled: Compiled, name: str) -> Check:
    """The check of a name."""
    (found,) = (one for one in compiled.verdict.checks if one.name == name)
    return found


@pytest.mark.parametrize(
    ("mfu", "seq_len", "status"), [(0.4, 8192, "pass"), (0.9, 8192, "warn"), (0.1, 8192, "warn"), (0.4, 65536, "warn")]
)
def test_a_run_far_from_its_napkin_is_looked_at(mfu: float, seq_len: int, status: str) -> None:
    """Beyond the stated ratio either way, whether the assumed rate or the attention that 6ND leaves out is why."""
    found = ledger.compile("8b", [f"assumptions.mfu={mfu}", f"run.seq_len={seq_len}"])
    ratio = float(found.totals["time.run"]) / float(found.totals["napkin.time.run"])
    row = check(found, "run")
    assert row.status == status == ("pass" if 1 / ASTRAY <= ratio <= ASTRAY else "warn")
    assert ("times that" in row.detail) == (status == "warn")


def test_utilisation_is_held_against_the_assumed_one_as_the_napkin_counts() -> None:
    """6ND over the peak: the assumed MFU times the napkin's time over the run's, attention aside."""
    found = ledger.compile("8b")
    totals, plan = found.totals, found.plan
    reached = plan.assumptions.mfu * float(totals["napkin.time.run"]) / float(totals["time.run"])
    assert check(found, "mfu").figure == with_unit(reached, "%")


def test_a_plan_that_does_not_fit_by_a_little_says_by_how_much() -> None:
    """To the byte where figures of one length are alike: 85.5 GB of 85.5 GB would say nothing."""
    lengths = range(19_390, 19_420)
    first = next(
        found
        for found in (ledger.compile("8b", [f"run.seq_len={length}"]) for length in lengths)
        if not found.verdict.fits
    )
    reserved, capacity = (int(first.totals[f"memory.{one}"]) for one in ("reserved", "capacity"))
    assert with_unit(reserved, "B") == with_unit(capacity, "B")
    assert first.verdict.headline.startswith(f"does not fit: {integer(reserved)} B of {integer(capacity)} B;")
