"""How long the host and the device of a plan take over one kernel of each pass of each unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ledger.books.assembly.work import PASSES
from ledger.books.compiled_roles import CompiledRole
from ledger.books.launch_overhead import checks
from ledger.books.price_changes import step_calls
from ledger.lab.replay.passes import KERNEL_LAUNCH, UnitPasses
from ledger.model.fsdp_units import ENDS
from ledger.spec.plan import Plan

UNPRICED_SECONDS = 1e-6  # seconds on the device of a kernel in a unit that the books have no time for

KernelSeconds = tuple[float, float]  # of the host, and of the device


def kernel_seconds(
    plan: Plan, book: CompiledRole, units: Sequence[UnitPasses]
) -> Mapping[tuple[str, str], KernelSeconds]:
    """Seconds of the host and of the device for a kernel of each pass and unit.

    Devices of a group wait for the slowest of their hosts. Without synchronisation between stages each host runs ahead
    until its launch queue is full, so launches are hidden and take 0 s; where stages wait for each other with every
    micro-batch, a launch takes what the stack says.
    """
    if plan.stack.replay.recorded and plan.parallelism.pipeline > 1 and plan.stack.replay.transfers == "waited":
        return dict(_priced(plan, book, units))
    return {(name, unit.name): (0.0, UNPRICED_SECONDS) for unit in units for name in ("forward", "backward")}


def _priced(
    plan: Plan, book: CompiledRole, units: Sequence[UnitPasses]
) -> Iterator[tuple[tuple[str, str], KernelSeconds]]:
    table = step_calls([book])
    (priced,) = table.rows(plan)
    (timed,) = table.times(plan, (priced,))
    for unit in units:
        beside = (0, 0) if unit.name in ENDS else plan.stack.beside
        for name, requests, more in zip(("forward", "backward"), (unit.forward, unit.backward), beside, strict=True):
            kernels = sum(request is KERNEL_LAUNCH for request in requests) or 1
            unit_pass = timed.passes.get((name, unit.name))
            device = (unit_pass.seconds - unit_pass.launch) / (kernels * unit.count) if unit_pass else UNPRICED_SECONDS
            rows = [row for row in priced if row.cause.unit == unit.name and row.when in PASSES[name]]
            compared = checks(rows, plan) / (timed.count * unit.count)
            host = plan.stack.launch * (kernels - more) + plan.stack.call * more + compared
            yield (name, unit.name), (host / kernels, device)
