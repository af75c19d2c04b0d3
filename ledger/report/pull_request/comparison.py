"""What became of each affected plan: figures before and after, and each cause with its signed amount."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ledger.books import compile_totals
from ledger.report.causes import BundleTotals, attribute, bundle_inputs, compile_between
from ledger.report.gates import WORDS, Gate, Outcome, plan_outcome
from ledger.report.pull_request.pairs import PlanPair, PlanPairs, PlanVersion, plan_labels
from ledger.spec.inputs import Change, changes
from ledger.spec.problems import Location, Problem, SpecError

if TYPE_CHECKING:
    from ledger.books.results import Number
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
RUN_SECONDS = ("time.calendar", "time.run")  # the first that a plan has
NEGLIGIBLE = 1e-6  # part of a total below which a cause is one of rounding


@dataclass(frozen=True)
class Measure:
    """What a change is weighed by: the first of `keys` that a plan has."""

    name: str
    keys: tuple[str, ...]

    def key(self, totals: Mapping[str, Number]) -> str:
        """The total that stands for it; empty where the plan has none."""
        return next((key for key in self.keys if key in totals), "")


DOLLARS = Measure("dollars", ("cost.run",))
SECONDS = Measure("seconds", (*RUN_SECONDS, "time.step"))
BYTES = Measure("bytes", ("memory.reserved",))
MEASURES = (DOLLARS, SECONDS, BYTES)


@dataclass(frozen=True)
class Cause:
    """What `inputs` add to a total, or take away: the mean of what they do first and last. None are named: jointly."""

    inputs: tuple[str, ...]
    amount: Number


@dataclass(frozen=True)
class Movement:
    """A total before and after; its causes sum to the change."""

    measure: str
    key: str
    old: Number
    new: Number
    causes: tuple[Cause, ...] = ()

    @property
    def by(self) -> Number:
        """New less old; nothing where that is a matter of rounding."""
        change = self.new - self.old
        return change if abs(float(change)) > NEGLIGIBLE * abs(float(self.old)) else 0


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
    old: Outcome | None = None
    new: Outcome | None = None
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


def compare(pairs: PlanPairs) -> Comparison:
    """Every affected plan compiled once a side, and with each input changed alone where there are several."""
    labels = plan_labels(pair.path for pair in pairs.pairs)
    found = [compare_pair(pair, labels[pair.path]) for pair in pairs.affected]
    return Comparison(pairs.old.title, pairs.new.title, pairs.count, tuple(sorted(found, key=severity)))


def known_totals(comparison: Comparison) -> frozenset[str]:
    """Every total that a compared plan has."""
    outcomes = [outcome for change in comparison.changes for outcome in (change.old, change.new) if outcome]
    return frozenset(key for outcome in outcomes for key in outcome.totals)


def with_gates(comparison: Comparison, gates: Sequence[Gate]) -> Comparison:
    """The same with what each gate says of each plan."""
    judged = [replace(change, failed=tuple(failed_gates(change, gates))) for change in comparison.changes]
    ordered = tuple(sorted(judged, key=severity))
    return replace(comparison, changes=ordered, gates=tuple(gate.text for gate in gates))


def failed_gates(change: PlanChange, gates: Iterable[Gate]) -> Iterator[str]:
    """The gates that a change of a plan trips; of one that is gone or does not compile, none."""
    if change.new:
        outcome = change.new
        yield from (gate.text for gate in gates if gate.trips(change.old, outcome))


def compare_pair(pair: PlanPair, label: str) -> PlanChange:
    """One affected plan."""
    old, new = pair.old, pair.new
    if new is None:
        return PlanChange(label, pair, DELETED, old=outcome_of(old))
    if new.plan is None:
        return PlanChange(label, pair, BROKEN, problems=new.problems, texts=new.texts)
    inputs = changes(old.plan, new.plan) if old and old.plan else ()
    try:
        outcome = plan_outcome(new.plan, compile_totals(new.plan))
    except SpecError as error:
        return PlanChange(label, pair, BROKEN, inputs=inputs, problems=error.problems, texts=error.sources)
    if old and old.plan and not inputs:
        return PlanChange(label, pair, MOVED if pair.moved_from else SAME, outcome, outcome)
    before = outcome_of(old)
    if before is None or old is None or old.plan is None:
        return PlanChange(label, pair, REPAIRED if old else NEW, new=outcome)
    return changed_plan(PlanChange(label, pair, CHANGED, before, outcome, inputs), old.plan, new.plan)


def changed_plan(change: PlanChange, old: Plan, new: Plan) -> PlanChange:
    """A plan that compiles before and after, with the causes of what moved."""
    if change.old is None or change.new is None:
        return change
    before, after = change.old, change.new
    bundles = bundle_inputs(old, new, change.inputs)
    effects = compile_between((old, before.totals), (new, after.totals), bundles, compile_totals)
    moved = tuple(movements(before.totals, after.totals, effects))
    is_same = not any(one.causes or one.by for one in moved)
    turned = tuple(flips(before, after, effects))
    return replace(change, kind=SAME if is_same and not turned else CHANGED, movements=moved, flips=turned)


def movements(
    old: Mapping[str, Number], new: Mapping[str, Number], effects: Sequence[BundleTotals]
) -> Iterator[Movement]:
    """The measures that both plans have, with their causes; what the causes make together comes last."""
    for measure in MEASURES:
        key = measure.key(new)
        if not key or key != measure.key(old):
            continue
        limit = NEGLIGIBLE * abs(float(old[key]))
        causes = [Cause(one.inputs, one.mean) for one in attribute(key, old[key], new[key], effects)]
        causes = [cause for cause in causes if abs(float(cause.amount)) > limit]
        joint = new[key] - old[key] - sum(cause.amount for cause in causes)
        if abs(float(joint)) > limit:
            causes.append(Cause((), joint))
        yield Movement(measure.name, key, old[key], new[key], tuple(causes))


def flips(old: Outcome, new: Outcome, effects: Sequence[BundleTotals]) -> Iterator[Flip]:
    """The words of the verdict that turned, with the inputs that turn them alone: first to change, else last."""
    for word, holds in WORDS.items():
        if holds(old) != holds(new):
            yield Flip(word, holds(new), turning_inputs(effects, holds, turned=holds(new)))
            return  # what does not fit keeps no headroom either


def turning_inputs(
    effects: Sequence[BundleTotals], holds: Callable[[Outcome], bool], *, turned: bool
) -> tuple[str, ...]:
    """The inputs that turn a word of the verdict on their own; else those without which it would not have turned."""
    alone = [one for one in effects if holds(plan_outcome(one.with_it, one.added)) == turned]
    needed = [one for one in effects if holds(plan_outcome(one.without, one.removed)) != turned]
    return tuple(name for one in alone or needed for name in one.inputs)


def severity(change: PlanChange) -> tuple[object, ...]:
    """What sorts the worst first: broken, no longer fitting, without headroom, failing a gate, then by dollars."""
    ranks = (
        change.kind == BROKEN,
        change.lost("fits"),
        change.new is not None and not change.new.fits and change.kind != SAME,
        change.lost("headroom"),
        bool(change.failed),
        change.kind == CHANGED,
        change.kind in {NEW, REPAIRED},
        change.kind == DELETED,
        change.kind == MOVED,
    )
    moved = [change.movement(measure) for measure in MEASURES]
    return (*(not rank for rank in ranks), *(-float(one.by) if one else 0.0 for one in moved), change.path)


def outcome_of(version: PlanVersion | None) -> Outcome | None:
    """What a version of a plan comes to; None where it does not compile."""
    if version is None or version.plan is None:
        return None
    try:
        return plan_outcome(version.plan, compile_totals(version.plan))
    except SpecError:
        return None
