"""`ledger explain`: one number, down to the lines of the spec that it comes from."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from ledger.cli import accounts as named
from ledger.cli.options import json_option, set_option, spec_argument

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledger.books.results import Account, Compiled, Symbol
    from ledger.spec.plan import Origin, Plan


@click.command(name="explain")
@spec_argument
@click.argument("account")
@set_option
@json_option
def command(spec: str, account: str, overrides: tuple[str, ...], *, as_json: bool) -> None:
    """Say where a number of SPEC comes from.

    Prints its formula, rule and citation, and every symbol with its value and place.

    ACCOUNT is an account (decoder/attention/q) or a total (memory.peak).
    """
    import ledger
    from ledger.cli.tables import print_json

    compiled = ledger.compile(spec, overrides)
    leaves = [leaf for leaf in compiled.accounts if leaf.account == account]
    if leaves:
        records = [leaf_record(compiled, list(group)) for _, group in groupby(sorted(leaves, key=posting), key=posting)]
        record: dict[str, Any] = {"account": account, "entries": records}
    elif account in compiled.totals:
        record = total_record(compiled, account)
    else:
        raise named.unknown(compiled, account)
    if as_json:
        print_json({"schema": "ledger-explain/1", **record})
    elif leaves:
        print_entries(account, record["entries"])
    else:
        print_total(record)


def posting(leaf: Account) -> tuple[str, str, str, str]:
    """What leaves of several roles share when they were posted by one rule with one formula."""
    return (leaf.when, leaf.resource, leaf.formula, leaf.basis)


def leaf_record(compiled: Compiled, leaves: list[Account]) -> dict[str, Any]:
    """One posting: its rule, its amount in each role, and the symbols of its formula."""
    first = leaves[0]
    return {
        "when": first.when,
        "resource": first.resource,
        "unit": first.unit,
        "formula": first.formula,
        "basis": first.basis,
        "roles": [{"role": leaf.role, "amount": json_number(leaf.amount), "times": leaf.times} for leaf in leaves],
        "symbols": symbol_records(compiled, first),
    }


def json_number(value: Any) -> Any:
    """The amount as the published contract writes it."""
    from ledger.report.contract import number

    return number(value)


def symbol_records(compiled: Compiled, leaf: Account) -> list[dict[str, Any]]:
    """Every symbol of the leaf's formula with its value and the place it was written."""
    names = sorted(str(symbol) for symbol in leaf.expression.free_symbols)
    return [symbol_record(compiled.plan, compiled.symbols[name]) for name in names]


def symbol_record(plan: Plan, symbol: Symbol) -> dict[str, Any]:
    """A symbol with its value, the spec path, and `file:line:column` (empty: a default, or derived)."""
    origin = origin_of(plan, symbol.path)
    return {
        "symbol": symbol.name,
        "value": json_number(symbol.value),
        "meaning": symbol.meaning,
        "path": symbol.path,
        "where": str(origin.where) if origin else "",
        "source": origin.source if origin else "",
    }


def origin_of(plan: Plan, path: str) -> Origin | None:
    """Where the value at a dotted path was written, or else the nearest part around it that was."""
    while path:
        if path in plan.origins:
            return plan.origins[path]
        path = path.rpartition(".")[0]
    return None


def total_record(compiled: Compiled, key: str) -> dict[str, Any]:
    """A total with what it consists of."""
    from ledger.cli.totals import breakdown
    from ledger.report.numbers import unit_of

    found = breakdown(compiled, key)
    return {
        "total": key,
        "value": json_number(compiled.totals[key]),
        "unit": unit_of(key),
        "note": found.note,
        "parts": [{"part": name, "value": json_number(value)} for name, value in found.parts],
        "largest": [{"account": name, "value": json_number(value)} for name, value in found.largest],
    }


def print_entries(account: str, records: Iterable[dict[str, Any]]) -> None:
    """Prints every posting of an account."""
    from ledger.cli.tables import amount, print_table

    click.echo(account)
    for record in records:
        click.echo(f"\n{record['when']}, {record['resource']}")
        click.echo(f"  formula  {record['formula']}")
        click.echo(f"  basis    {record['basis']}")
        for role in record["roles"]:
            click.echo(f"  {role['role']:<7}  {role['times']} x {amount(role['amount'], record['unit'])} a step")
        rows = [
            (
                item["symbol"],
                str(item["value"]),
                item["meaning"],
                item["path"],
                item["where"] or "derived",
                item["source"],
            )
            for item in record["symbols"]
        ]
        if rows:
            click.echo()
            print_table(("symbol", "value", "meaning", "path", "where", "source"), rows, right=("value",))


def print_total(record: dict[str, Any]) -> None:
    """Prints a total, its parts, and the largest accounts in it."""
    from ledger.cli.tables import amount, print_table

    click.echo(f"{record['total']} = {amount(record['value'], record['unit'])}")
    if record["note"]:
        click.echo(record["note"])
    for column, items in (("part", record["parts"]), ("account", record["largest"])):
        rows = [(item[column], amount(item["value"], record["unit"])) for item in items]
        if rows:
            click.echo()
            print_table((column, "value"), rows, right=("value",))
