"""Totals that a plan lacks because an input is not stated: which input that is, and what to state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ledger.spec.device_parts import LIST_PRICES, STATE_ONE, no_price
from ledger.spec.plan import Plan

OF_RUNS = ("time.run", "cost.run", "energy.run")


@dataclass(frozen=True)
class Absent:
    """What `needed` input keeps a plan from having a total: `of` its device where that is the reason; in words."""

    needed: str
    message: str
    help: str
    of: str = ""


def absent(plan: Plan, key: str) -> Absent | None:
    """Why a plan lacks a total that others have; None where it has it, and for what no plan has."""
    return next(_lacking(plan, key), None)


def _lacking(plan: Plan, key: str) -> Iterator[Absent]:
    device = plan.accelerator.name
    if key in OF_RUNS and not plan.run.tokens:
        yield Absent("run.tokens", f"`{key}` is of a whole run, and the plan states no tokens", "state `run.tokens`")
    if key == "cost.run" and not plan.assumptions.price:
        yield Absent("assumptions.price", no_price(device), f"state one: {STATE_ONE}; {LIST_PRICES}", device)
    if key == "energy.run" and not plan.accelerator.power:
        message = f"no power of {device} is stated, so the run has no `{key}`"
        yield Absent("accelerator.power", message, "state `accelerator.power`", device)
    if key == "goodput":
        needed = "cluster.failure_rate"
        if not plan.cluster.failure_rate:
            yield Absent(needed, f"`{key}` needs `{needed}`", "state how often devices fail")
        if plan.assumptions.checkpoint_interval is None:
            needed = "assumptions.checkpoint_interval"
            yield Absent(needed, f"`{key}` needs `{needed}`", "state how often the run is saved")
