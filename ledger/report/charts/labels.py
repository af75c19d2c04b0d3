"""Names beside marks, where they touch nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ledger.report.svg import Box, Text

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
    taken = list(obstacles)
    names: list[Text] = []
    for mark in marks[:most]:
        others = [*taken, *(other.box for other in marks if other is not mark)]
        places = ((text, text.box) for text in label_positions(mark, far))
        free = (
            (text, box)
            for text, box in places
            if box.inside(plot) and not any(box.overlaps(other, CLEAR) for other in others)
        )
        if spot := next(free, None):
            names.append(spot[0])
            taken.append(spot[1])
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
