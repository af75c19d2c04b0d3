"""What charts of predictions against measurements share: their points, and what was measured to the right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ledger import numbers
from ledger.report.charts.rows import SMALL
from ledger.report.svg import Position, Scale, Text, circle, path, picture, svg_line

LEFT, BELOW, EDGE = 62.0, 42.0, 8.0  # around the plot


@dataclass(frozen=True)
class MeasuredPoint:
    """One case in words with what was measured and what is predicted, in the same unit."""

    name: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Predicted over measured, minus one."""
        return self.predicted / self.measured - 1


def draw_point(point: MeasuredPoint, unit: str, centre: Position, radius: float) -> str:
    """One case; the pointer finds its name and numbers."""
    tip = f"{point.name}: measured {numbers.tick(point.measured, unit)}, predicted {numbers.shift(point.error)}"
    return circle(centre, radius, "estimate", tip)


def grid(x: Scale, y: Scale, unit: str, levels: Iterable[tuple[float, str]], title: str) -> list[str]:
    """Lines at round values, named below where there is room, and at `levels`, named at the left."""
    parts, reach = [], 0.0
    for value in x.ticks(6):
        name = Text(x(value), y.start + 16.0, numbers.tick(value, unit), SMALL, "middle", fill="muted")
        parts.append(svg_line((x(value), y.start), (x(value), y.end), "rule"))
        if name.box.left > reach and name.box.right < x.end + EDGE:
            parts.append(name.draw())
            reach = name.box.right + 6.0
    for value, label in levels:
        parts.append(svg_line((x.start, y(value)), (x.end, y(value)), "rule"))
        parts.append(Text(x.start - 6.0, y(value) + 0.35 * SMALL, label, SMALL, "end", fill="muted").draw())
    parts.append(Text((x.start + x.end) / 2, y.start + 34.0, title, SMALL, "middle").draw())
    return parts


# --- errors over measured values ---

AGREEMENT_RADIUS = 3.0
TALL = 190.0
REACHES = (0.1, 0.2, 0.5, 1.0)  # how far the chart goes upwards and downwards; what lies beyond is put at its edge
AGREEMENT_ROOM = 1.12  # around the measured times, as a factor


def agreement_chart(points: Sequence[MeasuredPoint], unit: str, title: str, width: float) -> str:
    """Measured to the right, logarithmic; upwards how much more is predicted. On the middle line both are equal."""
    worst = max(abs(point.error) for point in points)
    reach = next((step for step in REACHES if step >= worst), REACHES[-1])
    measured = [point.measured for point in points]
    x = Scale(min(measured) / AGREEMENT_ROOM, max(measured) * AGREEMENT_ROOM, LEFT, width - EDGE, logarithmic=True)
    y = Scale(-reach, reach, EDGE + TALL, EDGE)
    signs = ((value, numbers.signed(numbers.tick_percent(value)) if value else "equal") for value in y.ticks(4))
    parts = [*grid(x, y, unit, signs, "measured"), svg_line((x.start, y(0.0)), (x.end, y(0.0)), "axis", 1.25)]
    parts += [draw_point(point, unit, (x(point.measured), y(point.error)), AGREEMENT_RADIUS) for point in points]
    return picture(width, EDGE + TALL + BELOW, title, parts)


# --- predicted over measured values ---

PARITY_RADIUS = 2.5
PARITY_ROOM = 1.15  # around the values, as a factor
BAND = 0.1  # the share off at which the thin lines run


def parity_chart(points: Sequence[MeasuredPoint], unit: str, title: str, width: float) -> str:
    """Measured to the right, predicted upwards; on the line both are equal, between the thin ones a tenth apart."""
    values = [value for point in points for value in (point.measured, point.predicted)]
    low, high = min(values) / PARITY_ROOM, max(values) * PARITY_ROOM
    tall = min(width - LEFT - EDGE, 360.0)
    x = Scale(low, high, LEFT, width - EDGE, logarithmic=True)
    y = Scale(low, high, EDGE + tall, EDGE, logarithmic=True)
    levels = ((value, numbers.tick(value, unit)) for value in y.ticks(6))
    lines = grid(x, y, unit, levels, "measured to the right, predicted upwards")
    parts = [*lines, path([(x(low), y(low)), (x(high), y(high))], "axis", 1.25)]
    parts += [_share_line(x, y, low, high, share) for share in (1 + BAND, 1 - BAND)]
    parts += [draw_point(point, unit, (x(point.measured), y(point.predicted)), PARITY_RADIUS) for point in points]
    return picture(width, EDGE + tall + BELOW, title, parts)


def _share_line(x: Scale, y: Scale, low: float, high: float, share: float) -> str:
    """The line on which so much is predicted over what was measured, within the chart."""
    start, end = (low, high / share) if share > 1 else (low / share, high)
    return path([(x(start), y(start * share)), (x(end), y(end * share))], "rule", 1.25, "4 3")
