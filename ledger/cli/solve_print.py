"""What `ledger solve` prints: the values, the conditions at them, what else was tried; or all of it as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from fractions import Fraction
from shlex import join
from typing import Any

import click

from ledger.books.what_if.answer import Bound, Solution, Tried
from ledger.cli.tables import amount, print_table
from ledger.report.contract import json_number_or_none
from ledger.spec.kinds import LIBRARY_PARTS as NAMED
from ledger.spec.overrides import assignments
from ledger.spec.paths import unit
from ledger.spec.quantities import write
from ledger.units import unit_of

NONE = "–"
LEFT_OUT = "left out"
SHOWN = 30  # rows of the table of what was tried
REASONS = 12  # why values are refused, that are printed


def print_solution(found: Solution) -> None:
    """The values, the closed form they come from, every condition at them and one step beyond, and what was tried."""
    given, at = (spoken(found, value) for value in (found.given, found.nearest))
    if found.values is None:
        click.echo(f"no {found.path} meets the conditions; the nearest miss is {at}")
    elif len(found.paths) > 1:
        click.echo(f"{at} ({found.goal}; given: {given})")
    else:
        click.echo(f"{found.path} = {at} ({found.goal}; given: {given})")
    for name, text in _lines(found):
        click.echo(f"{name}: {text}")
    click.echo()
    _print_bounds(found)
    if found.tried:
        click.echo()
        _print_tried(found)


def _lines(found: Solution) -> Iterator[tuple[str, str]]:
    lines = [("legal values", found.legal), ("closed form", found.closed_form)]
    yield from ((name, text) for name, text in (*lines, *(("note", note) for note in found.notes)) if text)
    if found.counts:
        counts = found.counts
        yield (
            "tried",
            f"{counts['combinations']}, of which {counts['legal']} legal; {counts['meeting']} meet the conditions",
        )
    if set(found.changes) - {found.path}:
        yield "as overrides", join([word for text in assignments(found.changes) for word in ("--set", text)])


def _print_bounds(found: Solution) -> None:
    several = len(found.paths) > 1
    beyond = found.next_name or ("runner-up" if found.tried else "beyond")
    named = {"given": found.given, "here": found.nearest, beyond: found.beyond}
    missing = found.beyond is None and not _is_met_beyond(found)
    values = {
        name: name if several else f"{name}: {NONE if name == beyond and missing else spoken(found, value)}"
        for name, value in named.items()
    }
    heads = ("condition", *values.values(), "limit", "")
    print_table(heads, [cells(found, bound) for bound in found.bounds], right=heads[1:5])


def _is_met_beyond(found: Solution) -> bool:
    """Whether there is a next value, which may be that of leaving the key out."""
    return any(bound.beyond is not None for bound in found.bounds)


def cells(found: Solution, bound: Bound) -> tuple[str, ...]:
    """A condition in a line."""
    values = (bound.given, bound.at, bound.beyond, bound.limit)
    shown = (NONE if value is None else amount(value, unit_of(bound.key)) for value in values)
    return bound.text, *shown, ("binds" if found.values is not None else "fails") if bound.binds else ""


def _print_tried(found: Solution) -> None:
    """Every value that was tried, the best first; then those that rules refuse, by what they say."""
    legal = [row for row in found.tried if row.totals is not None]
    keys = [key for key in (legal[0].totals or {}) if key != "memory.capacity"]
    details = [*dict.fromkeys(one for row in legal for one in row.details)]
    heads = (*found.paths, *keys, *details, "", "why")
    print_table(heads, [tried_cells(row, found.paths, keys, details) for row in legal[:SHOWN]], right=keys)
    if more := legal[SHOWN:]:
        click.echo(f"and {len(more)} more: {_counted(more)} (all of them with --json)")
    refused: dict[str, list[Tried]] = {}
    for row in found.tried:
        if row.totals is None:
            refused.setdefault(row.why, []).append(row)
    _print_refused(refused)


def _print_refused(refused: Mapping[str, list[Tried]]) -> None:
    """What was refused or skipped, by the reason."""
    for why, rows in [*refused.items()][:REASONS]:
        click.echo(f"{rows[0].verdict}: {_listed(rows)}: {why}")
    if len(refused) > REASONS:
        click.echo(f"and {len(refused) - REASONS} more reasons (all of them with --json)")


def _listed(rows: list[Tried]) -> str:
    """The values of the first of several rows; of the names of parts all, with the least that each comes to."""
    if rows[0].values.keys() & NAMED:
        least = (row.details.get("least", "") for row in rows)
        names = (", ".join(map(str, row.values.values())) for row in rows)
        return ", ".join(f"{name} ({amount})" if amount else name for name, amount in zip(names, least, strict=True))
    values = [written(value, unit(path)) for path, value in rows[0].values.items()]
    others = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return f"{', '.join(values)}{others}"


def _counted(rows: list[Tried]) -> str:
    verdicts = [row.verdict for row in rows]
    return ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))


def tried_cells(row: Tried, paths: tuple[str, ...], keys: list[str], details: list[str]) -> tuple[str, ...]:
    """Values that were tried in a line, with their totals and details, or why rules refuse them."""
    values = (written(row.values[path], unit(path)) if path in row.values else NONE for path in paths)
    known = row.totals or {}
    totals = (amount(known[key], unit_of(key)) if key in known else NONE for key in keys)
    return *values, *totals, *(row.details.get(one, NONE) for one in details), row.verdict, row.why


def spoken(found: Solution, value: Any) -> str:
    """A value of the one input, or values of several."""
    if len(found.paths) < 2:
        return written(value, found.unit)
    return ", ".join(f"{path} = {written(one, unit(path))}" for path, one in value.items())


def written(value: Any, base: str) -> str:
    """The value as a spec would state it."""
    if value is None:
        return LEFT_OUT
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {written(one, base)}' for key, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, bool | str):
        return str(value).lower() if isinstance(value, bool) else value
    if base == "1":
        return str(value) if isinstance(value, int) else f"{float(value):.9g}"
    return write(value if isinstance(value, int) else float(f"{float(value):.9g}"), base)


def record(found: Solution) -> dict[str, Any]:
    """The published form of a solution, `ledger-solve/1`, as ledger/cli/schemas/solve.schema.json describes it."""
    return {
        "schema": "ledger-solve/1",
        "for": found.path if len(found.paths) == 1 else list(found.paths),
        "unit": found.unit,
        "value": published(found.value),
        "values": published(found.values),
        "nearest": published(found.nearest),
        "given": published(found.given),
        "beyond": published(found.beyond),
        "goal": found.goal,
        "legal": found.legal,
        "closed_form": found.closed_form,
        "notes": list(found.notes),
        "changes": published(found.changes),
        "counts": dict(found.counts),
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
        "tried": [
            {
                "values": published(row.values),
                "changes": published(row.changes),
                "totals": published(row.totals),
                "verdict": row.verdict,
                "why": row.why,
                "details": dict(row.details),
            }
            for row in found.tried
        ],
    }


def published(value: Any) -> Any:
    """A value as JSON has it: fractions as numbers, of mappings each entry; null is no value, or a key left out."""
    if isinstance(value, Mapping):
        return {key: published(one) for key, one in value.items()}
    return json_number_or_none(value) if isinstance(value, Fraction) else json.loads(json.dumps(value))
