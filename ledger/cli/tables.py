"""Results on standard output: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ledger.numbers import said

if TYPE_CHECKING:
    from ledger.books.results import Number

Rows = Sequence[Sequence[str]]


def amount(value: Number, unit: str) -> str:
    """The value in its unit, with plain spaces, so that it can be searched for and cut in a terminal."""
    return said(value, unit)


def print_json(value: Any) -> None:
    """Prints strict JSON: an infinite or undefined number is our own mistake and raises ValueError."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def print_table(columns: Sequence[str], rows: Rows, right: Sequence[str] = ()) -> None:
    """Prints rows under their columns; the columns named in `right` are aligned to the right."""
    if sys.stdout.isatty():
        print_rich(columns, rows, right)
        return
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        cells = zip(columns, row, widths, strict=True)
        line = "  ".join(cell.rjust(width) if name in right else cell.ljust(width) for name, cell, width in cells)
        click.echo(line.rstrip())


def print_rich(columns: Sequence[str], rows: Rows, right: Sequence[str]) -> None:
    """The table for a terminal: in its width, in colour unless NO_COLOR is set."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)
