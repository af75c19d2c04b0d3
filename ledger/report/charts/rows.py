"""The frame that all charts of horizontal bars share: labels, bars, values, one row each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ledger.report.svg import SIZE, Box, Scale, Text, element, fill, shortened, svg_line, text_width

NARROW = 480.0  # px; below this, labels stand above their bars instead of beside them
LABELS_AT_MOST = 0.42  # of the width
GAP = 12.0


@dataclass(frozen=True)
class Rows:
    """Where labels, bars and values of a chart lie; `top` is where the first row begins, `indent` where labels do."""

    width: float
    labels: tuple[str, ...]
    values: tuple[str, ...]
    top: float = 0.0
    thickness: float = 20.0
    gap: float = 11.0
    indent: float = 0.0

    @property
    def stacked(self) -> bool:
        """Whether labels stand above their bars."""
        return self.width < NARROW

    @property
    def pitch(self) -> float:
        """The distance from one row to the next."""
        return self.thickness + (28.0 if self.stacked else self.gap)

    @property
    def left(self) -> float:
        """Where bars begin, in px from the left."""
        if self.stacked:
            return 0.0
        longest = max((text_width(label, weight=600) for label in self.labels), default=0.0)
        return min(self.indent + longest + GAP, LABELS_AT_MOST * self.width)

    @property
    def right(self) -> float:
        """Where bars end, in px from the left."""
        if self.stacked:
            return self.width
        return self.width - max((text_width(value, weight=600) for value in self.values), default=0.0) - GAP

    @property
    def bottom(self) -> float:
        """Where the last row ends."""
        return self.top + self.pitch * len(self.labels)

    def bar(self, row: int) -> tuple[float, float]:
        """Top and bottom of a row's bar."""
        top = self.top + row * self.pitch + (19.0 if self.stacked else 0.0)
        return top, top + self.thickness

    @property
    def bands(self) -> tuple[tuple[float, float], ...]:
        """Where vertical lines run: along all rows, or along each bar alone where labels stand between them."""
        if self.stacked:
            return tuple((top - 2.0, bottom + 2.0) for top, bottom in map(self.bar, range(len(self.labels))))
        return ((self.top - 4.0, self.bottom),)

    def upright(self, x: float, colour: str, width: float = 1.0) -> list[str]:
        """A vertical line that crosses no label."""
        return [svg_line((x, top), (x, bottom), colour, width) for top, bottom in self.bands]

    def baseline(self, row: int) -> float:
        """Where a row's label and value stand."""
        top, bottom = self.bar(row)
        return top - 6.0 if self.stacked else (top + bottom) / 2 + 0.35 * SIZE

    def label(self, row: int, weight: int = 400) -> Text:
        """A row's label, cut to the room there is."""
        room = self.width - text_width(self.values[row], weight=600) - GAP if self.stacked else self.left - GAP
        start = 0.0 if self.stacked else self.indent
        return Text(start, self.baseline(row), shortened(self.labels[row], room - start), weight=weight)

    def value(self, row: int, colour: str = "ink", weight: int = 600) -> Text:
        """A row's value, at the right edge."""
        return Text(self.width, self.baseline(row), self.values[row], anchor="end", weight=weight, fill=colour)

    def box(self, row: int, start: float, end: float) -> Box:
        """The rectangle of a bar between two places."""
        top, bottom = self.bar(row)
        return Box(min(start, end), top, max(start, end), bottom)


def axis(scale: Scale, rows: Rows, names: Sequence[tuple[float, str]]) -> list[str]:
    """Vertical lines at round values, each named below; names that would touch are left out."""
    parts, reach = [], float("-inf")
    for value, name in names:
        x = scale(value)
        parts += rows.upright(x, "rule")
        half = text_width(name, 12.0) / 2
        centre = max(x, half)
        if centre - half > reach and centre + half <= rows.width:
            parts.append(Text(centre, rows.bottom + 16.0, name, 12.0, "middle", fill="muted").draw())
            reach = centre + half + 8.0
    return parts


def legend(entries: Sequence[tuple[str, str]], width: float) -> tuple[list[str], float]:
    """Swatches with names (colour, name), in as many lines as they need; the pictures and the height they take."""
    parts, x, y = [], 0.0, 0.0
    for colour, name in entries:
        reach = 18.0 + text_width(name)
        if x and x + reach > width:
            x, y = 0.0, y + 20.0
        parts.append(element("rect", x=x, y=y + 2.0, width=12.0, height=12.0, rx=2.0, **fill(colour)))
        parts.append(Text(x + 18.0, y + 12.5, name).draw())
        x += reach + 18.0
    return parts, y + 20.0 if entries else 0.0


# --- labels beside marks ---

SMALL = 12.0
FAR = (4.0, 14.0)  # px from a mark to its name, the best first
CLEAR = 2.0  # px that a name keeps from everything else


@dataclass(frozen=True)
class Mark:
    """Something drawn, and its name."""

    label: str
    box: Box


def place_labels(
    marks: Sequence[Mark], obstacles: Sequence[Box], plot: Box, most: int, far: Sequence[float] = FAR
) -> tuple[Text, ...]:
    """Names for the first marks, each where it touches no other name, mark or obstacle; none where there is no room."""
    filled = list(obstacles)
    names: list[Text] = []
    for mark in marks[:most]:
        blocked = [*filled, *(neighbour.box for neighbour in marks if neighbour is not mark)]
        places = ((text, text.box) for text in label_positions(mark, far))
        free = (
            (text, box)
            for text, box in places
            if box.inside(plot) and not any(box.overlaps(obstacle, CLEAR) for obstacle in blocked)
        )
        if spot := next(free, None):
            names.append(spot[0])
            filled.append(spot[1])
    return tuple(names)


def label_positions(mark: Mark, far: Sequence[float] = FAR) -> Iterator[Text]:
    """Places for a name, the best first: left, right, below, above, so far off, then farther."""
    box = mark.box
    middle, centre = (box.top + box.bottom) / 2 + 0.35 * SMALL, (box.left + box.right) / 2
    for distance in far:
        yield Text(box.left - distance, middle, mark.label, SMALL, "end")
        yield Text(box.right + distance, middle, mark.label, SMALL)
        yield Text(centre, box.bottom + distance + 9.0, mark.label, SMALL, "middle")
        yield Text(centre, box.top - distance, mark.label, SMALL, "middle")
