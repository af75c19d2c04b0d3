"""A sweep on the terminal: a line of counts, the best layouts beside the plan, and the front."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ledger.cli.tables import amount, print_table
from ledger.numbers import THIN, change, integer, plain
from ledger.search.contract import totals
from ledger.search.headroom import kept_free, kept_free_words
from ledger.search.words import misses, short_changes
from ledger.units import unit_of

if TYPE_CHECKING:
    from ledger.search.found import Rows
    from ledger.search.sweep import Search, Swept

MISSING = "-"
CHANGES, AGAINST = "changes", "against the plan"


def summary(swept: Swept) -> str:
    """How many combinations there are, are legal, fit and meet the conditions, and how fast that was."""
    search, found = swept.search, swept.found
    free = kept_free(search.plan, search.asked.headroom)
    words = kept_free_words(search.plan, search.asked.headroom)
    room = f" with {amount(free, 'B')} free" + ("" if words[:1].isdigit() else f" ({words})") if free else ""
    counts = [
        f"{_count(search.combinations)} combinations",
        f"{_count(found.legal)} legal",
        f"{_count(found.fitting)} fit{room}",
    ]
    if search.question.conditions:
        counts.append(f"{_count(found.meeting)} meet the conditions")
    rate = plain(found.legal / swept.seconds).replace(THIN, " ") if swept.seconds else MISSING
    partial = "" if swept.complete else "interrupted, so only a part: "
    return f"{partial}{', '.join(counts)}; {swept.seconds:.1f} s, {rate} a second"


def _count(number: int) -> str:
    return integer(number).replace(THIN, " ")


def print_top(swept: Swept) -> None:
    """The best layouts, the plan above them."""
    print_rows(swept.search, swept.found.best, first=True)


def print_front(swept: Swept, *, whole: bool) -> None:
    """The front as a table, or how long it is."""
    keys = " and ".join(swept.search.question.front)
    count = len(swept.found.front)
    click.echo()
    click.echo(
        f"front of {keys}: {count} {'layout' if count == 1 else 'layouts'}" + ("" if whole else " (--json, --html)")
    )
    if whole:
        print_rows(swept.search, swept.found.front, first=False)


def print_rows(search: Search, rows: Rows, *, first: bool) -> None:
    """Layouts with what they change and their totals; the plan itself where it is to stand `first`."""
    keys = search.question.keys
    objective = search.question.objective
    own = {key: float(value) for key, value in search.own.items() if key in keys}
    lines = []
    if first:
        lines.append(("", "(the plan)", *_cells(own, keys), MISSING))
    for place in range(len(rows)):
        found = totals(search, rows, place)
        by = found[objective] / own[objective] - 1 if own.get(objective) and objective in found else None
        against = MISSING if by is None else change(by).replace(THIN, " ")
        lines.append((str(place + 1), short_changes(search, rows, place), *_cells(found, keys), against))
    heads = ("", CHANGES, *keys, AGAINST)
    print_table(heads, lines, right=("", *keys, AGAINST))


def _cells(found: dict[str, float] | dict[str, float | int], keys: tuple[str, ...]) -> list[str]:
    return [amount(found[key], unit_of(key)) if key in found else MISSING for key in keys]


def print_nearest(swept: Swept, *, err: bool) -> None:
    """The layout that misses what is asked by least, and by how much."""
    nearest = swept.found.nearest
    what = "meets the conditions" if swept.found.fitting else "fits"
    click.echo(f"no layout {what}", err=err)
    if len(nearest):
        click.echo(f"the nearest miss: {short_changes(swept.search, nearest, 0)}", err=err)
        for line in misses(swept.search, nearest):
            click.echo(f"  {line}", err=err)
