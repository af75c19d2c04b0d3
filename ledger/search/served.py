"""The totals by which layouts of a plan that serves are told apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledger.spec.plan import Plan

LATENCY, FIRST, RATE = "serve.time_per_token", "serve.ttft", "serve.tokens_per_second"
EACH, COST = f"{RATE}_per_device", "cost.per_million_tokens"
SHOWN = (LATENCY, FIRST, RATE, EACH, "memory.reserved")  # totals of every row, beside those that are asked for
FRONT = (LATENCY, EACH)


def shown_totals(plans: Sequence[Plan]) -> tuple[str, ...]:
    """The totals of every row: dollars too where all plans have a price of their devices."""
    return (*SHOWN, COST) if all(plan.assumptions.price for plan in plans) else SHOWN
