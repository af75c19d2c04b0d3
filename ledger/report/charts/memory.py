"""Memory against capacity: one bar per kind of device, one column per moment of a step."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from ledger import numbers
from ledger.report.charts.rows import NARROW, Rows, axis, legend
from ledger.report.palette import COLOURS
from ledger.report.svg import (
    Box,
    Scale,
    Text,
    element,
    line,
    picture,
    rectangle,
    text_width,
    wrapped,
)

HEADROOM = 1.04  # of the largest value, so that the end of the longest bar is seen
SMALL = 12.0
FAR = 0.4  # of the capacity; where all columns stay below, the capacity is named and not drawn


@dataclass(frozen=True)
class Part:
    """A category's share of a stack: the palette's name for it, its name in words, bytes."""

    colour: str
    name: str
    amount: float


@dataclass(frozen=True)
class Stack:
    """A bar: what it stands for, and its parts from the bottom up; `marked` is the peak."""

    label: str
    parts: tuple[Part, ...]
    marked: bool = False

    @property
    def total(self) -> float:
        """The bytes in all."""
        return sum(part.amount for part in self.parts)


def bars(stacks: Sequence[Stack], capacity: float, title: str, width: float) -> str:
    """Horizontal stacked bars, and the capacity as a line that none should cross."""
    keys, height = legend(categories(stacks), width)
    texts = tuple(numbers.size(stack.total) for stack in stacks)
    rows = Rows(width, tuple(stack.label for stack in stacks), texts, height + 32.0, 26.0)
    scale = Scale(0.0, HEADROOM * max(capacity, *(stack.total for stack in stacks)), rows.left, rows.right)
    marks = [(value, numbers.tick(value, "B")) for value in scale.ticks(4 if rows.stacked else 8)]
    parts = [*keys, *axis(scale, rows, marks)]
    for row, stack in enumerate(stacks):
        parts += bar(rows, row, stack, scale, capacity)
        over = stack.total > capacity
        label, value = rows.label(row, 600 if stack.marked else 400), rows.value(row, "bad" if over else "ink")
        parts += [label.draw(), value.draw()]
    parts += capacity_mark(scale, capacity, rows)
    return picture(width, rows.bottom + 22.0, title, parts)


def bar(rows: Rows, row: int, stack: Stack, scale: Scale, capacity: float) -> list[str]:
    """One stacked bar; a part carries its amount where there is room beside the line of capacity."""
    parts, reached, wall = [], 0.0, scale(capacity)
    for part in stack.parts:
        box = rows.box(row, scale(reached), scale(reached + part.amount))
        reached += part.amount
        parts.append(segment(box, part))
        cuts = [box.left, *([wall] if box.left < wall < box.right else []), box.right]
        left, right = max(itertools.pairwise(cuts), key=lambda piece: piece[1] - piece[0])
        text = numbers.size(part.amount)
        if text_width(text, SMALL) + 8.0 <= right - left:
            middle = (left + right) / 2, (box.top + box.bottom) / 2 + 0.35 * SMALL
            parts.append(Text(*middle, text, SMALL, "middle", fill=f"on-{part.colour}").draw())
    return parts


def segment(box: Box, part: Part) -> str:
    """One part of a stack, with a hairline of paper around it."""
    hairline = 0.6
    inner = Box(box.left + hairline, box.top, max(box.right - hairline, box.left + hairline), box.bottom)
    return rectangle(inner, part.colour, f"{part.name}: {numbers.size(part.amount)}")


def capacity_mark(scale: Scale, capacity: float, rows: Rows) -> list[str]:
    """The line of capacity, named above it."""
    x, text = scale(capacity), f"capacity {numbers.size(capacity)}"
    half = text_width(text, SMALL, 600) / 2
    name = Text(min(max(x, half), rows.width - half), rows.top - 14.0, text, SMALL, "middle", 600)
    return [*rows.upright(x, "ink", 1.5), name.draw()]


def categories(stacks: Sequence[Stack]) -> list[tuple[str, str]]:
    """Every category that holds anything, in the order of the palette, for the legend."""
    held = {part.colour: part.name for stack in stacks for part in stack.parts if part.amount}
    return [(colour, held[colour]) for colour in COLOURS if colour in held]


def timeline(stacks: Sequence[Stack], capacity: float, title: str, width: float) -> str:
    """Stacked columns in the order of a step, the peak in bold; bars instead of columns where the page is narrow."""
    if width < NARROW:
        return bars(stacks, capacity, title, width)
    keys, height = legend(categories(stacks), width)
    highest = max(stack.total for stack in stacks)
    far = 0 < highest < FAR * capacity
    name = f"{'↑ ' if far else ''}capacity {numbers.size(capacity)}"
    left, top, tall = text_width(name, SMALL, 600) + 10.0, height + 24.0, 220.0
    scale = Scale(0.0, highest * 1.25 if far else HEADROOM * max(capacity, highest), top + tall, top)
    parts = [*keys, *levels(scale, capacity, (left, width))]
    pitch = (width - left) / max(len(stacks), 1)
    thick, lowest = min(pitch * 0.64, 64.0), top + tall
    for at, stack in enumerate(stacks):
        centre = left + (at + 0.5) * pitch
        parts += column(stack, scale, centre, thick)
        for row, text in enumerate(wrapped(stack.label, pitch - 6.0, SMALL, 4)):
            label = Text(centre, top + tall + 17.0 + 14.5 * row, text, SMALL, "middle", 600 if stack.marked else 400)
            lowest = max(lowest, label.box.bottom)
            parts.append(label.draw())
    parts += [] if far else [line((left, scale(capacity)), (width, scale(capacity)), "ink", 1.5)]
    parts += [Text(left - 10.0, scale(capacity) + 0.35 * SMALL, name, SMALL, "end", 600).draw()]
    parts += [total(stack, scale, left + (at + 0.5) * pitch, capacity) for at, stack in enumerate(stacks)]
    return picture(width, lowest + 4.0, title, parts)


def levels(scale: Scale, capacity: float, span: tuple[float, float]) -> list[str]:
    """Horizontal lines at round values; names that would touch the capacity's are left out."""
    parts = []
    for value in scale.ticks(5):
        y = scale(value)
        parts.append(line((span[0], y), (span[1], y), "axis" if value == 0 else "rule"))
        if abs(y - scale(capacity)) > 1.4 * SMALL:
            name = numbers.tick(value, "B")
            parts.append(Text(span[0] - 10.0, y + 0.35 * SMALL, name, SMALL, "end", fill="muted").draw())
    return parts


def column(stack: Stack, scale: Scale, centre: float, thick: float) -> list[str]:
    """One stacked column."""
    parts, reached = [], 0.0
    for part in stack.parts:
        low, high = scale(reached), scale(reached + part.amount)
        reached += part.amount
        gap = 0.6 if low - high > 2.0 else 0.0
        box = Box(centre - thick / 2, high + gap, centre + thick / 2, low)
        parts.append(rectangle(box, part.colour, f"{stack.label} – {part.name}: {numbers.size(part.amount)}"))
    return parts


def total(stack: Stack, scale: Scale, centre: float, capacity: float) -> str:
    """A column's total above it, on paper so that no line runs through it."""
    colour = "bad" if stack.total > capacity else "ink" if stack.marked else "muted"
    text = numbers.size(stack.total)
    label = Text(centre, scale(stack.total) - 7.0, text, SMALL, "middle", 600 if stack.marked else 400, colour)
    box = label.box
    ground = Box(box.left - 2.0, box.top, box.right + 2.0, box.bottom)
    return element("g", rectangle(ground, "paper"), label.draw())
