"""What was measured near the plan, beside what is predicted of it: microbenchmarks of its kernels, published runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.report.views.parts import Cell, Column, Report, Table

if TYPE_CHECKING:
    from ledger.books.results import Compiled
    from ledger.evidence.nearby import Nearby

PRINTED = 16  # rows of each table on paper
STEP = "time.step"
COLUMNS = (
    Column("what", "tag"),
    Column("measured on"),
    Column("predicted", "number"),
    Column("measured", "number"),
    Column("error", "number"),
    Column("source"),
)


@dataclass(frozen=True)
class NearbyView:
    """What the measurements say together, and each of them; without a table where there are none."""

    sentence: str
    table: Table | None


def microbenchmarks(report: Report) -> NearbyView:
    """The microbenchmarks nearest to the kernels of this plan."""
    found = report.microbenchmarks
    if not found:
        return NearbyView("No microbenchmark in the library is near a kernel of this plan.", None)
    title = "Microbenchmarks nearest to this plan's kernels"
    told = f"{_counted(found, 'microbenchmark')} near this plan's kernels: {_errors(found)}."
    return NearbyView(told, _table(title, found))


def published_runs(report: Report) -> NearbyView:
    """The measured runs nearest to this plan, and what they say of the band around the estimate."""
    found = report.runs
    if not found:
        return NearbyView("No measured run in the library is near this plan.", None)
    timed = [one for one in found if one.what == STEP]
    parts = [f"{_counted(found, 'measurement')} of runs near this plan: {_errors(found)}."]
    if timed:
        parts.append(_band(report.compiled, timed))
    return NearbyView(" ".join(parts), _table("Measured runs nearest to this plan", found))


def _band(compiled: Compiled, timed: Sequence[Nearby]) -> str:
    """How many of the measured steps lie within the band of this plan's estimate."""
    step, low, high = (float(compiled.totals[key]) for key in (STEP, "time.step.low", "time.step.high"))
    within = sum(low <= step * one.measured / one.predicted <= high for one in timed)
    band = f"{numbers.change(low / step - 1)} to {numbers.change(high / step - 1)}"
    return f"{within} of {len(timed)} measured steps lie within this estimate's band, {band}."


def _counted(found: Sequence[Nearby], noun: str) -> str:
    return f"{len(found)} {noun}{'' if len(found) == 1 else 's'}"


def _errors(found: Sequence[Nearby]) -> str:
    """The typical and the extreme errors."""
    errors = sorted(one.error for one in found)
    middle = numbers.percent(median(abs(error) for error in errors))
    if len(errors) == 1:
        return f"the prediction is off by {numbers.change(errors[0])}"
    ends = f"{numbers.change(errors[0])} to {numbers.change(errors[-1])}"
    return f"predictions are off by {middle} in the median, from {ends}"


def _table(title: str, found: Sequence[Nearby]) -> Table:
    return Table(title, COLUMNS, tuple(_row(one) for one in found), PRINTED)


def _row(one: Nearby) -> tuple[Cell, ...]:
    return (
        Cell(one.what),
        Cell(one.name, note=one.differs),
        Cell(numbers.written(one.predicted, one.unit), numbers.machine(one.predicted)),
        Cell(numbers.written(one.measured, one.unit), numbers.machine(one.measured)),
        Cell(numbers.change(one.error), numbers.machine(one.error)),
        Cell(one.origin),
    )
