"""Closed books under other prices: which prices there are, and the step that they give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ledger.books import kernels, passes, time
from ledger.books.closed import Books
from ledger.books.overlap import HOST
from ledger.model import dtypes
from ledger.spec.plan import Accelerator, Curve, Plan


def step_time(plan: Plan, books: Sequence[Books]) -> float:
    """The estimate under other prices: the books stay as they are."""
    rows = {id(book.ledger): tuple(kernels.priced(book.ledger, plan, book.value)) for book in books[::-1]}
    return time.step_time([passes.role_time(book.role, rows[id(book.ledger)], plan) for book in books], plan).estimate


def _peak(plan: Plan, by: float) -> Plan:
    device, dtype = plan.accelerator, dtypes.rate(plan.precision.multiplies)
    return replace(plan, accelerator=replace(device, peak={**device.peak, dtype: device.peak[dtype] * by}))


def _bandwidth(plan: Plan, by: float) -> Plan:
    return replace(plan, accelerator=replace(plan.accelerator, bandwidth=plan.accelerator.bandwidth * by))


def _scaleup(plan: Plan, by: float) -> Plan:
    """Faster links are also faster where their speed was measured."""
    device = _measured_faster(plan.accelerator, by, lambda curve: not curve.what.startswith(HOST))
    return replace(plan, accelerator=replace(device, scaleup_bandwidth=device.scaleup_bandwidth * by))


def _host_link(plan: Plan, by: float) -> Plan:
    device = _measured_faster(plan.accelerator, by, lambda curve: curve.what.startswith(HOST))
    return replace(plan, accelerator=replace(device, host_bandwidth=device.host_bandwidth * by))


def _measured_faster(device: Accelerator, by: float, chosen: Callable[[Curve], bool]) -> Accelerator:
    """The device with the bandwidths of its measured transfers scaled, as far as they are chosen."""
    curves = tuple(
        replace(curve, parameters={**curve.parameters, "B": curve.parameters["B"] * by})
        if curve.form in {"collective", "send"} and chosen(curve)
        else curve
        for curve in device.calibration
    )
    return replace(device, calibration=curves)


def _scaleout(plan: Plan, by: float) -> Plan:
    return replace(plan, cluster=replace(plan.cluster, scaleout_bandwidth=plan.cluster.scaleout_bandwidth * by))


def _launch(plan: Plan, by: float) -> Plan:
    return replace(plan, stack=replace(plan.stack, launch=plan.stack.launch * by))


def _capacity(plan: Plan, by: float) -> Plan:
    return replace(plan, accelerator=replace(plan.accelerator, memory=int(plan.accelerator.memory * by)))


PRICES: tuple[tuple[str, str, Callable[[Plan, float], Plan]], ...] = (
    ("accelerator.peak.{dtype}", "matmul peak", _peak),
    ("accelerator.bandwidth", "memory bandwidth", _bandwidth),
    ("accelerator.scaleup.bandwidth", "bandwidth within a node", _scaleup),
    ("cluster.scaleout.bandwidth", "bandwidth between nodes", _scaleout),
    ("accelerator.host_link", "bandwidth of the link to the host", _host_link),
    ("stack.launch.per_operation", "time of a launch", _launch),
    ("accelerator.memory.driver", "memory capacity", _capacity),
)
