"""The aim of recommendations: a short step of a run; of a service the throughput of a device, or latency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.books.what_if.conditions import host_conditions, served_conditions
from ledger.search.question import CAPACITY, EDIT_RANK, MEMORY, TIME, Question
from ledger.spec.plan import Plan

if TYPE_CHECKING:
    from ledger.books.results import Number


LATENCY, FIRST, RATE = "serve.time_per_token", "serve.ttft", "serve.tokens_per_second"
EACH, COST = f"{RATE}_per_device", "cost.per_million_tokens"
SHOWN = (LATENCY, FIRST, RATE, EACH, "memory.reserved")  # totals of every row, beside those that are asked for
FRONT = (LATENCY, EACH)


def shown_totals(plans: Sequence[Plan]) -> tuple[str, ...]:
    """The totals of every row: dollars too where all plans have a price of their devices."""
    return (*SHOWN, COST) if all(plan.assumptions.price for plan in plans) else SHOWN


CANDIDATES = 16  # layouts with the fewest edits, by estimate, whose edits are counted exactly
HOSTED = tuple(f"memory.{place}{end}" for place in ("host", "nvme") for end in ("", ".capacity"))
OF_RUNS = (TIME, "time.calendar", "cost.run", MEMORY, CAPACITY, *HOSTED, "mfu", "tokens_per_second")
OF_SERVICES = (EACH, RATE, LATENCY, FIRST, COST, MEMORY, CAPACITY)


@dataclass(frozen=True)
class Aim:
    """The total by which one layout is faster than another, the question of a search, and the totals to report."""

    total: str
    question: Question
    listed_totals: tuple[str, ...]

    def pace(self, totals: Mapping[str, Number]) -> float:
        """A number that is smaller for a faster layout."""
        return float(totals[self.total]) * self.question.signs[self.total]


def aim_of(plan: Plan) -> Aim:
    """The aim of a plan: a shorter step, more tokens of a device, or, at a stated rate of requests, earlier tokens."""
    if plan.serve is None:
        return Aim(TIME, Question(EDIT_RANK, conditions=host_conditions(plan), top=CANDIDATES), OF_RUNS)
    total = EACH if plan.serve.arrival_rate is None else LATENCY
    question = Question(EDIT_RANK, False, served_conditions(plan), (total, MEMORY), CANDIDATES, SHOWN)
    return Aim(total, question, OF_SERVICES)
