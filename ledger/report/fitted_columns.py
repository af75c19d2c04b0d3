"""Columns of text in a given width: cells break between words, names where their parts meet, numbers nowhere."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

GAP = 2  # spaces between columns
SHARE = 3  # of a width, a third: a first column of no more than that stays whole where others have room for their words
NARROWEST = 8  # letters of a column whose words have to be cut, because nothing else fits
# After a space; after the slash, point or underscore of a name; after a sign of a formula.
JOINTS = re.compile(r"(?<=\s)(?=\S)|(?<=[/_.])(?=[^\W\d])|(?<=[+*,(])(?=[^\s)])")

Rows = Sequence[Sequence[str]]


def aligned(rows: Rows, right: Collection[int], width: int = 0) -> Iterator[list[str]]:
    """The lines of each row, the head first: columns in `right` end, others begin, at one place.

    They are no longer than `width`, as far as the words of names allow; 0: as long as they are.
    """
    widths = fitted_widths(rows, right, width) if width else natural_widths(rows)
    for row in rows:
        cells = [broken(cell, room) for cell, room in zip(row, widths, strict=True)]
        height = max(map(len, cells), default=0)
        lines = ([*cell, *[""] * (height - len(cell))] for cell in cells)
        yield [_aligned_line(line, widths, right) for line in zip(*lines, strict=True)]


def _aligned_line(cells: Sequence[str], widths: Sequence[int], right: Collection[int]) -> str:
    placed = (
        cell.rjust(room) if column in right else cell.ljust(room)
        for column, (cell, room) in enumerate(zip(cells, widths, strict=True))
    )
    return (" " * GAP).join(placed).rstrip()


def natural_widths(rows: Rows) -> list[int]:
    """The longest cell of each column."""
    return [max(map(len, cells)) for cells in zip(*rows, strict=True)]


def fitted_widths(rows: Rows, right: Collection[int], width: int) -> list[int]:
    """Widths of columns that leave the words of the first one, and the numbers of those in `right`, whole.

    What is left is shared so that each column has about the same part of its longest cell in a line.
    """
    natural, (head, *body) = natural_widths(rows), rows
    room = width - GAP * (len(natural) - 1)
    if sum(natural) <= room:
        return natural
    widths = []
    for column, name in enumerate(head):
        cells = [row[column] for row in body]
        unbroken = cells if column in right else [piece for cell in cells for piece in pieces(cell)]
        widths.append(max(len(piece.rstrip()) for piece in (*pieces(name), *unbroken)))
    if natural[0] <= width // SHARE and natural[0] + sum(widths[1:]) <= room:
        widths[0] = natural[0]
    cut = [column for column in range(1, len(widths)) if column not in right]
    while sum(widths) > room and any(widths[column] > NARROWEST for column in cut):
        widths[max(cut, key=lambda column: widths[column])] -= 1
    while sum(widths) < room:
        widths[max(range(len(widths)), key=lambda column: natural[column] / max(widths[column], 1))] += 1
    return widths


def pieces(text: str) -> list[str]:
    """The text in parts between which a line may end."""
    return JOINTS.split(text)


def broken(text: str, room: int) -> list[str]:
    """The text in lines of at most `room` letters; only a part that is longer by itself is cut."""
    lines = [""]
    for piece in pieces(text) if len(text) > room else [text]:
        remaining = piece
        if lines[-1] and len(lines[-1]) + len(remaining.rstrip()) > room:
            lines.append("")
        while len(remaining.rstrip()) > room > 0:
            lines[-1:] = [remaining[:room], ""]
            remaining = remaining[room:]
        lines[-1] += remaining
    return [line.rstrip() for line in lines]
