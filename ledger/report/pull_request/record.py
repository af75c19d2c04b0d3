"""A comparison for programs: `ledger-ci/1`, amounts in SI base units."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ledger.numbers import THIN
from ledger.report.contract import json_number
from ledger.report.diff_views import input_record
from ledger.report.gates import PlanOutcome, free_bytes
from ledger.report.movements import MEASURES, Movement
from ledger.report.pull_request.plan_changes import Comparison, Flip, PlanChange
from ledger.report.pull_request.wording import head_line
from ledger.spec.problems import Problem

SCHEMA = "ledger-ci/1"


def as_json(comparison: Comparison) -> str:
    """The record as a JSON text."""
    return json.dumps(record(comparison), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def record(comparison: Comparison) -> dict[str, Any]:
    """The published form: affected plans, worst first."""
    return {
        "schema": SCHEMA,
        "base": comparison.old,
        "head": comparison.new,
        "headline": head_line(comparison, str),
        "plans": comparison.count,
        "failed": {gate: [change.path for change in comparison.failed(gate)] for gate in comparison.gates},
        "changes": [change_record(change) for change in comparison.changes],
    }


def change_record(change: PlanChange) -> dict[str, Any]:
    """An affected plan."""
    return {
        "plan": change.label,
        "path": change.path,
        "moved_from": change.pair.moved_from or None,
        "change": change.kind,
        "old": outcome_record(change.old),
        "new": outcome_record(change.new),
        "movements": {movement.measure: movement_record(movement) for movement in change.movements},
        "verdict": [flip_record(one) for one in change.flips],
        "inputs": [input_record(one) for one in change.inputs],
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
        "causes": [{"inputs": list(one.inputs), "amount": json_number(one.amount)} for one in movement.causes],
    }


def problem_record(problem: Problem) -> dict[str, Any]:
    """A problem with its place."""
    where = problem.where
    place = {"file": where.file, "line": where.line, "column": where.column}
    return {**place, "message": problem.message.replace(THIN, " "), "help": problem.help.replace(THIN, " ")}
