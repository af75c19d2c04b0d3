"""Two trees of plans compared plan by plan: what `ledger diff` prints of folders and of ranges of revisions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ledger.books import compile_plan
from ledger.numbers import THIN
from ledger.report import diff_views
from ledger.report.diff import Diff, diff
from ledger.report.escape import html_code, html_text
from ledger.report.pull_request.markdown import as_markdown as as_comment
from ledger.report.pull_request.pairs import CHANGED, MOVED, SAME, Comparison, PlanChange
from ledger.report.pull_request.record import change_record, head_line

DIFF_SET_SCHEMA = "ledger-diffs/1"


@dataclass(frozen=True)
class PlanDiff:
    """An affected plan, and everything in which it differs where it compiles before and after."""

    change: PlanChange
    diff: Diff | None

    @property
    def title(self) -> str:
        """Where the plan is, and what became of it."""
        moved = self.change.pair.moved_from
        return f"{self.change.path}: {self.change.kind}{f', from {moved}' if moved else ''}"


@dataclass(frozen=True)
class DiffSet:
    """A comparison, and the differences of its plans, worst first."""

    comparison: Comparison
    plans: tuple[PlanDiff, ...]


def diff_set(comparison: Comparison) -> DiffSet:
    """The comparison with the full difference of each affected plan."""
    return DiffSet(comparison, tuple(PlanDiff(change, plan_diff(change)) for change in comparison.changes))


def plan_diff(change: PlanChange) -> Diff | None:
    """Everything in which a plan differs; None for one that is on one side only, or differs in nothing."""
    old, new = change.pair.old, change.pair.new
    if change.kind not in {CHANGED, SAME, MOVED} or not change.inputs:
        return None
    if not (old and new and old.plan and new.plan):
        return None
    return diff(compile_plan(old.plan), compile_plan(new.plan))


def as_text(differences: DiffSet) -> str:
    """The line that decides, then each plan in plain columns."""
    blocks = [head_line(differences.comparison, str)]
    for plan in differences.plans:
        said = [f"{problem}" for problem in plan.change.problems]
        said += [diff_views.as_text(plan.diff).rstrip()] if plan.diff else []
        blocks.append("\n".join((plan.title, *said)))
    return "\n\n".join(blocks).replace(THIN, " ") + "\n"


def as_markdown(differences: DiffSet) -> str:
    """The comment of a pull request, then each plan."""
    return "\n".join(
        (
            as_comment(differences.comparison),
            *(diff_views.as_markdown(plan.diff) for plan in differences.plans if plan.diff),
        )
    )


def as_html(differences: DiffSet) -> str:
    """Sections to put into a page that has the report's stylesheet."""
    blocks = [f"<p>{html_text(head_line(differences.comparison, str))}</p>"]
    for plan in differences.plans:
        blocks.append(f"<h2>{html_code(plan.title)}</h2>")
        blocks += [f"<p>{html_code(str(problem))}</p>" for problem in plan.change.problems]
        blocks += [diff_views.as_html(plan.diff).rstrip()] if plan.diff else []
    return "\n".join(blocks) + "\n"


def as_json(differences: DiffSet) -> str:
    """The record as a JSON text."""
    comparison = differences.comparison
    record = {
        "schema": DIFF_SET_SCHEMA,
        "old": comparison.old,
        "new": comparison.new,
        "headline": head_line(comparison, str),
        "plans": comparison.count,
        "changes": [
            {**change_record(plan.change), "diff": diff_views.record(plan.diff) if plan.diff else None}
            for plan in differences.plans
        ],
    }
    return json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


DIFF_SET_FORMATS: Mapping[str, Callable[[DiffSet], str]] = {
    "text": as_text,
    "md": as_markdown,
    "json": as_json,
    "html": as_html,
}
