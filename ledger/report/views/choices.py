"""What the result depends on, and which other layouts there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.report.charts import scatter
from ledger.report.charts import time as charts
from ledger.report.views.parts import Alternative, Cell, Chart, Column, Report, Table, amount, draw_chart

if TYPE_CHECKING:
    from ledger.books.results import Number

PERCENT = 0.01
DRAWN, LEAST = 12, 0.005  # of the inputs, in the chart, and the smallest elasticity that is seen; the table has all


@dataclass(frozen=True)
class SensitivityView:
    """What 1 % of each input does to the length and the cost of the run."""

    chart: Chart
    table: Table


def sensitivity(report: Report) -> SensitivityView | None:
    """The inputs by the size of their effect; None where no elasticities were supplied."""
    if not report.sensitivities:
        return None
    ordered = sorted(report.sensitivities, key=lambda row: -abs(row[2]))
    seen = [row for row in ordered if abs(row[2]) >= LEAST] or ordered
    effects = [charts.EffectBar(name, by, numbers.shift(by * PERCENT)) for _, name, by in seen[:DRAWN]]
    strongest = effects[0]
    alt = f"Change of the run’s length per 1 % more of each input. Strongest: {strongest.label}, {strongest.text}."
    values = report.compiled.totals
    run, cost = values.get("time.run"), values.get("cost.run")
    rows = tuple(effect_row(row, run, cost) for row in ordered)
    columns = (
        Column("input"),
        Column("key", "code"),
        Column("length", "number"),
        Column("time", "number"),
        Column("cost", "number"),
    )
    return SensitivityView(
        draw_chart(
            "What 1 % more of each input does",
            "Change of the run’s length when one input grows by 1 %: blue shortens it, orange lengthens it.",
            lambda width: charts.tornado(effects, alt, width),
        ),
        Table("What 1 % of each input buys", columns, rows, 24),
    )


def effect_row(row: tuple[str, str, float], run: Number | None, cost: Number | None) -> tuple[Cell, ...]:
    """One input: its elasticity, as time and as dollars."""
    path, name, elasticity = row
    relative = elasticity * PERCENT
    longer = Cell(numbers.signed_duration(run * relative), numbers.machine(relative)) if run else Cell("–")
    money = Cell(numbers.signed_money(cost * relative), numbers.machine(relative)) if cost else Cell("–")
    return Cell(name), Cell(path), Cell(numbers.shift(relative), numbers.machine(relative)), longer, money


@dataclass(frozen=True)
class AlternativesView:
    """Other layouts of the same run."""

    chart: Chart
    table: Table


def alternatives(report: Report) -> AlternativesView | None:
    """Other layouts beside this one; None where none were supplied."""
    if not report.alternatives:
        return None
    here = Alternative({"": "this plan"}, report.compiled.totals)
    everyone = (here, *report.alternatives)
    best = pareto_front(everyone)
    choices = [
        scatter.LayoutPoint(
            choice.label.strip(), float(reserved_bytes(choice)), float(choice.totals["time.step"]), choice in best
        )
        for choice in everyone
    ]
    capacity = float(report.compiled.totals["memory.capacity"])
    alt = f"{len(everyone)} layouts by memory and time of a step; {len(best)} of them are beaten by none in both."
    rows = tuple(choice_row(choice, here, choice in best) for choice in sorted(everyone, key=step_seconds))
    columns = (
        Column("layout"),
        Column("memory", "number"),
        Column("step", "number"),
        Column("against this plan", "number"),
        Column("cost", "number"),
        Column("front"),
    )
    return AlternativesView(
        draw_chart(
            "Memory against time",
            "Each dot is a layout; the dashed line joins those that no other beats in both memory and time.",
            lambda width: scatter.chart(choices, capacity, alt, width),
        ),
        Table("Other layouts, fastest first", columns, rows, 24),
    )


def reserved_bytes(choice: Alternative) -> float:
    """The bytes a layout needs on its fullest device."""
    return float(choice.totals["memory.reserved"])


def step_seconds(choice: Alternative) -> float:
    """The seconds of a step."""
    return float(choice.totals["time.step"])


def pareto_front(choices: Sequence[Alternative]) -> tuple[Alternative, ...]:
    """Those that no other beats in one of memory and time without losing in the other."""
    return tuple(
        choice
        for choice in choices
        if not any(
            reserved_bytes(other) <= reserved_bytes(choice)
            and step_seconds(other) <= step_seconds(choice)
            and (reserved_bytes(other), step_seconds(other)) != (reserved_bytes(choice), step_seconds(choice))
            for other in choices
        )
    )


def choice_row(choice: Alternative, here: Alternative, best: bool) -> tuple[Cell, ...]:
    """One layout against this plan."""
    relative = step_seconds(choice) / step_seconds(here) - 1
    against = Cell("–", "0") if choice is here else Cell(numbers.change(relative), numbers.machine(relative))
    cost = amount(choice.totals["cost.run"], "USD") if "cost.run" in choice.totals else Cell("–")
    over = reserved_bytes(choice) > choice.totals["memory.capacity"]
    memory = Cell(
        numbers.size(reserved_bytes(choice)),
        numbers.machine(reserved_bytes(choice)),
        note="does not fit" if over else "",
    )
    return (
        Cell(choice.label.strip()),
        memory,
        amount(step_seconds(choice), "s"),
        against,
        cost,
        Cell("yes" if best else ""),
    )
