"""Many layouts as a density over memory and time, with the front among them, the plan itself, and what fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ledger import numbers
from ledger.report.charts.rows import SMALL, Mark, place_labels
from ledger.report.charts.scatter import layout_grid
from ledger.report.svg import Box, Scale, Text, circle, element, light, path, picture, svg_line

LEVELS = 8
RADIUS = 4.0
LABELLED = 12
TOP = 30.0  # px above the plot, for the key
SWATCH = 12.0
BESIDE = 4.0  # px from a mark to its number: farther off it would seem to be another's
MOST_POINTS = 400  # of a front that are drawn


@dataclass(frozen=True)
class DensityGrid:
    """Levels of density (0: nobody, then 1 to LEVELS), rows of time from `shortest` up, columns of memory from 0 up.

    Rows are equal factors of time, up to `longest`; columns equal parts of `reach` bytes, the last also what is beyond.
    """

    levels: Sequence[Sequence[int]]
    shortest: float
    longest: float
    reach: float
    most: int = 1  # layouts in a cell of the highest level


@dataclass(frozen=True)
class DensityPoint:
    """A layout of the front, or the plan itself."""

    label: str
    tip: str
    memory: float
    seconds: float


def chart(
    grid: DensityGrid, front: Sequence[DensityPoint], plan: DensityPoint, limits: Sequence[float], width: float
) -> str:
    """Memory to the right, time upwards in equal factors; a line where each limit of memory is."""
    tall = min(0.62 * width, 430.0)
    x = Scale(0.0, grid.reach, 78.0, width - 8.0)
    y = Scale(grid.shortest, grid.longest, TOP + tall, TOP, logarithmic=True)
    drawn = front[:MOST_POINTS]
    places = [(x(point.memory), y(point.seconds)) for point in drawn]
    plan_at = (x(plan.memory), y(plan.seconds))
    parts = [
        *layout_grid(x, y, y.ticks() if len(y.ticks()) > 2 else y.decades((1, 2, 3, 5, 7)), x.end + 8.0),
        *_legend(grid, x),
        _density(grid, x, y),
    ]
    parts += [svg_line((x(limit), y.start), (x(limit), y.end), "ink", 1.5) for limit in limits if limit < grid.reach]
    parts.append(path(places, "network", 1.25, "4 3"))
    parts += [
        element("g", circle(place, RADIUS, "network", f"{point.label}: {point.tip}"), data_front=str(number))
        for number, (point, place) in enumerate(zip(drawn, places, strict=True))
    ]
    parts.append(_diamond(plan_at, plan.tip))
    discs = [Box.centred_at(*place, RADIUS, RADIUS) for place in [plan_at, *places]]
    marks = [
        Mark(label, disc) for label, disc in zip([plan.label, *(point.label for point in drawn)], discs, strict=True)
    ]
    walls = [Box(x(limit) - 1.0, y.end, x(limit) + 1.0, y.start) for limit in limits if limit < grid.reach]
    texts = place_labels(marks, walls, Box(x.start, y.end, width, y.start), LABELLED, (BESIDE,))
    parts += [  # lettering that stays readable over the density
        element("g", text.draw(), class_="halo", stroke=light("paper"), stroke_width=3.0, paint_order="stroke")
        for text in texts
    ]
    title = f"Layouts by memory and time: {len(front)} on the front, the plan itself as a diamond"
    return picture(width, TOP + tall + 44.0, title, parts)


def _diamond(at: tuple[float, float], tip: str) -> str:
    reach = 1.7 * RADIUS
    corners = " ".join(
        f"{at[0] + dx * reach:.2f},{at[1] + dy * reach:.2f}" for dx, dy in ((0, -1), (1, 0), (0, 1), (-1, 0))
    )
    title = element("title", tip.replace("<", "&lt;"))
    return element("polygon", title, points=corners, fill=light("ink"), class_="f-ink", stroke=light("paper"))


def _density(grid: DensityGrid, x: Scale, y: Scale) -> str:
    """A shape for all cells of each level, with what a script needs to draw other levels into the same place."""
    rows, columns = len(grid.levels), len(grid.levels[0])
    across, up = (x.end - x.start) / columns, (y.start - y.end) / rows
    shapes = []
    for level in range(1, LEVELS + 1):
        squares = "".join(
            f"M{x.start + column * across:.1f} {y.start - (row + 1) * up:.1f}h{across:.1f}v{up:.1f}h-{across:.1f}z"
            for row, listed in enumerate(grid.levels)
            for column, cell_level in enumerate(listed)
            if cell_level == level
        )
        shapes.append(
            element("path", d=squares, fill=light("compute"), class_="f-compute", fill_opacity=level / LEVELS)
        )
    return element(
        "g",
        *shapes,
        class_="density",
        data_left=x.start,
        data_bottom=y.start,
        data_across=f"{across:.4f}",
        data_up=f"{up:.4f}",
    )


def _legend(grid: DensityGrid, x: Scale) -> list[str]:
    """What the axis of time is, at the left; at the right how many layouts each colour stands for, few to many."""
    base = TOP - 12.0
    few = "1 layout in a cell"
    many = Text(x.end, base, numbers.integer(grid.most), SMALL, "end", fill="muted")
    first = many.box.left - 6.0 - LEVELS * SWATCH
    parts = [Text(0.0, base, "time of a step", SMALL).draw(), many.draw()]
    parts += [
        element(
            "rect",
            x=f"{first + (level - 1) * SWATCH:.1f}",
            y=f"{base - 10.0:.1f}",
            width=SWATCH,
            height=SWATCH,
            fill=light("compute"),
            class_="f-compute",
            fill_opacity=level / LEVELS,
        )
        for level in range(1, LEVELS + 1)
    ]
    return [*parts, Text(first - 6.0, base, few, SMALL, "end", fill="muted").draw()]
