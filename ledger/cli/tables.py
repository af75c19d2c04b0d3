"""Results on standard output: tables for people, JSON for programs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ledger.numbers import said

if TYPE_CHECKING:
    from ledger.books.results import Number

Rows = Sequence[Sequence[str]]
GAP = 2  # between columns
PARTED = re.compile(r"([._])(?=\w)")  # where the head of a column may be broken


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
    """The table for a terminal: in its width, in colour unless NO_COLOR is set.

    Where it is too wide, heads break between their words.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    natural = sum(max(map(len, cells)) for cells in zip(columns, *rows, strict=True)) + GAP * (len(columns) - 1)
    for name in columns:
        head = name if natural <= console.width else PARTED.sub(r"\1\n", name).replace(" ", "\n")
        least = max(map(len, head.split()), default=0)
        justify = "right" if name in right else "left"
        table.add_column(Text(head), justify=justify, overflow="fold", min_width=least)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)
