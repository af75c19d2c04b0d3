"""Predicted against measured: how far each prediction is off, over what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from ledger import numbers
from ledger.report.charts.measured import BELOW, EDGE, LEFT, MeasuredPoint, draw_point, grid
from ledger.report.svg import Scale, line, picture

RADIUS = 3.0
TALL = 190.0
REACHES = (0.1, 0.2, 0.5, 1.0)  # how far the chart goes upwards and downwards; what lies beyond is put at its edge
ROOM = 1.12  # around the measured times, as a factor


def chart(points: Sequence[MeasuredPoint], unit: str, title: str, width: float) -> str:
    """Measured to the right, logarithmic; upwards how much more is predicted. On the middle line both are equal."""
    worst = max(abs(point.error) for point in points)
    reach = next((step for step in REACHES if step >= worst), REACHES[-1])
    measured = [point.measured for point in points]
    x = Scale(min(measured) / ROOM, max(measured) * ROOM, LEFT, width - EDGE, logarithmic=True)
    y = Scale(-reach, reach, EDGE + TALL, EDGE)
    signs = ((value, numbers.signed(numbers.tick_percent(value)) if value else "equal") for value in y.ticks(4))
    parts = [*grid(x, y, unit, signs, "measured"), line((x.start, y(0.0)), (x.end, y(0.0)), "axis", 1.25)]
    parts += [draw_point(point, unit, (x(point.measured), y(point.error)), RADIUS) for point in points]
    return picture(width, EDGE + TALL + BELOW, title, parts)
