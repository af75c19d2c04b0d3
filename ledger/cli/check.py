"""`ledger check`: whether plans are well formed, meet their expectations, and fit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import click

from ledger.cli.options import set_option
from ledger.cli.verbs import BAD_INPUT
from ledger.spec.problems import Location, Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.books.results import Compiled
    from ledger.spec.plan import Plan

FAILED = 1
EXPECTED = "expect."  # how the verdict names the check of an `expect:` line


@dataclass(frozen=True)
class Outcome:
    """What became of one spec: `problems` stop the compiler; `failures` and `warnings` are a compiled plan's.

    `sources` are the texts that the places of problems lie in, by file.
    """

    spec: str
    problems: tuple[Problem, ...] = ()
    failures: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    headline: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """`bad input`, `failed` or `passed`."""
        if self.problems:
            return "bad input"
        return "failed" if self.failures else "passed"


@click.command(name="check")
@click.argument("specs", nargs=-1, required=True, metavar="SPEC...", type=click.Path(allow_dash=True))
@set_option
@click.option("--format", "form", type=click.Choice(["text", "json", "github"]), default="text", show_default=True)
@click.option("--json", "form", flag_value="json", type=click.Choice(["text", "json", "github"]), help="Print JSON.")
@click.pass_context
def command(ctx: click.Context, specs: tuple[str, ...], overrides: tuple[str, ...], form: str) -> None:
    """Check plans: rules, expectations, fit.

    Exit code 2: a spec is no valid plan. 1: a plan does not fit or misses an expectation. 0: all pass.
    """
    outcomes = [checked(spec, overrides) for spec in specs]
    {"text": print_text, "json": print_records, "github": print_annotations}[form](outcomes)
    ctx.exit(max(exit_code(outcome) for outcome in outcomes))


def exit_code(outcome: Outcome) -> int:
    """The exit code that one spec alone would cause."""
    return {"passed": 0, "failed": FAILED, "bad input": BAD_INPUT}[outcome.status]


def checked(spec: str, overrides: tuple[str, ...]) -> Outcome:
    """Compiles a spec and compares it with what it expects."""
    import ledger
    from ledger.spec.lecture import is_lecture

    try:
        if is_lecture(spec):
            return checked_lecture(spec)
        compiled = ledger.compile(spec, overrides)
    except SpecError as error:
        return Outcome(spec, problems=error.problems, sources=error.sources)
    return Outcome(
        spec,
        failures=tuple(failures(compiled, spec)),
        warnings=compiled.plan.warnings,
        headline=compiled.verdict.headline,
    )


def checked_lecture(spec: str) -> Outcome:
    """Answers a lecture's questions and compares them with what is expected; raises SpecError."""
    from ledger.spec.lecture import load_lecture

    lecture = load_lecture(spec)
    from ledger.books.lecture import answers

    given = tuple(answers(lecture))
    missed = tuple(
        Problem(answer.question.where, f"expected {one.expected.figure} {one.expected.text}, found {one.found}")
        for answer in given
        for one in answer.outcomes
        if not one.holds
    )
    return Outcome(spec, failures=missed, headline=f"{len(given)} questions")


def failures(compiled: Compiled, spec: str) -> Iterator[Problem]:
    """Every check of the verdict that failed, in the line of the spec that it is about."""
    for check in compiled.verdict.checks:
        if check.status == "fail":
            key = check.name.removeprefix(EXPECTED) if check.name.startswith(EXPECTED) else ""
            where = place_of(compiled.plan, key) or Location(spec)
            yield Problem(where, f"{check.title}: {check.figure}", near(compiled, key) or check.detail)


def place_of(plan: Plan, key: str) -> Location | None:
    """Where the plan, or else its model, expects the total `key`; for no key, where the plan has its title."""
    expected = re.escape(key)
    for line in (rf"expect\.\d+\.{expected}", rf"model\.expect\.\d+\.{expected}") if key else ("plan",):
        for path, origin in plan.origins.items():
            if re.fullmatch(line, path):
                return origin.where
    return None


def near(compiled: Compiled, key: str) -> str:
    """For a key that no total has, those that may have been meant."""
    from ledger.cli.accounts import unknown

    return unknown(compiled, key).message if key and key not in compiled.totals else ""


def print_text(outcomes: list[Outcome]) -> None:
    """A line for each spec on stdout, what is wrong on stderr."""
    from ledger.cli.problems import tell

    for outcome in outcomes:
        tell((*outcome.problems, *outcome.failures), outcome.sources)
        tell(replace(problem, message=f"warning: {problem.message}") for problem in outcome.warnings)
        click.echo(f"{outcome.spec}: {outcome.status}{': ' if outcome.headline else ''}{outcome.headline}")


def print_records(outcomes: list[Outcome]) -> None:
    """One JSON object, `ledger-check/1`, for all specs."""
    from ledger.cli.tables import print_json

    print_json({"schema": "ledger-check/1", "specs": [record(outcome) for outcome in outcomes]})


def record(outcome: Outcome) -> dict[str, Any]:
    """An outcome for machines."""
    from ledger.cli.problems import as_record

    return {
        "spec": outcome.spec,
        "status": outcome.status,
        "headline": outcome.headline,
        "problems": [as_record(problem) for problem in outcome.problems],
        "failures": [as_record(problem) for problem in outcome.failures],
        "warnings": [as_record(problem) for problem in outcome.warnings],
    }


def print_annotations(outcomes: list[Outcome]) -> None:
    """GitHub workflow commands on stdout, which its runner reads."""
    from ledger.cli.problems import annotation

    for outcome in outcomes:
        for problem in (*outcome.problems, *outcome.failures):
            click.echo(annotation(problem, "error"))
        for problem in outcome.warnings:
            click.echo(annotation(problem, "warning"))
