"""Results on standard output: tables for people, JSON for programs."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ledger.cli.plain_streams import unguarded
from ledger.numbers import with_unit

if TYPE_CHECKING:
    from ledger.books.compiled import Compiled
    from ledger.books.results import Number


Rows = Sequence[Sequence[str]]


def amount(value: Number, unit: str) -> str:
    """The value in its unit, with plain spaces, so that it can be searched for and cut in a terminal."""
    return with_unit(value, unit)


def print_json(value: Any) -> None:
    """Prints strict JSON: an infinite or undefined number is our own mistake and raises ValueError."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def note_vain_settings(compiled: Compiled) -> None:
    """Prints a note on standard error of each value that a plan states and that changes nothing of it."""
    from ledger.books.what_if.idle import said_in_vain

    for warning in said_in_vain(compiled):
        click.echo(f"{warning.where}: note: {warning.message}; {warning.help}", err=True)


def write_format(form: str, text: str) -> None:
    """Prints a text in a format of problems; `github` is commands to a runner, in which every value is escaped."""
    click.echo(text, nl=False, file=unguarded(sys.stdout) if form == "github" else None)


def print_table(columns: Sequence[str], rows: Rows, right: Sequence[str] = ()) -> None:
    """Prints rows under their columns; the columns named in `right` are aligned to the right.

    On a terminal they fit its width, and the head is bold where there are colours.
    """
    from ledger.report.fitted_columns import aligned

    ends = {column for column, name in enumerate(columns) if name in right}
    head, *lines = aligned((columns, *rows), ends, terminal_width())
    for line in head:
        click.echo(click.style(line, bold=True) if shows_colours() else line)
    for row in lines:
        for line in row:
            click.echo(line)


def terminal_width() -> int:
    """The columns of the terminal that standard output is; 0 where it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


# --- colours on a terminal; none in pipes, and none where NO_COLOR is set (https://no-color.org) ---

GOOD, CAREFUL, BAD = "green", "yellow", "red"


def coloured(text: str, colour: str) -> str:
    """The text in a colour where standard output shows colours, else as it is."""
    return click.style(text, fg=colour) if shows_colours() else text


def shows_colours() -> bool:
    """Whether standard output is a terminal whose user did not ask for none."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
