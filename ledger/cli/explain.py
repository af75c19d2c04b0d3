"""`ledger explain`: one number, down to the lines of the spec that it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ledger.cli import accounts as named
from ledger.cli.garbage import rarely
from ledger.cli.options import json_option, set_option, spec_argument

if TYPE_CHECKING:
    from ledger.books.results import Account, Compiled, Symbol
    from ledger.spec.plan import Plan


@click.command(name="explain")
@spec_argument
@click.argument("account")
@set_option
@json_option
@rarely()
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
        record = account_record(compiled, leaves)
    elif account in compiled.totals:
        record = total_record(compiled, account)
    else:
        raise named.unknown(compiled, account)
    if as_json:
        print_json({"schema": "ledger-explain/1", **record})
    elif leaves:
        print_account(record)
    else:
        print_total(record)


def account_record(compiled: Compiled, leaves: list[Account]) -> dict[str, Any]:
    """An account: its postings in ledger order, and every symbol of their formulas."""
    postings: dict[tuple[str, ...], list[Account]] = {}
    for leaf in leaves:
        postings.setdefault((leaf.when, leaf.resource, leaf.formula, leaf.basis), []).append(leaf)
    names = sorted({str(symbol) for leaf in leaves for symbol in leaf.expression.free_symbols})
    return {
        "account": leaves[0].account,
        "entries": [posting_record(roles) for roles in postings.values()],
        "symbols": [symbol_record(compiled.plan, compiled.symbols[name]) for name in names],
    }


def posting_record(leaves: list[Account]) -> dict[str, Any]:
    """What leaves of several roles share when one rule posted them with one formula, and each role's amount."""
    first = leaves[0]
    return {
        "when": first.when,
        "resource": first.resource,
        "unit": first.unit,
        "formula": first.formula,
        "basis": first.basis,
        "roles": [{"role": leaf.role, "amount": json_number(leaf.amount), "times": leaf.times} for leaf in leaves],
    }


def json_number(value: Any) -> Any:
    """The amount as the published contract writes it."""
    from ledger.report.contract import number

    return number(value)


def symbol_record(plan: Plan, symbol: Symbol) -> dict[str, Any]:
    """A symbol with its value, the spec path, and `file:line:column` (empty: written nowhere)."""
    from ledger.spec.inputs import origin

    found = origin(plan, symbol.path)
    return {
        "symbol": symbol.name,
        "value": json_number(symbol.value),
        "meaning": symbol.meaning,
        "path": symbol.path,
        "where": str(found.where) if found else "",
        "source": found.source if found else "",
    }


def total_record(compiled: Compiled, key: str) -> dict[str, Any]:
    """A total with what it consists of."""
    from ledger.cli.meaning import meaning_record
    from ledger.cli.totals import breakdown
    from ledger.numbers import unit_of

    found = breakdown(compiled, key)
    return {
        "total": key,
        "value": json_number(compiled.totals[key]),
        "unit": unit_of(key),
        **meaning_record(compiled, key),
        "note": found.note,
        "parts": [{"part": name, "value": json_number(value)} for name, value in found.parts],
        "largest": [{"account": name, "value": json_number(value)} for name, value in found.largest],
    }


def print_account(record: dict[str, Any]) -> None:
    """Prints every posting of an account, then every symbol with its place."""
    from ledger.cli.tables import amount, print_table

    click.echo(record["account"])
    for entry in record["entries"]:
        click.echo(f"\n{entry['when']}, {entry['resource']}")
        click.echo(f"  formula  {entry['formula']}")
        click.echo(f"  basis    {entry['basis']}")
        for role in entry["roles"]:
            click.echo(f"  {role['role']:<7}  {role['times']} x {amount(role['amount'], entry['unit'])}")
    rows = [
        (item["symbol"], str(item["value"]), item["meaning"], item["path"], item["where"] or "-", item["source"])
        for item in record["symbols"]
    ]
    if rows:
        click.echo()
        print_table(("symbol", "value", "meaning", "path", "where", "source"), rows, right=("value",))


def print_total(record: dict[str, Any]) -> None:
    """Prints a total, its parts, and the largest accounts in it."""
    from ledger.cli.meaning import input_row
    from ledger.cli.tables import amount, print_table

    click.echo(f"{record['total']} = {amount(record['value'], record['unit'])}")
    if record["formula"]:
        click.echo(f"  formula  {record['formula']}")
        click.echo(f"  basis    {record['basis']}")
    if record["inputs"]:
        click.echo()
        print_table(("input", "value", "where", "source"), [*map(input_row, record["inputs"])], right=("value",))
        click.echo()
    if record["note"]:
        click.echo(record["note"])
    for column, items in (("part", record["parts"]), ("account", record["largest"])):
        rows = [(item[column], amount(item["value"], record["unit"])) for item in items]
        if rows:
            click.echo()
            print_table((column, "value"), rows, right=("value",))
