"""Every formula behind the numbers, set as mathematics, and the symbols in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from ledger.report import formulas as typesetting
from ledger.report import numbers
from ledger.report.views.parts import Cell, Column, Report, Table, amount, share

if TYPE_CHECKING:
    from ledger.books.results import Account, Compiled

PRINTED = 14  # rows of each table on paper
KINDS = (  # resource of an entry, in words; whatever is not named here keeps its own name
    ("matmul", "matrix products"),
    ("vector", "arithmetic outside the matrix units"),
    ("hbm", "memory traffic"),
    ("memory", "memory held"),
    ("nvlink", "sent within a domain"),
    ("network", "sent across domains"),
    ("host_link", "sent to the host"),
)
COLUMNS = (
    Column("account", "code"),
    Column("when"),
    Column("formula", "formula"),
    Column("one is", "number"),
    Column("times", "number"),
    Column("share", "number"),
    Column("rule"),
)


@dataclass(frozen=True)
class FormulaGroup:
    """The accounts of one resource on one kind of device, largest first."""

    title: str
    table: Table


def formulas(report: Report) -> tuple[FormulaGroup, ...] | None:
    """All accounts with their formulas; None where there are none."""
    ordered = sorted(report.compiled.accounts, key=lambda a: (rank(a.resource), a.resource, a.role))
    groups = [
        (key, tuple(accounts))
        for key, accounts in groupby(ordered, key=lambda account: (account.resource, account.role))
    ]
    several = len({account.role for account in ordered}) > 1
    return tuple(formula_group(resource, role if several else "", rows) for (resource, role), rows in groups) or None


def rank(resource: str) -> int:
    """Where a resource stands in the report."""
    return next((at for at, (start, _) in enumerate(KINDS) if resource.startswith(start)), len(KINDS))


def title(resource: str, role: str) -> str:
    """A resource in words, with the kind of device where there are several."""
    words = next((words for start, words in KINDS if resource.startswith(start)), resource)
    _, _, detail = resource.partition(".")
    return ", ".join(part for part in (f"{words} ({detail})" if detail else words, role) if part)


def formula_group(resource: str, role: str, accounts: Sequence[Account]) -> FormulaGroup:
    """One table of formulas."""
    whole = sum(account.amount * account.times for account in accounts)
    ordered = sorted(accounts, key=lambda account: (-account.amount * account.times, account.account, account.when))
    rows = tuple(formula_row(account, share(account.amount * account.times, whole)) for account in ordered)
    name = title(resource, role)
    return FormulaGroup(name, Table(f"Formulas: {name}", COLUMNS, rows, PRINTED))


def formula_row(account: Account, part: float) -> tuple[Cell, ...]:
    """One account."""
    return (
        Cell(account.account),
        Cell(account.when.replace("..", " to ")),
        formula_cell(account.formula),
        amount(account.amount, account.unit),
        Cell(numbers.integer(account.times), numbers.machine(account.times)),
        Cell(numbers.percent(part), numbers.machine(part)),
        Cell(account.basis),
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
    return Table("Symbols", columns, rows, sortable=False) if rows else None


def symbol_value(compiled: Compiled, name: str) -> Cell:
    """A symbol's value, with every digit where it is whole."""
    value = compiled.symbols[name].value
    return Cell(numbers.integer(value) if value == int(value) else numbers.plain(value), numbers.machine(value))
