"""A comparison of plans as JSON (`ledger-compare/1`, amounts in SI base units), and its rows aligned by quantity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger import numbers
from ledger.books.results import ENDS, OF_A_RUN, OPERATIONS
from ledger.books.verdict import measured_share, shortfall
from ledger.numbers import THIN
from ledger.report.compare.choice import PlanChoice, PlanComparison, RankedPlan, choice_sentences, rule_text
from ledger.report.compare.plans import ComparedPlan, PlanDifference
from ledger.report.contract import json_number
from ledger.report.diff_views import input_record, points
from ledger.report.gates import free_bytes
from ledger.report.pull_request.record import flip_record, movement_record
from ledger.report.views.advice import advice_sentence
from ledger.report.views.glance import glance
from ledger.report.views.parts import DASH, Report
from ledger.report.views.served import verdict as of_verdict
from ledger.report.views.verdict import HEADLINES
from ledger.units import unit_of

if TYPE_CHECKING:
    from ledger.books.results import Number, Verdict


COMPARISON_SCHEMA = "ledger-compare/1"


def comparison_record(comparison: PlanComparison) -> dict[str, Any]:
    """The published form; the first plan is the one that others are compared with."""
    return {
        "schema": COMPARISON_SCHEMA,
        "plans": [plan_record(plan) for plan in comparison.plans],
        "differences": [difference_record(difference) for difference in comparison.differences],
        "choice": choice_record(comparison.choice),
    }


def plan_record(plan: ComparedPlan) -> dict[str, Any]:
    """A plan with its verdict and every total; what a plan that does not run would cost is among them."""
    compiled, verdict = plan.compiled, verdict_cell(plan)
    reading = compiled.plan.reading
    return {
        "plan": plan.label,
        "spec": plan.spec,
        "title": compiled.plan.title,
        "digest": compiled.plan.digest,
        "overrides": list(reading.overrides) if reading else [],
        "verdict": verdict.text.lower(),
        "detail": verdict.note.replace(THIN, " "),
        "fits": compiled.verdict.fits,
        "runs": plan.runs,
        "keeps_headroom": plan.outcome.keeps_headroom,
        "free": json_number(free_bytes(plan.outcome)),
        "bottleneck": compiled.verdict.bottleneck,
        "evidence": compiled.verdict.evidence,
        "step": {part.name: part.seconds for part in compiled.waterfall},
        "totals": {key: json_number(value) for key, value in compiled.totals.items()},
    }


def difference_record(difference: PlanDifference) -> dict[str, Any]:
    """A plan against the first; days and dollars only where both run."""
    return {
        "plan": difference.label,
        "inputs": [input_record(change) for change in difference.inputs],
        "movements": {movement.measure: movement_record(movement) for movement in difference.movements},
        "verdict": [flip_record(flip) for flip in difference.flips],
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
        "candidates": [candidate_record(candidate) for candidate in choice.candidates],
        "not_parted": [{"plan": rival.label, "overlap": json_number(shared)} for rival, shared in choice.rivals],
        "left_out": [{"plan": label, "why": why.replace(THIN, " ")} for label, why in choice.left_out],
    }


def candidate_record(candidate: RankedPlan) -> dict[str, Any]:
    """A plan that may be chosen, by the total that plans are chosen by; no ends where they are not known."""
    low, high = (json_number(end) for end in candidate.ends) if candidate.ends else (None, None)
    return {"plan": candidate.label, "amount": json_number(candidate.amount), "low": low, "high": high}


# --- rows of quantities, a cell for each plan ---

NONE = DASH.text
FIGURES = (
    *("memory.reserved", "time.step", "time.calendar", "cost.run", "energy.run", "mfu", "tokens_per_second"),
    *("serve.ttft.under_load", "serve.time_per_token", "serve.tokens_per_second", "cost.per_million_tokens"),
)
CHECKS_OF_VERDICT_ROW = ("fits", "state", "activations", OPERATIONS)  # checks that the verdict's row is about
TITLES = {**dict(HEADLINES), **dict(of_verdict.HEADLINES), "energy.run": "energy of the run"}


@dataclass(frozen=True)
class AlignedCell:
    """What a row says of one plan: `text`, small print below it, and how it compares with the first plan.

    `status` (pass, warn or fail) is that of a verdict. `is_as_first`: it says what the first plan's says.
    """

    text: str
    note: str = ""
    change: str = ""
    status: str = ""
    is_as_first: bool = False

    @property
    def text_and_note(self) -> tuple[str, str]:
        """Text and note, by which two cells are equal."""
        return self.text, self.note


@dataclass(frozen=True)
class AlignedRow:
    """A quantity or a choice, and what it is in each plan; `is_key` where its name is one of a spec."""

    name: str
    cells: tuple[AlignedCell, ...]
    is_key: bool = False

    @property
    def is_alike(self) -> bool:
        """Whether the cells of all plans are equal."""
        return len({cell.text_and_note for cell in self.cells}) == 1


def aligned_row(name: str, cells: Sequence[AlignedCell], *, is_key: bool = False) -> AlignedRow:
    """A row in which cells that say what the first one says are marked."""
    first, *other_cells = cells
    marked = [
        AlignedCell(cell.text, cell.note, cell.change, cell.status, cell.text_and_note == first.text_and_note)
        for cell in other_cells
    ]
    return AlignedRow(name, (first, *marked), is_key)


def aligned_rows(plans: Sequence[ComparedPlan]) -> tuple[AlignedRow, ...]:
    """The first page: verdict, figures, and what each plan is made of."""
    rows = [aligned_row("verdict", [verdict_cell(plan) for plan in plans])]
    for key in FIGURES:
        cells = [figure_cell(plan, plans[0], key) for plan in plans]
        if any(cell.text != NONE for cell in cells):
            rows.append(aligned_row(TITLES[key], cells))
    rows += [aligned_row(name, [AlignedCell(text) for text in texts]) for name, texts in choices(plans)]
    return tuple(rows)


def choices(plans: Sequence[ComparedPlan]) -> Iterator[tuple[str, list[str]]]:
    """What limits each plan, what it is called, and its choices at a glance, by name."""
    verdicts = [plan.compiled.verdict for plan in plans]
    yield "limited by", [verdict.bottleneck for verdict in verdicts]
    yield "evidence", [evidence_text(verdict) for verdict in verdicts]
    yield "price", [price_text(plan) for plan in plans]
    yield "plan", [plan.compiled.plan.title for plan in plans]
    glances = [dict(glance(plan.compiled.plan)) for plan in plans]
    for name in dict.fromkeys(name for texts in glances for name in texts):
        yield name, [texts.get(name, NONE) for texts in glances]
    failed = [
        ", ".join(
            check.title
            for check in verdict.checks
            if check.status == "fail" and check.name not in CHECKS_OF_VERDICT_ROW
        )
        for verdict in verdicts
    ]
    if any(failed):
        yield "checks that fail", [text or "none" for text in failed]


def evidence_text(verdict: Verdict) -> str:
    """What stands behind a plan's step, and how much of it data sheets alone price where that is not little."""
    if verdict.evidence == measured_share(0.0):
        return verdict.evidence
    return f"{verdict.evidence}: data sheets price {numbers.percent(verdict.by_data_sheet)} of the step"


def price_text(plan: ComparedPlan) -> str:
    """What an hour of a device costs."""
    price = plan.compiled.plan.assumptions.price
    if price is None:
        return NONE
    return numbers.offer(price.per_device_hour, plan.compiled.plan.accelerator.name, price.date)


def verdict_cell(plan: ComparedPlan) -> AlignedCell:
    """Whether a plan runs, and what is free, missing, or would make it run."""
    if not plan.is_known:
        return AlignedCell("Napkin only", "a count of parameters and nothing else", status="warn")
    free = free_bytes(plan.outcome)
    if not plan.compiled.verdict.fits:
        advised = advice_sentence(Report(plan.compiled, recommendations=plan.search))
        return AlignedCell("Does not fit", f"{numbers.size(-free)} missing. {advised}".strip(), status="fail")
    if not plan.runs:
        why = next(check.detail for check in plan.compiled.verdict.checks if check.name == OPERATIONS)
        return AlignedCell("Never ends", why, status="fail")
    short = shortfall(plan.compiled.plan, plan.compiled.totals)
    return AlignedCell("Fits", short or f"{numbers.size(free)} free", status="warn" if short else "pass")


def figure_cell(plan: ComparedPlan, first: ComparedPlan, key: str) -> AlignedCell:
    """A total with the ends that hold 80 of 100 runs, and its change against the first plan; of no run no days."""
    totals = plan.compiled.totals
    if not has_figure(plan, key):
        return AlignedCell(NONE)
    text, unit = numbers.amount_text(totals[key], unit_of(key)), unit_of(key)
    if key == "memory.reserved":
        text += f" of {numbers.size(totals['memory.capacity'])}"
    ends = [numbers.amount_text(totals[f"{key}.{end}"], unit) for end in ENDS if f"{key}.{end}" in totals]
    change = change_text(first.compiled.totals[key], totals[key], unit) if has_figure(first, key) else ""
    return AlignedCell(text, " to ".join(ends), change if plan is not first else "")


def has_figure(plan: ComparedPlan, key: str) -> bool:
    """Whether a plan has a total that means something: one of a run only where it runs."""
    return key in plan.compiled.totals and (plan.runs or key not in OF_A_RUN)


def change_text(old: Number, new: Number, unit: str) -> str:
    """The change over the old value, of a share in points; empty where that says nothing."""
    if not old or new == old:
        return ""
    return points(new - old) if unit == "%" else numbers.change(float(new) / float(old) - 1)


def input_rows(plans: Sequence[ComparedPlan], differences: Sequence[PlanDifference]) -> tuple[AlignedRow, ...]:
    """Every input in which a plan differs from the first, with its value in each plan."""
    first_values: dict[str, str] = {}
    other_values: dict[tuple[str, str], str] = {}
    for difference in differences:
        for change in difference.inputs:
            first_values.setdefault(change.path, change.old)
            other_values[change.path, difference.label] = change.new
    rows = []
    for path, value in first_values.items():
        cells = [AlignedCell(value), *(AlignedCell(other_values.get((path, plan.label), value)) for plan in plans[1:])]
        rows.append(aligned_row(path, cells, is_key=True))
    return tuple(rows)
