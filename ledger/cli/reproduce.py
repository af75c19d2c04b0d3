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
    reproduction = reproduce(file)
    if as_json:
        print_json(published_reproduction(reproduction, str(file)))
    else:
        _print_reproduction(reproduction)
    if not reproduction.same:
        ctx.exit(DIFFERENT)


def _print_reproduction(reproduction: Reproduction) -> None:
    from ledger.cli.tables import print_table
    from ledger.report.views.origin import revision_text

    click.echo(f"{reproduction.seal.plan}, {revision_text(reproduction.seal)}")
    for line in _sentences(reproduction):
        click.echo(line)
    for title, changed in (("", reproduction.totals), ("With the installed library:", reproduction.with_library)):
        if changed:
            click.echo(f"\n{title}" if title else "")
            print_table(["total", "report", "now", "relative"], list(_change_rows(changed)))


def _sentences(reproduction: Reproduction) -> Iterator[str]:
    from ledger.report.seals.reproduction import DIFFERS, SAME, UNCOMPARED, WORDS

    count = len(reproduction.seal.totals)
    if reproduction.same:
        page = {
            SAME: "and every word",
            WORDS: "and every word; how the pages look was not compared, since other bytes are set here",
        }.get(reproduction.page, "the page was printed by another compiler: not compared")
        yield f"same: {count} totals, accounts, {page}"
    if reproduction.totals:
        yield f"differs: {len(reproduction.totals)} of {count} totals"
    if reproduction.layouts:
        yield f"differs: recommended layouts ({', '.join(reproduction.layouts)})"
    if not reproduction.totals and reproduction.books == DIFFERS:
        yield "differs: accounts or the verdict; no total does"
    if reproduction.page == DIFFERS:
        yield f"differs: the {reproduction.kind} does not say what is printed from its seal; no total does"
    if reproduction.page == UNCOMPARED and not reproduction.same:
        yield "the page was not compared"
    sealed, installed = reproduction.seal.compiler, reproduction.installed
    if sealed.program != installed.program:
        yield f"compiler: {_compiler_text(sealed)} made the report, {_compiler_text(installed)} is installed"
    if reproduction.files:
        yield f"library files that are others here: {', '.join(reproduction.files)}"
    if reproduction.refused:
        yield f"the installed library does not take the plan: {reproduction.refused}"


def _compiler_text(compiler: Compiler) -> str:
    from ledger.spec.version import short_digest

    return f"ledger {compiler.version} ({short_digest(compiler.program)})"


def _change_rows(changed: Iterable[TotalChange]) -> Iterator[list[str]]:
    from ledger import numbers
    from ledger.units import unit_of

    for change in changed:
        sealed, now = change.sealed, change.now
        texts = ["–" if value is None else numbers.amount_text(value, unit_of(change.key)) for value in (sealed, now)]
        relative = Fraction(now) / Fraction(sealed) - 1 if sealed and now is not None else None
        yield [change.key, *texts, "" if relative is None or abs(relative) > BEYOND else numbers.shift(relative)]
