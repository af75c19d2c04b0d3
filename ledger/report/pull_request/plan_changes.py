"""What became of the plans that a change affects: figures before and after, contributions of inputs, the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.report.gates import PlanOutcome
from ledger.report.movements import Measure, Movement
from ledger.report.pull_request.pairs import PlanPair
from ledger.spec.inputs import Change
from ledger.spec.problems import Location, Problem

if TYPE_CHECKING:
    from ledger.spec.plan import Plan

BROKEN, CHANGED, NEW, DELETED, MOVED, SAME = (
    "does not compile",
    "changed",
    "new",
    "deleted",
    "moved",
    "same totals",
)
REPAIRED = "compiles again"


@dataclass(frozen=True)
class Flip:
    """A word of the verdict (`fits`, `headroom`) that holds now, or no more, and the inputs that turned it."""

    word: str
    holds: bool
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlanChange:
    """An affected plan: its kind of change, what it came and comes to, what moved by which input, which gates trip."""

    label: str
    pair: PlanPair
    kind: str
    old: PlanOutcome | None = None
    new: PlanOutcome | None = None
    inputs: tuple[Change, ...] = ()
    movements: tuple[Movement, ...] = ()
    flips: tuple[Flip, ...] = ()
    problems: tuple[Problem, ...] = ()
    texts: Mapping[str, str] | None = None
    failed: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """Where the plan is, or was."""
        return self.pair.path

    @property
    def plan(self) -> Plan | None:
        """The plan as it is now, or was last."""
        versions = (self.pair.new, self.pair.old)
        return next((version.plan for version in versions if version and version.plan), None)

    def movement(self, measure: Measure) -> Movement | None:
        """What became of a measure; None where one of the plans lacks it."""
        return next((one for one in self.movements if one.measure == measure.name), None)

    def lost(self, word: str) -> bool:
        """Whether a word of the verdict holds no more."""
        return any(flip.word == word and not flip.holds for flip in self.flips)


@dataclass(frozen=True)
class Comparison:
    """Two trees of plans compared: the affected ones, worst first, of `count` that there are now."""

    old: str  # the trees, as they were typed
    new: str
    count: int
    changes: tuple[PlanChange, ...]
    gates: tuple[str, ...] = ()

    def place(self, where: Location) -> str:
        """A place in a line's words: of the newer tree, from its top."""
        return f"{where.file.removeprefix(f'{self.new}:')}:{where.line}"

    def of_kind(self, *kinds: str) -> tuple[PlanChange, ...]:
        """The plans of a kind of change."""
        return tuple(change for change in self.changes if change.kind in kinds)

    def failed(self, gate: str) -> tuple[PlanChange, ...]:
        """The plans on which a gate trips."""
        return tuple(change for change in self.changes if gate in change.failed)
