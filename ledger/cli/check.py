"""`ledger check`: whether plans are well formed, meet their expectations, and fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ledger.cli.options import as_record, format_options, set_option, specs_argument
from ledger.cli.progress import search_layouts, search_seconds_option
from ledger.cli.verbs import BAD_INPUT
from ledger.report.checked import CheckOutcome, judgement
from ledger.report.problem_formats import PROBLEM_FORMATS as WRITERS
from ledger.report.problem_formats import Judgement
from ledger.spec.problems import Problem

if TYPE_CHECKING:
    from ledger.books.compiled import Compiled
    from ledger.report.recommendations import Recommendations

FAILED = 1
FORMATS = ("text", "json", *WRITERS)
SEARCHED = ("text", "json", "github")  # formats that have what else would fit


@click.command(name="check")
@specs_argument("SPEC...")
@set_option
@format_options(FORMATS, "text")
@click.option("--strict", is_flag=True, help="Warnings fail a plan.")
@search_seconds_option
@click.option("--only-plans", is_flag=True, help="Pass over files that are no plans, as hooks name them.")
@click.pass_context
def command(
    ctx: click.Context, /, specs: tuple[str, ...], overrides: tuple[str, ...], form: str, seconds: float, **asked: bool
) -> None:
    """Check plans: rules, expectations, fit, and all that the report's checklist warns of.

    Each problem has its place in the file. Of a plan that does not leave its headroom free, other layouts are looked at
    after that, for a second: the smallest edit that fits, the cheapest and the fastest of them are printed. It is of
    all layouts where `ledger report` has searched them.

    Exit code 2: a spec is no valid plan. 1: a plan does not fit or misses an expectation, or has a warning under
    --strict. 0: all pass. A search, whatever becomes of it, changes none of them.
    """
    import ledger
    from ledger.course.answer import checked_spec
    from ledger.report.checked import with_search

    specs = tuple(filter(is_plan_file, specs)) if asked["only_plans"] else specs
    outcomes = []
    for spec in specs:
        outcome = checked_spec(spec, partial(ledger.compile, spec, overrides))
        outcomes.append(outcome.strict if asked["strict"] else outcome)
        if form == "text":
            print_outcome(outcomes[-1])
    if form in WRITERS:
        print_format(form, judgement(outcomes))
    if seconds and form in SEARCHED:
        finder = partial(best_layouts, seconds)
        if form == "json":
            outcomes = [with_search(outcome, finder) for outcome in outcomes]
        else:
            for outcome in outcomes:
                print_search(with_search(outcome, finder), form, several=len(outcomes) > 1)
    if form == "json":
        print_records(outcomes)
    ctx.exit(max((exit_code(outcome) for outcome in outcomes), default=0))


def best_layouts(seconds: float, compiled: Compiled) -> Recommendations | None:
    """Recommendations of a search of a plan's layouts: of all of them, or of those that some seconds are enough for."""
    return search_layouts(compiled.plan, whole=isinf(seconds), seconds=seconds, totals=compiled.totals)


def is_plan_file(spec: str) -> bool:
    """Whether a file is a plan, be it sound or not."""
    from ledger.spec.reader import LARGEST_TEXT
    from ledger.spec.sources import read_bounded
    from ledger.spec.trees import is_plan

    return Path(spec).is_file() and is_plan(read_bounded(spec, LARGEST_TEXT), spec)


def exit_code(outcome: CheckOutcome) -> int:
    """The exit code that one spec alone would cause."""
    return {"passed": 0, "failed": FAILED, "bad input": BAD_INPUT}[outcome.status]


def print_outcome(outcome: CheckOutcome) -> None:
    """Prints a line for a spec, and its problems below."""
    from ledger.cli.tables import BAD, CAREFUL, GOOD, coloured

    colour = BAD if exit_code(outcome) else CAREFUL if outcome.warnings else GOOD
    count = len(outcome.warnings)
    with_warnings = f" with {count} warning{'s' if count > 1 else ''}" if count and not exit_code(outcome) else ""
    status = coloured(f"{outcome.status}{with_warnings}", colour)
    click.echo(f"{outcome.spec}: {status}{': ' if outcome.headline else ''}{outcome.headline}")
    print_problems((*outcome.problems, *outcome.failures), outcome, BAD)
    warnings = [replace(problem, message=f"warning: {problem.message}") for problem in outcome.warnings]
    print_problems(warnings, outcome, CAREFUL)


def print_search(outcome: CheckOutcome, form: str, *, several: bool) -> None:
    """Prints the recommendations for a spec, which is named where there are `several`; for GitHub as an annotation."""
    from ledger.report.checked import search_lines, search_notes

    if form in WRITERS:
        print_format(form, search_notes([outcome]))
    elif outcome.recommendations:
        if several:
            click.echo(f"{outcome.spec}: what to change")
        for line in search_lines(outcome):
            click.echo(f"  {line}")


def print_problems(problems: Sequence[Problem], outcome: CheckOutcome, colour: str) -> None:
    """Prints each problem of a spec in its line of the source, the message in a colour."""
    from ledger.cli.tables import coloured
    from ledger.spec.render import problem_paragraphs

    for paragraph in problem_paragraphs(problems, outcome.sources):
        first, end, source_lines = paragraph.partition("\n")
        click.echo(f"{coloured(first, colour)}{end}{source_lines}")


def print_records(outcomes: list[CheckOutcome]) -> None:
    """One JSON object, `ledger-check/1`, for all specs."""
    from ledger.cli.tables import print_json

    print_json({"schema": "ledger-check/1", "specs": [record(outcome) for outcome in outcomes]})


def record(outcome: CheckOutcome) -> dict[str, Any]:
    """An outcome for machines."""
    return {
        "spec": outcome.spec,
        "status": outcome.status,
        "headline": outcome.headline,
        "problems": [as_record(problem) for problem in outcome.problems],
        "failures": [as_record(problem) for problem in outcome.failures],
        "warnings": [as_record(problem) for problem in outcome.warnings],
        **({"recommendations": recommended_record(outcome.recommendations)} if outcome.recommendations else {}),
    }


def recommended_record(recommendations: Recommendations) -> dict[str, Any]:
    """Layouts that fit for machines; null for what there is none of."""
    by_aim = {name: getattr(recommendations, name) for name in ("smallest", "cheapest", "fastest", "nearest")}
    return {
        **{name: layout and {"changes": layout.changes, "totals": layout.totals} for name, layout in by_aim.items()},
        "counts": {"legal": recommendations.legal, "fitting": recommendations.fitting},
        "headroom": recommendations.headroom,
        "complete": recommendations.complete,
        "near": recommendations.near,
        "note": recommendations.note or None,
        "kept": list(recommendations.fixed_keys),
        "fewer_devices": {str(devices): count for devices, count in recommendations.fewer.items()},
    }


def print_format(form: str, judged: Judgement) -> None:
    """Prints a judgement in a format of other programs."""
    from ledger.cli.tables import write_format

    write_format(form, WRITERS[form](judged))
