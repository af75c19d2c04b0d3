"""Measured runs and microbenchmarks near the plan, beside what is predicted, and what its prices rest on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.books import time as intervals
from ledger.evidence import citations
from ledger.evidence.citations import CITED
from ledger.evidence.nearest import basis
from ledger.report.views.parts import DASH, Cell, Column, Report, Table, amount, columns, number_cell

if TYPE_CHECKING:
    from ledger.books.compiled import Compiled
    from ledger.evidence.nearest import NearMeasurement


PRINTED = 8  # rows of each table on paper
CLASSES_NAMED = 3  # classes of kernel whose errors are told in words
STEP, LOW, HIGH = "time.step", "time.step.low", "time.step.high"
CASE, MEASURED = (Column("what", "tag"), Column("measured on")), ("predicted", "measured", "error")
RUN_COLUMNS = (*CASE, *columns("number", *MEASURED), Column("source", "source"))
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

    kernel_class: str
    share: float
    absolute: float
    signed: float
    ends: tuple[float, float]


# --- whole runs ---


def whole_runs(report: Report) -> NearbyView:
    """The measured runs nearest to this plan, and what they say of the band around the estimate."""
    runs = report.runs
    if not runs:
        return NearbyView(nearest_runs_sentence(report), (), None)
    timed = [run for run in runs if run.what == STEP]
    notes = (_within_band_sentence(report.compiled, timed), _band_sentence(report.compiled)) if timed else ()
    rows = tuple(
        (
            Cell(run.what),
            Cell(run.name, note=f"differs: {run.differs}" if run.differs else ""),
            *_error_cells(run),
            Cell(run.origin),
        )
        for run in runs
    )
    return NearbyView(
        nearest_runs_sentence(report), notes, Table("Measured runs nearest to this plan", RUN_COLUMNS, rows, PRINTED)
    )


def nearest_runs_sentence(report: Report) -> str:
    """The errors on the measured steps nearest to the plan, and what the plan does and none of them did."""
    if STEP not in report.compiled.totals:
        return "No step is predicted, so none that was measured is held against it."
    timed = [run for run in report.runs if run.what == STEP]
    errors = sorted(run.error for run in timed)
    if not errors:
        return "No measured step in the library is near this plan: the error on whole runs like it is not known."
    if len(errors) == 1:
        sentence = f"The one measured step near this plan is predicted with an error of {numbers.change(errors[0])}."
    else:
        middle = f"{numbers.percent(median(map(abs, errors)))} error in the median"
        ends = f"{numbers.change(errors[0])} to {numbers.change(errors[-1])}"
        sentence = f"The {len(errors)} measured steps nearest to this plan are predicted with {middle}, {ends}."
    sentences = [sentence, *_beyond_band_sentence(report.compiled, timed)]
    lacking = [feature for feature in timed[0].lacks if all(feature in run.lacks for run in timed)]
    if lacking:
        sentences.append(f"This plan {' and '.join(lacking)}, which none of them does.")
    return " ".join(sentences)


def _beyond_band_sentence(compiled: Compiled, timed: Sequence[NearMeasurement]) -> Iterator[str]:
    """What the step takes if it is missed as far as the runs were, where that is beyond the estimate's band."""
    step, low, high = (float(compiled.totals[key]) for key in (STEP, LOW, HIGH))
    missed = [step * run.measured / run.predicted for run in timed]
    if min(missed) < low or max(missed) > high:
        ends = f"{numbers.duration(min(low, *missed))} to {numbers.duration(max(high, *missed))}"
        yield f"Some of these errors exceed the estimate's interval: with errors of that size a step would take {ends}."


def _within_band_sentence(compiled: Compiled, timed: Sequence[NearMeasurement]) -> str:
    """How many of the measured steps lie within the band of this plan's estimate."""
    step, low, high = (float(compiled.totals[key]) for key in (STEP, LOW, HIGH))
    count = sum(low <= step * run.measured / run.predicted <= high for run in timed)
    ends = f"{numbers.change(low / step - 1)} to {numbers.change(high / step - 1)}"
    lies = "lies" if count == 1 else "lie"
    steps = "step" if len(timed) == 1 else "steps"
    return f"This estimate's interval is {ends}; {count} of {len(timed)} measured {steps} {lies} in it."


KNOWN = {
    intervals.MEASURED: "of the same stack on the same device",
    intervals.ELSEWHERE: "of the same stack on other devices",
    intervals.UNKNOWN: "of stacks that had never been scored",
}


def _band_sentence(compiled: Compiled) -> str:
    """How many published runs an interval of this width held, and what widens it."""
    runs, wider = KNOWN[intervals.evidence_on_stack(compiled.plan)], intervals.widened(compiled.plan, compiled.totals)
    prices = f" Errors of this device's prices widen it by {numbers.percent(wider)}." if wider > 0.001 else ""
    return (
        f"An interval of this width held 80 of 100 published runs {runs}, each publication left out in turn."
        f"{prices} Its lower end is never below the roofline."
    )


# --- microbenchmarks ---


def microbenchmarks(report: Report) -> NearbyView:
    """The microbenchmarks nearest to the kernels of this plan, weighed by what those take of the step."""
    measured = report.microbenchmarks
    if not measured:
        return NearbyView(no_microbenchmarks_sentence(report.compiled), (), None)
    classes = measurement_classes(measured)
    covered = sum(row.share for row in classes)
    weighed = numbers.percent(sum(row.absolute * row.share for row in classes) / covered) if covered else ""
    count = f"{len(measured)} microbenchmark{' is' if len(measured) == 1 else 's are'}"
    sentence = f"{count} near kernels that take {numbers.percent(covered)} of the step"
    sentence += f"; weighted by those shares, predictions are off by {weighed}." if covered else ", and delay nothing."
    notes = (
        *_largest_class_sentence(classes),
        *_in_sample_sentence(measured, classes),
        *_matmul_level_sentence(report, measured),
    )
    title = "Microbenchmarks nearest to this plan's kernels"
    rows = tuple(_kernel_row(row) for row in measured)
    return NearbyView(sentence, notes, Table(title, KERNEL_COLUMNS, rows, PRINTED))


def measurement_classes(measured: Sequence[NearMeasurement]) -> tuple[MeasurementClass, ...]:
    """The measurements by class of kernel, the one that takes most of the step first."""
    classes: dict[str, list[NearMeasurement]] = {}
    for row in measured:
        classes.setdefault(row.what, []).append(row)
    summed = (_measurement_class(kernel_class, members) for kernel_class, members in classes.items())
    return tuple(sorted(summed, key=lambda row: -row.share))


def _measurement_class(kernel_class: str, members: Sequence[NearMeasurement]) -> MeasurementClass:
    share = sum(row.share for row in members)
    weights = [row.share / share if share else 1 / len(members) for row in members]
    errors = [row.error for row in members]
    pairs = list(zip(weights, errors, strict=True))
    absolute, signed = sum(w * abs(e) for w, e in pairs), sum(w * e for w, e in pairs)
    return MeasurementClass(kernel_class, share, absolute, signed, (min(errors), max(errors)))


def _largest_class_sentence(classes: Sequence[MeasurementClass]) -> Iterator[str]:
    """The error on the class that takes most of the step, of those measured: waiting may take more."""
    first = classes[0]
    low, high = (numbers.change(end) for end in first.ends)
    if first.share:
        ends = "" if low == high else f" on average, {low} to {high}"
        share, error = numbers.percent(first.share), numbers.change(first.signed)
        yield f"Of these, `{first.kernel_class}` takes most, {share} of the step: predicted with {error} error{ends}."


def _in_sample_sentence(measured: Sequence[NearMeasurement], classes: Sequence[MeasurementClass]) -> Iterator[str]:
    """Which of the errors are of what a fit had seen, and what it errs by on what it had not."""
    unseen = {row.what: row.unseen for row in measured if row.unseen is not None}
    if unseen:
        errors = [
            f"{numbers.percent(unseen[row.kernel_class])} (`{row.kernel_class}`)"
            for row in classes
            if row.kernel_class in unseen
        ][:CLASSES_NAMED]
        count = sum(row.unseen is not None for row in measured)
        which = "These errors are" if count == len(measured) else f"{count} of these errors are"
        erred = f"on measurements left out of the fit they erred by {', '.join(errors)}"
        yield f"{which} in sample, since the prices were fitted on the same files; {erred}."


def _matmul_level_sentence(report: Report, measured: Sequence[NearMeasurement]) -> Iterator[str]:
    """That the plan's matmuls are priced below the measured rate."""
    level = report.compiled.plan.stack.matmul_level
    if level != 1 and any(row.what.startswith("matmul") for row in measured):
        rate = f"{numbers.percent(level)} of the rate measured alone"
        yield f"Within a step matmuls are priced at {rate}, as runs of this stack have shown (`matmul_level`)."


def _kernel_row(row: NearMeasurement) -> tuple[Cell, ...]:
    """A kernel's row; its source is the file alone, as the publication stands with the price that was fitted on it."""
    notes = (f"on {row.device}, whose measurements price this" if row.device else "", row.differs)
    return (
        Cell(row.what),
        Cell(row.name, note="; ".join(filter(None, notes))),
        amount(row.share, "%"),
        *_error_cells(row),
        DASH if row.unseen is None else amount(row.unseen, "%"),
        Cell([row.origin, *CITED.findall(row.origin)][-1]),
    )


def _error_cells(row: NearMeasurement) -> tuple[Cell, Cell, Cell]:
    predicted, measured = amount(row.predicted, row.unit), amount(row.measured, row.unit)
    return predicted, measured, number_cell(numbers.change(row.error), row.error)


# --- the evidence behind the prices of a step ---

NAPKIN = "No step is priced: its length is 6ND, 6 × parameters × tokens, at the assumed utilisation."
LEAST = 0.0005  # a share that prints as nought is not told


def basis_sentence(compiled: Compiled) -> str:
    """The verdict's word for the evidence, and what shares of the step rest on what.

    A step here is its kernels and the transfers that delay it; the rest of it has no price.
    """
    if not any(role.kernels for role in compiled.roles):
        return NAPKIN
    rests = basis(compiled)
    devices = [(share, f"measurements of {name or 'this device'}") for name, share in rests.devices.items()]
    sources = (*devices, (rests.figures, "single published figures"), (rests.sheets, "data sheets"))
    shares = [(share, source) for share, source in sources if share >= LEAST]
    word = compiled.verdict.evidence.capitalize()
    priced = "what kernels and transfers add to a step" if compiled.totals.get("time.data.wait") else "a step's time"
    if len(shares) == 1:
        return f"{word}: {priced} rests on {shares[0][1]} alone."
    first, *middle, last = (f"{numbers.percent(share)} on {source}" for share, source in shares)
    first = first.replace(" on ", f" of {priced} rests on ", 1)
    return f"{word}: {', '.join((first, *middle))} and {last}."


def no_microbenchmarks_sentence(compiled: Compiled) -> str:
    """Why no microbenchmark can be shown beside the plan's kernels."""
    if compiled.plan.model.bare:
        return "No kernel follows from a parameter count."
    lost = citations.missing_files(compiled.plan)
    if lost:
        named = ", ".join(lost)
        return f"No microbenchmark can be shown: prices of this plan cite {named}, which is no longer there."
    if not compiled.plan.accelerator.calibration:
        return "No microbenchmark prices this device: data sheets do."
    return "No microbenchmark behind these prices is near a kernel of this plan."
