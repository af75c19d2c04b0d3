"""The page and the tables of a calibration: what was measured on a device beside what its fitted prices say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from ledger.evidence.microbenchmarks.sets import MeasurementKind, record_name
from ledger.lab.calibration.calibrate import FittedDevice
from ledger.lab.calibration.curves import SetFit
from ledger.price_forms import PRICE_FORMS
from ledger.report.charts.measured import MeasuredPoint, agreement_chart
from ledger.report.escape import MadeSection, bold, table
from ledger.report.html import content_policy, environment, stylesheet
from ledger.spec.kernel_classes import KERNEL_FAMILIES, classes_of
from ledger.spec.price_lists import parameter_text, priced_forms, range_of

WIDTH = 640.0


@dataclass(frozen=True)
class Panel:
    """A kernel class: its name, a sentence on its fit, where its measurements are from, and its chart."""

    name: str
    summary: str
    source: str
    chart: Markup


def page(fitted: FittedDevice) -> str:
    """An HTML page in one file, which needs no network."""
    style = stylesheet()
    accelerator = fitted.device.accelerator
    return (
        environment()
        .get_template("calibration.html")
        .render(
            title=accelerator.title,
            measurements=sum(len(set_fit.samples) for set_fit in fitted.sets),
            panels=[panel(set_fit) for set_fit in fitted.sets if set_fit.fit is not None],
            lone=[str(set_fit.kind.what) for set_fit in fitted.sets if set_fit.fit is None],
            style=Markup(style),  # noqa: S704 - the project's own file
            policy=content_policy(style, ""),
        )
    )


def panel(set_fit: SetFit) -> Panel:
    """The chart of one set, with its errors in words."""
    kind, fit = set_fit.kind, set_fit.fit
    name = ", ".join((str(kind.what), *case_names(kind, "head width"), kind.regime))
    summary = (
        f"{fit.samples} measurements, {fit.held_out}: mean error {fit.error:.1%}, bias {fit.bias:+.1%} on what the fit "
        f"had not seen; {fit.seen:.1%} in sample"
        if fit
        else ""
    )
    published = set_fit.measured.published
    if set_fit.prefers_published and published:
        here = set_fit.published_error
        summary += f". Drawn is the price, a fit over {published.points} measurements: {here:.1%} on these"
    points = [
        MeasuredPoint(record_name(record), sample.seconds, seconds)
        for record, sample, seconds in zip(set_fit.measured.records, set_fit.samples, set_fit.predicted, strict=True)
    ]
    drawn = agreement_chart(points, "s", f"{name}: predicted against measured seconds", WIDTH)
    return Panel(name, summary, set_fit.measured.citation, Markup(drawn))  # noqa: S704 - our own elements


# --- the errors of fits, as a table ---

SCHEMA = "ledger-calibration/1"
FITS = MadeSection(
    "<!-- calibration: made by `make calibration` from specs/evidence -->", "<!-- end of calibration -->"
)
HEAD = ("kernel class", "points", "error", "bias", "in sample", "over the whole publication", "")
EQUAL = 5e-4  # half of the last digit that is printed
AT_OR_UNDER = "at or under"
ALONE = "one group of sizes: no fit"
NO_PRICE = "no price: the measurements scatter too far"
PRICED = "that fit is the price"


def set_fits(fitted: Iterable[FittedDevice]) -> tuple[SetFit, ...]:
    """Every set with its fit, by device."""
    return tuple(set_fit for device in fitted for set_fit in device.sets)


def verdict(set_fit: SetFit) -> str:
    """How the error compares with that of the fit over the whole publication, and why it is larger."""
    published, here = set_fit.measured.published, set_fit.published_error
    if set_fit.fit is None:
        return ALONE if set_fit.own_bias is None else f"{ALONE}, the bias is of the price list's own curve"
    if not set_fit.is_usable:
        return NO_PRICE
    if published is None:
        return ""
    if set_fit.prefers_published:
        return f"{PRICED}: {here:.1%} on these points"
    if (set_fit.fit.seen if published.in_sample else set_fit.fit.error) <= published.error + EQUAL:
        return AT_OR_UNDER
    if set_fit.fit.seen <= here + EQUAL:
        return f"over: that fit has {here:.1%} on these points, this one {set_fit.fit.seen:.1%} in sample"
    return "over"


def case_names(kind: MeasurementKind, head: str = "head_dim") -> list[str]:
    """The cases that tell a kind from others of its kernel class, in words."""
    cases = [f"{kind.ranks} ranks"] if kind.ranks else []
    cases += [f"{head} {kind.head_dim}"] if kind.head_dim else []
    cases += [] if kind.causal else ["no mask"]
    cases += ["with other kernels"] if kind.with_others else []
    return cases + ([kind.kernel] if kind.kernel else [])


def table_json(sets: Iterable[SetFit]) -> dict[str, Any]:
    """The table as JSON: a row for each set of measurements."""
    return {"schema": SCHEMA, "rows": list(map(_set_json, sets))}


def _set_json(set_fit: SetFit) -> dict[str, Any]:
    kind, fit, published = set_fit.kind, set_fit.fit, set_fit.measured.published
    return {
        "device": set_fit.measured.device,
        "what": str(kind.what),
        "case": ", ".join(case_names(kind)),
        "regime": kind.regime,
        "points": len(set_fit.samples),
        "held_out_error": fit and fit.error,
        "bias": fit.bias if fit else set_fit.own_bias,
        "in_sample_error": fit and fit.seen,
        "whole": published and {"points": published.points, "error": published.error, "held_out": published.held_out},
        "verdict": verdict(set_fit),
    }


def set_cells(set_fit: SetFit) -> tuple[str, ...]:
    """A set's row of the table, in the order of HEAD."""
    row = _set_json(set_fit)
    name = " ".join(part for part in (row["what"], row["case"], "burst" if row["regime"] == "burst" else "") if part)
    shares = (_percent(row["held_out_error"]), _percent(row["bias"], signed=True), _percent(row["in_sample_error"]))
    published = set_fit.measured.published
    published_fit = f"{published.error:.1%} of {published.points}" if published else ""
    return name, str(row["points"]), *shares, published_fit, row["verdict"]


def _percent(value: float | None, *, signed: bool = False) -> str:
    return "–" if value is None else f"{value:+.1%}" if signed else f"{value:.1%}"


def section(sets: Sequence[SetFit]) -> Iterator[str]:
    """A sentence and a table for each device."""
    compared = [set_fit for set_fit in sets if set_fit.measured.published and set_fit.fit]
    under = sum(verdict(set_fit) == AT_OR_UNDER for set_fit in compared)
    wider = sum(set_fit.prefers_published for set_fit in compared)
    points = sum(len(set_fit.samples) for set_fit in sets)
    yield (
        f"{len(sets)} sets of measurements, {points} points; of {len(compared)} that are a "
        f"part of a larger publication, {wider} are priced by a fit over all of it, which errs no more on these points "
        f"than a fit on them errs on points it has not seen; {under} of the others are at or under that fit's error.\n"
    )
    for device in dict.fromkeys(set_fit.measured.device for set_fit in sets):
        yield f"{bold(device)}\n"
        yield from table(HEAD, (set_cells(set_fit) for set_fit in sets if set_fit.measured.device == device))


# --- the price forms as a section of a document ---

FORMS = MadeSection(
    "<!-- price forms: made by `make calibration` from ledger/price_forms.py -->", "<!-- end of price forms -->"
)


def form_lines() -> Iterator[str]:
    """Tables of the price forms: formulas, parameters with unit and range, and the classes that they price."""
    yield from table(("form", "seconds", "of"), map(_formula_row, PRICE_FORMS))
    head = ("form", "parameter", "what it is", "unit", "range", "typical")
    yield from table(head, (row for form in PRICE_FORMS for row in _parameter_rows(form)))
    yield from table(("form", "kernel classes that it prices"), map(_classes_row, priced_forms()))


def _formula_row(form: str) -> tuple[str, ...]:
    row = PRICE_FORMS[form]
    sizes = "; ".join(f"`{name}`: {meaning}" for name, meaning in row.sizes.items())
    return f"`{form}`", f"`{row.formula}`", sizes


def _parameter_rows(form: str) -> Iterator[tuple[str, ...]]:
    for row in PRICE_FORMS[form].parameters:
        unit = "–" if row.unit == "1" else row.unit
        yield f"`{form}`", f"`{row.name}`", row.meaning, unit, range_of(row), parameter_text(row.typical, row.unit)


def _classes_row(form: str) -> tuple[str, ...]:
    families = (family for family, row in KERNEL_FAMILIES.items() if row.form == form)
    return f"`{form}`", ", ".join(f"`{kernel_class}`" for family in families for kernel_class in classes_of(family))
