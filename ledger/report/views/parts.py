"""What sections are made of: totals, cells, tables and figures, ready to print."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from markupsafe import Markup

from ledger import numbers
from ledger.units import unit_of

if TYPE_CHECKING:
    from ledger.books.results import Compiled, Number, RoleResult
    from ledger.evidence.nearby import Nearby
    from ledger.report.typesetting.pictures import TypesetFormula

SPARE = 4  # rows that are printed rather than announced as missing
WIDE, NARROW = 760.0, 340.0  # px; the widths at which every chart is drawn


class Comparison(Protocol):
    """A check's outcome: what was predicted, what was found, in which unit, and where the finding comes from."""

    @property
    def account(self) -> str:
        """The account or the key of `totals` that was compared."""

    @property
    def predicted(self) -> Number:
        """What the books say."""

    @property
    def found(self) -> Number:
        """What was found."""

    @property
    def unit(self) -> str:
        """The unit of both."""

    @property
    def tolerance(self) -> float:
        """The relative error that is allowed; 0 where they must be equal."""

    @property
    def origin(self) -> str:
        """Where the finding comes from."""


@dataclass(frozen=True)
class Alternative:
    """Another layout of the same run: the changed keys with their values as typed, and its totals."""

    changes: Mapping[str, str]
    totals: Mapping[str, Number]

    @property
    def label(self) -> str:
        """The changes in a line."""
        return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in self.changes.items())


@dataclass(frozen=True)
class Report:
    """Everything a report is made from."""

    compiled: Compiled
    sensitivities: Sequence[tuple[str, str, float]] = ()
    alternatives: Sequence[Alternative] = ()
    checks: Sequence[Comparison] = ()
    microbenchmarks: Sequence[Nearby] = ()
    runs: Sequence[Nearby] = ()


@dataclass(frozen=True)
class Total:
    """A key of `totals` as it is printed everywhere."""

    key: str
    text: str
    value: str


@dataclass(frozen=True)
class Cell:
    """One cell: `text` to read, `sort` to order by, `total` where it is a total; `note` is said in small print.

    `lines` stand in place of `text` on the screen, which has room for all of them.
    """

    text: str
    sort: str = ""
    total: Total | None = None
    note: str = ""
    picture: TypesetFormula | None = None
    status: str = ""
    colour: str = ""
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Column:
    """A column's heading and its kind: text, number, code, place, formula or status."""

    title: str
    kind: str = "text"


@dataclass(frozen=True)
class Table:
    """A table: whole on the screen, at most `printed` rows on paper. The first column names its row."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    printed: int = 40
    sortable: bool = True

    @property
    def paper(self) -> tuple[tuple[Cell, ...], ...]:
        """The rows on paper: a table that is hardly longer than `printed` stays whole."""
        return self.rows if len(self.rows) <= self.printed + SPARE else self.rows[: self.printed]


@dataclass(frozen=True)
class Chart:
    """A chart for wide and for narrow pages, with what it shows."""

    title: str
    caption: str
    wide: Markup
    narrow: Markup


def total(compiled: Compiled, key: str) -> Total:
    """A total by its key; KeyError where the plan has none."""
    value = compiled.totals[key]
    return Total(key, numbers.written(value, unit_of(key)), numbers.machine(value))


def totals(compiled: Compiled, keys: Sequence[str]) -> tuple[Total, ...]:
    """Those of the totals that the plan has."""
    return tuple(total(compiled, key) for key in keys if key in compiled.totals)


def total_cell(compiled: Compiled, key: str) -> Cell:
    """A cell that shows a total, or a dash where the plan has none."""
    if key not in compiled.totals:
        return Cell("–")
    found = total(compiled, key)
    return Cell(found.text, found.value, found)


def amount(value: Number, unit: str) -> Cell:
    """A cell that shows a quantity."""
    return Cell(numbers.written(value, unit), numbers.machine(value))


def draw_chart(title: str, caption: str, draw: Callable[[float], str]) -> Chart:
    """A chart drawn at both widths."""
    return Chart(title, caption, Markup(draw(WIDE)), Markup(draw(NARROW)))  # noqa: S704 - svg.py escapes all text


def fullest_role(compiled: Compiled) -> RoleResult:
    """The kind of device that needs most memory."""
    return max(compiled.roles, key=lambda role: (role.reserved, role.peak.total))


def slowest_role(compiled: Compiled) -> RoleResult:
    """The kind of device whose kernels take longest."""
    return max(compiled.roles, key=lambda role: sum(kernel.seconds * kernel.times for kernel in role.kernels))


def share(part: Number, whole: Number) -> float:
    """Part over whole; nothing is no share of nothing."""
    return float(part / whole) if whole else 0.0
