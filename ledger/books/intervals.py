"""How far estimates have missed published runs whose sources they had never seen, by what is known of the software."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ledger.spec.plan import Plan

MEASURED, ELSEWHERE, UNKNOWN = "measured", "elsewhere", "unknown"  # what is known of a plan's software


@dataclass(frozen=True)
class Interval:
    """Ends of measured over predicted figures between which 80 of 100 published runs lie."""

    low: float
    high: float


# By what was known before a source was: runs of the stack on the device, on other devices, none (`make coverage`).
STEP: Mapping[str, Interval] = {
    MEASURED: Interval(0.91, 1.33),
    ELSEWHERE: Interval(0.91, 1.33),
    UNKNOWN: Interval(0.91, 1.33),
}
MEMORY: Mapping[str, Interval] = {
    MEASURED: Interval(0.92, 1.18),
    ELSEWHERE: Interval(0.92, 1.18),
    UNKNOWN: Interval(0.92, 1.20),
}


def known_as(plan: Plan) -> str:
    """What is known of a plan's software: its stack was scored on this device, on others, or never."""
    scored = plan.stack.scored_on
    return MEASURED if plan.accelerator.name in scored else ELSEWHERE if scored else UNKNOWN
