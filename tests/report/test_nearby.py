"""Measurements near a plan in the evidence section: each with its error, together with the estimate's band."""

from __future__ import annotations

from ledger.books.results import Compiled
from ledger.evidence.nearby import Nearby
from ledger.report import html
from ledger.report.views.nearby import microbenchmarks, published_runs
from ledger.report.views.parts import Report

SLOW = Nearby("time.step", "a run on 512 devices", 9.0, 10.0, "s", "Somebody 2025, table 1", "half the devices")
FAST = Nearby("time.step", "a run on 64 devices", 30.0, 10.0, "s", "Somebody 2025, table 2")
HELD = Nearby("memory.peak", "a run on 64 devices", 11e9, 10e9, "B", "Somebody 2025, table 2")
KERNEL = Nearby("matmul.bf16", "8192 x 8192 x 28672", 1.1e-3, 1e-3, "s", "Somebody 2024, figure 3")


def test_an_error_is_predicted_over_measured() -> None:
    """9 s for 10 s is ten per cent too short."""
    assert round(SLOW.error, 12) == -0.1


def test_a_plan_with_nothing_near_it_says_so(compiled: Compiled) -> None:
    """Silence would look like agreement."""
    report = Report(compiled)
    told = [view(report) for view in (microbenchmarks, published_runs)]
    assert all(one.table is None and one.sentence.startswith("No ") for one in told)
    page = html.render(report)
    assert all(one.sentence.replace("'", "&#39;") in page for one in told)


def test_the_median_and_the_ends_of_the_errors_are_told(compiled: Compiled) -> None:
    """Errors of -10, +10 and +200 %: 10 % in the median."""
    told = published_runs(Report(compiled, runs=(SLOW, FAST, HELD))).sentence
    assert told.startswith("3 measurements of runs near this plan: predictions are off by 10.0\u202f% in the median")
    assert "from −10.0\u202f% to +200.0\u202f%" in told


def test_runs_are_held_against_the_band(compiled: Compiled) -> None:
    """One that took a ninth longer than predicted lies within a band of a fifth, one three times faster does not."""
    totals = {**compiled.totals, "time.step": 10.0, "time.step.low": 8.0, "time.step.high": 12.0}
    report = Report(Compiled(**{**vars(compiled), "totals": totals}), runs=(SLOW, FAST))
    assert published_runs(report).sentence.endswith(
        "1 of 2 measured steps lie within this estimate's band, −20.0\u202f% to +20.0\u202f%."
    )


def test_every_measurement_is_a_row_with_its_origin(compiled: Compiled) -> None:
    """What differs from the plan stands beside the case."""
    table = microbenchmarks(Report(compiled, microbenchmarks=(KERNEL,))).table
    assert table is not None
    assert [cell.text for cell in table.rows[0]] == [
        "matmul.bf16",
        "8192 x 8192 x 28672",
        "1.10\u202fms",
        "1.00\u202fms",
        "+10.0\u202f%",
        "Somebody 2024, figure 3",
    ]
