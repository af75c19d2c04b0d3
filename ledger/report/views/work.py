"""The roofline with every kernel, and what is sent between devices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.books.counts import peak
from ledger.books.overlap import rules_in_words
from ledger.model import dtypes
from ledger.model.causes import HostTransfer, Transfer
from ledger.report.charts import roofline as charts
from ledger.report.views.parts import (
    DASH,
    Cell,
    Chart,
    Column,
    Report,
    Table,
    amount,
    columns,
    draw_chart,
    share,
    slowest_role,
    total_cell,
    whole_number,
)
from ledger.spec.kernel_classes import matmul
from ledger.spec.parallelism import AXES

if TYPE_CHECKING:
    from ledger.books.compiled import Compiled
    from ledger.books.results import KernelTime
    from ledger.spec.plan import Accelerator, Plan

KERNEL_COLUMNS = (
    *(Column("kernel", "code"), Column("pass")),
    *columns("number", "times", "intensity", "reaches", "one takes", "share"),
    *(Column("limit", "tag"), Column("fit error", "number")),
)


@dataclass(frozen=True)
class RooflineView:
    """The chart, the table of kernels, and how much of the time is priced by data sheets alone."""

    chart: Chart | None
    table: Table
    ridge: str
    uncalibrated: str


def roofline(report: Report) -> RooflineView | None:
    """Every kernel of the slowest kind of device; None where only a parameter count is known."""
    compiled = report.compiled
    if not any(role.kernels for role in compiled.roles):
        return None
    role, plan = slowest_role(compiled), compiled.plan
    kernels = [kernel for kernel in role.kernels if not kernel.payload and kernel.seconds]
    all_seconds = total_seconds(kernels)
    return RooflineView(
        roofline_figure(kernels, plan, all_seconds),
        kernel_table(kernels, all_seconds, role.name if len(compiled.roles) > 1 else ""),
        numbers.intensity(peak(plan) / plan.accelerator.bandwidth),
        numbers.percent(share(total_seconds(k for k in kernels if not k.calibrated), all_seconds)),
    )


def total_seconds(kernels: Iterable[KernelTime]) -> float:
    """What kernels take in all, one after another."""
    return sum(kernel.seconds * kernel.times for kernel in kernels)


def roofline_figure(kernels: Sequence[KernelTime], plan: Plan, all_seconds: float) -> Chart | None:
    """Kernels that compute and move something; the others have no place on these axes."""
    points = merge_points([kernel for kernel in kernels if kernel.flops and kernel.bytes], all_seconds)
    if not points:
        return None
    roofs = device_roofs(plan.accelerator, dtypes.rate(plan.precision.multiplies))
    alt = (
        f"Roofline of {plan.accelerator.title}: {len(kernels)} kernels; most time goes to "
        f"{max(points, key=lambda point: point.share).label}."
    )
    return draw_chart(
        "Kernels under the roof",
        "Each circle is a kernel, or several at one place; its area is their share of the time.",
        lambda width: charts.chart(points, roofs, alt, width),
    )


def merge_points(kernels: Sequence[KernelTime], all_seconds: float) -> list[charts.KernelPoint]:
    """One point per place on the axes; it is named after the longest of the kernels that coincide there."""
    places: dict[tuple[float, float, str], list[KernelTime]] = {}
    for kernel in sorted(kernels, key=lambda kernel: -kernel.seconds * kernel.times):
        place = (round(math.log10(kernel.flops / kernel.bytes), 2), round(math.log10(kernel.flops / kernel.seconds), 2))
        places.setdefault((*place, kernel.bound), []).append(kernel)
    return [kernel_point(group, all_seconds) for group in places.values()]


def kernel_point(group: Sequence[KernelTime], all_seconds: float) -> charts.KernelPoint:
    """The kernels of one place, at the values of the first."""
    first = group[0]
    name = f"{first.account.partition('/')[2] or first.account}, {first.when}"
    return charts.KernelPoint(
        f"{name}, and {len(group) - 1} more" if len(group) > 1 else name,
        first.flops / first.bytes,
        first.flops / first.seconds,
        share(total_seconds(group), all_seconds),
        first.bound,
    )


def device_roofs(accelerator: Accelerator, dtype: str) -> tuple[charts.Roof, ...]:
    """The data sheet's roof, and the measured one where there is a fit for this dtype."""
    limit, bandwidth = accelerator.peak[dtype], accelerator.bandwidth
    datasheet = charts.Roof("data sheet", limit, bandwidth, "ink")
    fits = [curve for curve in accelerator.calibration if curve.what == matmul(dtype) and "e" in curve.parameters]
    measured = [
        charts.Roof("measured", limit * f.parameters["e"], bandwidth * f.parameters.get("b", 1.0), "axis", "6 4")
        for f in sorted(fits, key=lambda curve: curve.regime != "sustained")[:1]
    ]
    return datasheet, *measured


def kernel_table(kernels: Sequence[KernelTime], all_seconds: float, role: str) -> Table:
    """Every kernel, the longest in all first."""
    ordered = sorted(kernels, key=lambda kernel: -kernel.seconds * kernel.times)
    rows = tuple(kernel_row(kernel, all_seconds) for kernel in ordered)
    caption = f"Kernels{f' on {role}' if role else ''}, by their share of time"
    return Table(caption, KERNEL_COLUMNS, rows, 18, name="kernels")


def kernel_row(kernel: KernelTime, all_seconds: float) -> tuple[Cell, ...]:
    """The row of a kernel: how often, at what intensity and rate, for how long, and what limits it."""
    part = share(kernel.seconds * kernel.times, all_seconds)
    return (
        Cell(kernel.account),
        Cell(kernel.when),
        whole_number(kernel.times),
        amount(kernel.flops / kernel.bytes, "FLOP/B") if kernel.flops and kernel.bytes else DASH,
        amount((kernel.flops or kernel.bytes) / kernel.seconds, "FLOP/s" if kernel.flops else "B/s"),
        amount(kernel.seconds, "s"),
        amount(part, "%"),
        Cell(kernel.bound, colour=kernel.bound),
        amount(kernel.error, "%") if kernel.calibrated else Cell("data sheet"),
    )


@dataclass(frozen=True)
class CommunicationView:
    """What is sent per step, how much of it nothing hides, and what may hide behind what."""

    table: Table
    overlap: Table
    exposed: str
    total: str


def communication(report: Report) -> CommunicationView | None:
    """Collectives by kind and axis; None where nothing is sent."""
    compiled = report.compiled
    posted = {kernel.kind for role in compiled.roles for kernel in role.kernels if isinstance(kernel.kind, Transfer)}
    sent = sorted({(kind.collective, kind.axis) for kind in posted}, key=".".join)
    copied = [direction for direction in ("down", "up") if f"host_link.{direction}.bytes" in compiled.totals]
    if not (sent or copied) or not compiled.roles:
        return None
    kernels = [kernel for kernel in slowest_role(compiled).kernels if kernel.payload]
    rows = tuple(collective_row(compiled, collective, axis, kernels) for collective, axis in sent)
    rows += tuple(host_row(compiled, direction, kernels) for direction in copied)
    quantities = columns("number", "times a step", "bytes a step", "takes", "delays the step by")
    exposed = sum(kernel.exposed * kernel.times for kernel in kernels)
    table = Table("Communication of a device in a step", (*columns("text", "collective", "axis"), *quantities), rows)
    return CommunicationView(
        table, overlap_table(compiled.plan), numbers.duration(exposed), numbers.duration(total_seconds(kernels))
    )


def overlap_table(plan: Plan) -> Table:
    """The rules of overlap of the plan's stack, for what the plan moves."""
    rows = tuple(
        (Cell(row.kind), Cell(row.choice), Cell(row.transfers), Cell(row.behind, note=row.source))
        for row in rules_in_words(plan.stack.overlap)
        if row.kind in transfer_kinds(plan)
    )
    headings = columns("text", "kind", "rule", "these transfers", "may run beside")
    return Table("What communication may run beside", headings, rows, sortable=False)


def transfer_kinds(plan: Plan) -> frozenset[str]:
    """The kinds of transfers that a plan has, as its stack's rules of overlap call them."""
    mesh = plan.parallelism
    kinds = {axis for axis in AXES if axis != "data" and getattr(mesh, axis) > 1}
    kinds |= {"data"} if mesh.data * mesh.context > 1 else set()
    kinds |= {"gather"} if mesh.zero and mesh.data * mesh.context > 1 else set()
    return frozenset(kinds | ({"host"} if mesh.offload else set()))


def host_row(compiled: Compiled, direction: str, kernels: Sequence[KernelTime]) -> tuple[Cell, ...]:
    """Copies between the device and its host, one way."""
    copies = [k for k in kernels if isinstance(k.kind, HostTransfer) and k.kind.direction == direction]
    return (
        Cell("copy"),
        Cell("to host memory" if direction == "down" else "from host memory"),
        Cell(numbers.integer(sum(kernel.times for kernel in copies))) if copies else DASH,
        total_cell(compiled, f"host_link.{direction}.bytes"),
        *duration_cells(copies),
    )


def collective_row(compiled: Compiled, collective: str, axis: str, kernels: Sequence[KernelTime]) -> tuple[Cell, ...]:
    """One kind of collective along one axis."""
    transfers = [
        k for k in kernels if isinstance(k.kind, Transfer) and (k.kind.collective, k.kind.axis) == (collective, axis)
    ]
    return (
        Cell(collective.replace("_", "-")),
        Cell(axis),
        total_cell(compiled, f"comm.{collective}.{axis}.count"),
        total_cell(compiled, f"comm.{collective}.{axis}.bytes"),
        *duration_cells(transfers),
    )


def duration_cells(kernels: Sequence[KernelTime]) -> tuple[Cell, Cell]:
    """What transfers take in a step, and what of it nothing hides; dashes where none is priced."""
    if not kernels:
        return DASH, DASH
    return amount(total_seconds(kernels), "s"), amount(sum(kernel.exposed * kernel.times for kernel in kernels), "s")
