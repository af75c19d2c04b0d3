"""One quantity against another as a line through named points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import dist

from ledger import numbers
from ledger.report.charts.rows import SMALL, Mark, place_labels
from ledger.report.charts.scatter import boxes_along
from ledger.report.svg import Box, Scale, Text, element, fill, path, picture, svg_line

RADIUS = 4.5
Middle = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """What an axis shows, and in which unit."""

    title: str
    unit: str


@dataclass(frozen=True)
class CurvePoint:
    """A named point; one that is out of reach is drawn pale."""

    across: float
    up: float
    label: str
    reached: bool = True


def chart(places: Sequence[CurvePoint], across: Axis, up: Axis, title: str, width: float) -> str:
    """Points in the order given, joined; both axes begin at zero."""
    tall = min(0.45 * width, 280.0)
    x = Scale(0.0, 1.08 * max(place.across for place in places), 64.0, width - 12.0)
    y = Scale(0.0, 1.12 * max(place.up for place in places), 28.0 + tall, 28.0)
    parts = [*_grid(x, y, across, up), path([(x(p.across), y(p.up)) for p in places], "estimate", 1.5)]
    middles = [(x(place.across), y(place.up)) for place in places]
    for place, middle in zip(places, middles, strict=True):
        colour = "estimate" if place.reached else "bound"
        parts.append(element("circle", cx=middle[0], cy=middle[1], r=RADIUS, **fill(colour)))
    marks = [
        Mark(label, Box(middle[0] - 6.0, middle[1] - 6.0, middle[0] + 6.0, middle[1] + 6.0))
        for middle, label in _merged_names(middles, [place.label for place in places])
    ]
    joined = boxes_along([(x(place.across), y(place.up)) for place in places])
    parts += [text.draw() for text in place_labels(marks, joined, Box(x.start, y.end, width, y.start), len(marks))]
    return picture(width, tall + 72.0, title, parts)


def _merged_names(middles: Sequence[Middle], labels: Sequence[str]) -> list[tuple[Middle, str]]:
    """Each point with its name; points that lie on one another have theirs together, in their order."""
    groups: list[tuple[Middle, list[str]]] = []
    for middle, label in zip(middles, labels, strict=True):
        if groups and dist(middle, groups[-1][0]) < 2 * RADIUS:
            groups[-1][1].append(label)
        else:
            groups.append((middle, [label]))
    return [(middle, ", ".join(names)) for middle, names in groups]


def _grid(x: Scale, y: Scale, across: Axis, up: Axis) -> list[str]:
    parts = []
    for value in x.ticks(6):
        parts.append(svg_line((x(value), y.start), (x(value), y.end), "rule"))
        name = numbers.plain(value)
        parts.append(Text(x(value), y.start + 17.0, name, SMALL, "middle", fill="muted").draw())
    for value in y.ticks(5):
        parts.append(svg_line((x.start, y(value)), (x.end, y(value)), "rule"))
        name = numbers.tick(value, up.unit)
        parts.append(Text(x.start - 8.0, y(value) + 0.35 * SMALL, name, SMALL, "end", fill="muted").draw())
    parts.append(Text((x.start + x.end) / 2, y.start + 38.0, across.title, SMALL, "middle").draw())
    parts.append(Text(0.0, y.end - 14.0, up.title, SMALL).draw())
    return parts
