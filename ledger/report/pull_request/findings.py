"""What is to be said of plans that a change affects, by rule, each finding at its place in the changed files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ledger.numbers import THIN
from ledger.report.escape import one_line
from ledger.report.problem_formats import (
    ERROR,
    FAILED,
    INVALID,
    LEVELS,
    NOTE,
    PASSED,
    SKIPPED,
    WARNING,
    JudgedSpec,
    Judgement,
)
from ledger.report.pull_request.plan_changes import (
    CHANGED,
    DELETED,
    NEW,
    REPAIRED,
    Comparison,
    PlanChange,
)
from ledger.report.pull_request.wording import cause_texts, flip_text, head_line
from ledger.spec.problems import Location, Problem

LONGEST = 1000  # characters of a message
RULES: Mapping[str, tuple[str, str]] = {  # level, and what it means
    "does-not-compile": (ERROR, "A plan has problems, and no totals."),
    "no-longer-fits": (ERROR, "A plan fitted its device, and does no more."),
    "does-not-fit": (ERROR, "A new plan does not fit its device."),
    "fails-on": (ERROR, "A condition of --fail-on is met."),
    "no-longer-keeps-headroom": (WARNING, "A plan left its headroom free, and does no more."),
    "totals-change": (NOTE, "A plan takes, costs or holds another amount."),
}
LOST = {"fits": "no-longer-fits", "headroom": "no-longer-keeps-headroom"}


def judgement(comparison: Comparison) -> Judgement:
    """Each affected plan with its findings; one fails by a condition of --fail-on, and is skipped once deleted."""
    specs = tuple(judged_plan(change, comparison.new) for change in comparison.changes)
    return Judgement("ci", specs, {rule: meaning for rule, (_, meaning) in RULES.items()}, head_line(comparison, str))


def judged_plan(change: PlanChange, tree: str) -> JudgedSpec:
    """A plan's findings by their levels; `tree` begins the files that were looked at."""
    placed = [in_repository(problem, change, tree) for problem in findings(change)]
    errors, warnings, notes = (
        tuple(problem for problem in placed if RULES[problem.rule][0] == level) for level in LEVELS
    )
    failed_or_not = FAILED if change.failed else SKIPPED if change.kind == DELETED else PASSED
    status = INVALID if change.problems else failed_or_not
    headline = change.kind if status == SKIPPED else ""
    return JudgedSpec(change.label, change.path, status, errors, warnings, notes, headline)


def findings(change: PlanChange) -> Iterator[Problem]:
    """What is to be said of a plan, with the rule that it meets."""
    for problem in change.problems:
        yield replace(problem, rule="does-not-compile")
    for flip in change.flips:
        if not flip.holds:
            yield Problem(input_place(change, flip.inputs), flip_text(flip, str), rule=LOST[flip.word])
    if change.kind in {NEW, REPAIRED} and change.new and not change.new.fits:
        yield Problem(Location(change.path), "does not fit", rule="does-not-fit")
    for gate in change.failed:
        said = ": ".join(filter(None, (f"meets `{gate}`", causes(change))))
        yield Problem(input_place(change), said, rule="fails-on")
    if change.kind == CHANGED and not change.failed and (said := causes(change)):
        yield Problem(input_place(change), said, rule="totals-change")


def in_repository(problem: Problem, change: PlanChange, tree: str) -> Problem:
    """The problem with the plan's name and a path of the repository: a place in the `tree`, else the plan's file."""
    prefix, where = f"{tree}:", problem.where
    is_inside = where.file.startswith(prefix)
    place = replace(where, file=where.file.removeprefix(prefix)) if is_inside else Location(change.path)
    message = one_line(f"{change.label}: {problem.message}".replace(THIN, " "), LONGEST)
    return replace(problem, where=place, message=message, help=one_line(problem.help, LONGEST))


def causes(change: PlanChange) -> str:
    """What each input adds or takes away."""
    return "; ".join(cause_texts(change, str))


def input_place(change: PlanChange, inputs: tuple[str, ...] = ()) -> Location:
    """Where the first of some inputs, or of all that changed, is written now; else the plan."""
    wanted = [one for one in change.inputs if not inputs or one.path in inputs]
    return next((one.new_origin.where for one in wanted if one.new_origin), Location(change.path))
