"""Every formula behind the numbers, set as mathematics, and the symbols in it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.report import formulas as typesetting
from ledger.report.views.parts import Cell, Column, Report, Table, amount, share

if TYPE_CHECKING:
    from ledger.books.results import Account, Compiled, Number

PRINTED = 10  # rows of each table on paper
KINDS = (  # how the name of a resource begins, what its table is called
    ("matmul", "Matrix products"),
    ("vector", "Arithmetic outside the matrix units"),
    ("hbm", "Memory traffic"),
    ("memory", "Memory held"),
    ("comm", "Sent between devices"),
    ("host_link", "Moved between a device and its host"),
    ("host_traffic", "Traffic of host memory"),
    ("host", "Held in host memory"),
    ("", "Other resources"),
)
STOCK = "Memory held"  # what is held at different times does not add up, so it has no share
NAME, WHAT, REST = (
    Column("account, and its rule", "code"),
    Column("what"),
    (
        Column("when"),
        Column("formula", "formula"),
        Column("one is", "number"),
        Column("times", "number"),
        Column("share", "number"),
    ),
)


def formulas(report: Report) -> tuple[Table, ...] | None:
    """A table for each kind of resource, largest accounts first; None where there are no accounts."""
    accounts = sorted(alike(report.compiled.accounts), key=lambda found: rank(found[0]))
    groups = groupby(accounts, key=lambda found: rank(found[0]))
    return tuple(formula_table(KINDS[at][1], tuple(rows)) for at, rows in groups) or None


def rank(account: Account) -> int:
    """Which kind of resource an account belongs to."""
    return next(at for at, (start, _) in enumerate(KINDS) if account.resource.startswith(start))


def alike(accounts: Sequence[Account]) -> list[tuple[Account, int]]:
    """Accounts that differ only in the kind of device, as the largest of them and how many there are."""
    found: dict[tuple[str, str, str, str], list[Account]] = {}
    for account in accounts:
        found.setdefault((account.account, account.resource, account.when, account.formula), []).append(account)
    return [(max(group, key=lambda one: one.amount * one.times), len(group)) for group in found.values()]


def formula_table(title: str, accounts: Sequence[tuple[Account, int]]) -> Table:
    """The formulas of one kind of resource."""
    whole = 0 if title == STOCK else sum(account.amount * account.times for account, _ in accounts)
    ordered = sorted(accounts, key=lambda found: (-found[0].amount * found[0].times, found[0].account, found[0].when))
    several = len({account.resource for account, _ in accounts}) > 1
    columns = (NAME, WHAT, *REST) if several else (NAME, *REST)
    rows = (formula_row(*found, whole) for found in ordered)
    return Table(title, columns, tuple(row if several else (row[0], *row[2:]) for row in rows), PRINTED)


def formula_row(account: Account, roles: int, whole: Number) -> tuple[Cell, ...]:
    """One account, the largest where it has several `roles`; `whole` is 0 where shares mean nothing."""
    part = share(account.amount * account.times, whole)
    value = numbers.written(account.amount, account.unit)
    return (
        Cell(account.account, note=account.basis),
        Cell(account.resource.partition(".")[2].replace("_", "-").replace(".", ", ")),
        Cell(account.when.replace("..", " to ")),
        formula_cell(account.formula),
        Cell(value, numbers.machine(account.amount), note=f"largest of {roles}" if roles > 1 else ""),
        Cell(numbers.integer(account.times), numbers.machine(account.times)),
        Cell(numbers.percent(part), numbers.machine(part)) if whole else Cell("–"),
    )


def formula_cell(formula: str) -> Cell:
    """A formula as a picture; a text that is no formula stays as it is."""
    try:
        drawn = typesetting.typeset(formula)
    except typesetting.FormulaError:
        return Cell(formula)
    return Cell(formula, picture=drawn)


def glossary(report: Report) -> Table | None:
    """The symbols of the formulas; None where there are none."""
    symbols = report.compiled.symbols
    columns = (Column("symbol", "formula"), Column("meaning"), Column("value", "number"), Column("written as", "code"))
    rows = tuple(
        (formula_cell(name), Cell(symbol.meaning), symbol_value(report.compiled, name), Cell(symbol.path))
        for name, symbol in symbols.items()
    )
    return Table("What the letters mean", columns, rows, sortable=False) if rows else None


def symbol_value(compiled: Compiled, name: str) -> Cell:
    """A symbol's value, with every digit where it is whole."""
    value = compiled.symbols[name].value
    return Cell(numbers.integer(value), numbers.machine(value)) if value == int(value) else amount(value, "1")
