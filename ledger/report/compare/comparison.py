"""Several plans compared, as frozen data: all that a page, a text or a program is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.report.compare.choice import PlanChoice, choose, read_rule
from ledger.report.compare.plans import ComparedPlan, PlanDifference, compared_plans, difference, with_search
from ledger.report.compare.plans import file_name as name_of_files

if TYPE_CHECKING:
    from ledger.books.results import Compiled
    from ledger.report.compare.plans import Search


@dataclass(frozen=True)
class PlanComparison:
    """Plans in the order in which they were named; the others against the first, and which is recommended."""

    plans: tuple[ComparedPlan, ...]
    differences: tuple[PlanDifference, ...]
    choice: PlanChoice

    @property
    def file_name(self) -> str:
        """What its files are called, without the end."""
        return name_of_files([one.label for one in self.plans])


@dataclass(frozen=True)
class WrittenRule:
    """What a plan is chosen by: the `total` (empty: the usual ones) and conditions (none: its headroom), as typed."""

    total: str = ""
    conditions: tuple[str, ...] = ()


def compare_plans(
    specs: Sequence[str], plans: Sequence[Compiled], asked: WrittenRule, search: Search | None = None
) -> PlanComparison:
    """The compiled plans of specs compared; raises SpecError for a total or a condition that no plan knows.

    `search` is asked what would make those plans run that do not.
    """
    compared = compared_plans(specs, plans)
    rule = read_rule(asked.total, asked.conditions, compared)
    compared = with_search(compared, search) if search else compared
    differences = tuple(difference(compared[0], one) for one in compared[1:])
    return PlanComparison(compared, differences, choose(compared, differences, rule))
