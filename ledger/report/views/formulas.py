"""Every formula behind the numbers, set as mathematics, and the symbols in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.books.closed_forms import ClosedForm, ClosedForms
from ledger.report.closed_form_text import form_rows, total_line
from ledger.report.typesetting.pictures import typeset
from ledger.report.typesetting.trees import FormulaError
from ledger.report.views.parts import Cell, Column, Report, Table, amount, columns, share, whole_number

if TYPE_CHECKING:
    from ledger.books.compiled import Compiled
    from ledger.books.results import Account, Number

PRINTED, STORED = 7, 5  # rows of a table of flows and of one of stocks on paper
NAMED = 3  # accounts of a row that paper names
NAME = re.compile(r"[A-Za-z_]\w*")
MOST_TERMS = 12_000  # of a plan whose forms a report has; those of others take seconds, and `ledger explain` has them
PRINTED_TERMS = 9  # rows on paper of what a total names
READ_TOTALS = {"memory.peak": "The peak, term by term", "time.step": "The step, term by term"}
KINDS = (  # kinds of resource, and what their tables are called
    ("matmul", "Matrix products"),
    ("vector", "Arithmetic outside the matrix units"),
    ("hbm", "Memory traffic"),
    ("memory", "Memory held"),
    ("comm", "Sent between devices"),
    ("host_link", "Moved between a device and its host"),
    ("host_traffic", "Traffic of host memory"),
    ("host", "Held in host memory"),
    ("nvme", "Held on drives"),
    ("nvme_traffic", "Read from drives and written to them"),
    ("batch", "Batches, read and copied to a device"),
    ("", "Other resources"),
)
STOCKS = ("Memory held", "Held in host memory")  # what is held at different times does not add up: it has no share
WHAT = Column("what", "place")
COLUMNS = (
    *(Column("accounts, and their rule", "code"), WHAT, Column("when", "place"), Column("formula", "formula")),
    *columns("number", "one is", "times", "share"),
)


@dataclass(frozen=True)
class FormulasView:
    """`tables` one for each kind of resource; `covered` says what share of it the rows on paper are.

    `totals`: the peak and the step in a line each, with where their terms come from.
    """

    tables: tuple[Table, ...]
    covered: str
    totals: tuple[TotalFormula, ...] = ()


@dataclass(frozen=True)
class TotalFormula:
    """A total in one line, where that holds, and a table of what its line names."""

    line: str
    holds: str
    table: Table


@dataclass(frozen=True)
class PostedAccount:
    """An account where it is largest; its formula holds on so many kinds of device, and at these moments."""

    account: Account
    roles: int
    moments: tuple[str, ...]


@dataclass(frozen=True)
class FormulaRow:
    """Accounts with one formula, one rule and one amount, largest first; stocks also with one number of times."""

    posted: tuple[PostedAccount, ...]

    @property
    def account(self) -> Account:
        """The largest of them."""
        return self.posted[0].account

    @property
    def times(self) -> Number:
        """How often a step has it; a stock, how many are held at once."""
        return self.account.times if is_stock(self.account) else sum(posted.account.times for posted in self.posted)

    @property
    def step_amount(self) -> Number:
        """All of its occurrences in a step; of a stock those of one moment."""
        return self.account.amount * self.times

    @property
    def moments(self) -> tuple[str, ...]:
        """When its accounts are posted."""
        return tuple(dict.fromkeys(when for posted in self.posted for when in posted.moments))

    @property
    def passes(self) -> dict[str, list[str]]:
        """Each account's name, with when it is posted."""
        names: dict[str, list[str]] = {}
        for posted in self.posted:
            names.setdefault(posted.account.account, []).extend(posted.moments)
        return names


def formulas(report: Report) -> FormulasView | None:
    """A table for each kind of resource, largest rows first; None where there are no accounts."""
    rows = sorted(
        group_by_formula(largest_of_roles(report.compiled.accounts)), key=lambda row: resource_rank(row.account)
    )
    groups = [(KINDS[at][1], tuple(group)) for at, group in groupby(rows, key=lambda row: resource_rank(row.account))]
    tables = tuple(formula_table(title, group) for title, group in groups)
    return FormulasView(tables, covered_shares(tables), total_formulas(report.compiled)) if tables else None


def total_formulas(compiled: Compiled) -> tuple[TotalFormula, ...]:
    """The peak and the step as one reads them; none of a plan that letters do not reach, or whose forms fill pages."""
    if compiled.plan.serve is not None or compiled.plan.model.bare:
        return ()
    forms = ClosedForms(compiled)
    if len(forms.lettered.graph.terms) > MOST_TERMS:
        return ()
    return tuple(total_formula(forms.form(total), title) for total, title in READ_TOTALS.items())


def total_formula(form: ClosedForm, title: str) -> TotalFormula:
    """A total's line, and a row for each thing that it names: the fullest moments with their bytes first."""
    bytes_of = {candidate.name: numbers.amount_text(candidate.value, "B") for candidate in form.candidates}
    ranks = {candidate.name: place for place, candidate in enumerate(form.candidates)}
    named = sorted(form_rows(form), key=lambda row: ranks.get(row.name, len(ranks)))
    rows = tuple(
        (Cell(row.name), Cell(row.formula), Cell(row.source, note=bytes_of.get(row.name, ""))) for row in named
    )
    columns = (Column("name", "code"), Column("stands for", "code"), Column("where it comes from"))
    holds = f"where {'; '.join(form.conditions)}" if form.conditions else ""
    return TotalFormula(total_line(form), holds, Table(title, columns, rows, PRINTED_TERMS, sortable=False))


def covered_shares(tables: Sequence[Table]) -> str:
    """What share of each kind of flow the rows on paper are; a table's last column is its share."""
    flows = [table for table in tables if table.caption not in STOCKS]
    shares = [numbers.percent(sum(float(row[-1].sort) for row in table.paper)) for table in flows]
    return ", ".join(
        f"{table.caption[0].lower()}{table.caption[1:]} {part}" for part, table in zip(shares, flows, strict=True)
    )


def resource_rank(account: Account) -> int:
    """Which kind of resource an account belongs to."""
    return next((at for at, (kind, _) in enumerate(KINDS) if account.resource.kind == kind), len(KINDS) - 1)


def is_stock(account: Account) -> bool:
    """Whether an account is a stock."""
    return KINDS[resource_rank(account)][1] in STOCKS


def largest_of_roles(accounts: Sequence[Account]) -> list[PostedAccount]:
    """Accounts that differ only in the kind of device, and stocks in when they are held, as the largest of them."""
    groups: dict[tuple[str, str, str, str], list[Account]] = {}
    for account in accounts:
        when = "" if is_stock(account) else account.when
        groups.setdefault((account.account, account.resource.name, when, account.formula), []).append(account)
    return [
        PostedAccount(
            max(group, key=lambda account: account.amount * account.times),
            len({account.role for account in group}),
            tuple(dict.fromkeys(account.when for account in group)),
        )
        for group in groups.values()
    ]


def group_by_formula(posted: Sequence[PostedAccount]) -> list[FormulaRow]:
    """Accounts with one formula, rule and amount in one row, the most frequent first, else as the books have them."""
    groups: dict[tuple[str, str, str, Number, Number], list[PostedAccount]] = {}
    for row in posted:
        account = row.account
        times = account.times if is_stock(account) else 0
        key = (account.resource.name, account.formula, account.basis, account.amount, times)
        groups.setdefault(key, []).append(row)
    return [FormulaRow(tuple(sorted(group, key=lambda row: -row.account.times))) for group in groups.values()]


def formula_table(title: str, group: Sequence[FormulaRow]) -> Table:
    """The formulas of one kind of resource."""
    table_total = 0 if title in STOCKS else sum(row.step_amount for row in group)
    ordered = sorted(group, key=lambda row: (-row.step_amount, row.account.account, row.account.when))
    several = len({row.account.resource for row in group}) > 1
    headings = tuple(column for column in COLUMNS if several or column is not WHAT)
    rows = tuple(formula_row(row, table_total, several=several) for row in ordered)
    return Table(title, headings, rows, PRINTED) if title not in STOCKS else Table(title, headings[:-1], rows, STORED)


def formula_row(row: FormulaRow, table_total: Number, *, several: bool) -> tuple[Cell, ...]:
    """One row; `whole` is that of its table, `several` holds where the table has several resources."""
    account = row.account
    part = share(row.step_amount, table_total)
    roles = max(posted.roles for posted in row.posted)
    return (
        names_cell(row),
        *([Cell(", ".join(account.resource.which).replace("_", "-"))] if several else []),
        when_cell(row),
        formula_cell(account.formula),
        Cell(
            numbers.amount_text(account.amount, account.unit),
            numbers.machine(account.amount),
            note=f"largest of {roles}" if roles > 1 else "",
        ),
        whole_number(row.times),
        *([] if is_stock(account) else [amount(part, "%")]),
    )


def names_cell(row: FormulaRow) -> Cell:
    """The accounts of a row and their rule: all of them on the screen, the first few on paper."""
    account, names = row.account, row.passes
    if len(names) == 1:
        return Cell(account.account, note=account.basis)
    lines = tuple(names) if is_stock(account) else tuple(f"{name} ({', '.join(when)})" for name, when in names.items())
    return Cell(first_names(tuple(names)), note=f"{len(row.posted)} accounts: {account.basis}", lines=lines)


def first_names(names: Sequence[str]) -> str:
    """The first few of several names, those of one place in braces."""
    first = names[:NAMED]
    parts = []
    for place, group in groupby(first, key=lambda name: name.rpartition("/")[0]):
        leaves = [name.rpartition("/")[2] for name in group]
        parts.append(f"{place}/{{{', '.join(leaves)}}}" if len(leaves) > 1 else f"{place}/{leaves[0]}".lstrip("/"))
    return ", ".join(parts) + (", …" if len(names) > NAMED else "")


def when_cell(row: FormulaRow) -> Cell:
    """The passes that post a flow; of a stock's moments the first, and how many others there are."""
    if not is_stock(row.account):
        return Cell(", ".join(row.moments).replace("..", " to "))
    more = len(row.moments) - 1
    return Cell(
        row.account.when.replace("..", " to "),
        note=f"and at {more} other {'moment' if more == 1 else 'moments'}" if more else "",
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
    symbols, texts = report.compiled.symbols, {account.formula for account in report.compiled.accounts}
    used = {name for text in texts for name in NAME.findall(text)}
    headings = (Column("symbol", "formula"), Column("meaning"), Column("value", "number"), Column("written as", "code"))
    rows = tuple(
        (
            formula_cell(name),
            Cell(symbol.meaning),
            whole_number(symbol.value) if symbol.value == int(symbol.value) else amount(symbol.value, "1"),
            Cell(symbol.path),
        )
        for name, symbol in symbols.items()
        if name in used
    )
    return Table("What the letters mean", headings, rows, sortable=False) if rows else None
