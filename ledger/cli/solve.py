"""`ledger solve`: a plan solved for one or several of its inputs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from fractions import Fraction
from shlex import join
from typing import Any

import click

from ledger.books.what_if.answer import Bound, Solution, Tried
from ledger.cli import completion
from ledger.cli.options import conditions_option, json_option, set_option, spec_argument, total_option
from ledger.cli.progress import cores, progress_bar, search_option
from ledger.cli.tables import amount, print_table
from ledger.report.contract import json_number_or_none
from ledger.spec.kinds import LIBRARY_PARTS as NAMED
from ledger.spec.overrides import assignments
from ledger.spec.paths import unit
from ledger.spec.quantities import write
from ledger.units import unit_of

UNSATISFIABLE = 1
KEPT = ("widths", "shape")  # of a model, as ledger/books/what_if/sizes.py has them


@click.command(name="solve")
@spec_argument
@click.option(
    "--for",
    "paths",
    required=True,
    multiple=True,
    metavar="KEY",
    shell_complete=completion.keys,
    help="What to look for, as in run.micro_batch or parallelism.tensor; several: all combinations.",
)
@conditions_option("What must hold, as in 'memory.peak <= 80 GB' or fits (which is the default).")
@total_option("--maximize", "Of all solutions, the one with most of a total.")
@total_option("--minimize", "Of all solutions, the one with least of a total.")
@click.option(
    "--keep",
    default="",
    type=click.Choice(("", *KEPT)),
    metavar="|".join(KEPT),
    help="With a size of the model as KEY: d_model, heads and d_ff stay in proportion to it (widths), or the number of "
    "layers too (shape).",
)
@search_option
@set_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, spec: str, overrides: tuple[str, ...], *, as_json: bool, **asked: Any) -> None:
    """Find the value of KEY that meets conditions.

    KEY is any input of the plan. Of numbers in order (run.micro_batch, run.seq_len, run.global_batch, run.tokens,
    cluster.devices, model.d_model and other sizes of the model, recompute.layers, accelerator.bandwidth, ...) the
    result is the largest, or the smallest where conditions limit it from below.

    Of choices (parallelism.tensor and other degrees, parallelism.zero, schedule, offload, recompute, kernels.attention,
    accelerator, precision, optimizer, stack, ...) every value is tried, and the result is the one with the shortest
    time of a run (of a step, where no tokens are stated), as long as no other objective is named. Degrees keep the
    number of devices: data is what the others leave.

    Of --for model alone it is the largest, and of --for accelerator each device at its own price: whichever does not
    meet the conditions in the plan's layout is tried in the fastest that a quick search finds (not with --no-search).

    Several KEYs are solved for together: every combination is tried, and the best is taken in the same way.

    Exit code 1: no value meets the conditions; what comes nearest is printed.
    """
    from ledger.spec.load import load_plan

    plan = load_plan(spec, overrides)
    from ledger.cli.tables import print_json
    from ledger.search.part_choice import solve
    from ledger.search.workers import in_processes, in_this_process

    named = {name: asked[name] for name in ("maximize", "minimize", "keep")}
    with ExitStack() as stack:
        show = progress_bar(stack, "trying", "combinations")
        run = in_processes(cores()) if cores() > 1 else in_this_process
        solution = solve(
            plan,
            asked["paths"],
            asked["conditions"],
            **named,
            note=lambda done, of: show(done, of, of),
            run=run if asked["search"] else None,
        )
    for warning in solution.warnings:
        click.echo(f"warning: {warning}", err=True)
    if as_json:
        print_json(record(solution))
    else:
        print_solution(solution)
    ctx.exit(0 if solution.values is not None else UNSATISFIABLE)


# --- a solution on the terminal ---

NONE = "–"
LEFT_OUT = "left out"
SHOWN = 30  # rows of the table of what was tried
REASONS = 12  # why values are refused, that are printed


def print_solution(solution: Solution) -> None:
    """The values, the closed form they come from, every condition at them and one step beyond, and what was tried."""
    value_in_plan, nearest = (spoken(solution, value) for value in (solution.plan_value, solution.nearest))
    if solution.values is None:
        click.echo(f"no {solution.path} meets the conditions; the nearest miss is {nearest}")
    elif len(solution.paths) > 1:
        click.echo(f"{nearest} ({solution.goal}; given: {value_in_plan})")
    else:
        click.echo(f"{solution.path} = {nearest} ({solution.goal}; given: {value_in_plan})")
    for name, text in _sentences(solution):
        click.echo(f"{name}: {text}")
    click.echo()
    _print_bounds(solution)
    if solution.tried:
        click.echo()
        _print_tried(solution)


def _sentences(solution: Solution) -> Iterator[tuple[str, str]]:
    lines = [("legal values", solution.legal), ("closed form", solution.closed_form)]
    yield from ((name, text) for name, text in (*lines, *(("note", note) for note in solution.notes)) if text)
    if solution.counts:
        counts = solution.counts
        yield (
            "tried",
            f"{counts['combinations']}, of which {counts['legal']} legal; {counts['meeting']} meet the conditions",
        )
    if set(solution.changes) - {solution.path}:
        yield "as overrides", join([word for text in assignments(solution.changes) for word in ("--set", text)])


def _print_bounds(solution: Solution) -> None:
    several = len(solution.paths) > 1
    beyond = solution.next_name or ("runner-up" if solution.tried else "beyond")
    value_by_name = {"given": solution.plan_value, "here": solution.nearest, beyond: solution.beyond}
    # A next value may be that of leaving the key out, which is None too.
    is_last = solution.beyond is None and all(bound.beyond is None for bound in solution.bounds)
    values = {
        name: name if several else f"{name}: {NONE if name == beyond and is_last else spoken(solution, value)}"
        for name, value in value_by_name.items()
    }
    heads = ("condition", *values.values(), "limit", "")
    print_table(heads, [condition_cells(solution, bound) for bound in solution.bounds], right=heads[1:5])


def condition_cells(solution: Solution, bound: Bound) -> tuple[str, ...]:
    """A condition in a line."""
    values = (bound.plan_value, bound.at, bound.beyond, bound.limit)
    texts = (NONE if value is None else amount(value, unit_of(bound.key)) for value in values)
    return bound.text, *texts, ("binds" if solution.values is not None else "fails") if bound.binds else ""


def _print_tried(solution: Solution) -> None:
    """Every value that was tried, the best first; then those that rules refuse, by what they say."""
    legal = [row for row in solution.tried if row.totals is not None]
    keys = [key for key in (legal[0].totals or {}) if key != "memory.capacity"]
    details = [*dict.fromkeys(detail for row in legal for detail in row.details)]
    heads = (*solution.paths, *keys, *details, "", "why")
    print_table(heads, [tried_cells(row, solution.paths, keys, details) for row in legal[:SHOWN]], right=keys)
    if more := legal[SHOWN:]:
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in Counter(row.verdict for row in more).items())
        click.echo(f"and {len(more)} more: {verdicts} (all of them with --json)")
    refused: dict[str, list[Tried]] = {}
    for row in solution.tried:
        if row.totals is None:
            refused.setdefault(row.why, []).append(row)
    for why, rows in [*refused.items()][:REASONS]:
        click.echo(f"{rows[0].verdict}: {_values_text(rows)}: {why}")
    if len(refused) > REASONS:
        click.echo(f"and {len(refused) - REASONS} more reasons (all of them with --json)")


def _values_text(rows: list[Tried]) -> str:
    """The values of the first of several rows; of the names of parts all, with the least that each comes to."""
    if rows[0].values.keys() & NAMED:
        least = (row.details.get("least", "") for row in rows)
        names = (", ".join(map(str, row.values.values())) for row in rows)
        return ", ".join(f"{name} ({amount})" if amount else name for name, amount in zip(names, least, strict=True))
    values = [as_stated(value, unit(path)) for path, value in rows[0].values.items()]
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return f"{', '.join(values)}{more}"


def tried_cells(row: Tried, paths: tuple[str, ...], keys: list[str], details: list[str]) -> tuple[str, ...]:
    """Values that were tried in a line, with their totals and details, or why rules refuse them."""
    values = (as_stated(row.values[path], unit(path)) if path in row.values else NONE for path in paths)
    row_totals = row.totals or {}
    totals = (amount(row_totals[key], unit_of(key)) if key in row_totals else NONE for key in keys)
    return *values, *totals, *(row.details.get(detail, NONE) for detail in details), row.verdict, row.why


def spoken(solution: Solution, value: Any) -> str:
    """A value of the one input, or values of several."""
    if len(solution.paths) < 2:
        return as_stated(value, solution.unit)
    return ", ".join(f"{path} = {as_stated(single, unit(path))}" for path, single in value.items())


def as_stated(value: Any, base: str) -> str:
    """The value as a spec would state it."""
    if value is None:
        return LEFT_OUT
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {as_stated(entry, base)}' for key, entry in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, bool | str):
        return str(value).lower() if isinstance(value, bool) else value
    if base == "1":
        return str(value) if isinstance(value, int) else f"{float(value):.9g}"
    return write(value if isinstance(value, int) else float(f"{float(value):.9g}"), base)


def record(solution: Solution) -> dict[str, Any]:
    """The published form of a solution, `ledger-solve/1`, as ledger/cli/schemas/solve.schema.json describes it."""
    return {
        "schema": "ledger-solve/1",
        "for": solution.path if len(solution.paths) == 1 else list(solution.paths),
        "unit": solution.unit,
        "value": published(solution.value),
        "values": published(solution.values),
        "nearest": published(solution.nearest),
        "given": published(solution.plan_value),
        "beyond": published(solution.beyond),
        "goal": solution.goal,
        "legal": solution.legal,
        "closed_form": solution.closed_form,
        "notes": list(solution.notes),
        "changes": published(solution.changes),
        "counts": dict(solution.counts),
        "conditions": [
            {
                "condition": bound.text,
                "total": bound.key,
                "limit": json_number_or_none(bound.limit),
                "given": json_number_or_none(bound.plan_value),
                "at": json_number_or_none(bound.at),
                "beyond": json_number_or_none(bound.beyond),
                "binds": bound.binds,
            }
            for bound in solution.bounds
        ],
        "tried": [
            {
                "values": published(row.values),
                "changes": published(row.changes),
                "totals": published(row.totals),
                "verdict": row.verdict,
                "why": row.why,
                "details": dict(row.details),
            }
            for row in solution.tried
        ],
    }


def published(value: Any) -> Any:
    """A value as JSON has it: fractions as numbers, of mappings each entry; null is no value, or a key left out."""
    if isinstance(value, Mapping):
        return {key: published(entry) for key, entry in value.items()}
    return json_number_or_none(value) if isinstance(value, Fraction) else json.loads(json.dumps(value))
