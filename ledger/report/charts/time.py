"""Time: how a step adds up, between which bounds it lies, and what it depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ledger import numbers
from ledger.report.charts.rows import Rows, axis
from ledger.report.svg import Scale, picture, rectangle, svg_line


@dataclass(frozen=True)
class TimeBar:
    """A length with a name; `low` and `high` are its band, where it has one."""

    label: str
    seconds: float
    colour: str
    low: float = 0.0
    high: float = 0.0
    strong: bool = False


def waterfall(spans: Sequence[TimeBar], title: str, width: float) -> str:
    """Each part of the step begins where the one before it ends; the last row is their sum."""
    step = sum(span.seconds for span in spans)
    everything = (*spans, TimeBar("step", step, "estimate", strong=True))
    rows, scale, parts = frame(everything, step, width)
    reached = 0.0
    for row, span in enumerate(everything):
        start = 0.0 if span.strong else reached
        box = rows.box(row, scale(start), scale(start + span.seconds))
        part = numbers.percent(span.seconds / step if step else 0.0)
        tip = f"{span.label}: {numbers.duration(span.seconds)}, {part} of the step"
        parts.append(rectangle(box, span.colour, tip))
        reached = start + span.seconds
        if row < len(spans) and not rows.stacked:
            parts.append(svg_line((scale(reached), box.top), (scale(reached), rows.bar(row + 1)[1]), "axis", 0.75))
    return picture(width, rows.bottom + 20.0, title, parts)


def bounds(bars: Sequence[TimeBar], title: str, width: float) -> str:
    """Bars from zero, one under another, with a whisker where a value has a band."""
    rows, scale, parts = frame(bars, max(max(bar.seconds, bar.high) for bar in bars), width)
    for row, bar in enumerate(bars):
        box = rows.box(row, scale(0.0), scale(bar.seconds))
        parts.append(rectangle(box, bar.colour, f"{bar.label}: {numbers.duration(bar.seconds)}"))
        if bar.high > bar.low:
            parts += whisker(scale(bar.low), scale(bar.high), (box.top + box.bottom) / 2)
    return picture(width, rows.bottom + 20.0, title, parts)


def whisker(start: float, end: float, middle: float) -> list[str]:
    """A band: a line with a stroke at each end."""
    ends = [svg_line((x, middle - 6.0), (x, middle + 6.0), "ink", 1.5) for x in (start, end)]
    return [svg_line((start, middle), (end, middle), "ink", 1.5), *ends]


@dataclass(frozen=True)
class ShareBar:
    """A part of a whole: its name, how much of one it is, and its colour."""

    label: str
    part: float
    colour: str


def shares(parts: Sequence[ShareBar], title: str, width: float) -> str:
    """Bars from zero for parts of one whole; the first is set in bold."""
    texts = tuple(numbers.percent(share.part) for share in parts)
    rows = Rows(width, tuple(share.label for share in parts), texts, 4.0, 16.0)
    scale = Scale(0.0, max(share.part for share in parts) * 1.02, rows.left, rows.right)
    drawn = axis(scale, rows, [(value, numbers.tick_percent(value)) for value in scale.ticks(4 if rows.stacked else 7)])
    for row, share in enumerate(parts):
        weight = 400 if row else 600
        box = rows.box(row, scale(0.0), scale(share.part))
        drawn.append(rectangle(box, share.colour, f"{share.label}: {texts[row]}"))
        drawn += [rows.label(row, weight).draw(), rows.value(row, weight=weight).draw()]
    return picture(width, rows.bottom + 20.0, title, drawn)


def frame(bars: Sequence[TimeBar], longest: float, width: float) -> tuple[Rows, Scale, list[str]]:
    """Rows, scale, axis, labels and values that the charts of time share."""
    texts = tuple(numbers.duration(bar.seconds) for bar in bars)
    rows = Rows(width, tuple(bar.label for bar in bars), texts, 4.0, 18.0)
    scale = Scale(0.0, longest * 1.02 or 1.0, rows.left, rows.right)
    marks = [(value, numbers.tick(value, "s")) for value in scale.ticks(4 if rows.stacked else 7)]
    parts = axis(scale, rows, marks)
    for row, bar in enumerate(bars):
        weight = 600 if bar.strong else 400
        parts += [rows.label(row, weight).draw(), rows.value(row, weight=weight).draw()]
    return rows, scale, parts


@dataclass(frozen=True)
class EffectBar:
    """What an input does to an output: its name, the elasticity, and the text beside the bar."""

    label: str
    elasticity: float
    text: str


def tornado(effects: Sequence[EffectBar], title: str, width: float) -> str:
    """Bars to the left where more of an input helps, to the right where it hurts."""
    rows = Rows(width, tuple(e.label for e in effects), tuple(e.text for e in effects), 4.0, 16.0)
    reach = max(abs(effect.elasticity) for effect in effects) * 1.05 or 1.0
    low = -reach if any(effect.elasticity < 0 for effect in effects) else 0.0
    high = reach if any(effect.elasticity > 0 for effect in effects) else 0.0
    scale = Scale(low, high, rows.left, rows.right)
    marks = [(value, numbers.change(value / 100) if value else "0") for value in scale.ticks(4 if rows.stacked else 6)]
    parts = axis(scale, rows, marks)
    for row, effect in enumerate(effects):
        box = rows.box(row, scale(0.0), scale(effect.elasticity))
        colour = "compute" if effect.elasticity < 0 else "network"
        parts.append(rectangle(box, colour, f"{effect.label}: {effect.text}"))
        parts += [rows.label(row).draw(), rows.value(row).draw()]
    parts += rows.upright(scale(0.0), "ink")
    return picture(width, rows.bottom + 20.0, title, parts)
