"""Memory against capacity: one bar per kind of device, or per moment of a step."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ledger import numbers
from ledger.report.charts.rows import NARROW, SMALL, Rows, axis, legend
from ledger.report.svg import COLOURS, SIZE, Box, Scale, Text, picture, rectangle, svg_line, text_width

HEADROOM = 1.04  # of the largest value, so that the end of the longest bar is seen
FAR = 0.4  # of the capacity; where all moments stay below, the capacity is named and not drawn
BRACKET = 10.0  # px between a bracket and what is beside it


@dataclass(frozen=True)
class StackPart:
    """A category's share of a stack: the palette's name for it, its name in words, and how much it is."""

    colour: str
    name: str
    amount: float


@dataclass(frozen=True)
class StackedBar:
    """A bar: what it stands for, and its parts from the left; `marked` is the peak, `group` the pass it is part of."""

    label: str
    parts: tuple[StackPart, ...]
    marked: bool = False
    group: str = ""

    @property
    def name(self) -> str:
        """The label with the group before it, for a legend without groups."""
        return ", ".join(part for part in (self.group, self.label) if part)

    @property
    def total(self) -> float:
        """The sum of all parts."""
        return sum(part.amount for part in self.parts)


def bars(stacks: Sequence[StackedBar], capacity: float, title: str, width: float) -> str:
    """Horizontal stacked bars, and the capacity as a line that none should cross."""
    rows = Rows(width, tuple(stack.name for stack in stacks), total_texts(stacks), thickness=26.0)
    scale = Scale(0.0, HEADROOM * max(capacity, *(stack.total for stack in stacks)), rows.left, rows.right)
    return stacked_chart(stacks, capacity, title, rows, scale)


def timeline(stacks: Sequence[StackedBar], capacity: float, title: str, width: float) -> str:
    """Stacked bars of a step's moments from above down, the peak in bold, moments of one pass in a bracket."""
    stacked = width < NARROW
    labels = tuple(stack.name if stacked else stack.label for stack in stacks)
    passes = max((text_width(stack.group) for stack in stacks), default=0.0)
    indent = passes + 2 * BRACKET if passes and not stacked else 0.0
    rows = Rows(width, labels, total_texts(stacks), thickness=15.0, gap=6.0, indent=indent)
    highest = max(stack.total for stack in stacks)
    far = 0 < highest < FAR * capacity
    reach = 1.1 * highest if far else HEADROOM * max(capacity, highest)
    return stacked_chart(stacks, capacity, title, rows, Scale(0.0, reach, rows.left, rows.right), detailed=False)


def total_texts(stacks: Sequence[StackedBar], unit: str = "B") -> tuple[str, ...]:
    """What each comes to, in words."""
    return tuple(numbers.amount_text(stack.total, unit) for stack in stacks)


def stacked_chart(  # noqa: PLR0913 - a chart's data, its frame and how much of it is said in words
    stacks: Sequence[StackedBar],
    capacity: float,
    title: str,
    rows: Rows,
    scale: Scale,
    *,
    detailed: bool = True,
) -> str:
    """The whole chart below its legend; parts carry their amounts where `detailed`, and at the peak."""
    keys, height = legend(categories(stacks), rows.width)
    rows = replace(rows, top=height + 32.0)
    marks = [(value, numbers.tick(value, "B")) for value in scale.ticks(4 if rows.stacked else 8)]
    parts = [*keys, *axis(scale, rows, marks)]
    for row, stack in enumerate(stacks):
        parts += bar(rows, row, stack, scale, capacity, detailed=detailed or stack.marked)
        over = stack.total > capacity
        label, value = rows.label(row, 600 if stack.marked else 400), rows.value(row, "bad" if over else "ink")
        parts += [label.draw(), value.draw()]
    parts += brackets(rows, [stack.group for stack in stacks]) if rows.indent else []
    parts += capacity_mark(scale, capacity, rows)
    return picture(rows.width, rows.bottom + 22.0, title, parts)


def brackets(rows: Rows, groups: Sequence[str]) -> list[str]:
    """The name of each run of rows that have one, beside a line along them."""
    parts, x, row = [], rows.indent - BRACKET, 0
    for name, run in itertools.groupby(groups):
        first, row = row, row + len(list(run))
        if not name:
            continue
        top, bottom = rows.bar(first)[0], rows.bar(row - 1)[1]
        parts.append(svg_line((x, top), (x, bottom), "axis"))
        parts += [svg_line((x, y), (x + 0.4 * BRACKET, y), "axis") for y in (top, bottom)]
        middle = (top + bottom) / 2 + 0.35 * SIZE
        parts.append(Text(x - 0.6 * BRACKET, middle, name, anchor="end", fill="muted").draw())
    return parts


def bar(  # noqa: PLR0913 - a bar's place, its parts and the wall it may cross
    rows: Rows, row: int, stack: StackedBar, scale: Scale, capacity: float, *, detailed: bool, unit: str = "B"
) -> list[str]:
    """One stacked bar; where `detailed`, a part carries its amount if there is room beside the line of capacity."""
    parts, reached, wall = [], 0.0, scale(capacity)
    for part in stack.parts:
        box = rows.box(row, scale(reached), scale(reached + part.amount))
        reached += part.amount
        parts.append(segment(box, part, unit))
        if not detailed:
            continue
        cuts = [box.left, *([wall] if box.left < wall < box.right else []), box.right]
        left, right = max(itertools.pairwise(cuts), key=lambda piece: piece[1] - piece[0])
        text = numbers.amount_text(part.amount, unit)
        if text_width(text, SMALL) + 8.0 <= right - left:
            middle = (left + right) / 2, (box.top + box.bottom) / 2 + 0.35 * SMALL
            parts.append(Text(*middle, text, SMALL, "middle", fill=f"on-{part.colour}").draw())
    return parts


def segment(box: Box, part: StackPart, unit: str) -> str:
    """One part of a stack, with a hairline of paper around it."""
    hairline = 0.6
    inner = Box(box.left + hairline, box.top, max(box.right - hairline, box.left + hairline), box.bottom)
    return rectangle(inner, part.colour, f"{part.name}: {numbers.amount_text(part.amount, unit)}")


def capacity_mark(scale: Scale, capacity: float, rows: Rows) -> list[str]:
    """The line of capacity, named above it; beyond the scale only its name, at the edge."""
    far = capacity > scale.high
    x, text = scale(capacity), f"capacity {numbers.size(capacity)}{' →' if far else ''}"
    half = text_width(text, SMALL, 600) / 2
    name = Text(min(max(x, half), rows.width - half), rows.top - 14.0, text, SMALL, "middle", 600)
    return [*([] if far else rows.upright(x, "ink", 1.5)), name.draw()]


def categories(stacks: Sequence[StackedBar]) -> list[tuple[str, str]]:
    """Every category that holds anything, in the order of the palette, for the legend."""
    names = {part.colour: part.name for stack in stacks for part in stack.parts if part.amount}
    return [(colour, names[colour]) for colour in COLOURS if colour in names]


# --- stacks of several plans on one axis ---

WALL, CLOSE = 4.0, 2.0  # px by which a wall reaches beyond its bar, and beyond one with its label above it
THICKNESS = 26.0


def plan_bars(stacks: Sequence[StackedBar], walls: Sequence[float], unit: str, title: str, width: float) -> str:
    """A bar for each plan, and a line where its device ends; `walls` are empty where there are none.

    A bar that crosses its wall has its sum in the colour of what fails.
    """
    ends = list(walls) or [float("inf")] * len(stacks)
    keys, height = legend(categories(stacks), width)
    rows = Rows(width, tuple(stack.label for stack in stacks), total_texts(stacks, unit), height + 14.0, THICKNESS)
    longest = max([*(stack.total for stack in stacks), *walls])
    scale = Scale(0.0, HEADROOM * longest or 1.0, rows.left, rows.right)
    marks = [(value, numbers.tick(value, unit)) for value in scale.ticks(4 if rows.stacked else 8)]
    parts = [*keys, *axis(scale, rows, marks)]
    for row, (stack, end) in enumerate(zip(stacks, ends, strict=True)):
        parts += bar(rows, row, stack, scale, end, detailed=True, unit=unit)
        parts += [rows.label(row).draw(), rows.value(row, "bad" if stack.total > end else "ink").draw()]
        if walls:
            (top, bottom), reach = rows.bar(row), CLOSE if rows.stacked else WALL
            parts.append(svg_line((scale(end), top - reach), (scale(end), bottom + reach), "ink", 2.0))
    return picture(rows.width, rows.bottom + 22.0, title, parts)
