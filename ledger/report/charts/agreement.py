"""Predicted against measured: how far each prediction is off, over what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from ledger import numbers
from ledger.report.charts.labels import SMALL
from ledger.report.svg import Scale, Text, element, fill, line, picture

RADIUS = 3.0
TALL = 190.0
LEFT, BELOW, EDGE = 62.0, 42.0, 8.0
REACHES = (0.1, 0.2, 0.5, 1.0)  # how far the chart goes upwards and downwards; what lies beyond is put at its edge
ROOM = 1.12  # around the measured times, as a factor


@dataclass(frozen=True)
class Point:
    """One case in words with what was measured and what is predicted, in the same unit."""

    name: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Predicted over measured, minus one."""
        return self.predicted / self.measured - 1


def chart(points: Sequence[Point], unit: str, title: str, width: float) -> str:
    """Measured to the right, logarithmic; upwards how much more is predicted. On the middle line both are equal."""
    worst = max(abs(point.error) for point in points)
    reach = next((one for one in REACHES if one >= worst), REACHES[-1])
    measured = [point.measured for point in points]
    x = Scale(min(measured) / ROOM, max(measured) * ROOM, LEFT, width - EDGE, logarithmic=True)
    y = Scale(-reach, reach, EDGE + TALL, EDGE)
    parts = [*_grid(x, y, unit), line((x.start, y(0.0)), (x.end, y(0.0)), "axis", 1.25)]
    parts += [_dot(point, unit, x, y) for point in points]
    return picture(width, EDGE + TALL + BELOW, title, parts)


def _grid(x: Scale, y: Scale, unit: str) -> list[str]:
    """Lines at round values, named below and at the left."""
    parts, reach = [], 0.0
    for value in x.ticks(6):
        name = Text(x(value), y.start + 16.0, numbers.tick(value, unit), SMALL, "middle", fill="muted")
        parts.append(line((x(value), y.start), (x(value), y.end), "rule"))
        if name.box.left > reach and name.box.right < x.end + EDGE:
            parts.append(name.draw())
            reach = name.box.right + 6.0
    for value in y.ticks(4):
        parts.append(line((x.start, y(value)), (x.end, y(value)), "rule"))
        label = numbers.signed(numbers.tick_percent(value)) if value else "equal"
        parts.append(Text(x.start - 6.0, y(value) + 0.35 * SMALL, label, SMALL, "end", fill="muted").draw())
    parts.append(Text((x.start + x.end) / 2, y.start + 34.0, "measured", SMALL, "middle").draw())
    return parts


def _dot(point: Point, unit: str, x: Scale, y: Scale) -> str:
    """One case; the pointer finds its name and numbers."""
    tip = f"{point.name}: measured {numbers.tick(point.measured, unit)}, predicted {numbers.shift(point.error)}"
    return element(
        "circle",
        element("title", escape(tip)),
        cx=x(point.measured),
        cy=y(point.error),
        r=RADIUS,
        **fill("estimate"),
    )
