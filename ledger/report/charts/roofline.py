"""The roofline: what every kernel reaches against what the device could give at that intensity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ledger import numbers
from ledger.report.charts.rows import SMALL, Mark, legend, place_labels
from ledger.report.svg import Box, Scale, Text, circle, path, picture, svg_line

LARGEST = 26.0  # px; the radius of a kernel that took the whole step
LEAST = 2.5
LABELLED = 7
BOUNDS = {
    "compute": "limited by compute",
    "memory": "by memory traffic",
    "network": "by network",
    "launch": "by launch",
}


@dataclass(frozen=True)
class Roof:
    """A ceiling: operations per second at any intensity, bytes per second below the ridge."""

    name: str
    compute: float
    bandwidth: float
    colour: str
    dashes: str = ""

    def at(self, intensity: float) -> float:
        """The most that a kernel of this intensity can reach."""
        return min(self.compute, self.bandwidth * intensity)


@dataclass(frozen=True)
class KernelPoint:
    """A kernel: operations per byte, operations per second, its share of the step's time, and what limits it."""

    label: str
    intensity: float
    rate: float
    share: float
    bound: str

    @property
    def radius(self) -> float:
        """Area goes with time."""
        return max(LARGEST * math.sqrt(self.share), LEAST)


def chart(points: Sequence[KernelPoint], roofs: Sequence[Roof], title: str, width: float) -> str:
    """Kernels as circles on logarithmic axes under their roofs; the largest are named where there is room."""
    seen = [(bound, name) for bound, name in BOUNDS.items() if any(point.bound == bound for point in points)]
    keys, height = legend(seen, width)
    for roof in roofs:
        text = f"{roof.name}: {numbers.si(roof.compute, 'FLOP/s')}, {numbers.si(roof.bandwidth, 'B/s')}"
        keys.append(svg_line((0.0, height + 8.0), (24.0, height + 8.0), roof.colour, 1.75, roof.dashes))
        keys.append(Text(31.0, height + 12.5, text).draw())
        height += 20.0
    tall = min(0.72 * width, 310.0)
    x, y = scales(points, roofs, (58.0, width - 8.0), (height + 26.0 + tall, height + 26.0))
    parts = [*keys, *grid(x, y)]
    for roof in roofs:
        corners = (x.low, min(max(roof.compute / roof.bandwidth, x.low), x.high), x.high)
        parts.append(path([(x(i), y(roof.at(i))) for i in corners], roof.colour, 1.75, roof.dashes))
    ordered = sorted(points, key=lambda point: -point.share)
    parts += [_draw_point(point, x, y) for point in ordered]
    discs = [Box.centred_at(x(point.intensity), y(point.rate), point.radius, point.radius) for point in ordered]
    marks = [Mark(point.label, disc) for point, disc in zip(ordered, discs, strict=True)]
    plot = Box(x.start, y.end, x.end, y.start)
    parts += [text.draw() for text in place_labels(marks, roof_boxes(roofs, x, y), plot, LABELLED)]
    return picture(width, height + tall + 64.0, title, parts)


def scales(
    points: Sequence[KernelPoint], roofs: Sequence[Roof], across: tuple[float, float], up: tuple[float, float]
) -> tuple[Scale, Scale]:
    """Axes that hold every kernel and the ridge of every roof, with room at each end."""
    ridges = [roof.compute / roof.bandwidth for roof in roofs]
    intensities = [*(point.intensity for point in points), *ridges]
    rates = [*(point.rate for point in points), *(roof.compute for roof in roofs)]
    x = Scale(min(intensities) / 1.6, max(intensities) * 4.0, *across, logarithmic=True)
    lowest = min(*rates, *(roof.at(x.low) for roof in roofs))
    y = Scale(lowest / 1.6, max(rates) * 2.0, *up, logarithmic=True)
    return x, y


def grid(x: Scale, y: Scale) -> list[str]:
    """Decades, named at the left and below."""
    parts = [
        svg_line((x.start, y.start), (x.end, y.start), "axis"),
        svg_line((x.start, y.start), (x.start, y.end), "axis"),
    ]
    for value, name in tick_names(x.ticks()):
        parts.append(svg_line((x(value), y.start), (x(value), y.end), "rule"))
        parts.append(Text(x(value), y.start + 16.0, name, SMALL, "middle", fill="muted").draw())
    for value in y.ticks():
        parts.append(svg_line((x.start, y(value)), (x.end, y(value)), "rule"))
        name = numbers.tick(value, "")
        parts.append(Text(x.start - 7.0, y(value) + 0.35 * SMALL, name, SMALL, "end", fill="muted").draw())
    middle = (x.start + x.end) / 2
    parts.append(Text(middle, y.start + 34.0, "intensity, FLOP per byte of memory traffic", SMALL, "middle").draw())
    parts.append(Text(0.0, y.end - 9.0, "FLOP/s", SMALL).draw())
    return parts


def tick_names(values: Sequence[float]) -> list[tuple[float, str]]:
    """Values at an axis with their names: powers of ten where all of them are, else written out."""
    names = [numbers.power_of_ten(value) for value in values]
    powers = all(name.startswith("10") for name in names)
    return [
        (value, name if powers else numbers.trimmed(numbers.plain(value)))
        for value, name in zip(values, names, strict=True)
    ]


def _draw_point(point: KernelPoint, x: Scale, y: Scale) -> str:
    """The circle of a kernel; the pointer finds its name and numbers."""
    tip = (
        f"{point.label}: {numbers.si(point.rate, 'FLOP/s')} at {numbers.intensity(point.intensity)}, "
        f"{numbers.percent(point.share)} of the time"
    )
    return circle((x(point.intensity), y(point.rate)), point.radius, point.bound, tip, 0.78)


def roof_boxes(roofs: Sequence[Roof], x: Scale, y: Scale) -> list[Box]:
    """Small boxes along every roof, so that names keep off the lines."""
    steps = [10.0 ** (math.log10(x.low) + at * math.log10(x.high / x.low) / 80) for at in range(81)]
    return [Box.centred_at(x(i), y(roof.at(i)), 4, 2) for roof in roofs for i in steps]
