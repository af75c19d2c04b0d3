"""What stands behind the numbers: checks, calibrations, and what is assumed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.report.views.derivations import Derivations, derivations
from ledger.report.views.nearby import NearbyView, microbenchmarks, published_runs
from ledger.report.views.parts import Cell, Column, Comparison, Report, Table, share, slowest

if TYPE_CHECKING:
    from ledger.books.results import Compiled
    from ledger.spec.plan import Curve, Plan

REGIMES = {"burst": "short bursts", "sustained": "sustained load"}


@dataclass(frozen=True)
class EvidenceView:
    """Checks and calibrations with their errors; `uncalibrated` names what only data sheets price.

    `derivations`: what PyTorch says of what follows from shapes alone; `nearby`: what measurements of kernels and of
    whole runs say of what is priced.
    """

    checks: Table | None
    calibrations: Table | None
    uncalibrated: tuple[str, ...]
    share: str
    summary: str
    derivations: Derivations
    nearby: tuple[NearbyView, ...]


def evidence(report: Report) -> EvidenceView:
    """What was checked and measured, and what was not."""
    compiled = report.compiled
    open_kinds = uncalibrated(compiled)
    return EvidenceView(
        check_table(report),
        calibration_table(used(compiled)),
        open_kinds,
        numbers.percent(compiled.verdict.by_data_sheet),
        compiled.verdict.evidence,
        derivations(report),
        (published_runs(report), microbenchmarks(report)),
    )


def uncalibrated(compiled: Compiled) -> tuple[str, ...]:
    """Kinds of kernel that only a data sheet prices."""
    if not compiled.roles:
        return ()
    return tuple(sorted({kernel.kind for kernel in slowest(compiled).kernels if not kernel.calibrated}))


def used(compiled: Compiled) -> tuple[Curve, ...]:
    """The fits that can price a kernel of this plan."""
    kinds = {kernel.kind for role in compiled.roles for kernel in role.kernels}
    widths = {0, *(group.attention.head_dim for group in compiled.plan.model.groups)}
    return tuple(
        curve
        for curve in compiled.plan.accelerator.calibration
        if curve.head_dim in widths and any(f"{kind}.".startswith(f"{curve.what}.") for kind in kinds)
    )


def check_table(report: Report) -> Table | None:
    """Predicted against found."""
    columns = (
        Column("what", "code"),
        Column("predicted", "number"),
        Column("found", "number"),
        Column("error", "number"),
        Column("allowed", "number"),
        Column("outcome", "status"),
        Column("found by"),
    )
    rows = tuple(check_row(check) for check in report.checks)
    return Table("Predicted against found", columns, rows) if rows else None


def check_row(check: Comparison) -> tuple[Cell, ...]:
    """One comparison; equal counts say so."""
    error = share(check.predicted - check.found, check.found)
    passed = abs(error) <= check.tolerance
    exactly = check.predicted == check.found
    return (
        Cell(check.account),
        Cell(numbers.written(check.predicted, check.unit), numbers.machine(check.predicted)),
        Cell(numbers.written(check.found, check.unit), numbers.machine(check.found)),
        Cell("equal" if exactly else numbers.shift(error), numbers.machine(error)),
        Cell(numbers.percent(check.tolerance) if check.tolerance else "none"),
        Cell("agrees" if passed else "disagrees", status="pass" if passed else "fail"),
        Cell(check.origin),
    )


def calibration_table(curves: tuple[Curve, ...]) -> Table | None:
    """Every fit behind the prices, with its error."""
    columns = (
        Column("what is priced", "code"),
        Column("error", "number"),
        Column("bias", "number"),
        Column("regime"),
        Column("holds for"),
        Column("source"),
    )
    rows = tuple(
        (
            Cell(curve.what),
            Cell(numbers.percent(curve.error), numbers.machine(curve.error)),
            Cell(numbers.change(curve.bias), numbers.machine(curve.bias)) if curve.bias else Cell("–"),
            Cell(REGIMES.get(curve.regime, curve.regime)),
            Cell(region(curve)),
            Cell(curve.source, note=f"held out: {curve.held_out}" if curve.held_out else ""),
        )
        for curve in curves
    )
    return Table("Calibrations and their errors", columns, rows, 24) if rows else None


def region(curve: Curve) -> str:
    """Where a fit holds."""
    parts = [curve.region]
    parts += [f"{curve.ranks} ranks"] if curve.ranks else []
    parts += [f"head width {curve.head_dim}"] if curve.head_dim else []
    return ", ".join(part for part in parts if part) or "any size"


def assumptions(report: Report) -> Table:
    """What nothing measured stands behind."""
    stated = (row for row in assumed(report.compiled.plan) if row[1])
    rows = tuple(tuple(Cell(text) for text in row) for row in stated)
    return Table(
        "What nothing measured stands behind",
        (Column("assumption"), Column("value"), Column("used for")),
        rows,
        sortable=False,
    )


def assumed(plan: Plan) -> tuple[tuple[str, str, str], ...]:
    """Every assumption with its value, empty where the plan makes none, and what it is used for."""
    given, stack, failures = plan.assumptions, plan.stack, plan.cluster.failure_rate
    price = given.price
    overlap = stack.overlap
    return (
        ("utilisation", numbers.percent(given.mfu), "the napkin estimate only"),
        ("price", f"{numbers.money(price.per_device_hour)} per device and hour" if price else "", "cost"),
        ("date of the price", price.date if price else "", "prices change"),
        ("headroom policy", given.headroom, "the warning before memory runs out"),
        ("reserved over allocated", numbers.plain(stack.fragmentation), "fragmentation of the allocator"),
        ("outside the allocator", numbers.size(stack.context) if stack.context else "", "device context and libraries"),
        ("overlap, tensor", overlap.tensor, "what hides tensor-parallel communication"),
        ("overlap, data", overlap.data, "what hides the reduction of gradients"),
        ("overlap, gathers", overlap.gather, "what hides the gathers of weights"),
        ("overlap, pipeline", overlap.pipeline, "what hides sends between stages"),
        ("overlap, context", overlap.context, "what hides blocks that go around a ring"),
        ("overlap, experts", overlap.expert, "what hides tokens to and from experts"),
        ("launch of a kernel", stated_time(stack.launch), "small kernels in eager mode"),
        ("failures", f"{numbers.plain(failures * 86400)} per device and day" if failures else "", "goodput"),
        ("checkpoint every", stated_time(given.checkpoint_interval), "goodput"),
        ("a checkpoint takes", stated_time(given.checkpoint_cost), "goodput"),
        ("a restart takes", stated_time(given.restart_time), "goodput"),
        ("power usage effectiveness", numbers.plain(given.power_usage_effectiveness), "energy"),
    )


def stated_time(seconds: float | None) -> str:
    """A duration that a plan may leave open."""
    return numbers.duration(seconds) if seconds else ""
