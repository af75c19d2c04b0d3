"""`ledger reproduce`: a report made again from what it carries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ledger.cli.options import json_option, rarely

if TYPE_CHECKING:
    from ledger.report.seals.reproduction import Reproduction, TotalChange
    from ledger.report.seals.seal import Compiler

DIFFERENT = 1
BEYOND = 10**9  # times a total, beyond which a change is not told as a share


@click.command(name="reproduce")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
@rarely()
@click.pass_context
def command(ctx: click.Context, file: Path, *, as_json: bool) -> None:
    """Compile the report FILE (HTML, PDF or JSON) again from what it carries, and say whether it says the same.

    Nothing but FILE is needed. Layouts that a search recommended are compiled again; it is not searched again whether
    others are better.

    Exit codes: 0 the same, 1 it differs, 2 no sealed report, or a damaged one.
    """
    from ledger.cli.report import typesets
    from ledger.cli.tables import print_json
    from ledger.report.seals.reproduction import published_reproduction, reproduce

    typesets(("html",))
    again = reproduce(file)
    if as_json:
        print_json(published_reproduction(again, str(file)))
    else:
        _print(again)
    if not again.same:
        ctx.exit(DIFFERENT)


def _print(again: Reproduction) -> None:
    from ledger.cli.tables import print_table
    from ledger.report.views.origin import revision_text

    click.echo(f"{again.seal.plan}, {revision_text(again.seal)}")
    for line in _lines(again):
        click.echo(line)
    for title, changed in (("", again.totals), ("With the installed library:", again.with_library)):
        if changed:
            click.echo(f"\n{title}" if title else "")
            print_table(["total", "report", "now", "relative"], list(_rows(changed)))


def _lines(again: Reproduction) -> Iterator[str]:
    from ledger.report.seals.reproduction import DIFFERS, SAME, UNCOMPARED, WORDS

    count = len(again.seal.totals)
    if again.same:
        page = {
            SAME: "and every word",
            WORDS: "and every word; how the pages look was not compared, since other bytes are set here",
        }.get(again.page, "the page was printed by another compiler: not compared")
        yield f"same: {count} totals, accounts, {page}"
    if again.totals:
        yield f"differs: {len(again.totals)} of {count} totals"
    if again.layouts:
        yield f"differs: recommended layouts ({', '.join(again.layouts)})"
    if not again.totals and again.books == DIFFERS:
        yield "differs: accounts or the verdict; no total does"
    if again.page == DIFFERS:
        yield f"differs: the {again.kind} does not say what is printed from its seal; no total does"
    if again.page == UNCOMPARED and not again.same:
        yield "the page was not compared"
    yield from _compilers(again.seal.compiler, again.installed)
    if again.files:
        yield f"library files that are others here: {', '.join(again.files)}"
    if again.refused:
        yield f"the installed library does not take the plan: {again.refused}"


def _compilers(sealed: Compiler, installed: Compiler) -> Iterator[str]:
    if sealed.program != installed.program:
        yield f"compiler: {_compiler(sealed)} made the report, {_compiler(installed)} is installed"


def _compiler(one: Compiler) -> str:
    from ledger.spec.version import short_digest

    return f"ledger {one.version} ({short_digest(one.program)})"


def _rows(changed: Iterable[TotalChange]) -> Iterator[list[str]]:
    from ledger import numbers
    from ledger.units import unit_of

    for one in changed:
        texts = ["–" if value is None else numbers.written(value, unit_of(one.key)) for value in (one.sealed, one.now)]
        relative = Fraction(one.now) / Fraction(one.sealed) - 1 if one.sealed and one.now is not None else None
        yield [one.key, *texts, "" if relative is None or abs(relative) > BEYOND else numbers.shift(relative)]
