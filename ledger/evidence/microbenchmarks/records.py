"""Records of measurements with their places, those of tables among them: what rows share is said once above them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ledger.spec.faults import shortened
from ledger.spec.problems import MOST_PROBLEMS, Location, Problem
from ledger.spec.reader import LONGEST_INTEGER, Node, lines

REGIMES = ("burst", "sustained")  # a few cold launches, or at the power limit as in a run
COLUMNS, ROWS = "columns", "rows"
TABLE_KEYS = (COLUMNS, ROWS, "whole")  # keys of a table that are no part of its records
Record = Mapping[str, Any]
# What a measurement adds to a record; everything else tells one case from another.
RESULTS = (
    *("value", "unit", "low", "high", "count", "regime", "timer"),
    *("graphics_clock", "power", "others", "measured", "error"),
)


@dataclass(frozen=True)
class PlacedRecord:
    """A record as plain values, with its place, and that of each key; numbers of a row have the place of the row.

    `columns`: of a row of a table, where its numbers are named, so that what no row has is told once.
    """

    fields: Record
    where: Location
    keys: Mapping[str, Location] = field(default_factory=dict)
    columns: Location | None = None

    def place(self, key: str) -> Location:
        """Where the key is written, or where it is to be written."""
        return self.keys.get(key, self.where if key in self.fields else self.columns or self.where)


def series_records(document: Node) -> tuple[list[PlacedRecord], list[Problem]]:
    """Every row under `series:` as a record of its own; and what is wrong with other rows."""
    series = document.fields.get("series")
    rows = [row for table in (series.items if series else ()) for row in _rows(table)]
    records = [row for row in rows if isinstance(row, PlacedRecord)]
    return records, [row for row in rows if isinstance(row, Problem)][:MOST_PROBLEMS]


def _rows(table: Node) -> Iterator[PlacedRecord | Problem]:
    """The rows of one table, or what is wrong with them."""
    columns = [str(item.value) for item in table.fields[COLUMNS].items]
    stated = {key: node.plain() for key, node in table.fields.items() if key not in TABLE_KEYS}
    shared = PlacedRecord(stated, table.where, {key: table.keys[key] for key in stated}, table.keys[COLUMNS])
    text = table.fields[ROWS]
    for offset, line in enumerate(lines(str(text.value)), 1):
        where = replace(text.where, line=text.where.line + offset, column=1)
        if words := line.split():
            yield _row(words, columns, shared, where)


def _row(words: Sequence[str], columns: Sequence[str], shared: PlacedRecord, where: Location) -> PlacedRecord | Problem:
    """One row with what its table shares."""
    if len(words) != len(columns):
        help_text = f"columns: {' '.join(columns)}"
        return Problem(where, f"{len(words)} values stand in a table of {len(columns)} columns", help_text)
    values = [_number(word) for word in words]
    wrong = [word for word, value in zip(words, values, strict=True) if value is None]
    if wrong:
        return Problem(
            where, f"`{shortened(wrong[0])}` is no number", "every value of a row is a number such as 512 or 43.6"
        )
    return replace(shared, fields={**shared.fields, **dict(zip(columns, values, strict=True))}, where=where)


def _number(word: str) -> float | None:
    """A whole number as such, another one as a float, None for what is neither."""
    if len(word) > LONGEST_INTEGER:
        return None
    if word.isdecimal() and word.isascii():
        return int(word)
    try:
        value = float(word)
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None


def identity(record: Record) -> str:
    """What two records of one case share: everything but the results."""
    return json.dumps({key: value for key, value in record.items() if key not in RESULTS}, sort_keys=True)
