"""Predicted over measured for many runs: both axes logarithmic, so that a share off is the same distance everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ledger import numbers
from ledger.report.charts.agreement import Point
from ledger.report.charts.labels import SMALL
from ledger.report.svg import Scale, Text, element, fill, line, path, picture

RADIUS = 2.5
LEFT, BELOW, EDGE = 62.0, 42.0, 8.0
ROOM = 1.15  # around the values, as a factor
BAND = 0.1  # the share off at which the thin lines run


def chart(points: Sequence[Point], unit: str, title: str, width: float) -> str:
    """Measured to the right, predicted upwards; on the line both are equal, between the thin ones a tenth apart."""
    values = [value for point in points for value in (point.measured, point.predicted)]
    low, high = min(values) / ROOM, max(values) * ROOM
    tall = min(width - LEFT - EDGE, 360.0)
    x = Scale(low, high, LEFT, width - EDGE, logarithmic=True)
    y = Scale(low, high, EDGE + tall, EDGE, logarithmic=True)
    parts = [*_grid(x, y, unit), path([(x(low), y(low)), (x(high), y(high))], "axis", 1.25)]
    parts += [_apart(x, y, low, high, share) for share in (1 + BAND, 1 - BAND)]
    parts += [_dot(point, unit, x, y) for point in points]
    return picture(width, EDGE + tall + BELOW, title, parts)


def _apart(x: Scale, y: Scale, low: float, high: float, share: float) -> str:
    """The line on which so much is predicted over what was measured, within the chart."""
    start, end = (low, high / share) if share > 1 else (low / share, high)
    return path([(x(start), y(start * share)), (x(end), y(end * share))], "rule", 1.25, "4 3")


def _grid(x: Scale, y: Scale, unit: str) -> list[str]:
    """Lines at round values, named below and at the left."""
    parts, reach = [], 0.0
    for value in x.ticks(6):
        name = Text(x(value), y.start + 16.0, numbers.tick(value, unit), SMALL, "middle", fill="muted")
        parts.append(line((x(value), y.start), (x(value), y.end), "rule"))
        if name.box.left > reach and name.box.right < x.end + EDGE:
            parts.append(name.draw())
            reach = name.box.right + 6.0
    for value in y.ticks(6):
        parts.append(line((x.start, y(value)), (x.end, y(value)), "rule"))
        label = numbers.tick(value, unit)
        parts.append(Text(x.start - 6.0, y(value) + 0.35 * SMALL, label, SMALL, "end", fill="muted").draw())
    said = "measured to the right, predicted upwards"
    parts.append(Text((x.start + x.end) / 2, y.start + 34.0, said, SMALL, "middle").draw())
    return parts


def _dot(point: Point, unit: str, x: Scale, y: Scale) -> str:
    """One run; the pointer finds its name and numbers."""
    tip = f"{point.name}: measured {numbers.tick(point.measured, unit)}, predicted {numbers.shift(point.error)}"
    centre = {"cx": x(point.measured), "cy": y(point.predicted)}
    return element("circle", element("title", escape(tip)), **centre, r=RADIUS, **fill("estimate"))
