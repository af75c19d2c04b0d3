"""`ledger show`: the ledger of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ledger.cli import completion
from ledger.cli.options import json_option, no_such_name, rarely, set_option, spec_argument

if TYPE_CHECKING:
    from ledger.books.compiled import Compiled
    from ledger.books.results import Account

COLUMNS = ("account", "role", "when", "resource", "times", "amount", "formula")


@click.command(name="show")
@spec_argument
@click.argument("account", required=False, shell_complete=completion.accounts)
@set_option
@json_option
@rarely()
def command(spec: str, account: str | None, overrides: tuple[str, ...], *, as_json: bool) -> None:
    """Print the ledger of SPEC: totals and accounts.

    ACCOUNT narrows it to an account, a total, or what lies below one: decoder/mlp, memory, flops.step.
    """
    import ledger
    from ledger.cli.tables import note_vain_settings, print_json
    from ledger.report.contract import show_record

    compiled = ledger.compile(spec, overrides)
    note_vain_settings(compiled)
    from ledger.books import names

    leaves = names.accounts_under(compiled, account) if account else list(compiled.accounts)
    keys = names.totals_under(compiled, account) if account else list(compiled.totals)
    if not leaves and not keys:
        raise no_such_name(names.unknown_name(compiled, account or ""))
    if as_json:
        record = show_record(compiled, spec)
        if account:
            record["totals"] = {key: record["totals"][key] for key in keys}
            record["accounts"] = [leaf for leaf in record["accounts"] if names.under(leaf["account"], account)]
        print_json(record)
        return
    if not account:
        click.echo(f"{compiled.plan.title}\n{compiled.verdict.headline}\n")
    print_totals(compiled, keys)
    print_accounts(leaves, after_totals=bool(keys))


def print_totals(compiled: Compiled, keys: list[str]) -> None:
    """Prints each total with its value."""
    from ledger.cli.tables import amount, print_table
    from ledger.units import unit_of

    rows = [(key, amount(compiled.totals[key], unit_of(key))) for key in keys]
    if rows:
        print_table(("total", "value"), rows, right=("value",))


def print_accounts(leaves: list[Account], *, after_totals: bool) -> None:
    """Prints each leaf of the ledger; `amount` is that of one occurrence."""
    from ledger.cli.tables import amount, print_table

    rows = [
        (
            leaf.account,
            leaf.role,
            leaf.when,
            leaf.resource.name,
            str(leaf.times),
            amount(leaf.amount, leaf.unit),
            leaf.formula,
        )
        for leaf in leaves
    ]
    if rows:
        if after_totals:
            click.echo()
        print_table(COLUMNS, rows, right=("times", "amount"))
