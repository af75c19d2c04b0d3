"""What the host of a device does for it: launches, calls that no operation stands for, collectives compared first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ledger.arithmetic.values import Amount, maximum, smallest_of, where
from ledger.books import prices
from ledger.books.overlap import computes, on_host
from ledger.books.results import KernelTime
from ledger.model.causes import Transfer
from ledger.model.fsdp_units import ENDS, ROOT
from ledger.spec.plan import Plan

MESSAGES = 4  # of a comparison, one after the other, for each rank but the first


# What hosts compare once a step before it runs: seconds of each comparison and how often, by transfer and phase.
Comparisons = Mapping[tuple[Transfer, str], tuple[Amount, Amount]]


def launches(rows: Sequence[KernelTime], plan: Plan) -> Amount:
    """Host seconds that launch the kernels and transfers of a unit's pass, all of them in a step."""
    return plan.stack.launch * sum(row.times for row in rows if not on_host(row)) + checks(rows, plan)


def host_calls(name: str, unit: str, rows: Sequence[KernelTime], plan: Plan) -> Amount:
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
    if not plan.stack.check:
        return 0.0
    return sum(_check(row.kind, plan) * row.times for row in rows if isinstance(row.kind, Transfer) and _compared(row))


def comparisons(rows: Iterable[KernelTime], plan: Plan) -> Comparisons:
    """What hosts compare of what moves once a step."""
    compared: dict[tuple[Transfer, str], tuple[Amount, Amount]] = {}
    for row in rows:
        if plan.stack.check and isinstance(row.kind, Transfer) and _compared(row):
            call = row.kind, row.when
            compared[call] = _check(row.kind, plan), compared.get(call, (0, 0))[1] + row.times
    return compared


def compared_once(compared: Comparisons, backward: Amount, plan: Plan) -> Amount:
    """Host seconds of these comparisons, as far as the last micro-batch's `backward` does not hide them.

    What is not reduced in buckets moves as one (nanotron, distributed.py: all_reduce_coalesced, all_gather_coalesced).
    """
    at_once = sum(each for each, _ in compared.values())
    if not compared or not (plan.stack.buckets and plan.parallelism.zero == 0):
        return at_once
    left = maximum(0.0, sum(each * often for each, often in compared.values()) - backward)
    return where(plan.parallelism.data * plan.parallelism.context > 1, left, at_once)


def _compared(row: KernelTime) -> bool:
    return isinstance(row.kind, Transfer) and row.kind.collective != "send"


def _check(kind: Transfer, plan: Plan) -> Amount:
    ranks = prices.mesh(kind.axis, plan.parallelism, plan.accelerator, plan.cluster).size
    return plan.stack.check * MESSAGES * (ranks - 1)
