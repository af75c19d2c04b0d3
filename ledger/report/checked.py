"""Whether a plan is well formed, meets its expectations, and fits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.report import checklist
from ledger.report.problem_formats import FAILED, INVALID, PASSED, JudgedSpec, Judgement
from ledger.spec.problems import FLAG, Location, Problem, SpecError

if TYPE_CHECKING:
    from ledger.books.results import Compiled
    from ledger.report.recommendations import Recommendations
    from ledger.spec.plan import Plan

    Search = Callable[[Plan], Recommendations | None]


@dataclass(frozen=True)
class CheckOutcome:
    """What became of one spec: `problems` stop the compiler; `failures` and `warnings` are a compiled plan's.

    `sources` are the texts that the places of problems lie in, by file. `recommendations`: layouts that fit, of a plan
    that does not leave its headroom free.
    """

    spec: str
    problems: tuple[Problem, ...] = ()
    failures: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    headline: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
    recommendations: Recommendations | None = None

    @property
    def status(self) -> str:
        """`bad input`, `failed` or `passed`."""
        if self.problems:
            return "bad input"
        return "failed" if self.failures else "passed"

    @property
    def strict(self) -> CheckOutcome:
        """The same where warnings fail a plan."""
        return replace(self, failures=(*self.failures, *self.warnings), warnings=())


def check_plan(spec: str, compiler: Callable[[], Compiled], search: Search | None = None) -> CheckOutcome:
    """What is wrong with the plan that `compiler` compiles, or with how it compares with what it expects.

    `search` finds what to change of a plan that does not leave its headroom free.
    """
    try:
        compiled = compiler()
    except SpecError as error:
        return CheckOutcome(spec, problems=error.problems, sources=error.sources)
    return CheckOutcome(
        spec,
        failures=checklist.failures(compiled, spec),
        warnings=checklist.warnings(compiled, spec),
        headline=compiled.verdict.headline,
        sources=_texts(compiled.plan),
        recommendations=search(compiled.plan) if search and misses_headroom(compiled) else None,
    )


def misses_headroom(compiled: Compiled) -> bool:
    """Whether the fullest device has less free than the plan's own policy asks for."""
    return any(check.name == checklist.FITS and check.status != "pass" for check in compiled.verdict.checks)


def _texts(plan: Plan) -> dict[str, str]:
    """The texts of a plan that are in no file, or not in the file as it is now."""
    if plan.reading is None:
        return {}
    typed = {f"{FLAG}{setting}": f"{FLAG}{setting}" for setting in plan.reading.overrides}
    return {plan.reading.source.file: plan.reading.source.text, **typed}


def judgement(outcomes: Sequence[CheckOutcome]) -> Judgement:
    """What `check` found of specs, as other programs list it."""
    from ledger.spec.rules.table import rule_meanings

    return Judgement("check", tuple(map(judged_spec, outcomes)), rule_meanings())


def judged_spec(outcome: CheckOutcome) -> JudgedSpec:
    """A checked spec with its problems where a program finds them: in files of a checkout."""
    read = next((file for file in outcome.sources if not file.startswith(FLAG)), outcome.spec)
    file = checkout_path(read)

    def placed(problems: Iterable[Problem]) -> tuple[Problem, ...]:
        return tuple(problem_in_checkout(problem, file) for problem in problems)

    return JudgedSpec(
        outcome.spec,
        file,
        INVALID if outcome.problems else FAILED if outcome.failures else PASSED,
        errors=placed((*outcome.problems, *outcome.failures)),
        warnings=placed(outcome.warnings),
        headline=outcome.headline,
    )


def problem_in_checkout(problem: Problem, spec: str) -> Problem:
    """The problem in a file: of a revision, as it is checked out; of what was typed, the first line of the `spec`."""
    where = problem.where
    if not where.file.startswith(FLAG):
        return replace(problem, where=replace(where, file=checkout_path(where.file)))
    return replace(problem, where=Location(spec), message=f"{problem.message} ({where.file})")


def checkout_path(file: str) -> str:
    """The path of a file in a checkout, also of one at a revision (`HEAD~1:specs/70b.yaml`)."""
    _, colon, path = file.partition(":")
    return path if colon and path and not Path(file).exists() else file
