"""A difference of two plans in print: text, Markdown, a piece of HTML, and JSON; the verdict first."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ledger import numbers
from ledger.report.contract import json_number, json_number_or_none
from ledger.report.diff import Diff, TotalChange, total_group
from ledger.report.fitted_columns import aligned
from ledger.report.html import environment, markdown_environment
from ledger.report.movements import Attribution
from ledger.report.views.parts import Cell, Column, Table, text_cells
from ledger.units import unit_of

if TYPE_CHECKING:
    from ledger.books.results import Number
    from ledger.spec.inputs import Change

DIFF_SCHEMA = "ledger-diff/1"
SAME = "No difference."
NONE = "–"
BARELY = 0.0005  # shares below this are printed as nothing
UNDONE = 2.0  # shares above this say how small the change is, not what made it
LONGEST = 40  # formulas that are printed; JSON has all
CAPTIONS = {
    "": "What changes first",
    "comm": "Communication",
    "cost": "Cost and energy",
    "flops": "FLOPs",
    "host_link": "Link to the host",
    "kv_cache": "Keys and values",
    "serve": "Serving",
    "saved": "Saved for backward",
}


OUTPUT = (
    Column("total", "code"),
    Column("old", "number"),
    Column("new", "number"),
    Column("change", "number"),
    Column("relative", "number"),
    Column("caused by"),
)
INPUT = (Column("input", "code"), Column("old"), Column("new"), Column("old place"), Column("new place"))
FORMULA = (Column("account", "code"), Column("resource", "code"), Column("when"), Column("old"), Column("new"))


def as_text(diff: Diff, width: int = 0) -> str:
    """Plain columns for a log, or for a terminal of a `width`."""
    blocks = ["\n".join((title(diff), *verdict_lines(diff)))]
    blocks += ["\n".join((table.caption, *aligned_lines(table, width))) for table in tables(diff)]
    blocks += [f"{note}." for note in diff.notes]
    return "\n\n".join(blocks).replace(numbers.THIN, " ") + "\n"


def as_markdown(diff: Diff) -> str:
    """The difference as Markdown, for a pull request; no text of a plan is markup there."""
    return markdown_environment().get_template("diff.md").render(**_template_values(diff)).strip()


def as_html(diff: Diff) -> str:
    """A section to put into a page that has the report's stylesheet."""
    return environment().get_template("diff.html").render(screen=True, **_template_values(diff)).strip() + "\n"


def as_json(diff: Diff) -> str:
    """The record as a JSON text."""
    return json.dumps(record(diff), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


DIFF_FORMATS: Mapping[str, Callable[[Diff], str]] = {
    "text": as_text,
    "md": as_markdown,
    "json": as_json,
    "html": as_html,
}


def _template_values(diff: Diff) -> dict[str, Any]:
    """The values that both templates print."""
    return {
        "title": title(diff),
        "lead": verdict_lines(diff),
        "tables": tuple(tables(diff)),
        "notes": diff.notes,
    }


def title(diff: Diff) -> str:
    """Which plans are compared."""
    return diff.old if diff.old == diff.new else f"{diff.old} → {diff.new}"


def verdict_lines(diff: Diff) -> list[str]:
    """The changes of the verdict in sentences."""
    if diff.empty:
        return [SAME]
    lines = [f"{turn.part}: {turn.old} → {turn.new}" for turn in diff.verdict]
    return lines or ["The verdict is the same."]


def tables(diff: Diff) -> Iterator[Table]:
    """Outputs by group, then inputs, then formulas."""
    for name, outputs in groupby(diff.outputs, lambda output: total_group(output.key)):
        rows = tuple(output_row(output) for output in outputs)
        yield Table(CAPTIONS.get(name, name.capitalize()), OUTPUT, rows)
    if diff.inputs:
        yield Table("Inputs", INPUT, tuple(input_rows(diff.inputs)))
    if diff.formulas:
        printed = diff.formulas[:LONGEST]
        cut = f"Formulas, {len(printed)} of {len(diff.formulas)}" if len(printed) < len(diff.formulas) else "Formulas"
        texts = ((row.account, row.resource, row.when, row.old or NONE, row.new or NONE) for row in printed)
        yield Table(cut, FORMULA, tuple(text_cells(*row) for row in texts))


def output_row(output: TotalChange) -> tuple[Cell, ...]:
    """A total before and after, and why."""
    unit = unit_of(output.key)
    values = [NONE if value is None else numbers.amount_text(value, unit) for value in (output.old, output.new)]
    by = NONE if output.by is None else change_text(output.by, unit)
    relative = NONE if output.relative is None else numbers.change(output.relative)
    return Cell(output.key), Cell(values[0]), Cell(values[1]), Cell(by), Cell(relative), Cell(attribution_text(output))


def change_text(by: Number, unit: str) -> str:
    """An absolute change with its sign; that of a share is in points."""
    if unit == "USD":
        return numbers.signed_money(by)
    if unit == "%":
        return points(by)
    return numbers.signed(numbers.amount_text(by, unit))


def points(by: Number) -> str:
    """The change of a share, in hundredths of the whole."""
    return f"{numbers.change(by).rpartition(numbers.THIN)[0]} points"


def attribution_text(output: TotalChange) -> str:
    """The share of the change that each input makes, and what they make together; nothing where none is known.

    An input's share is the mean of what it does first and last: of two inputs those are their Shapley values, which
    leave nothing joint. Inputs that undo each other have amounts with signs, as shares of the little that is left say
    nothing.
    """
    if not output.causes:
        return ""
    change = output.by
    shares = [(" with ".join(cause.inputs), float(cause.mean / change) if change else 0.0) for cause in output.causes]
    shares.append(("jointly", 1 - sum(part for _, part in shares)))
    shares = [(name, part) for name, part in shares if abs(part) >= BARELY]
    if not change or any(abs(part) > UNDONE for _, part in shares):
        return ", ".join(amounts_by_cause(output))
    return ", ".join(f"{name} {numbers.percent(part)}" if len(shares) > 1 else name for name, part in shares)


def amounts_by_cause(output: TotalChange) -> Iterator[str]:
    """What each input adds or takes away, and what they do together; the amounts sum to the change."""
    unit = unit_of(output.key)
    for cause in output.causes:
        yield f"{' with '.join(cause.inputs)} {change_text(cause.mean, unit)}"
    largest = max(abs(float(cause.mean)) for cause in output.causes)
    if abs(float(output.joint)) > BARELY * largest:
        yield f"jointly {change_text(output.joint, unit)}"


def input_rows(inputs: Iterable[Change], indent: str = "") -> Iterator[tuple[Cell, ...]]:
    """The inputs with their places; below a part that was replaced, the values that differ."""
    for change in inputs:
        places = [str(origin.where) if origin else NONE for origin in (change.old_origin, change.new_origin)]
        yield Cell(indent + change.path), Cell(change.old), Cell(change.new), Cell(places[0]), Cell(places[1])
        yield from input_rows(change.parts, indent + "\u00a0\u00a0")


def aligned_lines(table: Table, width: int = 0) -> Iterator[str]:
    """The rows of a table under their columns, numbers to the right."""
    rows = [[column.title for column in table.columns], *([cell.text for cell in row] for row in table.rows)]
    numeric = {place for place, column in enumerate(table.columns) if column.kind == "number"}
    for line in (line for lines in aligned(rows, numeric, width) for line in lines):
        yield line.replace("\u00a0", " ")


# --- the JSON record ---


def record(diff: Diff) -> dict[str, Any]:
    """The published form of a difference."""
    return {
        "schema": DIFF_SCHEMA,
        "old": diff.old,
        "new": diff.new,
        "verdict": [{"what": turn.part, "old": turn.old, "new": turn.new} for turn in diff.verdict],
        "outputs": [output_record(output) for output in diff.outputs],
        "inputs": [input_record(change) for change in diff.inputs],
        "formulas": [vars(formula) for formula in diff.formulas],
        "notes": list(diff.notes),
    }


def output_record(output: TotalChange) -> dict[str, Any]:
    """A total in its base unit."""
    return {
        "total": output.key,
        "unit": unit_of(output.key),
        "old": json_number_or_none(output.old),
        "new": json_number_or_none(output.new),
        "change": json_number_or_none(output.by),
        "relative": output.relative,
        "causes": [cause_record(cause) for cause in output.causes],
        "joint": json_number_or_none(output.joint),
    }


def cause_record(cause: Attribution) -> dict[str, Any]:
    """What inputs did to a total."""
    return {
        "inputs": list(cause.inputs),
        "alone": json_number(cause.alone),
        "last": json_number(cause.last),
        "mean": json_number(cause.mean),
    }


def input_record(change: Change) -> dict[str, Any]:
    """An input with both places."""
    origins = {"old": change.old_origin, "new": change.new_origin}
    return {
        "path": change.path,
        "old": change.old,
        "new": change.new,
        **{f"{side}_where": str(origin.where) if origin else "" for side, origin in origins.items()},
        **{f"{side}_source": origin.source if origin else "" for side, origin in origins.items()},
        "parts": [input_record(part) for part in change.parts],
    }
