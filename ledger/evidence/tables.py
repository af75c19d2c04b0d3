"""A table of comma-separated values, read with the place of every cell."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from ledger.spec.near import closest, nearest
from ledger.spec.problems import MOST_PROBLEMS, Location, Problem, SpecError
from ledger.spec.reader import BREAKS, CONTROLS
from ledger.spec.sources import read_bounded

LARGEST_TABLE = 64_000_000  # bytes of a table; the longest published collection has a fiftieth of it
# One cell and what ends it, as RFC 4180 has them: quoted (a quote inside is doubled), or free of quotes and breaks.
CELL = re.compile(r'(?:"([^"]*(?:""[^"]*)*)"|([^",\r\n]*))(,|\r\n|\n|\r|\Z)')
OTHERS: Mapping[str, str] = {";": "semicolons", "\t": "tabs"}
BREAK = re.compile(r"\r\n|\n|\r")
NAMES = ("id", "source_id", "model_name")  # columns whose cells name something
# Line breaks, and what a terminal or a reader would obey instead of seeing it.
UNPRINTED = re.compile(f"{CONTROLS.pattern}|{BREAKS.pattern}")


class TableCell(NamedTuple):
    """The text of one cell, without quotes and outer blanks, and where it begins, counted from 1.

    `is_plain`: whether it was one line of printable text. What was not is a blank in `text`.
    """

    text: str
    line: int
    column: int
    is_plain: bool = True


@dataclass(frozen=True)
class TableRow:
    """The cells of one row of a file by column; a column that the table lacks is an empty cell."""

    file: str
    cells: Mapping[str, TableCell]

    def text(self, column: str) -> str:
        """The text of a cell, in one line that can be printed; empty for what was not published."""
        cell = self.cells.get(column)
        return cell.text if cell else ""

    def place(self, column: str = "") -> Location:
        """The place of a cell, or of the row where it has none."""
        cell = self.cells.get(column) or next(iter(self.cells.values()))
        return Location(self.file, cell.line, cell.column)


def read_table(path: Path, needed: Sequence[str]) -> tuple[TableRow, ...]:
    """The rows of a table with a header; raises SpecError for what is no table or lacks a needed column.

    Two rows of one `id` are one run that would count twice.
    """
    file, text = str(path), _text(path)
    _require_commas(text, file)
    records = [record for record in _records(text, file) if any(cell.text for cell in record)]
    if not records:
        raise SpecError([Problem(Location(file), "the table is empty", "the first line names the columns")])
    header, *body = records
    names = [cell.text for cell in header]
    rows = tuple(TableRow(file, dict(zip(names, record, strict=False))) for record in body)
    faults = islice(chain(_header_faults(header, needed), _width_faults(body, len(names))), MOST_PROBLEMS)
    problems = [
        Problem(Location(file, cell.line, cell.column), message, help_text) for cell, message, help_text in faults
    ]
    problems += islice(_unprintable_names(rows), MOST_PROBLEMS)
    problems += islice(_repeated_ids(rows), MOST_PROBLEMS)
    if problems:
        raise SpecError(problems, {file: text})
    return rows


def _require_commas(text: str, file: str) -> None:
    """Raises SpecError where the first line is cut by something else than commas."""
    line = text.lstrip("\r\n").partition("\n")[0]
    for mark, name in OTHERS.items():
        if line.count(mark) > line.count(","):
            where = Location(file, text[: text.index(line)].count("\n") + 1, line.index(mark) + 1)
            raise SpecError([Problem(where, f"the columns are separated by {name}", "separate them by commas")])


def _text(path: Path) -> str:
    content = read_bounded(path, LARGEST_TABLE)
    if len(content) > LARGEST_TABLE:
        raise SpecError([Problem(Location(str(path)), f"larger than {LARGEST_TABLE} bytes", "split the table")])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        column = len(before) - (before.rfind(b"\n") + 1) + 1
        where = Location(str(path), before.count(b"\n") + 1, column)
        raise SpecError([Problem(where, "not UTF-8 text", "save the table as UTF-8")]) from error


def _records(text: str, file: str) -> Iterator[list[TableCell]]:
    """Records of cells; a quoted cell may hold line breaks, which count as lines."""
    record: list[TableCell] = []
    start, line, line_start = 0, 1, 0
    while start < len(text) or record:
        match = CELL.match(text, start)
        if match is None:
            where = Location(file, line, start - line_start + 1)
            raise SpecError([Problem(where, "a quote inside a cell, or one that is never closed", HELP)], {file: text})
        quoted, plain, end = match.groups()
        content = plain if quoted is None else quoted.replace('""', '"')
        record.append(_cell(content, line, start - line_start + 1))
        if end != "," or quoted is not None:
            for broken in BREAK.finditer(text, start, match.end()):
                line, line_start = line + 1, broken.end()
        start = match.end()
        if end != ",":
            yield record
            record = []


def _cell(content: str, line: int, column: int) -> TableCell:
    text = content.strip(" \t\r\n")
    if text.isprintable():  # the usual case, told in no time
        return TableCell(text, line, column)
    return TableCell(" ".join(UNPRINTED.sub(" ", text).split()), line, column, not UNPRINTED.search(text))


HELP = 'a cell with quotes is written in quotes, with each quote inside doubled: "a ""b"" c"'


Fault = tuple[TableCell, str, str]  # the cell, what is wrong, and what to type instead


def _header_faults(header: Sequence[TableCell], needed: Sequence[str]) -> Iterator[Fault]:
    names: dict[str, None] = {}
    for cell in header:
        if cell.text and cell.text in names:
            yield cell, f"two columns are named `{cell.text}`", "give each column its own name"
        names[cell.text] = None
    for name in needed:
        if name not in names:
            unused_names = [present for present in names if present not in needed]
            help_text = nearest(name, unused_names) if closest(name, unused_names) else "add it to the first line"
            yield header[0], f"the table has no column `{name}`", help_text


def _width_faults(records: Sequence[Sequence[TableCell]], width: int) -> Iterator[Fault]:
    for record in records:
        message = f"{len(record)} cells in a row of {width} columns"
        if len(record) > width:
            yield record[width], message, "a cell that holds a comma is written in quotes"
        elif len(record) < width:
            yield record[-1], message, "what was not published is an empty cell, and has its comma"


def _unprintable_names(rows: Sequence[TableRow]) -> Iterator[Problem]:
    for row in rows:
        for column in NAMES:
            if (cell := row.cells.get(column)) and not cell.is_plain:
                help_text = "a name is one line of plain text"
                yield Problem(row.place(column), f"a control character or a line break in `{column}`", help_text)


def _repeated_ids(rows: Sequence[TableRow]) -> Iterator[Problem]:
    first: dict[str, TableRow] = {}
    for row in rows:
        name = row.text("id")
        if name in first:
            help_text = f"the other one is in line {first[name].place().line}; give each run its own id, or remove one"
            yield Problem(row.place("id"), f"two rows have the id `{name}`", help_text)
        elif name:
            first[name] = row
