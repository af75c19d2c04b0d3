"""The plan, every value with the place it was written and the publication it was taken from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.report.views.glance import glance
from ledger.report.views.parts import Cell, Column, Report, Table, text_cells
from ledger.spec.paths import plan_path, row
from ledger.spec.paths import unit as base_unit
from ledger.spec.structures import EACH

if TYPE_CHECKING:
    from ledger.spec.plan import Origin, Plan
from ledger.spec.token_budget import TokensPerParameter

TINY = Decimal("0.001")  # below this a bare number is written with its power of ten
DIGITS = 4  # of a value that a person typed, so that 989.5 TFLOP/s stays what it is
PRINTED = 16  # values on paper, which has the plan as written attached
# How a value is written whose unit in the table of fields is not what people read.
UNITS = {"tokens": "token", "parameters": "1", "1": ""}
PERCENT = ("assumptions.mfu", "cluster.scaleout.efficiency")  # shares that people know as percentages
PARTS = (
    *("run", "parallelism", "recompute", "optimizer", "operations", "assumptions", "cluster", "precision", "kernels"),
    *("accelerator", "model", "stack"),
)
# Shown with the evidence or with the checks, or no part of the plan.
UNSHOWN = ("", EACH, "name")  # what the plan keeps nowhere, keeps entry by entry, or has in its paths
ELSEWHERE = ("plan", "decision", "accelerator.calibration", "accelerator.aliases", "expect.")


@dataclass(frozen=True)
class PlanView:
    """The plan at a glance, every value with its source, the sources by number, and the text with its overrides."""

    glance: tuple[tuple[str, str], ...]
    table: Table | None
    sources: tuple[str, ...]
    text: str
    digest: str
    overrides: tuple[str, ...]


def plan(report: Report) -> PlanView:
    """The plan with its sources."""
    chosen = report.compiled.plan
    ordered = sorted(chosen.origins.items(), key=lambda pair: part_rank(pair[0]))
    values = [
        (path, value, origin)
        for path, origin in ordered
        if not path.startswith(ELSEWHERE) and not path.endswith(".value") and (value := typed_value(path, chosen))
    ]
    sources = tuple(dict.fromkeys(origin.source for _, _, origin in values if origin.source))
    headings = (
        *(Column("value of", "code"), Column("value", "number")),
        *(Column("written at", "code"), Column("source", "tag")),
    )
    rows = tuple(
        (*text_cells(path, value, str(origin.where)), source_cell(origin, sources)) for path, value, origin in values
    )
    table = Table("Every value, where it was written and who published it", headings, rows, PRINTED) if rows else None
    text = report.seal.effective if report.seal else chosen.text
    overrides = report.seal.overrides if report.seal else ()
    return PlanView(glance(chosen), table, sources, text, chosen.digest, overrides)


def part_rank(path: str) -> int:
    """Where a part of the plan stands in the table: choices first, what they are made of last."""
    part = path.partition(".")[0]
    return PARTS.index(part) if part in PARTS else -1


def source_cell(origin: Origin, sources: tuple[str, ...]) -> Cell:
    """The number of a publication, or that a value was chosen."""
    if not origin.source:
        return Cell("choice", "0")
    number = sources.index(origin.source) + 1
    return Cell(f"source {number}", str(number))


def value_at(whole: object, path: str) -> object:
    """The value at a dotted path through attributes, keys, indices and names; None where the path ends early."""
    value: object | None = whole
    for name in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, tuple):
            by_name = (part for part in value if getattr(part, "name", None) == name)
            value = value[int(name)] if name.isdigit() and int(name) < len(value) else next(by_name, None)
        else:
            value = getattr(value, name, None)
    return value


def typed_value(path: str, chosen: Plan) -> str:
    """A value of the plan as a person would type it; empty for what is no single value."""
    stated = row(path)
    if stated is not None and stated.attribute in UNSHOWN:
        return ""
    value = value_at(chosen, plan_path(path))
    if isinstance(value, TokensPerParameter):
        return f"{value}: {typed_quantity(path, value.count)}"
    if is_dataclass(value):
        return str(getattr(value, "title", "") or getattr(value, "name", ""))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float | Fraction):
        return typed_quantity(path, value)
    return value if isinstance(value, str) else ""


def typed_quantity(path: str, value: float | Fraction) -> str:
    """A number of the plan in the unit of its field."""
    unit = "%" if path in PERCENT else UNITS.get(base_unit(path), base_unit(path))
    if unit in {"B/s", "FLOP/s", "B", "W"}:
        return numbers.trimmed(numbers.si(value, unit, DIGITS))
    if unit:
        return typed_amount(value, unit)
    if value == int(value):
        return numbers.integer(value)
    return numbers.plain(value, DIGITS) if numbers.magnitude(value) >= TINY else numbers.scientific(value)


def typed_amount(value: float | Fraction, unit: str) -> str:
    """A quantity without the zeros that nobody typed; money keeps its cents."""
    if unit == "token":
        return f"{numbers.trimmed(numbers.count(value))} tokens"
    text = numbers.written(value, unit)
    return text if unit == "USD" else numbers.trimmed(text)
