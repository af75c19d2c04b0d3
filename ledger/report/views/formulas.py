"""Every formula behind the numbers, set as mathematics, and the symbols in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.report.typesetting.pictures import typeset
from ledger.report.typesetting.trees import FormulaError
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
STOCKS = ("Memory held", "Held in host memory")  # what is held at different times does not add up: it has no share
WHAT = Column("what", "place")
COLUMNS = (
    Column("account, and its rule", "code"),
    WHAT,
    Column("when", "place"),
    Column("formula", "formula"),
    Column("one is", "number"),
    Column("times", "number"),
    Column("share", "number"),
)


@dataclass(frozen=True)
class Row:
    """An account where it is largest; its formula holds on so many kinds of device, and at so many moments."""

    account: Account
    roles: int
    moments: int

    @property
    def whole(self) -> Number:
        """All of its occurrences in a step."""
        return self.account.amount * self.account.times


def formulas(report: Report) -> tuple[Table, ...] | None:
    """A table for each kind of resource, largest accounts first; None where there are no accounts."""
    accounts = sorted(alike(report.compiled.accounts), key=lambda found: rank(found.account))
    groups = groupby(accounts, key=lambda found: rank(found.account))
    return tuple(formula_table(KINDS[at][1], tuple(rows)) for at, rows in groups) or None


def rank(account: Account) -> int:
    """Which kind of resource an account belongs to."""
    return next(at for at, (start, _) in enumerate(KINDS) if account.resource.startswith(start))


def held(account: Account) -> bool:
    """Whether an account is a stock."""
    return KINDS[rank(account)][1] in STOCKS


def alike(accounts: Sequence[Account]) -> list[Row]:
    """Accounts that differ only in the kind of device, and stocks in when they are held, as the largest of them."""
    found: dict[tuple[str, str, str, str], list[Account]] = {}
    for account in accounts:
        when = "" if held(account) else account.when
        found.setdefault((account.account, account.resource, when, account.formula), []).append(account)
    return [
        Row(
            max(group, key=lambda one: one.amount * one.times),
            len({account.role for account in group}),
            len({account.when for account in group}),
        )
        for group in found.values()
    ]


def formula_table(title: str, found: Sequence[Row]) -> Table:
    """The formulas of one kind of resource."""
    whole = 0 if title in STOCKS else sum(row.whole for row in found)
    ordered = sorted(found, key=lambda row: (-row.whole, row.account.account, row.account.when))
    several = len({row.account.resource for row in found}) > 1
    columns = tuple(column for column in COLUMNS if several or column is not WHAT)
    rows = tuple(formula_row(row, whole, several=several) for row in ordered)
    return Table(title, columns if whole else columns[:-1], rows, PRINTED)


def formula_row(row: Row, whole: Number, *, several: bool) -> tuple[Cell, ...]:
    """One account; `whole` is 0 where shares mean nothing, `several` where the table holds several resources."""
    account = row.account
    part = share(row.whole, whole)
    others = f"and at {row.moments - 1} other {'moment' if row.moments == 2 else 'moments'}" if row.moments > 1 else ""
    return (
        Cell(account.account, note=account.basis),
        *([Cell(account.resource.partition(".")[2].replace("_", "-").replace(".", ", "))] if several else []),
        Cell(account.when.replace("..", " to "), note=others),
        formula_cell(account.formula),
        Cell(
            numbers.written(account.amount, account.unit),
            numbers.machine(account.amount),
            note=f"largest of {row.roles}" if row.roles > 1 else "",
        ),
        Cell(numbers.integer(account.times), numbers.machine(account.times)),
        *([Cell(numbers.percent(part), numbers.machine(part))] if whole else []),
    )


def formula_cell(formula: str) -> Cell:
    """A formula as a picture; a text that is no formula stays as it is."""
    try:
        drawn = typeset(formula)
    except FormulaError:
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
