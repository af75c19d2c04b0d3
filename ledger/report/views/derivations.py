"""What PyTorch says of the plan's derivations: the nearest record of `ledger verify`, as a sentence and a table."""

from __future__ import annotations

from dataclasses import dataclass
from shlex import join
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.evidence import verification_records as records
from ledger.evidence.verdicts import DIFFERS, EQUAL, EXPLAINED, UNCHECKED, WITHIN, worst
from ledger.report.views.parts import DASH, Cell, Column, Report, Table, amount, columns, number_cell
from ledger.spec.bounded_files import YAML

if TYPE_CHECKING:
    from ledger.evidence.verdicts import ComparedFigure
    from ledger.evidence.verification import Verification
    from ledger.spec.plan import Plan

STATUS = {EQUAL: "pass", EXPLAINED: "pass", WITHIN: "pass", DIFFERS: "fail", UNCHECKED: "warn"}
PRINTED = 14  # rows on paper: counts and peaks; transfers are in the page
COLUMNS = (
    *(Column("figure", "code"), *columns("number", "predicted", "found", "error")),
    *(Column("allowed"), Column("outcome", "status"), Column("because")),
)


@dataclass(frozen=True)
class DerivationsView:
    """`sentence` says against what the plan's derivations were checked, `table` every figure; None where none is.

    `judged_as`: what the judge was asked instead of what the plan says, in sentences.
    """

    sentence: str
    table: Table | None
    command: str
    judged_as: tuple[str, ...] = ()


def derivations(report: Report) -> DerivationsView:
    """The record of this very plan, else of its model in another layout; a plan without one says so."""
    plan = report.compiled.plan
    record = records.nearest(plan)
    if record is None:
        reason = "No record in the library has PyTorch as the judge of this model's derivations"
        return DerivationsView(
            f"{reason}; this makes one:", None, join(["ledger", "verify", _plan_as_typed(plan), "--record"])
        )
    return DerivationsView(
        _sentence(record, _subject(record, plan)), _table(record), record.origin.command, record.judged_as
    )


def _subject(record: Verification, plan: Plan) -> str:
    """Whose derivations the record is about."""
    if record.digest == plan.judged_digest:
        return "This plan's derivations"
    if record.name == plan.name:
        return "Derivations of this plan in an earlier state"
    return f"Derivations of this model in another plan ({record.name})"


def _plan_as_typed(plan: Plan) -> str:
    """The plan as a command can name it: the file it was read from, else what it is called."""
    stated = plan.origins.get("plan")
    file = stated.where.file if stated else ""
    return file if file.endswith(YAML) else plan.name


def _sentence(record: Verification, subject: str) -> str:
    counts = record.counts
    equal, within = counts[EQUAL] + counts[EXPLAINED], counts[WITHIN]
    furthest = worst(record.verdicts)
    parts = [f"{equal} figures are equal once differences of known cause are taken off"]
    parts += [f"{within} within tolerance"] if within else []
    parts += [f"{counts[DIFFERS]} disagree"] if counts[DIFFERS] else []
    parts += [f"{counts[UNCHECKED]} not checked"] if counts[UNCHECKED] else []
    far = f" The largest difference, known causes included, is {numbers.shift(furthest.error)}." if furthest else ""
    return f"{subject} were checked against {record.origin.judge}: {'; '.join(parts)}.{far}"


def _table(record: Verification) -> Table:
    rows = tuple(_row(verdict) for verdict in record.verdicts)
    return Table(f"Derivations against {record.origin.judge}", COLUMNS, rows, PRINTED, name="derivations")


def _row(verdict: ComparedFigure) -> tuple[Cell, ...]:
    status = Cell(verdict.status, status=STATUS[verdict.status])
    if verdict.predicted is None or verdict.found is None:
        return Cell(verdict.account), *(DASH,) * 4, status, Cell(verdict.skipped)
    equal = verdict.difference == 0
    causes = "; ".join(f"{cause.name}: {numbers.written(cause.amount, verdict.unit)}" for cause in verdict.causes)
    return (
        Cell(verdict.account),
        _amount(verdict.predicted, verdict.unit),
        _amount(verdict.found, verdict.unit),
        number_cell("equal" if equal else numbers.shift(verdict.error), verdict.error),
        Cell(verdict.tolerance.title),
        status,
        Cell(causes),
    )


def _amount(value: numbers.Number, unit: str) -> Cell:
    """A quantity, or a count with every digit."""
    return amount(value, unit) if unit else number_cell(numbers.integer(int(value)), value)
