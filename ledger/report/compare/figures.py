"""Memory and the time of a step of all plans on common axes, each with the table of what it draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ledger import numbers
from ledger.books.time import TITLES
from ledger.report.charts.memory import StackedBar, StackPart
from ledger.report.charts.plans import plan_bars
from ledger.report.compare.plans import ComparedPlan
from ledger.report.palette import MEMORY_ORDER
from ledger.report.views.memory import CATEGORIES, OVERHEAD, reserved_parts
from ledger.report.views.parts import (
    DASH,
    Cell,
    ChartAndTable,
    Column,
    Table,
    amount,
    columns,
    draw_chart,
    fullest_role,
)

COLOURS: Mapping[str, str] = {  # of parts of a step; others go by the axis whose transfers they are
    "tax": "slowed",
    "optimizer": "update",
    "launch": "launches",
}
TRANSFERS = "comm."


def memory_figure(plans: Sequence[ComparedPlan]) -> ChartAndTable | None:
    """What the fullest device of each plan holds at its peak, against what it has; None where none is known."""
    shown = [one for one in plans if one.is_known]
    if not shown:
        return None
    stacks = [StackedBar(one.label, reserved_parts(fullest_role(one.compiled))) for one in shown]
    walls = [float(one.compiled.totals["memory.capacity"]) for one in shown]
    names = {key: CATEGORIES[key][0] for key in MEMORY_ORDER} | {OVERHEAD[0]: OVERHEAD[1]}
    sums = [
        f"{one.label} {numbers.size(stack.total)} of {numbers.size(wall)}"
        for one, stack, wall in zip(shown, stacks, walls, strict=True)
    ]
    chart = draw_chart(
        "Memory of the fullest device, at its peak",
        "Blue persists from step to step, orange comes and goes within one, grey lies outside the tensors. The line"
        " across a bar is what its device has.",
        lambda width: plan_bars(stacks, walls, "B", f"Memory of the fullest device: {'; '.join(sums)}.", width),
    )
    capacities = (Cell("capacity"), *(amount(one.compiled.totals["memory.capacity"], "B") for one in shown))
    rows = (*part_rows(stacks, names, "B"), (Cell("reserved"), *(amount(one.total, "B") for one in stacks)), capacities)
    return ChartAndTable(chart, plan_table("Memory by category", "category", shown, rows))


def step_figure(plans: Sequence[ComparedPlan]) -> ChartAndTable | None:
    """What the step of each plan is spent on; None where no step is known."""
    shown = [one for one in plans if one.compiled.waterfall]
    if not shown:
        return None
    stacks = [StackedBar(one.label, step_parts(one)) for one in shown]
    names = {colour_of(name): title for name, title in TITLES.items()}
    sums = [f"{one.label} {numbers.duration(stack.total)}" for one, stack in zip(shown, stacks, strict=True)]
    chart = draw_chart(
        "Time of a step",
        "Seconds on the critical path: blue computes, orange waits for transfers, grey waits for launches and other "
        "stages.",
        lambda width: plan_bars(stacks, (), "s", f"Time of a step: {'; '.join(sums)}.", width),
    )
    rows = (*part_rows(stacks, names, "s"), (Cell("a step"), *(amount(one.total, "s") for one in stacks)))
    return ChartAndTable(chart, plan_table("Time of a step by what it is spent on", "part", shown, rows))


def step_parts(plan: ComparedPlan) -> tuple[StackPart, ...]:
    """The parts of a plan's step, in the order of a step."""
    return tuple(StackPart(colour_of(one.name), one.title, one.seconds) for one in plan.compiled.waterfall)


def colour_of(part: str) -> str:
    """The colour of a part of a step, so that it has the same in every plan."""
    return COLOURS.get(part, part.removeprefix(TRANSFERS))


def part_rows(stacks: Sequence[StackedBar], names: Mapping[str, str], unit: str) -> tuple[tuple[Cell, ...], ...]:
    """A row for each part that any plan has."""
    amounts = [{part.colour: part.amount for part in stack.parts} for stack in stacks]
    return tuple(
        (
            Cell(name, colour=colour),
            *(amount(one[colour], unit) if one.get(colour) else DASH for one in amounts),
        )
        for colour, name in names.items()
        if any(one.get(colour) for one in amounts)
    )


def plan_table(caption: str, first: str, plans: Sequence[ComparedPlan], rows: tuple[tuple[Cell, ...], ...]) -> Table:
    """A table with a column for each plan."""
    headings = (Column(first), *columns("number", *(one.label for one in plans)))
    return Table(caption, headings, rows, sortable=False)
