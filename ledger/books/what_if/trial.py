"""A plan tried with other values of one input: each read anew from its spec, its exact books closed once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ledger.books.bare import STATE
from ledger.books.compiler import compile_plan
from ledger.books.results import Number
from ledger.books.what_if.conditions import Condition
from ledger.books.what_if.sought import Settings, Unknown
from ledger.spec.load import Draft, revised
from ledger.spec.overrides import assignments
from ledger.spec.plan import Plan

BARE = "a bare model has state alone: memory is that of weights, master, gradients and optimizer, time the napkin's"


@dataclass(frozen=True)
class Trial:
    """`tried` holds the totals under each rank of the input's values; None where a rule of the spec refuses it.

    `fixed` are values of other inputs, which every candidate has.
    """

    plan: Plan
    sought: Unknown
    fixed: Settings = field(default_factory=dict)
    tried: dict[int, Mapping[str, Number] | None] = field(default_factory=dict)
    drafts: dict[int, Draft] = field(default_factory=dict)

    def __call__(self, rank: int) -> Mapping[str, Number] | None:
        """The totals of the plan with the value of this rank."""
        if rank not in self.tried:
            candidate = self.draft(rank)
            self.tried[rank] = None if candidate.problems or candidate.plan is None else totals(candidate.plan)
        return self.tried[rank]

    def settings(self, rank: int) -> Settings:
        """What `--set` is to be given for the value of this rank, with what follows from it."""
        return {**self.fixed, **self.sought.settings(self.sought.value(rank))}

    def draft(self, rank: int) -> Draft:
        """The plan with the value of this rank, legal or not."""
        if rank not in self.drafts:
            self.drafts[rank] = with_settings(self.plan, self.settings(rank))
        return self.drafts[rank]

    def holds(self, condition: Condition, rank: int) -> bool:
        """Whether the value is legal and the condition holds of it."""
        found = self(rank)
        return found is not None and (condition.if_any or condition.key in found) and condition.holds(found)

    def slack(self, condition: Condition, rank: int) -> float | None:
        """How far the condition is from breaking; None for an illegal value, or one without the total."""
        found = self(rank)
        return (
            None if found is None or not (condition.if_any or condition.key in found) else float(condition.slack(found))
        )


def with_settings(plan: Plan, settings: Settings) -> Draft:
    """The plan with other values, as `--set` puts them into its spec."""
    return revised(plan, assignments(settings))


def totals(plan: Plan) -> Mapping[str, Number]:
    """The totals of a plan, with the state as a whole; a bare model's memory and time are what is known of them."""
    found = compile_plan(plan).totals
    if plan.serve:
        return found
    state = sum(found[f"memory.static.{part}"] for part in STATE)
    if not plan.model.bare:
        return {**found, "memory.static": state}
    known = {"memory.static": state, "memory.peak": state, "memory.reserved": state}
    if "napkin.time.run" in found:
        known["time.run"] = found["napkin.time.run"]
    return {**found, **known}
