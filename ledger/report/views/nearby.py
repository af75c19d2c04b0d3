"""What was measured near the plan, beside what is predicted of it: whole runs, and microbenchmarks of its kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.books.time import band
from ledger.evidence.citations import CITED
from ledger.report.views.basis import no_microbenchmarks_sentence
from ledger.report.views.parts import DASH, Cell, Column, Report, Table, amount, columns, number_cell

if TYPE_CHECKING:
    from ledger.books.results import Compiled
    from ledger.evidence.near_measurements import NearMeasurement

PRINTED = 8  # rows of each table on paper
TOLD = 3  # classes of kernel whose errors are told in words
STEP, LOW, HIGH = "time.step", "time.step.low", "time.step.high"
CASE, MEASURED = (Column("what", "tag"), Column("measured on")), ("predicted", "measured", "error")
RUN_COLUMNS = (*CASE, *columns("number", *MEASURED), Column("source"))
KERNEL_COLUMNS = (*CASE, *columns("number", "of the step", *MEASURED, "error unseen"), Column("measured in"))


@dataclass(frozen=True)
class NearbyView:
    """What the measurements say together, what that is to be read with, and each of them; no table without any."""

    sentence: str
    notes: tuple[str, ...]
    table: Table | None


@dataclass(frozen=True)
class MeasurementClass:
    """Several measurements of one class: what the plan's kernels like them take of the step, and weighed errors."""

    what: str
    share: float
    absolute: float
    signed: float
    ends: tuple[float, float]


# --- whole runs ---------------------------------------------------------------------------------


def whole_runs(report: Report) -> NearbyView:
    """The measured runs nearest to this plan, and what they say of the band around the estimate."""
    found = report.runs
    if not found:
        return NearbyView(nearest_runs_sentence(report), (), None)
    timed = [one for one in found if one.what == STEP]
    notes = (_within_band(report.compiled, timed), _band_parts(report.compiled)) if timed else ()
    rows = tuple((*_case_cells(one), *_error_cells(one), Cell(one.origin)) for one in found)
    return NearbyView(
        nearest_runs_sentence(report), notes, Table("Measured runs nearest to this plan", RUN_COLUMNS, rows, PRINTED)
    )


def nearest_runs_sentence(report: Report) -> str:
    """The errors on the measured steps nearest to the plan."""
    if STEP not in report.compiled.totals:
        return "No step is predicted, so none that was measured is held against it."
    timed = [one for one in report.runs if one.what == STEP]
    errors = sorted(one.error for one in timed)
    if not errors:
        return "No measured step in the library is near this plan: the error on whole runs like it is not known."
    if len(errors) == 1:
        told = f"The one measured step near this plan is predicted with an error of {numbers.change(errors[0])}."
        return " ".join((told, *_beyond_band(report.compiled, timed), *_lacking(timed)))
    middle = f"{numbers.percent(median(map(abs, errors)))} error in the median"
    ends = f"{numbers.change(errors[0])} to {numbers.change(errors[-1])}"
    told = f"The {len(errors)} measured steps nearest to this plan are predicted with {middle}, {ends}."
    return " ".join((told, *_beyond_band(report.compiled, timed), *_lacking(timed)))


def _beyond_band(compiled: Compiled, timed: Sequence[NearMeasurement]) -> Iterator[str]:
    """What the step takes if it is missed as far as the runs were, where that is beyond the estimate's band."""
    step, low, high = (float(compiled.totals[key]) for key in (STEP, LOW, HIGH))
    missed = [step * one.measured / one.predicted for one in timed]
    if min(missed) < low or max(missed) > high:
        ends = f"{numbers.duration(min(low, *missed))} and {numbers.duration(max(high, *missed))}"
        yield f"With errors like theirs, which go beyond the estimate's own band, a step takes between {ends}."


def _lacking(timed: Sequence[NearMeasurement]) -> Iterator[str]:
    """What the plan does and no measured run near it did."""
    lacking = [what for what in timed[0].lacks if all(what in one.lacks for one in timed)]
    if lacking:
        yield f"This plan {' and '.join(lacking)}, which none of them does."


def _within_band(compiled: Compiled, timed: Sequence[NearMeasurement]) -> str:
    """How many of the measured steps lie within the band of this plan's estimate."""
    step, low, high = (float(compiled.totals[key]) for key in (STEP, LOW, HIGH))
    count = sum(low <= step * one.measured / one.predicted <= high for one in timed)
    ends = f"{numbers.change(low / step - 1)} to {numbers.change(high / step - 1)}"
    lies = "lies" if len(timed) == 1 else "lie"
    return f"{count} of {len(timed)} measured {_steps(len(timed))} {lies} within this estimate's band, {ends}."


def _band_parts(compiled: Compiled) -> str:
    """What the band stands for."""
    stack, prices = (numbers.percent(part) for part in band(compiled.totals))
    return (
        f"The band is one standard deviation to both sides, and ends at the roofline: {stack} for what such estimates "
        f"miss on software that nothing was fitted on, {prices} for the errors of the prices, each weighing what it is "
        "of the step; their squares add up."
    )


def _steps(count: int) -> str:
    return "step" if count == 1 else "steps"


# --- microbenchmarks ----------------------------------------------------------------------------


def microbenchmarks(report: Report) -> NearbyView:
    """The microbenchmarks nearest to the kernels of this plan, weighed by what those take of the step."""
    found = report.microbenchmarks
    if not found:
        return NearbyView(no_microbenchmarks_sentence(report.compiled), (), None)
    classes = measurement_classes(found)
    whole = sum(one.share for one in classes)
    weighed = numbers.percent(sum(one.absolute * one.share for one in classes) / whole) if whole else ""
    told = f"{_count_text(found)} near kernels that take {numbers.percent(whole)} of the step"
    told += f"; each weighing its share, predictions are off by {weighed}." if whole else ", all of them hidden."
    notes = (*_largest_class(classes), *_in_sample(found, classes), *_matmul_level(report, found))
    title = "Microbenchmarks nearest to this plan's kernels"
    rows = tuple(_kernel_row(one) for one in found)
    return NearbyView(told, notes, Table(title, KERNEL_COLUMNS, rows, PRINTED))


def measurement_classes(found: Sequence[NearMeasurement]) -> tuple[MeasurementClass, ...]:
    """The measurements by class of kernel, the one that takes most of the step first."""
    classes: dict[str, list[NearMeasurement]] = {}
    for one in found:
        classes.setdefault(one.what, []).append(one)
    summed = (_measurement_class(what, ones) for what, ones in classes.items())
    return tuple(sorted(summed, key=lambda one: -one.share))


def _measurement_class(what: str, ones: Sequence[NearMeasurement]) -> MeasurementClass:
    share = sum(one.share for one in ones)
    weights = [one.share / share if share else 1 / len(ones) for one in ones]
    errors = [one.error for one in ones]
    pairs = list(zip(weights, errors, strict=True))
    absolute, signed = sum(w * abs(e) for w, e in pairs), sum(w * e for w, e in pairs)
    return MeasurementClass(what, share, absolute, signed, (min(errors), max(errors)))


def _largest_class(classes: Sequence[MeasurementClass]) -> Iterator[str]:
    """The error of what matters most."""
    first = classes[0]
    low, high = (numbers.change(end) for end in first.ends)
    if first.share:
        ends = "" if low == high else f", from {low} to {high}"
        share = numbers.percent(first.share)
        yield f"What matters most is `{first.what}`, {share} of the step: {numbers.change(first.signed)}{ends}."


def _in_sample(found: Sequence[NearMeasurement], classes: Sequence[MeasurementClass]) -> Iterator[str]:
    """Which of the errors are of what a fit had seen, and what it errs by on what it had not."""
    unseen = {one.what: one.unseen for one in found if one.unseen is not None}
    if unseen:
        told = [f"{numbers.percent(unseen[one.what])} (`{one.what}`)" for one in classes if one.what in unseen][:TOLD]
        count = sum(one.unseen is not None for one in found)
        which = "These errors are" if count == len(found) else f"{count} of these errors are"
        erred = f"on measurements it had not seen it erred by {', '.join(told)}"
        yield f"{which} in sample: the price was fitted on the file; {erred}."


def _matmul_level(report: Report, found: Sequence[NearMeasurement]) -> Iterator[str]:
    """That the plan's matmuls are priced below the measured rate."""
    level = report.compiled.plan.stack.matmul_level
    if level != 1 and any(one.what.startswith("matmul") for one in found):
        rate = f"{numbers.percent(level)} of the measured rate"
        yield f"In the step itself matmuls get {rate}, as in training on this stack (`matmul_level`)."


def _kernel_row(one: NearMeasurement) -> tuple[Cell, ...]:
    return (
        *_case_cells(one),
        amount(one.share, "%"),
        *_error_cells(one),
        DASH if one.unseen is None else amount(one.unseen, "%"),
        Cell(_file_name(one.origin)),
    )


def _file_name(origin: str) -> str:
    """The file of a measurement, whose publication stands beside the price that was fitted on it."""
    named = CITED.findall(origin)
    return named[-1] if named else origin


def _case_cells(one: NearMeasurement) -> tuple[Cell, Cell]:
    notes = (f"on {one.device}, whose measurements price this" if one.device else "", one.differs)
    return Cell(one.what), Cell(one.name, note="; ".join(filter(None, notes)))


def _error_cells(one: NearMeasurement) -> tuple[Cell, Cell, Cell]:
    predicted, measured = amount(one.predicted, one.unit), amount(one.measured, one.unit)
    return predicted, measured, number_cell(numbers.change(one.error), one.error)


def _count_text(found: Sequence[NearMeasurement]) -> str:
    return f"{len(found)} microbenchmark{' is' if len(found) == 1 else 's are'}"
