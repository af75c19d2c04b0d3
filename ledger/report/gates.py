"""What `--fail-on` names: changes of totals between two plans, and plans that lose their fit or their headroom."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from ledger.books.verdict import STATE, host_holds, shortfall
from ledger.books.what_if.conditions import WRITTEN, Condition, condition

if TYPE_CHECKING:
    from ledger.books.compiled import Compiled
    from ledger.books.results import Number
    from ledger.spec.plan import Plan


@dataclass(frozen=True)
class PlanOutcome:
    """What a plan comes to: its totals, whether it fits, and whether it leaves its headroom free besides."""

    totals: Mapping[str, Number]
    fits: bool
    keeps_headroom: bool


VERDICT_WORDS: Mapping[str, Callable[[PlanOutcome], bool]] = {
    "fits": lambda outcome: outcome.fits,
    "headroom": lambda outcome: outcome.keeps_headroom,
}


@dataclass(frozen=True)
class Gate:
    """A change that fails: one of WORDS that holds no more, or a condition on the change of a total."""

    text: str
    condition: Condition | None = None

    def trips(self, old: PlanOutcome | None, new: PlanOutcome) -> bool:
        """Whether the change is one of these. A new plan (`old` is None) changes no total, and must fit as others."""
        if self.condition is None:
            holds = VERDICT_WORDS[self.text]
            return (old is None or holds(old)) and not holds(new)
        return old is not None and meets_condition(self.condition, old.totals, new.totals)


def read_gates(texts: Iterable[str], total_keys: Collection[str]) -> tuple[Gate, ...]:
    """The gates of texts about `known` totals, or about any where none is known; raises SpecError."""
    return tuple(_gate(text.strip(), total_keys) for text in texts)


def _gate(text: str, total_keys: Collection[str]) -> Gate:
    if text in VERDICT_WORDS:
        return Gate(text)
    written = WRITTEN.fullmatch(text)
    return Gate(text, condition(text, total_keys or ([written[1]] if written else []), changes=True))


def plan_outcome(plan: Plan, totals: Mapping[str, Number]) -> PlanOutcome:
    """What a plan comes to by its totals; of a bare model, which has no step, its state alone must fit."""
    fits = held_bytes(totals) <= totals["memory.capacity"] and host_holds(totals)
    return PlanOutcome(totals, fits, fits and not shortfall(plan, totals))


def held_bytes(totals: Mapping[str, Number]) -> Number:
    """What the fullest device reserves; of a bare model, its state."""
    return totals["memory.reserved"] if "memory.reserved" in totals else sum(totals[key] for key in STATE)


def free_bytes(outcome: PlanOutcome) -> Number:
    """Bytes of a device that the plan leaves free; negative where they lack."""
    return outcome.totals["memory.capacity"] - held_bytes(outcome.totals)


def compiled_outcome(compiled: Compiled) -> PlanOutcome:
    """What a compiled plan comes to."""
    outcome = plan_outcome(compiled.plan, compiled.totals)
    return PlanOutcome(outcome.totals, compiled.verdict.fits, compiled.verdict.fits and outcome.keeps_headroom)


def meets_condition(condition: Condition, old: Mapping[str, Number], new: Mapping[str, Number]) -> bool:
    """Whether the change of a total meets a condition; one that only one of the plans has always does."""
    before, after = old.get(condition.key), new.get(condition.key)
    if before is None or after is None:
        return before is not after
    change = Fraction(after) - Fraction(before)
    if not condition.relative:
        return condition.holds({condition.key: change})
    if before == 0:
        return change != 0
    return condition.holds({condition.key: change / abs(Fraction(before))})
