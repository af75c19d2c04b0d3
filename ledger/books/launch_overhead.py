"""What the host of a device does for it: launches, calls that no operation stands for, collectives compared first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ledger.arithmetic.values import Amount, maximum, smallest_of
from ledger.books import prices
from ledger.books.entries import STEP
from ledger.books.overlap import computes, on_host
from ledger.books.results import KernelTime
from ledger.model.causes import Transfer
from ledger.model.fsdp_units import ENDS, ROOT
from ledger.model.gradients import copied_to_buckets
from ledger.spec.plan import Plan

MESSAGES = 4  # of a comparison, one after the other, for each rank but the first


def launches(name: str, unit: str, rows: Sequence[KernelTime], plan: Plan) -> Amount:
    """Host seconds of one unit's pass, all of them in a step."""
    return (
        plan.stack.launch * sum(row.times for row in rows if not on_host(row))
        + calls(name, unit, rows, plan)
        + checks(rows, plan)
    )


def calls(name: str, unit: str, rows: Sequence[KernelTime], plan: Plan) -> Amount:
    """Kernels of a layer that no operation stands for: each is a call by itself, without autograd, views or hooks."""
    forward, backward = (0, 0) if unit in (*ENDS, ROOT) else plan.stack.beside
    layers = smallest_of(row.times for row in rows if computes(row))
    return plan.stack.call * layers * (forward if name == "forward" else backward)


def checks(rows: Iterable[KernelTime], plan: Plan) -> Amount:
    """What hosts pay to compare collectives before they run them (TORCH_DISTRIBUTED_DEBUG=DETAIL).

    Of n ranks all others report to the first and hear from it, one by one, and two all-gathers of a fingerprint go
    around: 4 (n - 1) messages (pytorch/pytorch, ProcessGroupWrapper.cpp; ProcessGroupGloo.cpp, monitoredBarrier). What
    two devices send each other is not compared.
    """
    return sum(_check(row, plan) * row.times for row in rows if plan.stack.check and _compared(row))


def checks_once(rows: Sequence[KernelTime], backward: Amount, plan: Plan) -> Amount:
    """The same of what moves once a step, as far as the last micro-batch's `backward` does not hide it.

    What is not reduced in buckets moves as one (nanotron, distributed.py: all_reduce_coalesced, all_gather_coalesced).
    """
    once = [row for row in rows if row.per == STEP]
    if copied_to_buckets(plan):
        return maximum(0.0, checks(once, plan) - backward)
    return sum(_check(row, plan) for row in {(row.kind, row.when): row for row in once if _compared(row)}.values())


def _compared(row: KernelTime) -> bool:
    return isinstance(row.kind, Transfer) and row.kind.collective != "send"


def _check(row: KernelTime, plan: Plan) -> Amount:
    if not isinstance(row.kind, Transfer):
        return 0.0
    ranks = prices.mesh(row.kind.axis, plan.parallelism, plan.accelerator, plan.cluster).size
    return plan.stack.check * MESSAGES * (ranks - 1)
