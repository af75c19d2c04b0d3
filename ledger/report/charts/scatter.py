"""Layouts compared: memory against time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ledger import numbers
from ledger.report.charts.rows import SMALL, Mark, place_labels
from ledger.report.svg import Box, Scale, Text, circle, path, picture, svg_line, text_width

RADIUS = 5.0
LABELLED = 6


@dataclass(frozen=True)
class LayoutPoint:
    """A layout among others: its name, if it has one, bytes it needs, seconds it takes, whether nothing beats it.

    `tip` says more of it to the pointer.
    """

    label: str
    memory: float
    seconds: float
    best: bool
    tip: str = ""


def chart(choices: Sequence[LayoutPoint], capacity: float, title: str, width: float) -> str:
    """Memory to the right, time upwards; the layouts that nothing beats in both are joined."""
    tall = min(0.5 * width, 300.0)
    x = Scale(0.0, 1.06 * max(capacity, *(choice.memory for choice in choices)), 78.0, width - 8.0)
    y = Scale(0.0, 1.12 * max(choice.seconds for choice in choices), 8.0 + tall, 8.0)
    parts = [*layout_grid(x, y, y.ticks(5)), svg_line((x(capacity), y.start), (x(capacity), y.end), "ink", 1.5)]
    name = Text(x(capacity) - 6.0, y.start - 8.0, f"capacity {numbers.size(capacity)}", SMALL, "end", 600)
    front = sorted((choice for choice in choices if choice.best), key=lambda choice: choice.memory)
    parts.append(path([(x(choice.memory), y(choice.seconds)) for choice in front], "estimate", 1.25, "4 3"))
    parts += [_draw_point(choice, x, y) for choice in choices]
    ordered = [*front, *(choice for choice in choices if not choice.best)]
    discs = [Box.centred_at(x(choice.memory), y(choice.seconds), RADIUS, RADIUS) for choice in ordered]
    marks = [Mark(choice.label, disc) for choice, disc in zip(ordered, discs, strict=True) if choice.label]
    wall = Box(x(capacity) - 1.0, y.end, x(capacity) + 1.0, y.start)
    joined = boxes_along([(x(choice.memory), y(choice.seconds)) for choice in front])
    labels = place_labels(marks, [name.box, wall, *joined], Box(x.start, y.end, width, y.start), LABELLED)
    parts += [text.draw() for text in (name, *labels)]
    return picture(width, tall + 52.0, title, parts)


def layout_grid(x: Scale, y: Scale, seconds: Iterable[float], edge: float = math.inf) -> list[str]:
    """Lines at round values of memory and at `seconds`, named at the left, and below as far as `edge`."""
    parts, reach = [], 0.0
    for value in x.ticks(6):
        name = Text(x(value), y.start + 17.0, numbers.tick(value, "B"), SMALL, "middle", fill="muted")
        parts.append(svg_line((x(value), y.start), (x(value), y.end), "rule"))
        if name.box.left > reach and name.box.right < edge:
            parts.append(name.draw())
            reach = name.box.right + 8.0
    for value in seconds:
        parts.append(svg_line((x.start, y(value)), (x.end, y(value)), "rule"))
        name = Text(x.start - 8.0, y(value) + 0.35 * SMALL, numbers.tick(value, "s"), SMALL, "end", fill="muted")
        parts.append(name.draw())
    centre = (x.start + x.end) / 2 - text_width("memory per device", SMALL) / 2
    parts.append(Text(centre, y.start + 38.0, "memory per device", SMALL).draw())
    return parts


def _draw_point(choice: LayoutPoint, x: Scale, y: Scale) -> str:
    """The dot of a layout; the pointer finds its changes and numbers."""
    name = choice.tip or choice.label or "another layout"
    tip = f"{name}: {numbers.size(choice.memory)}, {numbers.duration(choice.seconds)}"
    return circle((x(choice.memory), y(choice.seconds)), RADIUS, "estimate" if choice.best else "bound", tip)


def boxes_along(corners: Sequence[tuple[float, float]]) -> list[Box]:
    """Small boxes along a line, so that names keep off it."""
    steps = [at / 40 for at in range(41)]
    points = [
        (x0 + at * (x1 - x0), y0 + at * (y1 - y0)) for (x0, y0), (x1, y1) in itertools.pairwise(corners) for at in steps
    ]
    return [Box.centred_at(x, y, 2.0, 2.0) for x, y in points]
