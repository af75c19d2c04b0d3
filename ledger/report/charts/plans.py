"""Stacks of several plans on one axis, so that their lengths can be compared; each with the wall that it may cross."""

from __future__ import annotations

from collections.abc import Sequence

from ledger import numbers
from ledger.report.charts.memory import HEADROOM, StackedBar, bar, categories, total_texts
from ledger.report.charts.rows import Rows, axis, legend
from ledger.report.svg import Scale, line, picture

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
            parts.append(line((scale(end), top - reach), (scale(end), bottom + reach), "ink", 2.0))
    return picture(rows.width, rows.bottom + 22.0, title, parts)
