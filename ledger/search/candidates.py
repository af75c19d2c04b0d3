"""A layout that may be recommended: compiled by itself, and held to all that its plan asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from ledger.books.compiler import compile_totals
from ledger.books.verdict import expectations, operated
from ledger.books.what_if.conditions import served_conditions
from ledger.search.headroom import kept_free
from ledger.search.question import CAPACITY, MEMORY
from ledger.spec.load import revised
from ledger.spec.overrides import assignments

if TYPE_CHECKING:
    from ledger.books.results import Number
    from ledger.spec.plan import Plan

HOST_PLACES = ("host", "nvme")  # where a node may keep what its devices do not
UNSTATED = "host memory that no file states"


@dataclass(frozen=True)
class Candidate:
    """Changes of a plan, as `--set` takes them, with the totals of the plan compiled with these and nothing else.

    `excess`: by how much memory, host or service miss what they are held to, as a share of the limit that is missed
    most; 0 where all hold. `broken`: expectations and other requirements that the plan itself meets, and this does not.
    """

    changes: Mapping[str, Any]
    totals: Mapping[str, Number]
    excess: float = 0.0
    broken: frozenset[str] = frozenset()

    @property
    def is_sound(self) -> bool:
        """Whether it meets everything."""
        return not self.excess and not self.broken


@dataclass(frozen=True)
class Requirements:
    """What a layout of a plan must meet: room with the plan's headroom free, on hosts too, and what the plan expects.

    What the plan as it is does not meet, its other layouts need not meet either, but for room.
    """

    plan: Plan
    totals: Mapping[str, Number]

    @property
    def plan_as_it_is(self) -> Candidate:
        """The plan without a change."""
        return Candidate({}, self.totals, excess(self.plan, self.totals))

    def compiled(self, changes: Mapping[str, Any]) -> Candidate | None:
        """The plan with these changes; None where the rules refuse them."""
        draft = revised(self.plan, assignments(changes))
        if draft.problems or draft.plan is None:
            return None
        totals = compile_totals(draft.plan)
        broken = _broken(draft.plan, totals) - _broken(self.plan, self.totals)
        if _unstated_bytes(totals) > _unstated_bytes(self.totals):
            broken |= {UNSTATED}
        return Candidate(dict(changes), totals, excess(draft.plan, totals), frozenset(broken))


def excess(plan: Plan, totals: Mapping[str, Number]) -> float:
    """How far a plan misses its room, or what its service is asked, as a share of the limit that it misses most."""
    room = float(totals[CAPACITY]) - kept_free(plan)
    missed = [(float(totals[MEMORY]) - room) / float(totals[CAPACITY])]
    for place in HOST_PLACES:
        held, capacity = totals.get(f"memory.{place}", 0), totals.get(f"memory.{place}.capacity", inf)
        missed.append(float(held) / float(capacity) - 1 if capacity else inf if held else 0.0)
    for condition in served_conditions(plan):
        slack, limit = float(condition.slack(totals)), float(condition.bound(totals))
        missed.append(-slack / max(abs(limit), 1.0))
    return max(0.0, *missed)


def _broken(plan: Plan, totals: Mapping[str, Number]) -> set[str]:
    """The expectations that a plan misses, and whether its run gets nowhere."""
    checks = (*expectations(plan, totals), *operated(plan, totals))
    return {check.name for check in checks if check.status == "fail"}


def _unstated_bytes(totals: Mapping[str, Number]) -> float:
    """Bytes in memory of a host of which nobody says how much it has."""
    return 0.0 if "memory.host.capacity" in totals else float(totals.get("memory.host", 0))
