"""`ledger check`: whether plans are well formed, meet their expectations, and fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ledger.cli.options import format_options, set_option, specs_argument
from ledger.cli.problems import as_record
from ledger.cli.progress import search_option, searched
from ledger.cli.verbs import BAD_INPUT
from ledger.report.checked import CheckOutcome, judgement
from ledger.report.problem_formats import FORMATS as WRITERS
from ledger.spec.problems import Problem

if TYPE_CHECKING:
    from ledger.report.recommendations import Recommendations

FAILED = 1
SEARCHED = ("text", "json")  # formats that have what else would fit
FORMATS = (*SEARCHED, *WRITERS)
LENGTHS = ("time.calendar", "time.step", "serve.tokens_per_second")  # what is told first of a layout, where it has it
PAID = ("cost.run", "cost.per_million_tokens")


@click.command(name="check")
@specs_argument("SPEC...")
@set_option
@format_options(FORMATS, "text")
@click.option("--strict", is_flag=True, help="Warnings fail a plan.")
@search_option
@click.option("--only-plans", is_flag=True, help="Pass over files that are no plans, as hooks name them.")
@click.pass_context
def command(
    ctx: click.Context,
    specs: tuple[str, ...],
    overrides: tuple[str, ...],
    form: str,
    *,
    strict: bool,
    search: bool,
    only_plans: bool,
) -> None:
    """Check plans: rules, expectations, fit, and all that the report's checklist warns of.

    Each problem has its place in the file. Of a plan that does not leave its headroom free, the smallest edit that
    fits, the cheapest and the fastest layout are printed, of a search that takes seconds; of all layouts where `ledger
    report` has searched them.

    Exit code 2: a spec is no valid plan. 1: a plan does not fit or misses an expectation, or has a warning under
    --strict. 0: all pass.
    """
    import ledger
    from ledger.course.checked import checked_spec

    specs = tuple(filter(is_plan_file, specs)) if only_plans else specs
    finder = partial(searched, whole=False) if search and form in SEARCHED else None
    outcomes = [checked_spec(spec, partial(ledger.compile, spec, overrides), finder) for spec in specs]
    outcomes = [outcome.strict for outcome in outcomes] if strict else outcomes
    printers: dict[str, Callable[[list[CheckOutcome]], None]] = {"text": print_text, "json": print_records}
    printers.get(form, partial(print_format, form))(outcomes)
    ctx.exit(max((exit_code(outcome) for outcome in outcomes), default=0))


def is_plan_file(spec: str) -> bool:
    """Whether a file is a plan, be it sound or not."""
    from ledger.spec.bounded_files import read_bounded
    from ledger.spec.reader import LARGEST_TEXT
    from ledger.spec.trees import is_plan

    return Path(spec).is_file() and is_plan(read_bounded(spec, LARGEST_TEXT), spec)


def exit_code(outcome: CheckOutcome) -> int:
    """The exit code that one spec alone would cause."""
    return {"passed": 0, "failed": FAILED, "bad input": BAD_INPUT}[outcome.status]


def print_text(outcomes: list[CheckOutcome]) -> None:
    """A line for each spec, and below it what is wrong."""
    from ledger.cli.colours import BAD, CAREFUL, GOOD, coloured

    for outcome in outcomes:
        colour = BAD if exit_code(outcome) else CAREFUL if outcome.warnings else GOOD
        count = len(outcome.warnings)
        heeded = f" with {count} warning{'s' if count > 1 else ''}" if count and not exit_code(outcome) else ""
        status = coloured(f"{outcome.status}{heeded}", colour)
        click.echo(f"{outcome.spec}: {status}{': ' if outcome.headline else ''}{outcome.headline}")
        print_problems((*outcome.problems, *outcome.failures), outcome, BAD)
        heeds = [replace(problem, message=f"warning: {problem.message}") for problem in outcome.warnings]
        print_problems(heeds, outcome, CAREFUL)
        if outcome.recommendations:
            print_recommendations(outcome.recommendations)


def print_problems(problems: Sequence[Problem], outcome: CheckOutcome, colour: str) -> None:
    """Each problem of a spec in its line of the source, what is wrong in a colour."""
    from ledger.cli.colours import coloured
    from ledger.spec.render import problem_paragraphs

    for paragraph in problem_paragraphs(problems, outcome.sources):
        first, end, rest = paragraph.partition("\n")
        click.echo(f"{coloured(first, colour)}{end}{rest}")


def print_recommendations(found: Recommendations) -> None:
    """What is recommended with its figures and the lines to write, and what was looked at."""
    from ledger.cli.tables import amount
    from ledger.numbers import THIN
    from ledger.units import unit_of

    for name, one in found.named().items():
        length = next(key for key in LENGTHS if key in one.totals)
        shown = [length, *(key for key in PAID if key in one.totals), "memory.reserved"]
        figures = ", ".join(amount(one.totals[key], unit_of(key)) for key in shown)
        click.echo(f"  {name}: {figures}")
        for line in one.yaml:
            click.echo(f"    {line}")
    if found.nearest:
        totals = found.nearest.totals
        needed, left = totals["memory.reserved"], totals["memory.capacity"] - found.headroom
        of = f"{amount(totals['memory.capacity'], 'B')} less {amount(found.headroom, 'B')} headroom"
        click.echo(f"  no layout fits; the nearest miss: {found.nearest.label}")
        click.echo(f"    it needs {amount(needed, 'B')}, {amount(needed - left, 'B')} more than {of}")
    click.echo(f"  {found.scope.replace(THIN, ' ')}")


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


def recommended_record(found: Recommendations) -> dict[str, Any]:
    """Layouts that fit for machines; null for what there is none of."""
    named = {name: getattr(found, name) for name in ("smallest", "cheapest", "fastest", "nearest")}
    return {
        **{name: one and {"changes": one.changes, "totals": one.totals} for name, one in named.items()},
        "counts": {"legal": found.legal, "fitting": found.fitting},
        "headroom": found.headroom,
        "complete": found.complete,
        "kept": list(found.kept),
        "fewer_devices": {str(devices): count for devices, count in found.fewer.items()},
    }


def print_format(form: str, outcomes: list[CheckOutcome]) -> None:
    """What is wrong with each spec, as other programs read it."""
    from ledger.cli.tables import write_format

    write_format(form, WRITERS[form](judgement(outcomes)))
