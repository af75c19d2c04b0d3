"""Sections of sensitivity to each input, and of alternative layouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.report.charts import scatter
from ledger.report.charts import time as charts
from ledger.report.views.parts import (
    DASH,
    Cell,
    Chart,
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
    rows = tuple(effect_row(row, values.get("time.calendar"), values.get("cost.run")) for row in ordered)
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


@dataclass(frozen=True)
class AlternativesView:
    """The front of all layouts of the run: what was looked at, its chart, and a table of some of it."""

    lead: str
    chart: Chart
    table: Table


def alternatives(report: Report) -> AlternativesView | None:
    """The layouts that no other beats in time and memory, beside this one; None where none were searched, or fit."""
    search = report.recommendations
    if not search or not search.front:
        return None
    here = report.compiled.totals
    reserved, step = reserved_bytes(here), step_seconds(here)
    beaten = any(
        memory <= reserved and time <= step and (memory, time) != (reserved, step) for memory, time in search.points
    )
    keeps_headroom = reserved <= float(here["memory.capacity"]) - search.headroom
    tips = {_point_key(layout.totals): layout.label for layout in search.front if layout.changes}
    titles = {_point_key(layout.totals): name for name, layout in search.by_reason().items() if layout.changes}
    points_by_place = {
        _point_key({"memory.reserved": memory, "time.step": time}): (memory, time) for memory, time in search.points
    }
    points = [
        scatter.LayoutPoint("this plan", reserved, step, keeps_headroom and not beaten),
        *(
            scatter.LayoutPoint(titles.get(place, ""), *point, best=True, tip=tips.get(place, ""))
            for place, point in points_by_place.items()
            if place != _point_key(here)
        ),
    ]
    capacity = float(here["memory.capacity"])
    listed, unbeaten = len(search.front), len(search.points)
    alt = f"The front of {search.legal} layouts by memory and time of a step: {unbeaten} beaten by no other."
    rows = [("this plan", here), *((layout.label, layout.totals) for layout in search.front if layout.changes)]
    ordered = sorted(rows, key=lambda row: step_seconds(row[1]))
    quantities = columns("number", "memory", "step", "against this plan", "cost")
    counted = f"{listed} of {unbeaten} layouts of" if listed < unbeaten else "All of"
    return AlternativesView(
        f"{search.scope}. {unbeaten} of these are the front: none beats them in both memory and time.",
        draw_chart(
            "Memory against time",
            "Each dark dot is a layout that fits and that no other beats in both; the dashed line joins them.",
            lambda width: scatter.chart(points, capacity, alt, width),
        ),
        Table(
            f"{counted} the front, fastest first",
            (Column("layout"), *quantities),
            tuple(layout_row(label, totals, here) for label, totals in ordered),
            8,
            name="front",
        ),
    )


def _point_key(totals: Mapping[str, Number]) -> tuple[int, str]:
    """Rounded bytes and seconds, which are equal whether the search or the compiler gave them."""
    return round(reserved_bytes(totals)), f"{step_seconds(totals):.8g}"


def reserved_bytes(totals: Mapping[str, Number]) -> float:
    """The bytes a layout needs on its fullest device."""
    return float(totals["memory.reserved"])


def step_seconds(totals: Mapping[str, Number]) -> float:
    """The seconds of a step."""
    return float(totals["time.step"])


def layout_row(label: str, totals: Mapping[str, Number], here: Mapping[str, Number]) -> tuple[Cell, ...]:
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
    )
