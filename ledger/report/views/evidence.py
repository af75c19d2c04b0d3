"""What stands behind the numbers: derivations, measurements, calibrations, and what is assumed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import join
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.evidence import verification as records
from ledger.evidence.verdicts import DIFFERS, EQUAL, EXPLAINED, UNCHECKED, WITHIN, worst
from ledger.model.causes import HostTransfer, HostWork, Transfer
from ledger.report.views.nearby import NearbyView, basis_sentence, microbenchmarks, whole_runs
from ledger.report.views.parts import (
    DASH,
    Cell,
    Column,
    Report,
    Table,
    amount,
    columns,
    number_cell,
    slowest_role,
    text_cells,
)
from ledger.report.views.work import transfer_kinds
from ledger.spec.headroom import headroom_words
from ledger.spec.inputs import origin
from ledger.spec.kernel_classes import KernelClass
from ledger.spec.operations import BEST
from ledger.spec.sources import YAML

if TYPE_CHECKING:
    from ledger.books.compiled import Compiled
    from ledger.evidence.verdicts import ComparedFigure
    from ledger.evidence.verification import Verification
    from ledger.spec.plan import Curve, Plan


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
    sentence = _derivations_sentence(record, _subject(record, plan))
    rows = tuple(_figure_row(verdict) for verdict in record.verdicts)
    table = Table(f"Derivations against {record.origin.judge}", COLUMNS, rows, PRINTED, name="derivations")
    return DerivationsView(sentence, table, record.origin.command, record.judged_as)


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


def _derivations_sentence(record: Verification, subject: str) -> str:
    counts = record.counts
    equal, within = counts[EQUAL] + counts[EXPLAINED], counts[WITHIN]
    furthest = worst(record.verdicts)
    parts = [f"{equal} figures are equal once differences of known cause are taken off"]
    parts += [f"{within} within tolerance"] if within else []
    parts += [f"{counts[DIFFERS]} disagree"] if counts[DIFFERS] else []
    parts += [f"{counts[UNCHECKED]} not checked"] if counts[UNCHECKED] else []
    far = f" The largest difference, known causes included, is {numbers.shift(furthest.error)}." if furthest else ""
    return f"{subject} were checked against {record.origin.judge}: {'; '.join(parts)}.{far}"


def _figure_row(verdict: ComparedFigure) -> tuple[Cell, ...]:
    status = Cell(verdict.status, status=STATUS[verdict.status])
    if verdict.predicted is None or verdict.found is None:
        return Cell(verdict.account), *(DASH,) * 4, status, Cell(verdict.skipped)
    equal = verdict.difference == 0
    causes = "; ".join(f"{cause.name}: {numbers.amount_text(cause.amount, verdict.unit)}" for cause in verdict.causes)
    return (
        Cell(verdict.account),
        _figure_cell(verdict.predicted, verdict.unit),
        _figure_cell(verdict.found, verdict.unit),
        number_cell("equal" if equal else numbers.shift(verdict.error), verdict.error),
        Cell(verdict.tolerance.title),
        status,
        Cell(causes),
    )


def _figure_cell(value: numbers.Number, unit: str) -> Cell:
    """A quantity, or a count with every digit."""
    return amount(value, unit) if unit else number_cell(numbers.integer(int(value)), value)


OVERLAPS = (
    ("tensor", "tensor", "what runs beside tensor-parallel communication"),
    ("data", "data", "what runs beside the reduction of gradients"),
    ("gather", "gathers", "what runs beside the gathers of weights"),
    ("pipeline", "pipeline", "what runs beside sends between stages"),
    ("context", "context", "what runs beside blocks that go around a ring"),
    ("expert", "experts", "what runs beside tokens to and from experts"),
    ("host", "host", "what runs beside copies to and from host memory"),
)
REGIMES = {"burst": "short bursts", "sustained": "sustained load"}


@dataclass(frozen=True)
class EvidenceView:
    """Calibrations with their errors; `uncalibrated` names what only data sheets price.

    `derivations`: what PyTorch says of what follows from shapes alone; `runs` and `kernels`: what was measured near the
    plan; `rests`: what the prices rest on.
    """

    calibrations: Table | None
    uncalibrated: tuple[str, ...]
    rests: str
    derivations: DerivationsView
    runs: NearbyView
    kernels: NearbyView


def evidence(report: Report) -> EvidenceView:
    """What was checked and measured, and what was not."""
    compiled = report.compiled
    return EvidenceView(
        calibration_table(usable_curves(compiled)),
        uncalibrated_kinds(compiled),
        basis_sentence(compiled),
        derivations(report),
        whole_runs(report),
        microbenchmarks(report),
    )


def uncalibrated_kinds(compiled: Compiled) -> tuple[str, ...]:
    """Kinds of kernel that only a data sheet prices."""
    if not compiled.roles:
        return ()
    return tuple(sorted({str(kernel.kind) for kernel in slowest_role(compiled).kernels if not kernel.calibrated}))


def usable_curves(compiled: Compiled) -> tuple[Curve, ...]:
    """The fits that can price a kernel of this plan."""
    kinds = {_price_class(kernel.kind) for role in compiled.roles for kernel in role.kernels}
    widths = {0, *(group.attention.head_dim for group in compiled.plan.model.groups)}
    return tuple(
        curve
        for curve in compiled.plan.accelerator.calibration
        if curve.head_dim in widths and any(_is_price_of(curve.what, kind) for kind in kinds)
    )


def _price_class(kind: KernelClass | Transfer | HostTransfer | HostWork) -> KernelClass:
    """The class whose curve prices a kernel or a transfer."""
    if isinstance(kind, HostTransfer | HostWork):
        return kind.price_class
    return KernelClass(kind.collective) if isinstance(kind, Transfer) else kind


def _is_price_of(curve: KernelClass, kind: KernelClass) -> bool:
    """Whether a curve is of this class, or of all passes or all variants of it."""
    return curve in (kind, replace(kind, pass_=""), KernelClass(kind.family))


def calibration_table(curves: tuple[Curve, ...]) -> Table | None:
    """Every fit behind the prices, with its error."""
    headings = (
        *(Column("what is priced", "code"), *columns("number", "error", "bias")),
        *(*columns("text", "regime", "holds for"), Column("source", "source")),
    )
    alike: dict[tuple[str, str, str, str], list[Curve]] = {}
    for curve in curves:
        alike.setdefault((str(curve.what), curve.regime, curve.source, curve.held_out), []).append(curve)
    rows = tuple(calibration_row(group) for group in alike.values())
    return Table("Prices that were fitted, and their errors", headings, rows, 12) if rows else None


def calibration_row(curves: Sequence[Curve]) -> tuple[Cell, ...]:
    """Fits of one kernel class from one source, which differ in where they hold."""
    first = curves[0]
    errors, biases = [curve.error for curve in curves], [curve.bias for curve in curves]
    return (
        Cell(str(first.what)),
        number_cell(span_text([numbers.percent(error) for error in sorted(errors)]), max(errors)),
        number_cell(span_text([numbers.change(bias) for bias in sorted(biases)]), max(biases)) if any(biases) else DASH,
        Cell(REGIMES.get(first.regime, first.regime)),
        Cell(region_text(curves)),
        Cell(first.source, note=f"held out: {first.held_out}" if first.held_out else ""),
    )


def span_text(ordered: Sequence[str]) -> str:
    """The first and the last of texts in order, or the one that all are."""
    return ordered[0] if ordered[0] == ordered[-1] else f"{ordered[0]} to {ordered[-1]}"


def region_text(curves: Sequence[Curve]) -> str:
    """Where the fits of one source hold: their regions, the numbers of ranks and the widths of heads together."""
    regions = list(dict.fromkeys(curve.region for curve in curves if curve.region))
    ranks = [numbers.integer(rank) for rank in sorted({curve.ranks for curve in curves if curve.ranks})]
    widths = [numbers.integer(width) for width in sorted({curve.head_dim for curve in curves if curve.head_dim})]
    parts = [numbers.regrouped("; ".join(regions)), f"{' or '.join(ranks)} ranks" if ranks else ""]
    parts += [f"head width {' or '.join(widths)}"] if widths else []
    return ", ".join(part for part in parts if part) or "any size"


def assumptions(report: Report) -> Table:
    """What the plan takes for granted: choices and estimates that decide a figure."""
    plan, totals = report.compiled.plan, report.compiled.totals
    stated = served_assumptions(plan) if plan.serve else assumption_rows(plan, totals)
    rows = tuple(text_cells(*row) for row in stated if row[1])
    headings = (Column("assumption"), Column("value", "source"), Column("used for"))
    return Table("What the plan takes for granted", headings, rows, sortable=False)


def served_assumptions(plan: Plan) -> tuple[tuple[str, str, str], ...]:
    """Every assumption of a plan that serves with its value, empty where it makes none, and what it is used for."""
    stated, stack, serve = plan.assumptions, plan.stack, plan.serve
    price, offer = stated.price, origin(plan, "assumptions.price.per_device_hour")
    yielded = f"{numbers.plain(serve.speculative)} tokens" if serve else ""
    return (
        ("lengths", "prompts and outputs do not depend on each other", "cache, and what attention reads"),
        ("routing", "all experts are chosen alike often", "experts that a pass reads"),
        ("a step of decoding yields", yielded, "drafts that are accepted, a stated factor"),
        ("price", numbers.offer(price.per_device_hour, plan.accelerator.name, price.date) if price else "", "cost"),
        ("source of the price", offer.source if price and offer else "", "cost; prices change"),
        ("memory to keep free", headroom_words(stated.headroom), "the warning that little stays free"),
        ("outside the allocator", numbers.size(stack.context) if stack.context else "", "device context and libraries"),
        ("launch of a kernel", said_or_nothing(stack.launch), "passes without CUDA graphs"),
    )


def assumption_rows(plan: Plan, totals: Mapping[str, numbers.Number]) -> tuple[tuple[str, str, str], ...]:
    """Every assumption with its value, empty where the plan makes none, and what it is used for."""
    stated, stack = plan.assumptions, plan.stack
    price, offer = stated.price, origin(plan, "assumptions.price.per_device_hour")
    overlap, kinds = stack.overlap, transfer_kinds(plan)
    return (
        ("utilisation", numbers.percent(stated.mfu), "the estimate by hand alone, 6ND"),
        ("price", numbers.offer(price.per_device_hour, plan.accelerator.name, price.date) if price else "", "cost"),
        ("source of the price", offer.source if price and offer else "", "cost; prices change"),
        ("memory to keep free", headroom_words(stated.headroom), "the warning that little stays free"),
        (
            "memory reserved",
            f"{numbers.plain(stack.fragmentation)} times what is allocated",
            "fragmentation of the allocator",
        ),
        ("outside the allocator", numbers.size(stack.context) if stack.context else "", "device context and libraries"),
        *((f"overlap, {name}", getattr(overlap, kind) if kind in kinds else "", use) for kind, name, use in OVERLAPS),
        ("launch of a kernel", said_or_nothing(stack.launch), "small kernels in eager mode"),
        *operation_rows(plan, totals),
        ("power of the site", f"{numbers.plain(stated.power_usage_effectiveness)} times the devices' power", "energy"),
    )


def operation_rows(plan: Plan, totals: Mapping[str, numbers.Number]) -> Iterator[tuple[str, str, str]]:
    """What a run is said to lose beyond its steps, and what its power is; empty where nothing is said."""
    operations, calendar = plan.operations, "the calendar"
    best = ", the best" if operations.checkpoint_interval == BEST else ""
    yield "failures of a device", said_or_nothing(operations.failure_rate, "/s"), calendar
    every = said_or_nothing(totals.get("checkpoint.interval"))
    yield "a checkpoint every", every + best if every else "", calendar
    yield "a checkpoint stops the run for", said_or_nothing(totals.get("checkpoint.time")), calendar
    yield "a restart takes", said_or_nothing(operations.restart_time), calendar
    yield "an evaluation every", said_or_nothing(operations.evaluation_interval), calendar
    yield "an evaluation stops the run for", said_or_nothing(operations.evaluation_time), calendar
    yield "warm-up", said_or_nothing(operations.warm_up), calendar
    yield (
        "use of the reservation",
        numbers.percent(operations.utilisation) if operations.utilisation < 1 else "",
        calendar,
    )
    yield "measured power of a device", numbers.si(operations.power, "W") if operations.power else "", "energy"
    intensity = operations.grid_intensity
    yield (
        "carbon intensity of the grid",
        numbers.amount_text(intensity, "kg/J") if intensity is not None else "",
        "carbon",
    )


def said_or_nothing(value: numbers.Number | None, unit: str = "s") -> str:
    """What a plan may leave open."""
    return numbers.amount_text(value, unit) if value else ""
