"""The chart of predicted against measured: one circle for each case, higher where more is predicted, all inside."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from ledger.report.charts.measured import EDGE, TALL, MeasuredPoint, agreement_chart

CIRCLE = "{http://www.w3.org/2000/svg}circle"


def circles(points: list[MeasuredPoint]) -> list[tuple[float, float, str]]:
    """Where each case is drawn, and what the pointer is told."""
    root = ET.fromstring(agreement_chart(points, "s", "A chart", 640.0))  # noqa: S314 - the project's own text
    return [(float(one.attrib["cx"]), float(one.attrib["cy"]), "".join(one.itertext())) for one in root.iter(CIRCLE)]


def test_more_is_higher_and_longer_is_further_right() -> None:
    """Equal lies in the middle, ten percent more above it, ten percent less as far below; longer times to the right."""
    equal, more, less = circles(
        [MeasuredPoint("equal", 1e-3, 1e-3), MeasuredPoint("more", 2e-3, 2.2e-3), MeasuredPoint("less", 4e-3, 3.6e-3)]
    )
    assert equal[1] == pytest.approx(EDGE + TALL / 2)
    assert equal[1] - more[1] == pytest.approx(less[1] - equal[1])
    assert more[1] < equal[1]
    assert equal[0] < more[0] < less[0]


def test_what_lies_beyond_is_at_the_edge_with_its_number() -> None:
    """A prediction five times as long is not drawn outside of the picture, and the pointer tells how far off it is."""
    far, near = circles([MeasuredPoint("far", 1e-3, 5e-3), MeasuredPoint("near", 1e-3, 1.01e-3)])
    assert far[1] == pytest.approx(EDGE)
    assert EDGE < near[1] < EDGE + TALL
    assert "+400" in far[2]


def test_one_case_alone_can_be_drawn() -> None:
    """A single time has no range of its own, and still a place."""
    ((across, up, _),) = circles([MeasuredPoint("alone", 1e-3, 1e-3)])
    assert 0 < across < 640
    assert up == pytest.approx(EDGE + TALL / 2)
