"""`ledger solve`: a plan solved for one of its inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ledger.cli.options import json_option, set_option, spec_argument

if TYPE_CHECKING:
    from ledger.books.results import Number
    from ledger.books.what_if.answer import Bound, Solution

UNSATISFIABLE = 1
NONE = "–"


@click.command(name="solve")
@spec_argument
@click.option(
    "--for", "paths", required=True, multiple=True, metavar="KEY", help="What to look for, as in run.micro_batch."
)
@click.option(
    "--subject-to",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help="What must hold, as in 'memory.peak <= 80 GB' or fits (which is the default).",
)
@click.option("--maximize", default="", metavar="TOTAL", help="Of all solutions, the one with most of a total.")
@click.option("--minimize", default="", metavar="TOTAL", help="Of all solutions, the one with least of a total.")
@set_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, spec: str, overrides: tuple[str, ...], *, as_json: bool, **asked: Any) -> None:
    """Find the value of KEY that meets conditions.

    KEY is run.micro_batch, run.seq_len, run.global_batch, run.tokens, cluster.devices, model.parameters (of a model
    that is a bare count), the repeat of a layer group, or any real number of the plan (assumptions.mfu,
    accelerator.bandwidth, ...). The result is the largest value, or the smallest where conditions limit it from below.

    Exit code 1: no value meets the conditions; what comes nearest is printed.
    """
    from ledger.spec.load import load_plan

    if asked["maximize"] and asked["minimize"]:
        raise click.UsageError("--maximize and --minimize exclude each other")
    if len(asked["paths"]) > 1:
        raise click.UsageError(f"one KEY at a time is solved for, not {' and '.join(asked['paths'])}")
    plan = load_plan(spec, overrides)
    from ledger.books.what_if.solve import solve
    from ledger.cli.tables import print_json

    limits = {name: asked[name] for name in ("maximize", "minimize")}
    found = solve(plan, asked["paths"][0], asked["conditions"], **limits)
    if as_json:
        print_json(record(found))
    else:
        print_solution(found)
    ctx.exit(0 if found.value is not None else UNSATISFIABLE)


def print_solution(found: Solution) -> None:
    """The value, the closed form it comes from, and every condition at it and one step beyond."""
    from ledger.cli.tables import print_table

    given, at, beyond = (
        NONE if value is None else written(value, found.unit) for value in (found.given, found.nearest, found.beyond)
    )
    if found.value is None:
        click.echo(f"no {found.path} meets the conditions; the nearest miss is {at}")
    else:
        click.echo(f"{found.path} = {at} ({found.goal}; given: {given})")
    lines = [("legal values", found.legal), ("closed form", found.closed_form)]
    for name, text in (*lines, *(("note", note) for note in found.notes)):
        if text:
            click.echo(f"{name}: {text}")
    click.echo()
    heads = ("condition", f"given: {given}", f"here: {at}", f"beyond: {beyond}", "limit", "")
    print_table(heads, [cells(found, bound) for bound in found.bounds], right=heads[1:5])


def cells(found: Solution, bound: Bound) -> tuple[str, ...]:
    """A condition in a line."""
    from ledger.cli.tables import amount
    from ledger.units import unit_of

    values = (bound.given, bound.at, bound.beyond, bound.limit)
    shown = (NONE if value is None else amount(value, unit_of(bound.key)) for value in values)
    return bound.text, *shown, ("binds" if found.value is not None else "fails") if bound.binds else ""


def written(value: Number, unit: str) -> str:
    """The value as a spec would state it."""
    from ledger.spec.quantities import write

    if unit == "1":
        return str(value) if isinstance(value, int) else f"{float(value):.9g}"
    return write(value if isinstance(value, int) else float(f"{float(value):.9g}"), unit)


def record(found: Solution) -> dict[str, Any]:
    """The published form of a solution."""
    from ledger.report.contract import json_number_or_none

    return {
        "schema": "ledger-solve/1",
        "for": found.path,
        "unit": found.unit,
        "value": json_number_or_none(found.value),
        "nearest": json_number_or_none(found.nearest),
        "given": json_number_or_none(found.given),
        "beyond": json_number_or_none(found.beyond),
        "goal": found.goal,
        "legal": found.legal,
        "closed_form": found.closed_form,
        "notes": list(found.notes),
        "conditions": [
            {
                "condition": bound.text,
                "total": bound.key,
                "limit": json_number_or_none(bound.limit),
                "given": json_number_or_none(bound.given),
                "at": json_number_or_none(bound.at),
                "beyond": json_number_or_none(bound.beyond),
                "binds": bound.binds,
            }
            for bound in found.bounds
        ],
    }
