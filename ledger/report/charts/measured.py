"""What charts of predictions against measurements share: their points, and what was measured to the right."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ledger import numbers
from ledger.report.charts.rows import SMALL
from ledger.report.svg import Position, Scale, Text, circle, line

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
        parts.append(line((x(value), y.start), (x(value), y.end), "rule"))
        if name.box.left > reach and name.box.right < x.end + EDGE:
            parts.append(name.draw())
            reach = name.box.right + 6.0
    for value, label in levels:
        parts.append(line((x.start, y(value)), (x.end, y(value)), "rule"))
        parts.append(Text(x.start - 6.0, y(value) + 0.35 * SMALL, label, SMALL, "end", fill="muted").draw())
    parts.append(Text((x.start + x.end) / 2, y.start + 34.0, title, SMALL, "middle").draw())
    return parts
