"""The bits of one value of a number format, from the left, with what each part of them is."""

from __future__ import annotations

from collections.abc import Sequence

from ledger.report.charts.rows import SMALL
from ledger.report.svg import Box, Text, picture, rectangle

WIDEST, GAP, TALL, LINE = 24.0, 2.0, 24.0, 20.0  # px: a bit, between two, its height, a line of text
COLOURS = {"sign": "launch", "exponent": "network", "mantissa": "compute", "value": "compute", "code": "compute"}


def chart(parts: Sequence[tuple[str, int]], notes: Sequence[str], title: str, width: float, digits: str = "") -> str:
    """A box for each bit, rows of 32 where they are too many for one, and a line for each part below them.

    `digits`: the bits of one value, from the left, which stand in the boxes; `notes` are set below all this.
    """
    total = sum(count for _, count in parts)
    across = total if width / total >= WIDEST / 2 else min(total, 32)
    pitch = min(WIDEST, width / across)
    drawn, at = [], 0
    for part, count in parts:
        for _ in range(count):
            row, column = divmod(at, across)
            left, top = column * pitch, row * (TALL + GAP)
            drawn.append(
                rectangle(
                    Box(left, top, left + pitch - GAP, top + TALL), COLOURS[part], f"bit {total - 1 - at}: {part}"
                )
            )
            if digits:
                middle = left + (pitch - GAP) / 2, top + TALL - 7.0
                drawn.append(Text(*middle, digits[at], SMALL, "middle", fill=f"on-{COLOURS[part]}").draw())
            at += 1
    y, x = (TALL + GAP) * (-(-total // across)) + LINE, 0.0
    for part, count in parts:
        label = Text(x + 16.0, y, f"{part}, {count} {'bit' if count == 1 else 'bits'}", SMALL)
        drawn += [rectangle(Box(x, y - 10.0, x + 11.0, y + 1.0), COLOURS[part]), label.draw()]
        x += 16.0 + label.width + 18.0
    for line in (line for note in notes for line in _lines(note, width)):
        y += LINE
        drawn.append(Text(0.0, y, line, SMALL, fill="muted").draw())
    return picture(width, y + 8.0, title, drawn)


def _lines(text: str, width: float) -> list[str]:
    """The text in lines that fit."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and Text(0.0, 0.0, longer, SMALL).width <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines
