"""A comparison as findings, each with its place in the changed files: annotations of GitHub, and SARIF 2.1.0."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import quote

from ledger import __version__
from ledger.numbers import THIN
from ledger.report.annotations import annotation
from ledger.report.escape import one_line
from ledger.report.pull_request.plan_changes import (
    CHANGED,
    NEW,
    REPAIRED,
    Comparison,
    PlanChange,
)
from ledger.report.pull_request.wording import cause_texts, flip_text
from ledger.spec.problems import Location, Problem

SARIF = "https://json.schemastore.org/sarif-2.1.0.json"
LONGEST = 1000  # characters of a message
RULES: Mapping[str, tuple[str, str]] = {  # level, and what it means
    "does-not-compile": ("error", "A plan has problems, and no totals."),
    "no-longer-fits": ("error", "A plan fitted its device, and does no more."),
    "does-not-fit": ("error", "A new plan does not fit its device."),
    "fails-on": ("error", "A condition of --fail-on is met."),
    "no-longer-keeps-headroom": ("warning", "A plan left its headroom free, and does no more."),
    "totals-change": ("note", "A plan takes, costs or holds another amount."),
}
LOST = {"fits": "no-longer-fits", "headroom": "no-longer-keeps-headroom"}
GITHUB_LEVELS = {"error": "error", "warning": "warning", "note": "notice"}


@dataclass(frozen=True)
class RuleFinding:
    """A rule that a plan meets: what is said of it, and the place that says why, where there is one."""

    rule: str
    change: PlanChange
    said: str
    where: Location | None = None
    help: str = ""

    @property
    def level(self) -> str:
        """`error`, `warning` or `note`."""
        return RULES[self.rule][0]

    def problem(self, tree: str) -> Problem:
        """What is said, with a path of the repository: a place in the `tree` that was looked at, or the plan."""
        prefix, where = f"{tree}:", self.where
        place = Location(self.change.path)
        if where is not None and where.file.startswith(prefix):
            place = Location(where.file.removeprefix(prefix), where.line, where.column)
        message = one_line(f"{self.change.label}: {self.said}".replace(THIN, " "), LONGEST)
        return Problem(place, message, one_line(self.help, LONGEST))


def findings(comparison: Comparison) -> Iterator[RuleFinding]:
    """What is to be said of each plan, the worst first."""
    for change in comparison.changes:
        for problem in change.problems:
            yield RuleFinding("does-not-compile", change, problem.message, problem.where, problem.help)
        for flip in change.flips:
            if not flip.holds:
                yield RuleFinding(LOST[flip.word], change, flip_text(flip, str), input_place(change, flip.inputs))
        if change.kind in {NEW, REPAIRED} and change.new and not change.new.fits:
            yield RuleFinding("does-not-fit", change, "does not fit")
        for gate in change.failed:
            said = ": ".join(filter(None, (f"meets `{gate}`", causes(change))))
            yield RuleFinding("fails-on", change, said, input_place(change))
        if change.kind == CHANGED and not change.failed and (said := causes(change)):
            yield RuleFinding("totals-change", change, said, input_place(change))


def causes(change: PlanChange) -> str:
    """What each input adds or takes away."""
    return "; ".join(cause_texts(change, str))


def input_place(change: PlanChange, inputs: tuple[str, ...] = ()) -> Location | None:
    """Where the first of some inputs, or of all that changed, is written now."""
    wanted = [one for one in change.inputs if not inputs or one.path in inputs]
    return next((one.new_origin.where for one in wanted if one.new_origin), None)


def as_github(comparison: Comparison) -> str:
    """Workflow commands, which GitHub's runner reads: a line each."""
    lines = [annotation(one.problem(comparison.new), GITHUB_LEVELS[one.level]) for one in findings(comparison)]
    return "".join(f"{line}\n" for line in lines)


def as_sarif(comparison: Comparison) -> str:
    """One run in SARIF 2.1.0, for code scanning."""
    rules = [
        {"id": rule, "shortDescription": {"text": meaning}, "defaultConfiguration": {"level": level}}
        for rule, (level, meaning) in RULES.items()
    ]
    driver = {"name": "ledger", "version": __version__, "rules": rules}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [result(finding, comparison.new) for finding in findings(comparison)],
    }
    return json.dumps({"$schema": SARIF, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def result(finding: RuleFinding, tree: str) -> dict[str, object]:
    """A finding as a result; its fingerprint does not move with lines."""
    problem = finding.problem(tree)
    where, text = problem.where, f"{problem.message} {problem.help}".strip()
    return {
        "ruleId": finding.rule,
        "ruleIndex": list(RULES).index(finding.rule),
        "level": finding.level,
        "message": {"text": text},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": quote(where.file)},
                    "region": {"startLine": where.line, "startColumn": where.column},
                }
            }
        ],
        "partialFingerprints": {"ledger/v1": sha256(f"{finding.rule}\0{where.file}\0{text}".encode()).hexdigest()},
    }
