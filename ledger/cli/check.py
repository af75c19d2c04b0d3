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
    from ledger.spec.plan import Expectation, Plan

FAILED = 1


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

    try:
        compiled = ledger.compile(spec, overrides)
    except SpecError as error:
        return Outcome(spec, problems=error.problems, sources=error.sources)
    return Outcome(
        spec,
        failures=tuple(failures(compiled, spec)),
        warnings=compiled.plan.warnings,
        headline=compiled.verdict.headline,
    )


def failures(compiled: Compiled, spec: str) -> Iterator[Problem]:
    """Everything in which a compiled plan fails, with its place."""
    title = compiled.plan.origins.get("plan")
    top = title.where if title else Location(spec)
    for expectation in compiled.plan.expect:
        yield from missed(compiled, expectation, place_of(compiled.plan, expectation) or top)
    for check in compiled.verdict.checks:
        if check.status == "fail" and check.name != "expect":
            yield Problem(top, f"{check.title}: {check.figure}", check.detail)


def place_of(plan: Plan, expectation: Expectation) -> Location | None:
    """Where an expectation of the plan, or of its model, is written."""
    line = re.compile(rf"(model\.)?expect\.\d+\.{re.escape(expectation.key)}")
    written = (origin for path, origin in plan.origins.items() if line.fullmatch(path))
    return next((origin.where for origin in written if origin.source == expectation.source), None)


def missed(compiled: Compiled, expectation: Expectation, where: Location) -> Iterator[Problem]:
    """The expectation, if its total is unknown or further off than its tolerance."""
    from ledger.cli.accounts import unknown
    from ledger.report.contract import number

    key, value = expectation.key, expectation.value
    if key not in compiled.totals:
        yield Problem(where, unknown(compiled, key).message)
        return
    found = compiled.totals[key]
    if abs(found - value) > expectation.tolerance * abs(value):
        message = f"expected {key} {value} within {expectation.tolerance:.2%}, found {number(found)}"
        yield Problem(where, message, f"the expectation is from {expectation.source}" if expectation.source else "")


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
