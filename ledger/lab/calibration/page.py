"""The page of a calibration: what was measured on a device beside what its fitted prices say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from ledger.evidence.microbenchmarks.sets import named
from ledger.report.charts.agreement import chart
from ledger.report.charts.measured import Point
from ledger.report.files import replace_file
from ledger.report.html import environment, policy, stylesheet

if TYPE_CHECKING:
    from ledger.lab.calibration.calibrate import Fitted
    from ledger.lab.calibration.curves import Calibration

WIDTH = 640.0


@dataclass(frozen=True)
class Panel:
    """A kernel class: its name, a sentence on its fit, where its measurements are from, and its chart."""

    name: str
    said: str
    source: str
    chart: Markup


def write_page(fitted: Fitted, path: Path) -> bool:
    """The page at that path, whole or not at all; whether it had to be written."""
    return replace_file(path, page(fitted).encode())


def page(fitted: Fitted) -> str:
    """One file that needs no network."""
    style = stylesheet()
    accelerator = fitted.device.accelerator
    return (
        environment()
        .get_template("calibration.html")
        .render(
            title=accelerator.title,
            measurements=sum(len(one.samples) for one in fitted.found),
            panels=[panel(one) for one in fitted.found if one.fit is not None],
            lone=[one.series.kind.what for one in fitted.found if one.fit is None],
            style=Markup(style),  # noqa: S704 - the project's own file
            policy=policy(style, ""),
        )
    )


def panel(one: Calibration) -> Panel:
    """The chart of one set, with its errors in words."""
    kind, fit = one.series.kind, one.fit
    cases = [f"{kind.ranks} ranks" if kind.ranks else "", f"head width {kind.head_dim}" if kind.head_dim else ""]
    cases += ["" if kind.causal else "no mask", kind.kernel, "with other kernels" if kind.module else "", kind.regime]
    name = ", ".join((kind.what, *(case for case in cases if case)))
    said = (
        f"{fit.samples} measurements, {fit.held_out}: mean error {fit.error:.1%}, bias {fit.bias:+.1%} on what the fit "
        f"had not seen; {fit.seen:.1%} in sample"
        if fit
        else ""
    )
    if one.wider and one.whole and one.series.whole:
        said += f". Drawn is the price, a fit over {one.series.whole.points} measurements: {one.whole[0]:.1%} on these"
    points = [
        Point(named(record), sample.seconds, seconds)
        for record, sample, seconds in zip(one.series.records, one.samples, one.predicted, strict=True)
    ]
    drawn = chart(points, "s", f"{name}: predicted against measured seconds", WIDTH)
    return Panel(name, said, f"{one.series.source} ({one.series.file})", Markup(drawn))  # noqa: S704 - our own elements
