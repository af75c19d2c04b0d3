"""The page of a calibration: what was measured on a device beside what its fitted prices say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from ledger.evidence.microbenchmarks.sets import record_name
from ledger.lab.calibration.table import case_names
from ledger.report.charts.agreement import chart
from ledger.report.charts.measured import MeasuredPoint
from ledger.report.html import content_policy, environment, stylesheet

if TYPE_CHECKING:
    from ledger.lab.calibration.calibrate import FittedDevice
    from ledger.lab.calibration.curves import SetFit

WIDTH = 640.0


@dataclass(frozen=True)
class Panel:
    """A kernel class: its name, a sentence on its fit, where its measurements are from, and its chart."""

    name: str
    summary: str
    source: str
    chart: Markup


def page(fitted: FittedDevice) -> str:
    """One file that needs no network."""
    style = stylesheet()
    accelerator = fitted.device.accelerator
    return (
        environment()
        .get_template("calibration.html")
        .render(
            title=accelerator.title,
            measurements=sum(len(one.samples) for one in fitted.sets),
            panels=[panel(one) for one in fitted.sets if one.fit is not None],
            lone=[str(one.kind.what) for one in fitted.sets if one.fit is None],
            style=Markup(style),  # noqa: S704 - the project's own file
            policy=content_policy(style, ""),
        )
    )


def panel(one: SetFit) -> Panel:
    """The chart of one set, with its errors in words."""
    kind, fit = one.kind, one.fit
    name = ", ".join((str(kind.what), *case_names(kind, "head width"), kind.regime))
    summary = (
        f"{fit.samples} measurements, {fit.held_out}: mean error {fit.error:.1%}, bias {fit.bias:+.1%} on what the fit "
        f"had not seen; {fit.seen:.1%} in sample"
        if fit
        else ""
    )
    published = one.measured.published
    if one.prefers_published and published:
        here = one.published_error
        summary += f". Drawn is the price, a fit over {published.points} measurements: {here:.1%} on these"
    points = [
        MeasuredPoint(record_name(record), sample.seconds, seconds)
        for record, sample, seconds in zip(one.measured.records, one.samples, one.predicted, strict=True)
    ]
    drawn = chart(points, "s", f"{name}: predicted against measured seconds", WIDTH)
    return Panel(name, summary, one.measured.citation, Markup(drawn))  # noqa: S704 - our own elements
