"""Predicted over measured for many runs: both axes logarithmic, so that a share off is the same distance everywhere."""

from __future__ import annotations

from collections.abc import Sequence

from ledger import numbers
from ledger.report.charts.measured import BELOW, EDGE, LEFT, MeasuredPoint, draw_point, grid
from ledger.report.svg import Scale, path, picture

RADIUS = 2.5
ROOM = 1.15  # around the values, as a factor
BAND = 0.1  # the share off at which the thin lines run


def chart(points: Sequence[MeasuredPoint], unit: str, title: str, width: float) -> str:
    """Measured to the right, predicted upwards; on the line both are equal, between the thin ones a tenth apart."""
    values = [value for point in points for value in (point.measured, point.predicted)]
    low, high = min(values) / ROOM, max(values) * ROOM
    tall = min(width - LEFT - EDGE, 360.0)
    x = Scale(low, high, LEFT, width - EDGE, logarithmic=True)
    y = Scale(low, high, EDGE + tall, EDGE, logarithmic=True)
    levels = ((value, numbers.tick(value, unit)) for value in y.ticks(6))
    lines = grid(x, y, unit, levels, "measured to the right, predicted upwards")
    parts = [*lines, path([(x(low), y(low)), (x(high), y(high))], "axis", 1.25)]
    parts += [_apart(x, y, low, high, share) for share in (1 + BAND, 1 - BAND)]
    parts += [draw_point(point, unit, (x(point.measured), y(point.predicted)), RADIUS) for point in points]
    return picture(width, EDGE + tall + BELOW, title, parts)


def _apart(x: Scale, y: Scale, low: float, high: float, share: float) -> str:
    """The line on which so much is predicted over what was measured, within the chart."""
    start, end = (low, high / share) if share > 1 else (low / share, high)
    return path([(x(start), y(start * share)), (x(end), y(end * share))], "rule", 1.25, "4 3")
