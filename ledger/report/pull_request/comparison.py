"""Two trees of plans compared: each affected plan compiled once a side, and what each input contributes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ledger.books import compile_totals
from ledger.report.gates import VERDICT_WORDS, Gate, PlanOutcome, plan_outcome
from ledger.report.movements import MEASURES, BundleTotals, bundle_inputs, compile_between, movements
from ledger.report.pull_request.pairs import (
    BROKEN,
    CHANGED,
    DELETED,
    MOVED,
    NEW,
    REPAIRED,
    SAME,
    Comparison,
    Flip,
    PlanChange,
    PlanPair,
    PlanPairs,
    PlanVersion,
    plan_labels,
)
from ledger.spec.inputs import changes
from ledger.spec.problems import SpecError

if TYPE_CHECKING:
    from ledger.spec.plan import Plan


def compare(pairs: PlanPairs) -> Comparison:
    """Every affected plan compiled once a side, and with each input changed alone where there are several."""
    labels = plan_labels(pair.path for pair in pairs.pairs)
    plan_changes = [compare_pair(pair, labels[pair.path]) for pair in pairs.affected]
    return Comparison(pairs.old.title, pairs.new.title, pairs.count, tuple(sorted(plan_changes, key=severity)))


def known_totals(comparison: Comparison) -> frozenset[str]:
    """Every total that a compared plan has."""
    outcomes = [outcome for change in comparison.changes for outcome in (change.old, change.new) if outcome]
    return frozenset(key for outcome in outcomes for key in outcome.totals)


def with_gates(comparison: Comparison, gates: Sequence[Gate]) -> Comparison:
    """The comparison with the gates that each plan trips."""
    judged = []
    for change in comparison.changes:  # a plan that is gone, or does not compile, trips no gate
        failed = tuple(gate.text for gate in gates if change.new and gate.trips(change.old, change.new))
        judged.append(replace(change, failed=failed))
    ordered = tuple(sorted(judged, key=severity))
    return replace(comparison, changes=ordered, gates=tuple(gate.text for gate in gates))


def compare_pair(pair: PlanPair, label: str) -> PlanChange:
    """An affected plan compiled on both sides, and its kind of change."""
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
    is_same = not any(movement.causes or movement.by for movement in moved)
    turned = tuple(flips(before, after, effects))
    return replace(change, kind=SAME if is_same and not turned else CHANGED, movements=moved, flips=turned)


def flips(old: PlanOutcome, new: PlanOutcome, effects: Sequence[BundleTotals]) -> Iterator[Flip]:
    """A word of the verdict that turned, with the inputs that turn it alone, else those without which it would not."""
    for word, holds in VERDICT_WORDS.items():
        turned = holds(new)
        if holds(old) != turned:
            sufficient = [
                effect for effect in effects if holds(plan_outcome(effect.changed_plan, effect.added)) == turned
            ]
            needed = [
                effect for effect in effects if holds(plan_outcome(effect.unchanged_plan, effect.removed)) != turned
            ]
            yield Flip(word, turned, tuple(name for effect in sufficient or needed for name in effect.inputs))
            return  # what does not fit keeps no headroom either


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
    return (
        *(not rank for rank in ranks),
        *(-float(movement.by) if movement else 0.0 for movement in moved),
        change.path,
    )


def outcome_of(version: PlanVersion | None) -> PlanOutcome | None:
    """What a version of a plan comes to; None where it does not compile."""
    if version is None or version.plan is None:
        return None
    try:
        return plan_outcome(version.plan, compile_totals(version.plan))
    except SpecError:
        return None
