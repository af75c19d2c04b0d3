"""The sections of a comparison, ready to print on the screen, on paper and as Markdown, with their charts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ledger import numbers
from ledger.books.time import TITLES
from ledger.report.charts.memory import StackedBar, StackPart, plan_bars
from ledger.report.compare.choice import PlanComparison, backticked, choice_sentences, enumeration
from ledger.report.compare.plans import MEASURES, ComparedPlan, PlanDifference
from ledger.report.compare.record import NONE, AlignedRow, aligned_rows, input_rows
from ledger.report.movements import amounts_by_cause
from ledger.report.pull_request.pairs import Flip
from ledger.report.seals.seal import installed_compiler
from ledger.report.svg import MEMORY_ORDER
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
    text_cells,
)
from ledger.spec.version import short_digest

JOINTLY = "jointly"
HEADS = {"dollars": "cost", "run_seconds": "calendar", "step_seconds": "step", "bytes": "memory"}
OF_NO_RUN = "Days and dollars are left out, as {} cannot run as planned."
TURNED = {  # a word of the verdict that holds or not: in full, and of the other plan
    ("fits", True): ("fits", "does"),
    ("fits", False): ("does not fit", "does not"),
    ("headroom", True): ("keeps its headroom", "does"),
    ("headroom", False): ("does not keep its headroom", "does not"),
}
MANY = 5  # plans from which their columns are narrow


@dataclass(frozen=True)
class DifferenceView:
    """A plan against the first, by cause, and what is to be known of that."""

    title: str
    table: Table | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ComparisonView:
    """A comparison in the order of a review: choice, aligned plans, memory, time, differences, inputs, origin.

    `asked`: what the plans say that is to be decided.
    """

    title: str
    asked: tuple[str, ...]
    labels: tuple[str, ...]
    sentences: tuple[str, ...]
    is_chosen: bool
    differing: tuple[AlignedRow, ...]
    alike: tuple[tuple[str, str], ...]
    figures: tuple[tuple[str, ChartAndTable], ...]
    differences: tuple[DifferenceView, ...]
    inputs: tuple[AlignedRow, ...]
    origin: Table
    compiler: str

    @property
    def width(self) -> str:
        """How much room a column has: that of `two` plans, of `few`, or of `many`."""
        return "two" if len(self.labels) == 2 else "few" if len(self.labels) < MANY else "many"


def comparison_view(comparison: PlanComparison) -> ComparisonView:
    """What a comparison shows."""
    plans = comparison.plans
    labels = tuple(compared.label for compared in plans)
    compiler = installed_compiler()
    digests = f"program {short_digest(compiler.program)}, library {short_digest(compiler.library)}"
    rows = aligned_rows(plans)
    figures = (("Does it fit?", memory_figure(plans)), ("How long is a step?", step_figure(plans)))
    return ComparisonView(
        title=f"{enumeration(labels)} side by side",
        asked=tuple(dict.fromkeys(plan.decision for compared in plans if (plan := compared.compiled.plan).decision)),
        labels=labels,
        sentences=choice_sentences(comparison.choice),
        is_chosen=comparison.choice.chosen is not None,
        differing=tuple(row for row in rows if not row.is_alike),
        alike=tuple((row.name, said_once(row)) for row in rows if row.is_alike),
        figures=tuple((title, figure) for title, figure in figures if figure),
        differences=tuple(difference_views(comparison)),
        inputs=input_rows(plans, comparison.differences),
        origin=origin_table(plans),
        compiler=f"ledger {compiler.version}, {digests}",
    )


def said_once(row: AlignedRow) -> str:
    """What all plans say, with its small print."""
    text, note = row.cells[0].text_and_note
    return f"{text} ({note})" if note else text


def difference_views(comparison: PlanComparison) -> Iterator[DifferenceView]:
    """The other plans against the first."""
    first, *other_plans = comparison.plans
    for plan, difference in zip(other_plans, comparison.differences, strict=True):
        idle = [compared.label for compared in (first, plan) if not compared.runs]
        left_out = [OF_NO_RUN.format(enumeration([*map(backticked, idle)]))] if idle else []
        table = cause_table(difference, first.label)
        unchanged = [] if difference.inputs else ["No input differs."]
        turned = [turned_text(plan.label, first.label, flip) for flip in difference.flips]
        notes = (*unchanged, *turned, *left_out, *(f"{note}." for note in difference.notes))
        yield DifferenceView(f"{plan.label} against {first.label}", table, notes)


def turned_text(label: str, first: str, flip: Flip) -> str:
    """A word of the verdict in which a plan differs from the first, and the inputs that turn it."""
    by = enumeration([backticked(name) for name in flip.inputs]) if flip.inputs else "several inputs together"
    said, opposite = (TURNED[flip.word, holds] for holds in (flip.holds, not flip.holds))
    return f"`{label}` {said[0]}, and `{first}` {opposite[1]}: by {by}."


def cause_table(difference: PlanDifference, first: str) -> Table | None:
    """What each cause adds or takes away, and the whole change; None where nothing moves."""
    by_name = {movement.measure: movement for movement in difference.movements}
    measures = [measure for measure in MEASURES if measure.name in by_name]
    if not any(movement.causes or movement.by for movement in difference.movements):
        return None
    values = {change.path: f"{change.old} → {change.new}" for change in difference.inputs}
    rows = [
        (
            Cell(" with ".join(inputs) or JOINTLY, note="; ".join(values[path] for path in inputs if path in values)),
            *(Cell(measure.signed(by[measure.name]) if by.get(measure.name) else NONE) for measure in measures),
        )
        for inputs, by in amounts_by_cause(difference.movements).items()
    ]
    total_row = (
        Cell("in all"),
        *(Cell(signed_change(measure.signed(by_name[measure.name].by))) for measure in measures),
    )
    headings = (Column("cause", "place"), *columns("number", *(HEADS[measure.name] for measure in measures)))
    return Table(f"What parts {difference.label} from {first}", headings, (*rows, total_row), sortable=False)


def signed_change(text: str) -> str:
    """A whole change as it is written; a dash where nothing moved."""
    return text if set(text) & set("123456789") else NONE


def origin_table(plans: Sequence[ComparedPlan]) -> Table:
    """Where each plan was read, what was set over it, and the digest of all that it resolved to."""
    headings = (
        Column("plan", "code"),
        Column("file", "place"),
        Column("set over it", "place"),
        Column("digest", "code"),
    )
    rows = []
    for compared in plans:
        plan = compared.compiled.plan
        overrides = ", ".join(plan.reading.overrides) if plan.reading else ""
        rows.append(text_cells(compared.label, compared.spec, overrides or NONE, short_digest(plan.digest)))
    return Table("What was compared", headings, tuple(rows), sortable=False)


# --- charts of memory and of a step, with their tables ---

COLOURS: Mapping[str, str] = {  # of parts of a step; others go by the axis whose transfers they are
    "tax": "slowed",
    "optimizer": "update",
    "launch": "launches",
}
TRANSFERS = "comm."


def memory_figure(plans: Sequence[ComparedPlan]) -> ChartAndTable | None:
    """What the fullest device of each plan holds at its peak, against what it has; None where none is known."""
    drawn = [plan for plan in plans if plan.is_known]
    if not drawn:
        return None
    stacks = [StackedBar(plan.label, reserved_parts(fullest_role(plan.compiled))) for plan in drawn]
    walls = [float(plan.compiled.totals["memory.capacity"]) for plan in drawn]
    names = {key: CATEGORIES[key][0] for key in MEMORY_ORDER} | {OVERHEAD[0]: OVERHEAD[1]}
    sums = [
        f"{plan.label} {numbers.size(stack.total)} of {numbers.size(wall)}"
        for plan, stack, wall in zip(drawn, stacks, walls, strict=True)
    ]
    chart = draw_chart(
        "Memory of the fullest device, at its peak",
        "Blue persists from step to step, orange comes and goes within one, grey lies outside the tensors. The line"
        " across a bar is what its device has.",
        lambda width: plan_bars(stacks, walls, "B", f"Memory of the fullest device: {'; '.join(sums)}.", width),
    )
    capacities = (Cell("capacity"), *(amount(plan.compiled.totals["memory.capacity"], "B") for plan in drawn))
    rows = (
        *part_rows(stacks, names, "B"),
        (Cell("reserved"), *(amount(stack.total, "B") for stack in stacks)),
        capacities,
    )
    return ChartAndTable(chart, plan_table("Memory by category", "category", drawn, rows))


def step_figure(plans: Sequence[ComparedPlan]) -> ChartAndTable | None:
    """What the step of each plan is spent on; None where no step is known."""
    drawn = [plan for plan in plans if plan.compiled.waterfall]
    if not drawn:
        return None
    stacks = [
        StackedBar(
            plan.label,
            tuple(StackPart(colour_of(part.name), part.title, part.seconds) for part in plan.compiled.waterfall),
        )
        for plan in drawn
    ]
    names = {colour_of(name): title for name, title in TITLES.items()}
    sums = [f"{plan.label} {numbers.duration(stack.total)}" for plan, stack in zip(drawn, stacks, strict=True)]
    chart = draw_chart(
        "Time of a step",
        "Seconds on the critical path: blue computes, orange waits for transfers, grey waits for launches and other "
        "stages.",
        lambda width: plan_bars(stacks, (), "s", f"Time of a step: {'; '.join(sums)}.", width),
    )
    rows = (*part_rows(stacks, names, "s"), (Cell("a step"), *(amount(stack.total, "s") for stack in stacks)))
    return ChartAndTable(chart, plan_table("Time of a step by what it is spent on", "part", drawn, rows))


def colour_of(part: str) -> str:
    """The colour of a part of a step, so that it has the same in every plan."""
    return COLOURS.get(part, part.removeprefix(TRANSFERS))


def part_rows(stacks: Sequence[StackedBar], names: Mapping[str, str], unit: str) -> tuple[tuple[Cell, ...], ...]:
    """A row for each part that any plan has."""
    amounts = [{part.colour: part.amount for part in stack.parts} for stack in stacks]
    return tuple(
        (
            Cell(name, colour=colour),
            *(amount(by_colour[colour], unit) if by_colour.get(colour) else DASH for by_colour in amounts),
        )
        for colour, name in names.items()
        if any(by_colour.get(colour) for by_colour in amounts)
    )


def plan_table(caption: str, first: str, plans: Sequence[ComparedPlan], rows: tuple[tuple[Cell, ...], ...]) -> Table:
    """A table with a column for each plan."""
    headings = (Column(first), *columns("number", *(plan.label for plan in plans)))
    return Table(caption, headings, rows, sortable=False)
