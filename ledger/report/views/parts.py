"""What sections are made of: totals, cells, tables and figures, ready to print."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from ledger import numbers
from ledger.units import unit_of

if TYPE_CHECKING:
    from ledger.books.compiled import Compiled
    from ledger.books.results import Number, RoleResult
    from ledger.evidence.nearest import NearMeasurement
    from ledger.report.recommendations import Recommendations
    from ledger.report.seals.seal import Seal
    from ledger.report.typesetting.pictures import TypesetFormula


SPARE = 4  # rows that are printed rather than announced as missing
WIDE, NARROW = 760.0, 340.0  # px; the widths at which every chart is drawn


@dataclass(frozen=True)
class Report:
    """Everything a report is made from; `recommendations` are None where no other layouts were searched.

    `seal`: the files that it is made from; None of a plan that was not read from a spec. `panel` gives the panel of
    one that is already being made elsewhere.
    """

    compiled: Compiled
    sensitivities: Sequence[tuple[str, str, float]] = ()
    recommendations: Recommendations | None = None
    microbenchmarks: Sequence[NearMeasurement] = ()
    runs: Sequence[NearMeasurement] = ()
    seal: Seal | None = None
    panel: Callable[[], Any] | None = None


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


DASH = Cell("–")  # where there is nothing to show


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
    name: str = ""  # of its anchor, where the caption varies from plan to plan

    @property
    def anchor(self) -> str:
        """Where the page has it."""
        return anchor("table", self.name or self.caption)

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

    @property
    def anchor(self) -> str:
        """Where the page has it."""
        return anchor("fig", self.title)


@dataclass(frozen=True)
class ChartAndTable:
    """A section that is a chart, and the table of what it draws."""

    chart: Chart
    table: Table


def columns(kind: str, *titles: str) -> tuple[Column, ...]:
    """Columns of one kind."""
    return tuple(Column(title, kind) for title in titles)


def text_cells(*texts: str) -> tuple[Cell, ...]:
    """A cell for each text."""
    return tuple(Cell(text) for text in texts)


def number_cell(text: str, value: Number) -> Cell:
    """A cell that shows a number in words of its own, and is ordered by it."""
    return Cell(text, numbers.machine(value))


def whole_number(value: Number) -> Cell:
    """A cell that shows every digit of a count."""
    return number_cell(numbers.integer(value), value)


def total(compiled: Compiled, key: str) -> Total:
    """A total by its key; KeyError where the plan has none."""
    value = compiled.totals[key]
    return Total(key, numbers.amount_text(value, unit_of(key)), numbers.machine(value))


def total_cell(compiled: Compiled, key: str) -> Cell:
    """A cell that shows a total, or a dash where the plan has none."""
    if key not in compiled.totals:
        return DASH
    printed = total(compiled, key)
    return Cell(printed.text, printed.value, printed)


def amount(value: Number, unit: str) -> Cell:
    """A cell that shows a quantity."""
    return number_cell(numbers.amount_text(value, unit), value)


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


# --- numbers of figures and tables ---

KINDS = {"fig": "Figure", "table": "Table"}  # what an anchor begins with, and what it is called
MARK = re.compile(r'<span class="no">((?:fig|table)-[^<]+)</span>')
REFERENCE = re.compile(r'<a class="ref" href="#((?:fig|table)-[^"]+)"></a>')
UNFIT = re.compile(r"[^a-z0-9]+")


def anchor(kind: str, name: str) -> str:
    """The fragment of an address at which a figure (`fig`) or a table (`table`) of that name is found."""
    return f"{kind}-{UNFIT.sub('-', name.lower()).strip('-')}"


def number_captions(page: str) -> str:
    """The page with `Figure 3` in captions and in references; what is not on the page is not referred to."""
    names = caption_names(MARK.findall(page))
    page = MARK.sub(lambda match: f'<span class="no">{names[match[1]]}</span>', page)
    return REFERENCE.sub(
        lambda match: f'<a class="ref" href="#{match[1]}">{names[match[1]]}</a>' if match[1] in names else "", page
    )


def caption_names(anchors: list[str]) -> dict[str, str]:
    """What each anchor is called, in their order; figures and tables are counted apart."""
    counted: Counter[str] = Counter()
    names = {}
    for fragment in anchors:
        kind = KINDS[fragment.partition("-")[0]]
        counted[kind] += 1
        names[fragment] = f"{kind} {counted[kind]}"
    return names
