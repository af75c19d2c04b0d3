"""What the result depends on, and which other layouts there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.report.charts import scatter
from ledger.report.charts import time as charts
from ledger.report.views.parts import (
    DASH,
    Cell,
    ChartAndTable,
    Column,
    Report,
    Table,
    amount,
    columns,
    draw_chart,
    number_cell,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.books.results import Number
    from ledger.books.what_if.alternatives import Alternative

PERCENT = 0.01
DRAWN, SEEN = 12, 0.005  # of the inputs, in the chart, and the smallest elasticity that is seen; the table has all


def sensitivity(report: Report) -> ChartAndTable | None:
    """What 1 % of each input does to the length and the cost of the run; None where no elasticities were supplied."""
    if not report.sensitivities:
        return None
    ordered = sorted(report.sensitivities, key=lambda row: -abs(row[2]))
    seen = [row for row in ordered if abs(row[2]) >= SEEN] or ordered
    effects = [charts.EffectBar(name, by, numbers.shift(by * PERCENT)) for _, name, by in seen[:DRAWN]]
    strongest = effects[0]
    alt = f"Change of the run’s length per 1 % more of each input. Strongest: {strongest.label}, {strongest.text}."
    values = report.compiled.totals
    rows = tuple(effect_row(row, values.get("time.run"), values.get("cost.run")) for row in ordered)
    headings = (Column("input"), Column("key", "code"), *columns("number", "length", "time", "cost"))
    return ChartAndTable(
        draw_chart(
            "What 1 % more of each input does",
            "Change of the run’s length when one input grows by 1 %: blue shortens it, orange lengthens it.",
            lambda width: charts.tornado(effects, alt, width),
        ),
        Table("What 1 % of each input buys", headings, rows, 24),
    )


def effect_row(row: tuple[str, str, float], run: Number | None, cost: Number | None) -> tuple[Cell, ...]:
    """One input: its elasticity, as time and as dollars."""
    path, name, elasticity = row
    relative = elasticity * PERCENT
    longer = number_cell(numbers.signed_duration(run * relative), relative) if run else DASH
    money = number_cell(numbers.signed_money(cost * relative), relative) if cost else DASH
    return Cell(name), Cell(path), number_cell(numbers.shift(relative), relative), longer, money


def layout_label(layout: Alternative) -> str:
    """The changes of a layout in a line: `tensor 4, pipeline 2`."""
    return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in layout.changes.items())


def alternatives(report: Report) -> ChartAndTable | None:
    """Other layouts of the same run beside this one; None where none were supplied."""
    if not report.alternatives:
        return None
    here = report.compiled.totals
    layouts = [("this plan", here), *((layout_label(other), other.totals) for other in report.alternatives)]
    best = [is_unbeaten(totals, [other for _, other in layouts]) for _, totals in layouts]
    points = [
        scatter.LayoutPoint(label, reserved_bytes(totals), step_seconds(totals), unbeaten)
        for (label, totals), unbeaten in zip(layouts, best, strict=True)
    ]
    capacity = float(here["memory.capacity"])
    alt = f"{len(layouts)} layouts by memory and time of a step; {sum(best)} of them are beaten by no other in both."
    ordered = sorted(zip(layouts, best, strict=True), key=lambda pair: step_seconds(pair[0][1]))
    rows = tuple(layout_row(label, totals, here, unbeaten) for (label, totals), unbeaten in ordered)
    quantities = columns("number", "memory", "step", "against this plan", "cost")
    return ChartAndTable(
        draw_chart(
            "Memory against time",
            "Each dot is a layout that was tried"
            + ("; the dashed line joins those that no other of them beats in both." if sum(best) > 1 else "."),
            lambda width: scatter.chart(points, capacity, alt, width),
        ),
        Table("Other layouts, fastest first", (Column("layout"), *quantities, Column("front")), rows, 24),
    )


def reserved_bytes(totals: Mapping[str, Number]) -> float:
    """The bytes a layout needs on its fullest device."""
    return float(totals["memory.reserved"])


def step_seconds(totals: Mapping[str, Number]) -> float:
    """The seconds of a step."""
    return float(totals["time.step"])


def is_unbeaten(totals: Mapping[str, Number], others: Sequence[Mapping[str, Number]]) -> bool:
    """Whether no other layout is better in one of memory and time and no worse in the other."""
    memory, time = reserved_bytes(totals), step_seconds(totals)
    pairs = [(reserved_bytes(other), step_seconds(other)) for other in others]
    return not any(held <= memory and taken <= time and (held, taken) != (memory, time) for held, taken in pairs)


def layout_row(
    label: str, totals: Mapping[str, Number], here: Mapping[str, Number], unbeaten: bool
) -> tuple[Cell, ...]:
    """One layout against this plan."""
    needed, relative = totals["memory.reserved"], step_seconds(totals) / step_seconds(here) - 1
    return (
        Cell(label),
        Cell(
            numbers.size(needed),
            numbers.machine(float(needed)),
            note="does not fit" if needed > totals["memory.capacity"] else "",
        ),
        amount(step_seconds(totals), "s"),
        Cell("–", "0") if totals is here else number_cell(numbers.change(relative), relative),
        amount(totals["cost.run"], "USD") if "cost.run" in totals else DASH,
        Cell("yes" if unbeaten else ""),
    )
