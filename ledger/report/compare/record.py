"""A comparison of plans for programs: `ledger-compare/1`, amounts in SI base units."""

from __future__ import annotations

from typing import Any

from ledger.numbers import THIN
from ledger.report.compare.choice import PlanChoice, RankedPlan
from ledger.report.compare.choice_words import choice_sentences, rule_text
from ledger.report.compare.comparison import PlanComparison
from ledger.report.compare.plans import ComparedPlan, PlanDifference
from ledger.report.compare.rows import verdict_cell
from ledger.report.contract import json_number
from ledger.report.diff_views import input_record
from ledger.report.gates import free_bytes
from ledger.report.pull_request.record import flip_record, movement_record

SCHEMA = "ledger-compare/1"


def comparison_record(comparison: PlanComparison) -> dict[str, Any]:
    """The published form; the first plan is the one that others are compared with."""
    return {
        "schema": SCHEMA,
        "plans": [plan_record(one) for one in comparison.plans],
        "differences": [difference_record(one) for one in comparison.differences],
        "choice": choice_record(comparison.choice),
    }


def plan_record(plan: ComparedPlan) -> dict[str, Any]:
    """A plan with its verdict and every total; what a plan that does not run would cost is among them."""
    compiled, cell = plan.compiled, verdict_cell(plan)
    reading = compiled.plan.reading
    return {
        "plan": plan.label,
        "spec": plan.spec,
        "title": compiled.plan.title,
        "digest": compiled.plan.digest,
        "overrides": list(reading.overrides) if reading else [],
        "verdict": cell.text.lower(),
        "detail": cell.note.replace(THIN, " "),
        "fits": compiled.verdict.fits,
        "runs": plan.runs,
        "keeps_headroom": plan.outcome.keeps_headroom,
        "free": json_number(free_bytes(plan.outcome)),
        "bottleneck": compiled.verdict.bottleneck,
        "evidence": compiled.verdict.evidence,
        "step": {one.name: one.seconds for one in compiled.waterfall},
        "totals": {key: json_number(value) for key, value in compiled.totals.items()},
    }


def difference_record(difference: PlanDifference) -> dict[str, Any]:
    """A plan against the first; days and dollars only where both run."""
    return {
        "plan": difference.label,
        "inputs": [input_record(one) for one in difference.inputs],
        "movements": {one.measure: movement_record(one) for one in difference.movements},
        "verdict": [flip_record(one) for one in difference.flips],
        "different_work": list(difference.work),
        "notes": list(difference.notes),
    }


def choice_record(choice: PlanChoice) -> dict[str, Any]:
    """What is recommended and why; no plan where none is."""
    best = choice.chosen
    return {
        "plan": best.label if best else None,
        "sentence": " ".join(choice_sentences(choice)).replace(THIN, " "),
        "rule": rule_text(choice),
        "total": choice.total,
        "stated": choice.stated,
        "requirements": list(choice.requirements),
        "same_work": not choice.work,
        "candidates": [candidate_record(one) for one in choice.candidates],
        "not_parted": [{"plan": one.label, "overlap": json_number(shared)} for one, shared in choice.rivals],
        "left_out": [{"plan": label, "why": why.replace(THIN, " ")} for label, why in choice.left_out],
    }


def candidate_record(one: RankedPlan) -> dict[str, Any]:
    """A plan that may be chosen, by the total that plans are chosen by; no ends where they are not known."""
    low, high = (json_number(end) for end in one.ends) if one.ends else (None, None)
    return {"plan": one.label, "amount": json_number(one.amount), "low": low, "high": high}
