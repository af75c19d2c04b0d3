"""A comparison of two trees as JSON (`ledger-ci/1`, amounts in SI base units), and its plans in words."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from ledger import numbers
from ledger.books.results import Number
from ledger.numbers import THIN
from ledger.report.contract import json_number
from ledger.report.diff_views import input_record
from ledger.report.gates import PlanOutcome, free_bytes
from ledger.report.movements import BYTES, DOLLARS, MEASURES, RUN_SECONDS, SECONDS, Measure, Movement, amounts_by_cause
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
)
from ledger.spec.problems import Problem

PULL_REQUEST_SCHEMA = "ledger-ci/1"


def as_json(comparison: Comparison) -> str:
    """The record as a JSON text."""
    return json.dumps(record(comparison), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def record(comparison: Comparison) -> dict[str, Any]:
    """The published form: affected plans, worst first."""
    return {
        "schema": PULL_REQUEST_SCHEMA,
        "base": comparison.old,
        "head": comparison.new,
        "headline": head_line(comparison, str),
        "plans": comparison.count,
        "failed": {gate: [change.path for change in comparison.failed(gate)] for gate in comparison.gates},
        "changes": [change_record(change) for change in comparison.changes],
    }


def change_record(change: PlanChange) -> dict[str, Any]:
    """The record of an affected plan: outcomes, movements with causes, flips of the verdict, inputs and problems."""
    return {
        "plan": change.label,
        "path": change.path,
        "moved_from": change.pair.moved_from or None,
        "change": change.kind,
        "old": outcome_record(change.old),
        "new": outcome_record(change.new),
        "movements": {movement.measure: movement_record(movement) for movement in change.movements},
        "verdict": [flip_record(flip) for flip in change.flips],
        "inputs": [input_record(input_change) for input_change in change.inputs],
        "problems": [problem_record(problem) for problem in change.problems],
        "failed": list(change.failed),
    }


def outcome_record(outcome: PlanOutcome | None) -> dict[str, Any] | None:
    """What a plan comes to; None where it does not compile or is not there."""
    if outcome is None:
        return None
    keys: Mapping[str, str] = {measure.name: measure.key(outcome.totals) for measure in MEASURES}
    return {
        "fits": outcome.fits,
        "keeps_headroom": outcome.keeps_headroom,
        "free": json_number(free_bytes(outcome)),
        "totals": {key: json_number(outcome.totals[key]) for key in keys.values() if key},
    }


def flip_record(flip: Flip) -> dict[str, Any]:
    """A word of the verdict that turned."""
    return {"word": flip.word, "holds": flip.holds, "inputs": list(flip.inputs)}


def movement_record(movement: Movement) -> dict[str, Any]:
    """A total before and after; the amounts of its causes sum to the change. No inputs: several jointly."""
    return {
        "total": movement.key,
        "old": json_number(movement.old),
        "new": json_number(movement.new),
        "change": json_number(movement.new - movement.old),
        "causes": [{"inputs": list(cause.inputs), "amount": json_number(cause.amount)} for cause in movement.causes],
    }


def problem_record(problem: Problem) -> dict[str, Any]:
    """A problem with its place."""
    where = problem.where
    place = {"file": where.file, "line": where.line, "column": where.column}
    return {**place, "message": problem.message.replace(THIN, " "), "help": problem.help.replace(THIN, " ")}


# --- changed plans in words ---

Mark = Callable[[str], str]
NONE, UNDONE = "–", "±0"  # not there; moved by several inputs that undo each other
MOST_NAMES, MOST_CAUSES = 3, 4  # that a line names
TURNED: Mapping[
    tuple[str, bool], tuple[str, str]
] = {  # a word of the verdict that holds or not: of one plan, of several
    ("fits", False): ("no longer fits", "no longer fit"),
    ("headroom", False): ("no longer keeps its headroom", "no longer keep their headroom"),
    ("fits", True): ("now fits", "now fit"),
    ("headroom", True): ("now keeps its headroom", "now keep their headroom"),
}


def head_line(comparison: Comparison, mark: Mark) -> str:
    """The line that decides: how many plans change and by how much, and what turned."""
    changed = comparison.of_kind(CHANGED)
    plans = "1 plan" if comparison.count == 1 else f"{comparison.count} plans"
    verb = "change" if len(changed) > 1 else "changes"
    lead = f"{len(changed) or 'None'} of {plans} {verb}"
    if sums := total_changes_text(changed):
        lead += f": {', '.join(sums)}"
    return "; ".join((lead, *clauses(comparison, mark))).replace(numbers.THIN, " ")


def total_changes_text(changed: Sequence[PlanChange]) -> list[str]:
    """Dollars and time of runs added up; where neither moves, the largest change of memory."""
    sums = []
    for measure, keys in ((DOLLARS, DOLLARS.keys), (SECONDS, RUN_SECONDS)):
        moved = [
            movement
            for change in changed
            if (movement := change.movement(measure)) and movement.key in keys and movement.by
        ]
        if moved:
            sums.append(measure.signed(sum(Fraction(movement.by) for movement in moved)))
    if not sums:
        byte_changes = [movement.by for change in changed if (movement := change.movement(BYTES)) and movement.by]
        sums = [f"{BYTES.signed(max(byte_changes, key=lambda by: abs(float(by))))} a device"] if byte_changes else []
    return sums


def clauses(comparison: Comparison, mark: Mark) -> Iterator[str]:
    """What a reader must know besides the sums, the worst first."""
    yield from plans_clause(comparison.of_kind(BROKEN), ("does not compile", "do not compile"), mark)
    for (word, holds), said in TURNED.items():
        turned = [
            change for change in comparison.changes if any((f.word, f.holds) == (word, holds) for f in change.flips)
        ]
        yield from plans_clause(turned, said, mark)
    new = comparison.of_kind(NEW, REPAIRED)
    unfit = [change for change in new if change.new and not change.new.fits]
    yield from plans_clause(unfit, ("does not fit", "do not fit"), mark)
    for kind in (NEW, REPAIRED, DELETED, MOVED):
        if count := len(comparison.of_kind(kind)):
            yield f"{count} {kind}"
    if count := len(comparison.of_kind(SAME)):
        yield f"{count} with the same totals" if count > 1 else "1 with the same totals"


def plans_clause(changes: Sequence[PlanChange], said: tuple[str, str], mark: Mark) -> Iterator[str]:
    """Some plans and what is said of one, or of several; nothing where there are none."""
    if changes:
        names = [mark(change.label) for change in changes[:MOST_NAMES]]
        more = [f"{len(changes) - MOST_NAMES} more"] if len(changes) > MOST_NAMES else []
        *first, last = [*names, *more]
        yield f"{', '.join(first)} and {last} {said[1]}" if first else f"{last} {said[0]}"


def fits_text(change: PlanChange, strong: Mark) -> str:
    """Whether a plan fits, and where that turned, whether it did."""
    if change.new is None:
        return NONE
    now = "yes" if change.new.fits else strong("no")
    turned = change.old is not None and change.old.fits != change.new.fits
    return f"{'no' if change.new.fits else 'yes'} → {now}" if turned else now


def free_text(change: PlanChange, strong: Mark) -> str:
    """What a device has left beside the plan."""
    if change.new is None:
        return NONE
    free = free_bytes(change.new)
    text = f"{numbers.size(free)} free" if free >= 0 else f"{numbers.size(-free)} missing"
    return text if change.new.keeps_headroom else strong(text)


def amount_text(change: PlanChange, measure: Measure) -> str:
    """A measure as it is now, and by how much it moved."""
    if change.new is None or not (key := measure.key(change.new.totals)):
        return NONE
    now = measure.written(change.new.totals[key])
    moved = change.movement(measure)
    if moved is None or not (moved.by or moved.causes):
        return now
    return f"{now} ({measure.signed(moved.by) if moved.by else UNDONE})"


def reason_text(change: PlanChange, mark: Mark) -> str:
    """What became of a plan: what turned by which input, then what each cause adds or takes away."""
    if change.problems:
        more = f", and {len(change.problems) - 1} more problems" if change.problems[1:] else ""
        return f"{BROKEN}: {mark(str(change.problems[0]))}{more}"
    said = [flip_text(flip, mark) for flip in change.flips]
    if change.kind != CHANGED:
        said.append(f"moved from {mark(change.pair.moved_from)}" if change.kind == MOVED else change.kind)
    elif change.pair.moved_from:
        said.append(f"moved from {mark(change.pair.moved_from)}")
    return "; ".join((*said, *cause_texts(change, mark)))


def flip_text(flip: Flip, mark: Mark) -> str:
    """A word of the verdict that turned, and by which inputs."""
    by = ", ".join(mark(name) for name in flip.inputs) or "several inputs together"
    return f"{TURNED[flip.word, flip.holds][0]}, by {by}"


def cause_texts(change: PlanChange, mark: Mark) -> Iterator[str]:
    """Each cause with its amounts; those beyond the largest are added up."""
    amounts = amounts_by_cause(change.movements)
    listed = dict(list(amounts.items())[:MOST_CAUSES]) if len(amounts) > MOST_CAUSES + 1 else amounts
    for inputs, by in listed.items():
        yield f"{' with '.join(mark(name) for name in inputs) or 'jointly'} {amounts_text(by)}"
    other_amounts = [by for inputs, by in amounts.items() if inputs not in listed]
    if other_amounts:
        total = {measure.name: sum(Fraction(by.get(measure.name, 0)) for by in other_amounts) for measure in MEASURES}
        yield f"{len(other_amounts)} others {amounts_text(total)}"


def amounts_text(by: Mapping[str, Number]) -> str:
    """`+$298 k, +4.9 days, −1.20 GB`."""
    return ", ".join(measure.signed(by[measure.name]) for measure in MEASURES if by.get(measure.name))
