"""`ledger check`: whether plans are well formed, meet their expectations, and fit."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import click

from ledger.cli.options import set_option
from ledger.cli.verbs import BAD_INPUT
from ledger.report.checked import CheckOutcome

FAILED = 1


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
    import ledger
    from ledger.course.checked import checked_spec

    outcomes = [checked_spec(spec, partial(ledger.compile, spec, overrides)) for spec in specs]
    {"text": print_text, "json": print_records, "github": print_annotations}[form](outcomes)
    ctx.exit(max(exit_code(outcome) for outcome in outcomes))


def exit_code(outcome: CheckOutcome) -> int:
    """The exit code that one spec alone would cause."""
    return {"passed": 0, "failed": FAILED, "bad input": BAD_INPUT}[outcome.status]


def print_text(outcomes: list[CheckOutcome]) -> None:
    """A line for each spec on stdout, what is wrong on stderr."""
    from ledger.cli.problems import tell

    for outcome in outcomes:
        tell((*outcome.problems, *outcome.failures), outcome.sources)
        tell(replace(problem, message=f"warning: {problem.message}") for problem in outcome.warnings)
        click.echo(f"{outcome.spec}: {outcome.status}{': ' if outcome.headline else ''}{outcome.headline}")


def print_records(outcomes: list[CheckOutcome]) -> None:
    """One JSON object, `ledger-check/1`, for all specs."""
    from ledger.cli.tables import print_json

    print_json({"schema": "ledger-check/1", "specs": [record(outcome) for outcome in outcomes]})


def record(outcome: CheckOutcome) -> dict[str, Any]:
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


def print_annotations(outcomes: list[CheckOutcome]) -> None:
    """GitHub workflow commands on stdout, which its runner reads."""
    from ledger.cli.problems import annotation

    for outcome in outcomes:
        for problem in (*outcome.problems, *outcome.failures):
            click.echo(annotation(problem, "error"))
        for problem in outcome.warnings:
            click.echo(annotation(problem, "warning"))
