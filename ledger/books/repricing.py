"""Closed books under other prices: which prices there are, and the step that they give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ledger.books import kernels, passes, time
from ledger.books.closed import Books
from ledger.model import dtypes
from ledger.spec.plan import Plan


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
    device = plan.accelerator
    curves = tuple(
        replace(curve, parameters={**curve.parameters, "B": curve.parameters["B"] * by})
        if curve.form in {"collective", "send"}
        else curve
        for curve in device.calibration
    )
    faster = replace(device, scaleup_bandwidth=device.scaleup_bandwidth * by, calibration=curves)
    return replace(plan, accelerator=faster)


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
    ("stack.launch.per_operation", "time of a launch", _launch),
    ("accelerator.memory.driver", "memory capacity", _capacity),
)
